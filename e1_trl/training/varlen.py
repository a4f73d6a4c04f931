"""Attention of packed rows without another package, as `attn_implementation: varlen`.

In 16 bits on a GPU it runs PyTorch's own flash kernel, otherwise PyTorch's usual attention row by row.
"""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.flash_attention import get_target_dtype
from transformers.masking_utils import flash_attention_mask
from transformers.modeling_flash_attention_utils import prepare_fa_kwargs_from_position_ids

from e1_trl.training.arguments import VARLEN

OTHERS = ("softcap", "s_aux", "position_bias", "indices", "block_indices")  # arguments of some models' attention
WIDEST = 256  # dimensions of a head in the kernel


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attend causally within each row.

    Args:
        module: the layer; `query`, `key` and `value` are (rows, heads, tokens, width).
        attention_mask: (rows, tokens), 1 at real tokens, where rows are padded.
        sliding_window: tokens that each one sees, itself included.
        cu_seq_lens_q: ends of the rows that are packed into the first; the longest has `max_length_q` tokens.

    Returns:
        (rows, tokens, heads, width), and no weights of attention.
    """
    rows, _, tokens, _ = query.shape
    if more := _beyond(module, query, key, value, attention_mask, others):
        raise ValueError(f"attn_implementation {VARLEN} cannot compute attention with {more}; try eager")
    # Rotary positions, norms in fp32 and adapters return 32 bits, which the kernel does not take.
    dtype = get_target_dtype(query, module) or query.dtype
    query, key, value = (each.transpose(1, 2).flatten(0, 1).to(dtype) for each in (query, key, value))
    lengths = torch.full((rows,), tokens, device=query.device)
    positions = others.get("position_ids")
    if cu_seq_lens_q is None and attention_mask is None and positions is not None and rows == len(positions) == 1:
        # The model passes positions and no bounds: find them as Transformers' flash attention does.
        (cu_seq_lens_q, _), (max_length_q, _) = prepare_fa_kwargs_from_position_ids(positions)
    if attention_mask is not None:
        real = attention_mask.flatten().nonzero()[:, 0]
        lengths = attention_mask.sum(1)
        query, key, value = (each[real] for each in (query, key, value))
    if cu_seq_lens_q is None:
        cu_seq_lens_q = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
        max_length_q = tokens
    if query.is_cuda and dtype.itemsize == 2:
        from torch.nn.attention.varlen import varlen_attn  # of PyTorch 2.13, which vLLM pins

        window = (-1 if sliding_window is None else sliding_window - 1, 0)
        ends = (cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q)
        found = varlen_attn(query, key, value, *ends, scale=scaling, window_size=window, enable_gqa=True)
    else:
        found = _row_by_row(query, key, value, cu_seq_lens_q.diff().tolist(), scaling, sliding_window)
    if attention_mask is not None:
        found = found.new_zeros(rows * tokens, *found.shape[1:]).index_copy(0, real, found)
    return found.unflatten(0, (rows, tokens)), None


def _beyond(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    others: Mapping[str, Any],
) -> str:
    """Name what a model needs that the kernel would silently ignore, or return an empty text."""
    causal = others.get("is_causal")
    needs = {
        "a cache of keys": key.shape[2] != query.shape[2],
        "tokens that see later ones": not (getattr(module, "is_causal", True) if causal is None else causal),
        "a mask of its own": attention_mask is not None and attention_mask.ndim != 2,
        "values of another width": value.shape[-1] != query.shape[-1],
        f"heads wider than {WIDEST}": query.shape[-1] > WIDEST,
        "dropout": bool(others.get("dropout")),
        **{name: others.get(name) is not None for name in OTHERS},
    }
    return ", ".join(name for name, holds in needs.items() if holds)


def _row_by_row(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    lengths: list[int],
    scaling: float | None,
    sliding_window: int | None,
) -> torch.Tensor:
    """Attend as `varlen_attn` does, to tensors of (tokens of all rows, heads, width)."""
    found = []
    for row in zip(*(each.split(lengths) for each in (query, key, value)), strict=True):
        heads = [each.transpose(0, 1)[None] for each in row]
        seen = None
        if sliding_window is not None:
            square = torch.ones(len(row[0]), len(row[0]), dtype=torch.bool, device=query.device)
            seen = square.tril().triu(1 - sliding_window)
        how: dict[str, Any] = {"attn_mask": seen, "is_causal": seen is None, "scale": scaling, "enable_gqa": True}
        found.append(torch.nn.functional.scaled_dot_product_attention(*heads, **how)[0].transpose(0, 1))
    return torch.cat(found)


AttentionInterface.register(VARLEN, attend)
AttentionMaskInterface.register(VARLEN, flash_attention_mask)
