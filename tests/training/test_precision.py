"""Precision under DeepSpeed: sums of gradients, the beginning of fp32 master weights, and small steps."""

from pathlib import Path

import pytest
import torch
from conftest import in_group
from safetensors.torch import load_file
from transformers import Qwen2Config, Qwen2ForCausalLM, TrainerControl, TrainerState

from e1_trl.training.callbacks import MasterWeights

pytestmark = pytest.mark.distributed

ODD = 33  # a hidden size, so that norms do not divide into two parts
STEP = 1e-6

# A Trainer refuses bfloat16 without a GPU, so that DeepSpeed is told of it behind its back.
TRAINS = """
import sys, deepspeed, torch

initialize = deepspeed.initialize
def in_bfloat16(**given):
    given["config_params"] |= {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    return initialize(**given)
deepspeed.initialize = in_bfloat16
import os
from pathlib import Path
from accelerate.state import AcceleratorState
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.integrations.deepspeed import deepspeed_config
from e1_trl.training.callbacks import MasterWeights, ResumedFields

checkpoint, output, rate = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
rows = [{"input_ids": ids, "labels": ids} for ids in torch.arange(64).reshape(8, 8) % 32]

class Look(TrainerCallback):
    def __init__(self, folder):
        self.folder = folder

    def on_train_begin(self, args, state, control, model, **more):
        found = {name: deepspeed.utils.safe_get_full_fp32_param(each) for name, each in model.named_parameters()}
        if torch.distributed.get_rank() == 0:
            save_file(found, self.folder / f"masters-{state.global_step}.safetensors")

    on_step_end = on_train_begin

def train(folder, steps, resumed=None):
    folder.mkdir(parents=True, exist_ok=True)
    args = TrainingArguments(
        folder, max_steps=steps, save_steps=1, learning_rate=rate * steps, weight_decay=0.0, optim="adamw_torch",
        lr_scheduler_type="constant", per_device_train_batch_size=1, report_to="none", ddp_backend="gloo",
    )
    deepspeed_config()["bf16"] = {"enabled": True}  # which ZeRO-3 shares the weights out in
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="bfloat16")
    callbacks = [MasterWeights(checkpoint), ResumedFields(), Look(folder)]
    trainer = Trainer(model, args, train_dataset=rows, callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resumed)
    assert trainer.model_wrapped.zero_optimization_stage() == int(stage)
    trainer.save_model(folder)

for stage in sys.argv[4:]:
    os.environ["ACCELERATE_DEEPSPEED_ZERO_STAGE"] = stage
    AcceleratorState._reset_state()
    train(output / stage / "begun", 1)
    train(output / stage / "resumed", 2, output / stage / "begun" / "checkpoint-1")
"""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
    sizes = {"hidden_size": ODD, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 37}
    Qwen2ForCausalLM(Qwen2Config(**sizes, **heads, tie_word_embeddings=True)).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def run(script: str, stage: int, *arguments: object, folder: Path, processes: int = 2) -> str:
    """Run a script in CPU processes under DeepSpeed, and return its output."""
    variables = {
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": str(stage),
        "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "true",
    }
    return in_group(script, *arguments, folder=folder, processes=processes, **variables)


Weights = dict[str, torch.Tensor]


def arriving(before: Weights, after: Weights, moved: Weights) -> float:
    """The share of a movement of the masters that the weights make with them, over all matrices."""
    names = [name for name, each in moved.items() if each.ndim == 2]
    along = sum(((after[name].float() - before[name].float()) * moved[name]).sum() for name in names)
    return float(along / sum((moved[name] ** 2).sum() for name in names))


@pytest.mark.slow
def test_masters_begin_at_the_checkpoint_so_that_small_steps_are_saved(checkpoint: Path, tmp_path: Path) -> None:
    printed = run(TRAINS, 1, checkpoint, tmp_path, STEP, 1, 2, 3, folder=tmp_path)
    stored = load_file(checkpoint / "model.safetensors")
    for stage in ("1", "2", "3"):
        begun = tmp_path / stage / "begun"
        saved = load_file(begun / "model.safetensors")
        first, last = (load_file(begun / f"masters-{step}.safetensors") for step in (0, 1))
        assert first.keys() == stored.keys()
        assert all(torch.equal(first[name], stored[name]) for name in first)
        assert all(each.dtype == torch.bfloat16 for each in saved.values())
        assert all(torch.equal(saved[name], last[name].bfloat16()) for name in last)
        moved = {name: last[name] - first[name] for name in first}
        assert max(each.abs().max() for each in moved.values()) < 1.1 * STEP
        # Of masters that begin rounded, less than a tenth of so small a step arrives.
        assert 0.8 < arriving({name: each.bfloat16() for name, each in stored.items()}, saved, moved) < 1.2
        # A training that resumes goes on from its own, at its recipe's rate, which is twice the first one's.
        resumed, second = (load_file(tmp_path / stage / "resumed" / f"masters-{step}.safetensors") for step in (1, 2))
        assert all(torch.equal(last[name], resumed[name]) for name in last)
        assert max((second[name] - last[name]).abs().max() for name in last) > 1.5 * STEP
    assert "begin rounded" not in printed


ACCUMULATES = """
import os, sys, deepspeed, torch
from e1_trl.training.config import E1Config

steps = 16
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compiled for a minute, to sum in inference alone
deepspeed.init_distributed("gloo")
os.environ["ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL"] = "false"  # as `accelerate config` proposes
for stage in sys.argv[2:]:
    os.environ["ACCELERATE_DEEPSPEED_ZERO_STAGE"] = stage
    args = E1Config(sys.argv[1], report_to="none", bf16=False)
    settings = args.deepspeed_plugin.deepspeed_config
    settings |= {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": steps,
        "train_batch_size": steps,
        "gradient_clipping": 0.0,
        "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True,
    }
    weights = torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.zeros_(weights.weight)
    engine, *_ = deepspeed.initialize(
        model=weights, optimizer=torch.optim.SGD(weights.parameters(), lr=1.0), config=settings
    )
    for step in range(steps):
        engine.backward(engine(torch.full((1, 2), 2.0**-9 if step else 1.0, dtype=torch.bfloat16)).sum())
        engine.step()
    moved = deepspeed.utils.safe_get_full_fp32_param(next(engine.module.parameters()))
    assert stage != "3" or engine.zero_gather_16bit_weights_on_model_save()  # else no model would be saved
    print("MOVED", engine.zero_optimization_stage(), moved.flatten().tolist(), engine.communication_data_type)
"""


def test_gradients_of_many_micro_batches_add_up_in_fp32_under_zero(tmp_path: Path) -> None:
    text = run(ACCUMULATES, 1, tmp_path, 1, 2, 3, folder=tmp_path, processes=1)
    # A mean of 1 and of 15 gradients that bfloat16 loses beside it.
    expected = [-(1 + 15 * 2**-9) / 16] * 4
    printed = [line[line.index("MOVED") :] for line in text.splitlines() if "MOVED" in line]
    assert printed == [f"MOVED {stage} {expected} torch.float32" for stage in (1, 2, 3)]


def test_masters_of_a_folder_that_is_gone_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 8}
    model = Qwen2ForCausalLM(Qwen2Config(**sizes, num_attention_heads=2, num_key_value_heads=1))
    state = TrainerState(is_world_process_zero=True)
    MasterWeights(str(tmp_path / "gone")).on_train_begin(None, state, TrainerControl(), model.bfloat16())  # type: ignore[arg-type]
    assert f"begin rounded to bfloat16: the safetensors of {tmp_path / 'gone'} hold no such" in caplog.text
