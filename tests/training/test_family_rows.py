"""Log-probabilities of today's families of models: padded, trimmed and packed rows have those of each row alone."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_scoring import LOGPROBS, WithoutEngine, padded_rows, score
from transformers import PreTrainedModel

from e1_trl.training.arguments import VARLEN
from e1_trl.training.scoring import Layout, layout_of, scored
from experiments.families.models import FAMILIES, make_model

STATEFUL = {"Qwen3-Next", "Qwen3.5", "Qwen3.5, images", "Nemotron-H", "Nemotron-H, experts", "LFM2", "Falcon-H1"}
STATEFUL |= {"Granite 4", "Granite 4, experts"}
NOT_PACKED = {"gpt-oss": "s_aux", "Gemma 4": "heads wider than 256", "Gemma 4, images": "heads wider than 256"}

LIGHT = {"Qwen3", "Qwen3.5", "gpt-oss"}  # the others at night


def tried(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in LIGHT else pytest.mark.slow) for name in names]


def scores(model: PreTrainedModel, folder: Path, layout: Layout) -> torch.Tensor:
    return score(WithoutEngine(model, folder), layout)


def alone(model: PreTrainedModel) -> torch.Tensor:
    return scored(model, model.base_model, *padded_rows(), 1, packed=False)[0]


@pytest.mark.parametrize("name", tried(FAMILIES))
@torch.no_grad()
def test_trimmed_rows_have_the_log_probabilities_of_padded_ones(name: str, tmp_path: Path) -> None:
    model = make_model(name)
    assert layout_of(model, padding_free=True, aux_loss=False)[0] is Layout.TRIMMED
    trimmed = scores(model, tmp_path, Layout.TRIMMED)
    for other in (scores(model, tmp_path, Layout.PADDED), alone(model)):
        torch.testing.assert_close(trimmed, other, atol=LOGPROBS, rtol=0)
    assert trimmed.abs().max() > 1000 * LOGPROBS


@pytest.mark.parametrize("name", tried(name for name in FAMILIES if name not in STATEFUL))
@torch.no_grad()
def test_packed_rows_of_families_without_states_have_them_too(name: str, tmp_path: Path) -> None:
    model = make_model(name)
    model.config.get_text_config()._attn_implementation = VARLEN
    assert layout_of(model, padding_free=True, aux_loss=False)[0] is Layout.PACKED
    if name in NOT_PACKED:
        with pytest.raises(ValueError, match=f"varlen cannot compute attention with .*{NOT_PACKED[name]}"):
            scores(model, tmp_path, Layout.PACKED)
    else:
        torch.testing.assert_close(scores(model, tmp_path, Layout.PACKED), alone(model), atol=LOGPROBS, rtol=0)


@pytest.mark.parametrize("name", tried(sorted(STATEFUL)))
@torch.no_grad()
def test_states_would_pass_from_row_to_row_so_that_families_with_them_are_not_packed(name: str, tmp_path: Path) -> None:
    model = make_model(name)
    model.config.get_text_config()._attn_implementation = VARLEN
    layout, why = layout_of(model, padding_free=True, aux_loss=False)
    assert layout is Layout.TRIMMED and why.startswith("if packed, states of the ")
    packed = scores(model, tmp_path, Layout.PACKED)
    assert (packed - alone(model)).abs().max() > 100 * LOGPROBS


@pytest.mark.parametrize("name", tried(["Qwen3.5", "Nemotron-H", "Gemma 3, images"]))
def test_gradients_of_trimmed_rows_are_those_of_padded_ones(name: str, tmp_path: Path) -> None:
    found: dict[Layout, dict[str, Any]] = {}
    for layout in (Layout.PADDED, Layout.TRIMMED):
        model = make_model(name).train()
        (scores(model, tmp_path, layout).sum() / 100).backward()
        found[layout] = {each: weight.grad for each, weight in model.named_parameters() if weight.grad is not None}
    padded, trimmed = found.values()
    assert padded.keys() == trimmed.keys()
    for each, gradient in padded.items():
        torch.testing.assert_close(
            trimmed[each], gradient, atol=1e-3, rtol=1e-3, msg=lambda text, each=each: each + text
        )
