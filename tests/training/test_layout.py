"""Models that are padded, trimmed or packed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from e1_trl.training.scoring import Layout, layout_of


def made(model: Callable[[Any], PreTrainedModel], config: Any) -> PreTrainedModel:
    with torch.device("meta"):
        return model(config)


CHUNKED = Qwen2Config(num_hidden_layers=1, layer_types=["chunked_attention"])


@pytest.mark.parametrize(
    ("model", "config", "said"),
    [
        (GPT2LMHeadModel, GPT2Config(), "the model's positions are not rotary"),
        (Qwen2ForCausalLM, CHUNKED, "the model has layers of chunked_attention"),
    ],
)
def test_models_whose_layers_or_positions_are_not_known_to_be_causal_are_padded(
    model: Any, config: Any, said: str
) -> None:
    assert layout_of(made(model, config), padding_free=True, aux_loss=False) == (Layout.PADDED, said)


@pytest.mark.parametrize("rope_type", ["default", "yarn", "dynamic", "longrope"])
@pytest.mark.parametrize("nested", [False, True])
def test_positions_that_depend_on_the_longest_row_are_padded(rope_type: str, nested: bool) -> None:
    model = made(Qwen2ForCausalLM, Qwen2Config(num_hidden_layers=2))
    rotary = {"rope_type": rope_type, "rope_theta": 1e4, "factor": 4.0}
    model.config.rope_parameters = {"full_attention": rotary} if nested else rotary
    expected = Layout.PADDED if rope_type in ("dynamic", "longrope") else Layout.TRIMMED
    assert layout_of(model, padding_free=True, aux_loss=False)[0] is expected


def test_the_layout_follows_from_the_attention_and_the_switch() -> None:
    model = made(Qwen2ForCausalLM, Qwen2Config(num_hidden_layers=2))
    assert layout_of(model, padding_free=True, aux_loss=False)[0] is Layout.TRIMMED
    assert layout_of(model, True, aux_loss=True) == (Layout.PADDED, "the load-balancing loss needs whole batches")
    assert layout_of(model, padding_free=False, aux_loss=False) == (Layout.PADDED, "padding_free is false")
    for flash in ("flash_attention_2", "flash_attention_3", "kernels-community/flash-attn2", "varlen"):
        model.config._attn_implementation = flash
        assert layout_of(model, padding_free=True, aux_loss=False)[0] is Layout.PACKED
