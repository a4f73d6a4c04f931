"""Log-probabilities of rollouts without padding: the layout of rows for the model, and the forward pass.

TRL pads prompts on the left and completions on the right, to the longest of a process. Here each row begins at its
first real token, so a causal model needs no mask. Knows nothing about budgets, losses or engines.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.utils.generic import is_flash_attention_requested

from e1_trl.errors import UserError
from e1_trl.training import varlen  # noqa: F401  registers its attention
from e1_trl.training.arguments import VARLEN

PARTS_ON_CPU = 4  # passes into which a single CPU process cuts a micro-batch, sorted by length
STATES = {"linear_attention", "conv", "hybrid"}  # passed from token to token, so padding behind a row has no effect
CAUSAL = {"full_attention", "sliding_attention", "attention", "moe", "mlp", *STATES}
LONGEST_DECIDES = {"dynamic", "longrope"}  # rotary frequencies depend on the longest row, so all are padded to it


class Layout(StrEnum):
    """Layout of rows in a model's input."""

    PADDED = "padded"  # as in TRL
    TRIMMED = "trimmed"  # from each row's first real token, as wide as the longest row of the pass
    PACKED = "packed"  # all rows joined into one, in which attention keeps them apart


def layout_of(model: PreTrainedModel, padding_free: bool, aux_loss: bool) -> tuple[Layout, str]:
    """Return the layout that a model's attention supports, and the reason; refuse attention that would be wrong."""
    text = model.config.get_text_config()
    drops = bool(getattr(text, "attention_dropout", 0))
    if text._attn_implementation == VARLEN and (drops or not model._supports_flash_attn):
        part = "attention dropout" if drops else "the attention"
        raise UserError(f"attn_implementation {VARLEN} cannot compute {part} of {type(model).__name__}; set it to sdpa")
    if text._attn_implementation == "sdpa" and getattr(text, "attn_logit_softcapping", None):  # Transformers drops it
        raise UserError(f"sdpa leaves out the soft cap of {type(model).__name__}; set attn_implementation to eager")
    layers = getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None) or ()
    others = sorted(set(layers) - CAUSAL)
    states = sorted(set(layers) & STATES)
    rotary = getattr(text, "rope_parameters", None) or {}  # or one mapping for each type of layers
    ropes = {each.get("rope_type") for each in (rotary, *rotary.values()) if isinstance(each, dict)}
    reasons = {
        "padding_free is false": not padding_free,
        "the load-balancing loss needs whole batches": aux_loss,
        f"the model has layers of {', '.join(others)}": bool(others),
        "the model's positions are not rotary": not (rotary or states),  # states know the order without any
        "the model's positions depend on the longest row of a pass": bool(ropes & LONGEST_DECIDES),
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), None):
        return Layout.PADDED, reason
    if states:  # not all of their kernels take the bounds of packed rows, and those that do are optional packages
        return Layout.TRIMMED, f"if packed, states of the {', '.join(states)} layers would pass from row to row"
    if text._attn_implementation == VARLEN or is_flash_attention_requested(text):
        takes = inspect.signature(model.base_model.forward).parameters.values()
        if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in takes):
            return Layout.TRIMMED, "the model does not pass the bounds of packed rows to its attention"
        return Layout.PACKED, "flash attention gets the bounds of rows"
    return Layout.TRIMMED, "without flash attention, packed rows would need a mask"


@contextmanager
def _outputs_only_at(backbone: torch.nn.Module, chosen: torch.Tensor) -> Iterator[None]:
    """Pass only the hidden states of these positions to the output head, as one row."""

    def choose(_module: torch.nn.Module, _inputs: Any, outputs: Any) -> Any:
        outputs.last_hidden_state = outputs.last_hidden_state[chosen][None]
        return outputs

    handle = backbone.register_forward_hook(choose)
    try:
        yield
    finally:
        handle.remove()


def scored(
    model: torch.nn.Module,
    backbone: torch.nn.Module,
    ids: torch.Tensor,
    mask: torch.Tensor,
    kept: int,
    batch_size: int,
    packed: bool,
    parts: int = 1,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute the log-probability of each completion token, and the entropy of its distribution, in nats.

    Both are (rows, kept), 0 at padding; no entropy if the model's head computes none. The number of passes depends on
    the number of rows alone, since under ZeRO-3 it must be equal in all processes.

    Args:
        model: with TRL's fused output head, in the wrapper in which it is trained (DeepSpeed's, for example).
        backbone: the part of the model that ends in hidden states.
        ids: (rows, tokens), prompts padded on the left and completions on the right.
        mask: (rows, tokens), 1 at real tokens.
        kept: completion tokens, the last ones of each row.
        batch_size: rows that fit into memory at a time.
        packed: whether the rows of a pass are joined into one sequence, in which attention keeps them apart.
        parts: passes into which `batch_size` rows are cut, sorted by length. Only a process that trains alone takes
            more than one: autograd delivers a weight's gradient after the last pass, so each of several processes
            would hold all gradients, unsharded. ZeRO-3 would also gather the weights again for each pass.
    """
    from e1_trl.trl_internals import through_head  # imported late: it imports vLLM

    prompts = mask[:, :-kept].sum(1, keepdim=True)
    lengths = mask.sum(1, keepdim=True)
    begins = mask.shape[1] - kept - prompts
    order = lengths[:, 0].argsort(stable=True)
    found: list[list[torch.Tensor]] = []
    for part in order.split(-(-batch_size // parts)):
        places = torch.arange(int(lengths[part].max()), device=ids.device)
        tokens = ids[part].gather(1, (begins[part] + places).clamp(max=ids.shape[1] - 1))
        real = places < lengths[part]
        wanted = real & (places >= prompts[part])
        before = wanted.roll(-1, dims=1)  # the position before a token has its distribution
        inputs: dict[str, Any] = {"input_ids": tokens}
        if packed:
            before = before[real][None]
            inputs = {"input_ids": tokens[real][None], "position_ids": places.expand_as(tokens)[real][None]}
            # Flash attention could find the bounds of rows in positions, which some models do not pass.
            ends = torch.nn.functional.pad(lengths[part, 0].cumsum(0), (1, 0)).int()
            inputs |= {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends}
            inputs |= {"max_length_q": len(places), "max_length_k": len(places)}
        with _outputs_only_at(backbone, before):
            values = through_head(model, inputs, tokens[wanted][None])
        completion = mask[part, -kept:].bool()
        # Scattering keeps the result in the autograd graph even if no row of the pass has a completion token.
        found.append([each.new_zeros(completion.shape).masked_scatter(completion, each) for each in values])
    back = order.argsort()
    logps, *entropies = (torch.cat(each)[back] for each in zip(*found, strict=True))
    return logps, entropies[0] if entropies else None
