"""Packed rows that see each other, by the arguments that a model passes to its attention."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import in_group
from test_scoring import LOGPROBS, WithoutEngine, padded_rows, score
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForCausalLM,
    Ministral3Config,
    PersimmonConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2Model,
    TrainerControl,
    TrainerState,
)
from transformers.masking_utils import flash_attention_mask

from e1_trl.training.arguments import GROSS, VARLEN
from e1_trl.training.callbacks import StartChecks, packing_gap
from e1_trl.training.scoring import Layout, layout_of, scored

DEAF = "flash_that_does_not_tell_rows_apart"
SIZES = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
LARGE = {"initializer_range": 0.2}  # for attention to attend somewhere
ROPE = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0, "original_max_position_embeddings": 8}
MINISTRAL = Ministral3Config(**SIZES, **HEADS, **LARGE, rope_parameters={**ROPE, "llama_4_scaling_beta": 0.1})
PERSIMMON = PersimmonConfig(**SIZES, num_attention_heads=4, **LARGE)
QWEN = Qwen2Config(**SIZES, **HEADS, **LARGE)
DROPPING = Qwen2Config(**SIZES, **HEADS, **LARGE, attention_dropout=0.5)


def deaf(module: Any, query: Any, key: Any, value: Any, mask: None, **given: Any) -> tuple[torch.Tensor, None]:
    """Attend over all of a packed row, as where neither bounds nor positions arrive."""
    options = {"is_causal": True, "scale": given["scaling"], "enable_gqa": True}
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(query, key, value, **options).transpose(1, 2).contiguous(), None


AttentionInterface.register(DEAF, deaf)
AttentionMaskInterface.register(DEAF, flash_attention_mask)


def model_of(config: Any, attention: str) -> PreTrainedModel:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(deepcopy(config))
    model.config._attn_implementation = attention  # Transformers would look for a kernel of this name
    return model


@pytest.mark.parametrize("config", [MINISTRAL, PERSIMMON, QWEN], ids=["ministral3", "persimmon", "qwen2"])
def test_packed_rows_have_the_log_probabilities_of_each_row_alone(config: Any, tmp_path: Path) -> None:
    model = model_of(config, VARLEN)
    assert layout_of(model, padding_free=True, aux_loss=False)[0] is Layout.PACKED
    trainer = WithoutEngine(model, tmp_path)
    trainer.model.eval()
    alone, _ = scored(trainer.model, trainer.model.base_model, *padded_rows(), 1, packed=False)
    torch.testing.assert_close(score(trainer, Layout.PACKED), alone, atol=LOGPROBS, rtol=0)
    assert packing_gap(trainer) < LOGPROBS


@pytest.mark.parametrize(
    ("config", "attention", "layout", "why"),
    [
        (QWEN, VARLEN, Layout.PACKED, "flash attention gets the bounds of rows"),
        (DROPPING, DEAF, Layout.TRIMMED, "packed, rows see each other in this model's attention ("),
    ],
)
def test_rows_that_would_see_each_other_are_trimmed_and_a_line_says_so(
    config: Any, attention: str, layout: Layout, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = WithoutEngine(model_of(config, attention), tmp_path)
    trainer.layout, reason = layout_of(trainer.model, padding_free=True, aux_loss=False)
    trainer.validation = dict
    trainer.model.train()
    StartChecks(trainer, reason).on_train_begin(None, TrainerState(is_world_process_zero=True), TrainerControl())
    assert trainer.layout is layout and trainer.model.training
    assert capsys.readouterr().out.startswith(f"log-probabilities are computed {layout}: {why}")


def test_a_model_that_takes_no_bounds_is_trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(QWEN, VARLEN)
    monkeypatch.setattr(Qwen2Model, "forward", lambda self, input_ids=None, position_ids=None: None)
    said = "the model does not pass the bounds of packed rows to its attention"
    assert layout_of(model, padding_free=True, aux_loss=False) == (Layout.TRIMMED, said)


UNDER_ZERO = """
import sys, deepspeed, torch
from types import SimpleNamespace
from accelerate import Accelerator
from transformers.integrations import HfDeepSpeedConfig
from trl.trainer.utils import add_fused_lm_head
from e1_trl.training.arguments import VARLEN
from test_packing import DEAF, QWEN, model_of
from e1_trl.training.callbacks import packing_gap
from e1_trl.training.scoring import Layout, scored

deepspeed.init_distributed("gloo")
accelerator = Accelerator(cpu=True)
settings = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True}
settings["zero_optimization"] = {"stage": 3, "stage3_param_persistence_threshold": 0}
known = HfDeepSpeedConfig(settings)  # by which TRL's head sees that its weights are shared out
for attention in (VARLEN, DEAF):
    model = model_of(QWEN, attention)
    add_fused_lm_head(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    trainer = SimpleNamespace(model=model, layout=Layout.PACKED, accelerator=accelerator)
    trainer.score = lambda model, ids, mask, kept: scored(
        model, model.base_model, ids, mask, kept, len(ids), trainer.layout is Layout.PACKED
    )
    print("GAP", packing_gap(trainer))
"""


@pytest.mark.distributed
@pytest.mark.slow
def test_processes_that_share_the_weights_out_come_to_the_same_gap(tmp_path: Path) -> None:
    printed = in_group(UNDER_ZERO, folder=tmp_path)
    gaps = sorted(float(line.split()[1]) for line in printed.splitlines() if line.startswith("GAP"))
    assert len(gaps) == 4 and gaps[0] == gaps[1] < LOGPROBS < GROSS < gaps[2] == gaps[3]


SHARDED = """
import torch
from types import SimpleNamespace
from accelerate import Accelerator
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from trl.trainer.utils import add_fused_lm_head
from e1_trl.training.arguments import VARLEN
from test_packing import QWEN, model_of
from e1_trl.training.callbacks import packing_gap
from e1_trl.training.scoring import Layout, scored

accelerator = Accelerator(cpu=True)
model = model_of(QWEN, VARLEN)
add_fused_lm_head(model)
for layer in model.model.layers:
    fully_shard(layer)
fully_shard([model.model.norm, model.lm_head], reshard_after_forward=False)  # as Accelerate does
fully_shard(model)
trainer = SimpleNamespace(model=model, layout=Layout.PACKED, accelerator=accelerator)
trainer.score = lambda model, ids, mask, kept: scored(
    model, model.base_model, ids, mask, kept, len(ids), trainer.layout is Layout.PACKED
)
print("GAP", packing_gap(trainer))
print("WHOLE", sum(not isinstance(each, DTensor) for each in model.parameters()))
"""


@pytest.mark.distributed
@pytest.mark.slow
def test_after_the_gap_is_measured_fsdp_has_its_shards_of_all_weights(tmp_path: Path) -> None:
    words = [line.split() for line in in_group(SHARDED, folder=tmp_path).splitlines()]
    gaps = [float(value) for name, value in (each for each in words if len(each) == 2) if name == "GAP"]
    assert len(gaps) == 2 and max(gaps) < LOGPROBS
    assert [each for each in words if each[:1] == ["WHOLE"]] == [["WHOLE", "0"]] * 2
