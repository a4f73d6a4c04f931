"""Attention of packed rows by the flash kernel that PyTorch brings along, as `attn_implementation: varlen`."""

from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.flash_attention import get_target_dtype
from transformers.masking_utils import flash_attention_mask

NAME = "varlen"


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
    """Attend causally within each row, in 16 bits on a CUDA GPU.

    Args:
        module: the layer; `query`, `key` and `value` are (rows, heads, tokens, width).
        attention_mask: (rows, tokens), 1 at real tokens, where rows are padded.
        cu_seq_lens_q: where each row ends, where all stand packed in the first; then `max_length_q` is the longest.

    Returns:
        (rows, tokens, heads, width), and no weights of attention.

    Raises:
        ValueError: the model asks for attention that the kernel does not have.
    """
    if more := ", ".join(name for name in ("softcap", "s_aux", "dropout") if others.get(name)):
        raise ValueError(f"attn_implementation {NAME} cannot compute this model's attention, which has {more}")
    rows, _, tokens, _ = query.shape
    # Rotary positions, norms in fp32 and adapters leave 32 bits, which the kernel does not take.
    dtype = get_target_dtype(query, module) or query.dtype
    query, key, value = (each.transpose(1, 2).flatten(0, 1).to(dtype) for each in (query, key, value))
    real = None
    if attention_mask is not None:
        real, lengths = attention_mask.flatten().nonzero()[:, 0], attention_mask.sum(1)
    else:
        lengths = torch.full((rows,), tokens, device=query.device)
    if cu_seq_lens_q is None:
        cu_seq_lens_q = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
        max_length_q = tokens
    given = (query, key, value) if real is None else (each[real] for each in (query, key, value))
    window = (-1 if sliding_window is None else sliding_window - 1, 0)
    ends = (cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q)
    found = varlen_attn(*given, *ends, scale=scaling, window_size=window, enable_gqa=True)
    if real is not None:
        found = torch.zeros_like(query).index_copy(0, real, found)
    return found.unflatten(0, (rows, tokens)), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, flash_attention_mask)
