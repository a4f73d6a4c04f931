"""Log-probabilities of rollouts that cost what their tokens cost: how rows are laid out for the model, and the pass.

TRL pads prompts on the left and completions on the right, to the longest of a process. Here each row begins at its
first real token, so that a causal model needs no mask. Knows nothing about budgets, losses or engines.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib.util import find_spec
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.utils import is_kernels_available
from transformers.utils.generic import is_flash_attention_requested

from e1_trl.errors import UserError
from e1_trl.training import varlen  # noqa: F401  registers its attention
from e1_trl.training.arguments import VARLEN

PARTS_ON_CPU = 4  # by length, that a micro-batch is cut into where one process trains on a CPU
ATTENTIONS = {"full_attention", "sliding_attention", "attention"}  # layers that keep nothing from one token to the next
LONGEST_DECIDES = {"dynamic", "longrope"}  # rotary frequencies, of all rows: a row's pass must be as wide each time


class Layout(StrEnum):
    """How rows stand in what the model is given."""

    PADDED = "padded"  # as TRL has them
    TRIMMED = "trimmed"  # each from its first real token to the longest one's last
    PACKED = "packed"  # all rows in one, which attention tells apart


def layout_of(model: PreTrainedModel, padding_free: bool, aux_loss: bool) -> tuple[Layout, str]:
    """Return the layout that a model's attention supports, and why it is this one.

    Raises:
        UserError: the attention is ours, and cannot compute what the model needs.
    """
    text = model.config.get_text_config()
    drops = bool(getattr(text, "attention_dropout", 0))
    if text._attn_implementation == VARLEN and (drops or not model._supports_flash_attn):
        lacks = "dropout" if drops else "attention of this kind"
        raise UserError(f"attn_implementation {VARLEN} has no {lacks}, for {type(model).__name__}; set it to sdpa")
    layers = getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None) or ()
    others = sorted(set(layers) - ATTENTIONS)
    rotary = getattr(text, "rope_parameters", None) or {}  # or some for each type of layers
    ropes = {each.get("rope_type") for each in (rotary, *rotary.values()) if isinstance(each, dict)}
    reasons = {
        "padding_free is false": not padding_free,
        "the model reads more than text": text is not model.config,
        "the load-balancing loss is one of whole batches": aux_loss,
        f"the model has layers of {', '.join(others)}": bool(others),
        "the model's positions are not rotary": not rotary,
        "the model's positions depend on the longest row of a pass": bool(ropes & LONGEST_DECIDES),
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), None):
        return Layout.PADDED, reason
    if text._attn_implementation == VARLEN or is_flash_attention_requested(text):
        takes = inspect.signature(model.base_model.forward).parameters.values()
        if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in takes):
            return Layout.TRIMMED, "the model does not hand the bounds of packed rows to its attention"
        return Layout.PACKED, "flash attention is told where rows end"
    return Layout.TRIMMED, "without flash attention, packed rows would need a mask"


def check_attention(name: str | None) -> None:
    """Refuse an `attn_implementation` that this machine does not have.

    Raises:
        UserError: says what to install, or what there is.
    """
    if name is None:
        return
    known = ["eager", *(each for each in AttentionInterface().valid_keys() if "|" not in each)]
    if "/" not in name and name not in known:
        raise UserError(
            f"attn_implementation is {name!r}; it must be one of {', '.join(known)}, or a kernel on the "
            "Hub, as kernels-community/flash-attn2"
        )
    of_the_hub = "/" in name or ("flash" in name and not find_spec("flash_attn"))
    if of_the_hub and not is_kernels_available():
        raise UserError(f"attn_implementation is {name!r}, whose package is not installed; {VARLEN} needs none")


@contextmanager
def _outputs_only_at(backbone: torch.nn.Module, chosen: torch.Tensor) -> Iterator[None]:
    """Hand the hidden states of these positions on to the output head, as one row, and no others."""

    def choose(_module: torch.nn.Module, _inputs: Any, outputs: Any) -> Any:
        outputs.last_hidden_state = outputs.last_hidden_state[chosen][None]
        return outputs

    handle = backbone.register_forward_hook(choose)
    try:
        yield
    finally:
        handle.remove()


def _bounds(lengths: torch.Tensor, longest: int) -> dict[str, Any]:
    """Where each of the packed rows ends, in the words of flash attention, which not every model hands positions."""
    ends = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    return {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": longest, "max_length_k": longest}


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
    """The log-probability of each token of the completions, and the entropy where it was drawn, in nats.

    As many passes for as many rows, whatever their lengths are: under ZeRO-3 processes need equal numbers.

    Args:
        model: with TRL's fused head, wrapped as it is trained.
        backbone: the part of it that ends in hidden states.
        ids: (rows, tokens), prompts padded on the left and completions on the right.
        mask: alike, 1 at real tokens.
        kept: tokens of the completions, the last ones of each row.
        batch_size: rows that memory allows for at a time.
        packed: whether attention tells the sequences of a row apart.
        parts: that so many rows are cut into by length, a pass each. More than one are for a process that trains alone:
            autograd delivers a weight's gradient when it has been through all passes, so that until then each process
            would hold all gradients, unshared; and ZeRO-3 would gather the weights for each pass, without prefetching.

    Returns:
        Both (rows, kept), 0 at padding; no entropy if the model's head computes none.
    """
    prompts, lengths = mask[:, :-kept].sum(1, keepdim=True), mask.sum(1, keepdim=True)
    begins = mask.shape[1] - kept - prompts
    order = lengths[:, 0].argsort(stable=True)
    found: list[list[torch.Tensor]] = []
    for part in order.split(-(-batch_size // parts)):
        places = torch.arange(int(lengths[part].max()), device=ids.device)
        tokens = ids[part].gather(1, (begins[part] + places).clamp(max=ids.shape[1] - 1))
        real = places < lengths[part]
        asked = real & (places >= prompts[part])
        before = asked.roll(-1, dims=1)  # the position before a token has its distribution
        inputs: dict[str, Any] = {"input_ids": tokens}
        if packed:
            before = before[real][None]
            inputs = {"input_ids": tokens[real][None], "position_ids": places.expand_as(tokens)[real][None]}
            inputs |= _bounds(lengths[part, 0], len(places))
        with _outputs_only_at(backbone, before):
            outputs = model(**inputs, shift_labels=tokens[asked][None], fused_lm_head=True)
        completion = mask[part, -kept:].bool()
        values = [each for each in (outputs.log_probs, outputs.entropy) if each is not None]
        # Scattered, the values stay connected to the model even where there are none.
        found.append([each.new_zeros(completion.shape).masked_scatter(completion, each) for each in values])
    back = order.argsort()
    logps, *entropies = (torch.cat(each)[back] for each in zip(*found, strict=True))
    return logps, entropies[0] if entropies else None
