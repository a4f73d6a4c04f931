"""Attention without padding by PyTorch alone, against SDPA with a mask."""

from functools import partial
from typing import Any

import pytest
import torch
from test_scoring import LOGPROBS, model_of, padded_rows
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Llama4TextConfig,
    MistralConfig,
    Qwen2Config,
)

from e1_trl.errors import UserError
from e1_trl.training.arguments import VARLEN
from e1_trl.training.scoring import layout_of
from e1_trl.training.varlen import attend

MAKERS = [model_of, partial(model_of, kind=MistralConfig, sliding_window=3)]  # tokens of the second see few others


@pytest.mark.parametrize("make", MAKERS)
def test_padded_rows_get_the_logits_that_sdpa_gives_them(make: Any) -> None:
    ids, mask, _ = padded_rows()
    ours = make(VARLEN)
    theirs = make("sdpa")
    with torch.no_grad():
        found, expected = (model(ids, attention_mask=mask).logits[mask.bool()] for model in (ours, theirs))
        blind = theirs(ids).logits[mask.bool()]
    torch.testing.assert_close(found, expected, atol=LOGPROBS, rtol=0)
    assert (blind - expected).abs().max() > 0.1  # the mask matters


@pytest.mark.parametrize("make", MAKERS)
def test_packed_rows_get_the_logits_of_each_row_alone(make: Any) -> None:
    rows = [torch.arange(3, 15), torch.arange(3, 10), torch.arange(20, 21)]
    ends = torch.tensor([0, 12, 19, 20], dtype=torch.int)
    bounds = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": 12, "max_length_k": 12}
    positions = torch.cat([torch.arange(len(row)) for row in rows])[None]
    ours = make(VARLEN)
    theirs = make("sdpa")
    found = ours(torch.cat(rows)[None], position_ids=positions, **bounds).logits[0]
    expected = torch.cat([theirs(row[None]).logits[0] for row in rows])
    torch.testing.assert_close(found, expected, atol=LOGPROBS, rtol=0)
    gradients = [
        torch.autograd.grad(each.square().sum(), list(model.parameters()))
        for each, model in ((found, ours), (expected, theirs))
    ]
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "asked",
    [
        {"softcap": 30.0},
        {"s_aux": torch.zeros(4)},
        {"position_bias": torch.zeros(5)},
        {"dropout": 0.1},
        {"is_causal": False},
        {"attention_mask": torch.ones(1, 1, 5, 5)},
        {"key": torch.zeros(1, 4, 6, 8)},
        {"value": torch.zeros(1, 4, 5, 4)},
        {name: torch.zeros(1, 4, 5, 264) for name in ("query", "key", "value")},
    ],
)
def test_attention_that_the_kernel_lacks_is_refused(asked: dict[str, Any]) -> None:
    query = torch.zeros(1, 4, 5, 8)
    layer = model_of(VARLEN).model.layers[0].self_attn
    given: dict[str, Any] = {"query": query, "key": query, "value": query, "attention_mask": None}
    assert attend(layer, **given, dropout=0.0, softcap=None, is_causal=None)[0].shape == (1, 5, 4, 8)
    with pytest.raises(ValueError, match=f"{VARLEN} cannot compute attention with "):
        attend(layer, **{**given, **asked})


@pytest.mark.parametrize(
    ("config", "lacks"),
    [(Llama4TextConfig(), "the attention"), (Qwen2Config(attention_dropout=0.1), "attention dropout")],
)
def test_a_model_whose_attention_it_is_not_is_refused(config: Any, lacks: str) -> None:
    config._attn_implementation = VARLEN
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(UserError, match=f"{VARLEN} cannot compute {lacks} of {type(model).__name__}; set it to sdpa"):
        layout_of(model, padding_free=True, aux_loss=False)


def test_sdpa_is_refused_where_it_would_leave_out_a_soft_cap() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": 32, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(Gemma2Config(**sizes, **heads, attn_logit_softcapping=0.01))
    for value in model.parameters():
        value.data *= 10  # attention that is not even
    found = {}
    for name in ("eager", "sdpa"):
        model.set_attn_implementation(name)
        found[name] = model(torch.arange(8)[None]).logits
    # Once Transformers computes it, the refusal can go.
    assert (found["eager"] - found["sdpa"]).abs().max() > 0.01
    with pytest.raises(UserError, match="the soft cap of Gemma2ForCausalLM; set attn_implementation to eager"):
        layout_of(model, padding_free=True, aux_loss=False)
    model.set_attn_implementation("eager")
    layout_of(model, padding_free=True, aux_loss=False)


def test_rows_are_told_apart_by_their_positions_where_a_model_hands_on_no_bounds() -> None:
    layer = model_of(VARLEN).model.layers[0].self_attn
    query = torch.randn(1, 4, 9, 8, generator=torch.Generator().manual_seed(0))
    positions = torch.cat([torch.arange(4), torch.arange(5)])[None]
    packed = attend(layer, query, query, query, None, position_ids=positions)[0]
    alone = [attend(layer, *[query[:, :, part]] * 3, None)[0] for part in (slice(4), slice(4, 9))]
    torch.testing.assert_close(packed, torch.cat(alone, dim=1))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: PyTorch's flash kernel")
@pytest.mark.parametrize("window", [None, 7])
def test_the_kernel_computes_what_is_computed_row_by_row(window: int | None) -> None:
    ends = torch.tensor([0, 12, 40, 41], dtype=torch.int)
    query, key, value = (torch.randn(1, heads, 41, 64) for heads in (4, 2, 2))
    how: dict[str, Any] = {"cu_seq_lens_q": ends, "max_length_q": 28, "sliding_window": window}
    layer = model_of(VARLEN).model.layers[0].self_attn
    expected = attend(layer, query, key, value, None, **how)[0]
    how["cu_seq_lens_q"] = ends.cuda()
    found = attend(layer.bfloat16(), *(each.cuda() for each in (query, key, value)), None, **how)[0]
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found.float().cpu(), expected, atol=0.02, rtol=0.02)
