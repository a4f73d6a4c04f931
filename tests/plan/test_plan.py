"""The plan of a recipe: counts against built models, bytes against hand calculation, and what it says does not fit."""

import json
import os
import re
import subprocess
import sys
import weakref
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import datasets
import huggingface_hub
import pytest
import torch
import yaml
from accelerate import DeepSpeedPlugin
from conftest import BASE, ROOT
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Qwen2Config
from trl import ModelConfig
from vllm.v1.kv_cache_interface import FullAttentionSpec

from e1_trl.errors import run_command
from e1_trl.plan import cost
from e1_trl.plan.__main__ import main
from e1_trl.plan.architecture import KNOWN, Architecture
from e1_trl.plan.memory import Memory, activations, memory, saved
from e1_trl.plan.setup import DEFAULTS, Setup
from e1_trl.plan.verdict import verdict
from e1_trl.problems.prompts import tokenize
from e1_trl.recipes import fields_of
from e1_trl.training.arguments import TrlFields
from e1_trl.training.config import E1Config, E1ScriptArguments
from tests.reduced.case import ALTERNATIVES
from tests.reduced.stand_ins import configuration

CARD = int(79.2 * 2**30)


def recipe(name: str, **overrides: Any) -> dict[str, Any]:
    return {**yaml.safe_load((ROOT / "recipes" / f"{name}.yaml").read_text()), **overrides}


def accelerate(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / "accelerate_configs" / f"{name}.yaml").read_text())


def planned(name: str, config: str, card: int = CARD, **overrides: Any) -> Memory:
    """The memory of a recipe with some fields overridden, under an Accelerate configuration."""
    return memory(Setup.of(recipe(name, **overrides), accelerate(config)), card)


TINY = {
    "hidden_size": 256,
    "intermediate_size": 1472,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}
SIZES = {"1.5B": 1.78, "7B": 7.62, "14B": 14.77}  # billions of parameters


@pytest.mark.parametrize("model", KNOWN)
def test_the_dimensions_of_the_recipes_models_give_what_is_built_of_them(model: str) -> None:
    known, fields = KNOWN[model], recipe("E1-Math-1.5B-24GB")
    config = configuration(known)
    assert round(known.parameters / 1e9, 2) == next(SIZES[size] for size in SIZES if f"-{size}" in model)
    with torch.device("meta"):
        whole = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        assert sum(parameter.numel() for parameter in whole.parameters()) == known.parameters
        targets = {"target_modules": fields["lora_target_modules"], "task_type": "CAUSAL_LM"}
        adapted = get_peft_model(whole, LoraConfig(r=fields["lora_r"], **targets))
    trained = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    assert sum(parameter.numel() for parameter in trained) == known.adapter(fields["lora_r"])
    assert {parameter.dtype for parameter in trained} == {torch.float32}
    layer = FullAttentionSpec(block_size=16, num_kv_heads=known.kv_heads, head_size=known.head, dtype=torch.bfloat16)
    assert known.layers * layer.page_size_bytes == 16 * known.kv_bytes


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", [Qwen2Config, LlamaConfig])
def test_the_dimensions_of_a_folder_are_read(kind: Any, tied: bool, tmp_path: Path) -> None:
    config = kind(**TINY, num_hidden_layers=2, tie_word_embeddings=tied)
    config.save_pretrained(tmp_path)
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(config)
    assert Architecture.of(str(tmp_path)).parameters == sum(parameter.numel() for parameter in built.parameters())


def test_a_model_of_another_make_is_refused(tmp_path: Path) -> None:
    for more in ({"head_dim": 32}, {"mlp_bias": True}, {"attention_bias": True}):
        LlamaConfig(**TINY, **more).save_pretrained(tmp_path)
        with pytest.raises(ValueError, match=f"{next(iter(more))} .* cannot be planned for"):
            Architecture.of(str(tmp_path))


# Training state in GB, calculated by hand: bytes per parameter and GPU, over 8 GPUs.
STATES = [
    ("E1-Math-1.5B", "zero2", {}, 1.777e9 * (2 + 2 + 4 / 8 + 12 / 8)),
    ("E1-Math-1.5B", "zero3", {}, 1.777e9 * (2 + 2 + 4 + 12) / 8),
    ("E1-Math-1.5B", "ddp", {"dtype": "float32"}, 1.777e9 * (4 + 4 + 4 + 4 + 8)),  # the buckets hold gradients, too
    ("E1-Math-1.5B", "zero2", {"dtype": "float32"}, 1.777e9 * (2 + 2 + 4 / 8 + 12 / 8)),
    ("E1-Math-1.5B-1GPU", "one_gpu", {}, 1.777e9 * (4 + 4 + 4 + 8)),
    ("E1-Math-1.5B-24GB", "one_gpu", {}, 1.777e9 * 4 + 36.93e6 * (4 + 4 + 8)),
    ("E1-Math-1.5B-24GB", "zero2", {"dtype": "bfloat16"}, 1.777e9 * 2 + 36.93e6 * (2 + 4 / 8 + 12 / 8)),
    ("E1-Math-7B", "zero3", {}, 7.616e9 * (2 + 2 + 4 + 12) / 8),
    ("E1-Math-7B", "zero3", {"beta": 0}, 7.616e9 * (2 + 4 + 12) / 8),
    ("E1-Code-14B", "zero3", {}, 14.770e9 * (2 + 4 + 12) / 8),
    ("E1-AceReason-14B", "zero3_offload", {}, 14.770e9 * (2 + 4) / 8),
]


@pytest.mark.parametrize(("name", "config", "overrides", "expected"), STATES)
def test_the_training_state_is_bytes_per_parameter(
    name: str, config: str, overrides: dict[str, Any], expected: float
) -> None:
    assert planned(name, config, **overrides).state == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("file", sorted((ROOT / "recipes").glob("E1-*.yaml")), ids=lambda file: file.stem)
def test_every_recipe_fits_the_cards_that_it_is_made_for(file: Path) -> None:
    name = file.stem
    budgets = 3072 + 1024 if "3K" in name else 2048
    setup = Setup.of(recipe(name), accelerate(recipe(name)["accelerate_config"]))
    prompt = 2048 if "14B" in name else 1024
    assert (setup.steps, setup.context) == (2, prompt + budgets + 1)
    assert setup.rollouts == (256 if "24GB" in name else 1024)
    taken = memory(setup, int(23.9 * 2**30) if "24GB" in name else CARD)
    assert not taken.problems and not taken.breaks_the_rule
    assert max(taken.training, taken.generation) < taken.card


VARIANTS = [file for file in sorted((ROOT / "recipes").glob("E1-*.yaml")) if "E1-Math-1.5B has it" in file.read_text()]
# What a variant's header says, and what follows from a line above it.
OWN = {"accelerate_config", "output_dir", "gradient_accumulation_steps", "metric_for_best_model"}


@pytest.mark.parametrize("file", VARIANTS, ids=lambda file: file.stem)
def test_what_a_variant_of_a_recipe_leaves_without_a_comment_is_as_in_the_recipe(file: Path) -> None:
    ours, base = recipe(file.stem), recipe("E1-Math-1.5B")
    bare = {
        line.partition(":")[0] for line in file.read_text().splitlines() if line[:1].isalpha() and "  # " not in line
    }
    assert len(bare) > 30
    assert {name for name in bare if ours[name] != base.get(name)} <= OWN


CONTEXT = 256  # tokens: a prompt of 127, 64 + 1 + 64


class Live(TorchDispatchMode):
    """Counts the bytes that are allocated and not freed yet, but for what there was before; `peak` is the most."""

    def __init__(self, there: Iterable[torch.Tensor]):
        super().__init__()
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in there}
        self.now = self.peak = 0

    def _freed(self, storage: int) -> None:
        self.now -= self._sizes.pop(storage)

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = operation(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and (storage := tensor.untyped_storage())._cdata not in self._sizes:
                self._sizes[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                weakref.finalize(storage, self._freed, storage._cdata)
        self.peak = max(self.peak, self.now)
        return made


class Tiny:
    """A real Qwen2 on this CPU, in fp32 under autocast or in bf16, whole or with an adapter; and its plan."""

    def __init__(self, folder: Path, layers: int, dtype: str, checkpointing: bool = False, adapter: bool = False):
        self.config = Qwen2Config(num_hidden_layers=layers, **TINY)
        self.config.save_pretrained(folder)
        self.folder, self.dtype = folder, dtype
        self.fields = {"gradient_checkpointing": checkpointing, "use_peft": adapter}
        model = AutoModelForCausalLM.from_config(self.config, dtype=getattr(torch, dtype))
        if adapter:
            model = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"))
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
            model.enable_input_require_grads()
        self.model = model.train()
        self.body = (model.get_base_model() if adapter else model).model

    def forward(self, batch: int) -> torch.Tensor:
        ids = torch.arange(batch * CONTEXT).remainder(64).view(batch, CONTEXT)
        padded = torch.ones_like(ids)
        padded[0, :5] = 0
        with torch.autocast("cpu", torch.bfloat16, enabled=self.dtype == "float32" or self.fields["use_peft"]):
            return self.body(input_ids=ids, attention_mask=padded, use_cache=False).last_hidden_state

    def saved(self, batch: int) -> int:
        """Bytes that the forward pass keeps for the backward pass, parameters left out."""
        weights = {parameter.untyped_storage().data_ptr() for parameter in self.model.parameters()}
        kept: dict[int, torch.UntypedStorage] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                kept[storage.data_ptr()] = storage
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            self.forward(batch)
        return sum(storage.nbytes() for storage in kept.values())

    def peak(self, batch: int) -> int:
        """Bytes at the peak of the backward pass, without weights and their gradients."""
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        for parameter in trained:
            parameter.grad = torch.zeros_like(parameter)
        with Live([*self.model.parameters(), *(parameter.grad for parameter in trained)]) as live:
            hidden = self.forward(batch)
            live.peak = 0
            hidden.backward(torch.ones_like(hidden))
        return live.peak

    def setup(self, batch: int) -> Setup:
        fields = {"model_name_or_path": str(self.folder), "dtype": self.dtype, "per_device_train_batch_size": batch}
        tokens = {"max_prompt_length": 127, "thinking_budget": 64, "solution_budget": 64}
        return Setup.of({**fields, **tokens, **self.fields, "lora_target_modules": "all-linear"}, {})


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_what_a_layer_keeps_for_its_backward_pass_is_what_a_real_one_does(dtype: str, tmp_path: Path) -> None:
    one, two = (Tiny(tmp_path / str(layers), layers, dtype) for layers in (1, 2))
    # Of two sequences: the third less the first, so that copies of weights do not count.
    measured = [model.saved(3) - model.saved(1) for model in (one, two)]
    assert saved(one.setup(2)) == pytest.approx(measured[1] - measured[0], rel=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.parametrize(("dtype", "adapter"), [("bfloat16", False), ("float32", False), ("bfloat16", True)])
def test_the_activations_of_a_micro_batch_are_at_least_those_of_a_real_backward_pass(
    dtype: str, adapter: bool, checkpointing: bool, tmp_path: Path
) -> None:
    model = Tiny(tmp_path, 3, dtype, checkpointing, adapter)
    measured = model.peak(5) - model.peak(3)
    assert measured <= activations(model.setup(5)) - activations(model.setup(3)) <= 1.15 * measured


def test_an_adapter_needs_no_reference_and_no_gradient_of_the_output_head() -> None:
    adapted = planned("E1-Math-1.5B-24GB", "one_gpu")
    whole = planned("E1-Math-1.5B-24GB", "one_gpu", use_peft=False)
    setup, model = adapted.setup, adapted.setup.architecture
    cast = 4 * setup.batch * setup.context * model.mlp  # what enters an adapter, in fp32
    assert adapted.reference == 0 < whole.reference
    assert whole.activations - 4 * model.output_head == adapted.activations - cast


def test_a_server_takes_nothing_of_the_gpus_that_train() -> None:
    taken = planned("E1-Math-1.5B-server", "zero2_4gpus")
    assert taken.generation == taken.state + 5e9 < taken.training and not taken.problems  # CUDA, NCCL, buckets
    (problem,) = planned("E1-Math-1.5B-server", "zero2_4gpus", card=20 * 2**30).problems
    assert problem.startswith("training takes")


@pytest.mark.parametrize("name", ["E1-Code-14B", "E1-AceReason-14B"])
def test_the_offload_variant_that_the_14b_recipes_name_fits_with_a_larger_engine(name: str) -> None:
    (line,) = [
        line for line in (ROOT / "recipes" / f"{name}.yaml").read_text().splitlines() if "zero3_offload --" in line
    ]
    share = float(line.split("--vllm_gpu_memory_utilization ")[1])
    offloaded = planned(name, "zero3_offload", vllm_gpu_memory_utilization=share)
    assert not offloaded.problems and offloaded.host == pytest.approx(177e9, rel=0.01) and offloaded.optimizer == 0
    assert planned(name, "zero3", vllm_gpu_memory_utilization=share).problems


DDP = {"dtype": "float32", "vllm_gpu_memory_utilization": 0.6}


@pytest.mark.parametrize(
    ("config", "overrides", "gib"),
    [
        *(("zero2", {"vllm_gpu_memory_utilization": 0.95}, gib) for gib in (40, 46, 72, 75, 79.2, 80, 94)),
        ("ddp", DDP, 79.2),
    ],
)
def test_the_advised_share_fits(config: str, overrides: dict[str, Any], gib: float) -> None:
    overrides = {**overrides, "vllm_enable_sleep_mode": True}
    problem, *_ = planned("E1-Math-1.5B", config, int(gib * 2**30), **overrides).problems
    advised = float(problem.partition("vllm_gpu_memory_utilization to ")[2][:4])
    for share, fits in ((advised, True), (advised + 0.02, False)):
        overrides["vllm_gpu_memory_utilization"] = share
        assert (not planned("E1-Math-1.5B", config, int(gib * 2**30), **overrides).problems) is fits


def test_no_share_is_advised_where_the_training_state_leaves_none() -> None:
    (first, *others) = planned("E1-Math-1.5B", "ddp", card=20 * 2**30, dtype="float32").problems
    assert "the training state of 43 GB leaves too little for vLLM; share out more" in first
    assert not any("vllm_gpu_memory_utilization" in each for each in (first, *others))


def test_what_does_not_fit_is_told_apart() -> None:
    (problem,) = planned("E1-Math-1.5B", "ddp", dtype="float32").problems
    assert "vllm_enable_sleep_mode: true" in problem
    assert not planned("E1-Math-1.5B", "ddp", **ALTERNATIVES["E1-Math-1.5B"]["ddp"]).problems
    huge = planned("E1-Math-7B", "zero3", per_device_train_batch_size=64)
    assert "training takes" in huge.problems[0] and "per_device_train_batch_size" in huge.problems[0]
    awake = planned("E1-Math-7B", "zero3", vllm_enable_sleep_mode=False)
    assert awake.training > planned("E1-Math-7B", "zero3").training
    small = planned("E1-Math-7B", "zero3", vllm_gpu_memory_utilization=0.2)
    assert "no room for a cache" in small.problems[0]


def started(name: str, stage: int, **overrides: Any) -> tuple[Any, ModelConfig]:
    """What a process of eight is told of a recipe, under DeepSpeed if `stage` is not 0."""
    given = {**DEFAULTS, **recipe(name, **overrides)}
    plugin = DeepSpeedPlugin(zero_stage=stage) if stage else None
    args = SimpleNamespace(
        **{key: given[key] for key in DEFAULTS}, deepspeed_plugin=plugin, world_size=8, model_init_kwargs=None
    )
    return args, ModelConfig(model_name_or_path=given["model_name_or_path"], dtype=given["dtype"])


def test_a_training_says_at_its_start_what_the_plan_says() -> None:
    for name in ("E1-Math-7B", "E1-Code-14B"):
        taken = planned(name, "zero3")
        assert verdict(*started(name, 3), CARD, skip=False) == (
            f"memory, calculated: {taken.generation / 1e9:.0f} GB at generation and {taken.training / 1e9:.0f} GB at "
            "training, of 85 GB a GPU"
        )


def test_a_training_that_breaks_the_rule_is_refused_unless_it_is_told_to_skip_that() -> None:
    args, model = started("E1-Math-1.5B", 0, dtype="float32", vllm_gpu_memory_utilization=0.6)
    with pytest.raises(ValueError, match=r"vLLM's share \(51 GB\) exceed it; .*; or skip_memory_check: true") as error:
        verdict(args, model, CARD, skip=False)
    assert "\n" not in str(error.value)
    assert "lower vllm_gpu_memory_utilization" in verdict(args, model, CARD, skip=True)
    # Slow for want of cache, not impossible.
    args, model = started("E1-Code-14B", 3, vllm_gpu_memory_utilization=0.4)
    assert "holds less than 1/4 of the sequences" in verdict(args, model, CARD, skip=False)


def test_what_cannot_be_planned_is_said_and_does_not_stop_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    args, model = started("E1-Math-1.5B", 2)
    model.model_name_or_path = "somebody/else"
    assert verdict(args, model, CARD, skip=False).startswith("memory: not planned (the dimensions of somebody/else")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert "FSDP cannot be planned for" in verdict(*started("E1-Code-14B", 0), CARD, skip=False)
    monkeypatch.delenv("ACCELERATE_USE_FSDP")
    assert "adamw_8bit cannot" in verdict(*started("E1-Code-14B", 0, optim="adamw_8bit"), CARD, skip=False)
    args, model = started("E1-Code-14B", 3)
    args.deepspeed_plugin.offload_param_device = "cpu"
    assert "offload_param_device cpu cannot" in verdict(args, model, CARD, skip=False)


def test_the_defaults_that_it_assumes_are_those_of_the_trainer() -> None:
    args, model = E1Config("runs/nothing", bf16=False, use_cpu=True), ModelConfig()
    script = E1ScriptArguments()
    types: dict[str, Any] = {}
    for kind in (ModelConfig, E1ScriptArguments, E1Config):
        types |= get_type_hints(kind)
    for field, value in DEFAULTS.items():
        if field not in ("dtype", "generation_batch_size", "steps_per_generation"):
            (found,) = [getattr(each, field) for each in (args, model, script) if hasattr(each, field)]
            assert found == value, field
    plain = get_type_hints(TrlFields)
    for field in plain.keys() - {"dtype", "optim"}:  # of a library's own types
        assert types[field] in (plain[field], plain[field] | None), field


ALLOCATES = """
import json, sys
import deepspeed, torch
from transformers import AutoModelForCausalLM, Qwen2Config
deepspeed.init_distributed("gloo")
model = AutoModelForCausalLM.from_config(Qwen2Config(**json.loads(sys.argv[1])))
settings = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "data_types": {"grad_accum_dtype": "fp32"},
    "communication_data_type": "fp32",
    "zero_optimization": {"stage": 3},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}
engine, *_ = deepspeed.initialize(model=model, config=settings)
ids = torch.arange(16)[None]
engine.backward(engine(input_ids=ids, labels=ids).loss)
engine.step()
zero = engine.optimizer
moments = [[state[name] for state in zero.optimizer.state.values()] for name in ("exp_avg", "exp_avg_sq")]
if torch.distributed.get_rank() == 0:
    print("BYTES", json.dumps({
        "weights": sum(p.ds_tensor.nbytes for p in engine.module.parameters()),
        "gradients": zero.grad_partitions_flat_buffer.nbytes,
        "optimizer": sum(tensor.nbytes for held in (zero.fp32_partitioned_groups_flat, *moments) for tensor in held),
    }))
"""


@pytest.mark.distributed
@pytest.mark.slow
def test_deepspeed_allocates_the_training_state_that_is_planned(tmp_path: Path) -> None:
    dimensions = {**TINY, "num_hidden_layers": 3, "vocab_size": 5000, "tie_word_embeddings": False}
    (tmp_path / "allocates.py").write_text(ALLOCATES)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*launch, str(tmp_path / "allocates.py"), json.dumps(dimensions)],
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
    )
    (printed,) = [line for line in done.stdout.splitlines() if "BYTES" in line] or [done.stderr[-3000:]]
    allocated = json.loads(printed.partition("BYTES ")[2])
    Qwen2Config(**dimensions).save_pretrained(tmp_path / "model")
    fields = {"model_name_or_path": str(tmp_path / "model"), "dtype": "bfloat16"}
    zero3 = {"distributed_type": "DEEPSPEED", "num_processes": 2, "deepspeed_config": {"zero_stage": 3}}
    taken = memory(Setup.of(fields, zero3), CARD)
    for name, bytes_ in allocated.items():
        assert bytes_ == pytest.approx(getattr(taken, name), rel=0.01), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["E1-Math-3B"], "is neither a file nor one of our recipes"),
        (["E1-Math-1.5B", "--accelerate_config", "zero4"], "is neither a file nor one of our accelerate_configs"),
        (["E1-Math-1.5B", "--thinking_budget", "null"], "thinking_budget is null"),
        (["E1-Math-1.5B", "--use_peft", "true"], "lora_target_modules None cannot be planned for, only all-linear"),
        (["E1-Math-1.5B", "--model_name_or_path", "some/model"], "the dimensions of some/model are not known here"),
        (["E1-Math-1.5B", "--beta"], "by pairs"),
        (["E1-Math-1.5B", "--per_device_trian_batch_size", "64"], "did you mean per_device_train_batch_size"),
        (["E1-Math-1.5B", "--thinking_budget", "many"], "thinking_budget is 'many'"),
        (["E1-Math-1.5B", "--num_generations", "0"], "num_generations is 0; it must be a whole number, 2 or more"),
        (["E1-Math-1.5B", "--num_generations", "null"], "num_generations is None; it must be"),
        (["E1-Math-1.5B", "--price", "-1"], "--price is '-1'; it must be a number, 0 or more"),
        (["E1-Math-1.5B", "--price", "nan"], "--price is 'nan'; it must be a number, 0 or more"),
        (["nano"], "cpu trains on CPUs, and GPUs are planned for"),
    ],
)
def test_what_cannot_be_planned_is_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message) as error:
        run_command("e1 plan", lambda: main(arguments))
    assert str(error.value).startswith("e1 plan: ") and "\n" not in str(error.value)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that `e1 plan` has told to stay so before these were imported."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_a_generation_takes_what_decoding_scoring_and_learning_take() -> None:
    taken = planned("E1-Math-1.5B", "zero2")
    # 128 of 1,024 rollouts a GPU are of 16 prompts: of two lengths, the longest is the longer one but in 2^-16.
    mean, positions = cost.widths(taken, [200, 100])
    padded, packed = positions["padded"], positions["packed"]
    assert (mean, packed) == (150, pytest.approx(150 + 0.7 * 2049))
    assert padded == pytest.approx(200 - 100 / 2**16 + 2049)
    # Of 16 lengths that are spread evenly over 1 to 3 the longest is 2 + 15 / 17 on average.
    assert positions["trimmed"] == pytest.approx(packed + (padded - packed) * 15 / 17)
    mean, positions = cost.widths(taken, [])
    assert (mean, positions["padded"], positions["packed"]) == (1024, 3073, pytest.approx(1024 + 0.7 * 2049))
    # By hand: steps of the engine that read weights and half of each sequence's cache; old, reference, twice forward
    # and a backward pass of two, of the parameters that multiply and of causal attention.
    decoding = 2049 * (0.002 + (2 * 1.777e9 + 128 * 1584.3 / 2 * 28_672) / 2e12)
    forward = 2 * (1.777e9 - 151_936 * 1536) * 1584.3 + 2 * 28 * 1536 * 1584.3**2
    expected = decoding + 128 * 6 * forward / 4e14 + 3
    assert cost.seconds(taken, packed, packed) == pytest.approx(expected, rel=1e-3)
    alone = planned("E1-Math-1.5B", "zero2", beta=0, gradient_checkpointing=False)
    assert expected - cost.seconds(alone, packed, packed) == pytest.approx(128 * 2 * forward / 4e14, rel=1e-2)
    # A cache for half of the sequences has them sampled in two waves, which read as much of the cache as one.
    halved = replace(taken, cache_needed=2 * taken.engine_cache)
    slower = cost.seconds(halved, packed, packed) - cost.seconds(taken, packed, packed)
    assert slower == pytest.approx(2049 * (0.002 + 2 * 1.777e9 / 2e12), rel=1e-3)


def test_the_prompts_of_a_file_are_counted_as_they_are_trained_on_and_a_price_is_put_on_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], offline: None
) -> None:
    problems = [";".join(f"a{i}=1" for i in range(length)) for length in (1, 3, 5, 200)]
    rows = [{"problem": problem, "answer": "1"} for problem in problems]
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    fields = {**DEFAULTS, "model_name_or_path": str(BASE), "dataset_name": str(tmp_path), "max_prompt_length": 64}
    fields |= {"instruction": "", "answer_column": "answer"}
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    measured = [len(tokenize(tokenizer, [{"role": "user", "content": each}], {})) for each in problems]
    assert max(measured) > 64 and sorted(cost.prompt_lengths(fields)) == sorted(measured)[:3]
    mixed = {**fields, "dataset_name": None, "datasets": [{"path": str(tmp_path), "split": "train[:2]"}] * 2}
    assert sorted(cost.prompt_lengths(mixed)) == sorted(measured[:2] * 2)
    sliced = {**fields, "dataset_train_split": "train[:1]"}
    assert cost.prompt_lengths(sliced) == measured[:1]
    recipe_file = str(ROOT / "experiments" / "nano" / "recipe.yaml")
    line = [recipe_file, "--accelerate_config", "one_gpu", "--dataset_name", str(tmp_path)]
    main([*line, "--max_prompt_length", "64", "--price", "3600"])
    printed = capsys.readouterr().out
    assert f"Prompts have {sum(measured[:3]) / 3:,.0f} tokens on average: counted, 3 of them" in printed
    seconds, hours, price = re.findall(r"packed, with flash attention \| \S+ \| (\d+) s \| (\S+) \| (\S+) \|", printed)[
        0
    ]
    assert float(price) == pytest.approx(3600 * float(hours), abs=2) == pytest.approx(float(seconds), abs=2)  # one GPU


def test_prompts_that_cannot_be_counted_end_no_plan_and_nobody_is_asked_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], offline: None
) -> None:
    (tmp_path / "train.jsonl").write_text('{"problem": "a=1;a?", "answer": "1"}\n')
    fields = yaml.safe_load((ROOT / "experiments" / "nano" / "recipe.yaml").read_text())
    del fields["dataset_name"]
    (tmp_path / "recipe.yaml").write_text(
        yaml.safe_dump({**fields, "datasets": [{"path": str(tmp_path), "split": None}]})
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    main([str(tmp_path / "recipe.yaml"), "--accelerate_config", "one_gpu"])
    assert "Prompts have 64 tokens on average: the longest that may be" in capsys.readouterr().out
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_the_command_prints_the_verdict(capsys: pytest.CaptureFixture[str], offline: None) -> None:
    main(["E1-Math-1.5B"])
    printed = capsys.readouterr().out
    assert "It fits." in printed and "Prompts have 1,024 tokens on average: the longest that may be, as" in printed
    assert "| trimmed, as in this recipe |" in printed and "padded" not in printed
    hours = float(re.findall(r"trimmed, .* \| (\S+) \| \S+ \|$", printed, re.M)[0])
    whole = float(re.findall(r"max_steps 400 makes 200 generations: (\S+) GPU-hours", printed)[0])
    assert whole == pytest.approx(200 * hours, abs=0.11)
    main(["E1-Math-1.5B", "--attn_implementation", "kernels-community/flash-attn2"])
    assert "| packed, as in this recipe |" in capsys.readouterr().out
    main(["E1-Math-1.5B", "--padding_free", "false"])
    assert "| padded, as in this recipe |" in capsys.readouterr().out
    main(["E1-Math-1.5B-24GB"])
    assert "| card | 25.7 GB (23.9 GiB) |" in capsys.readouterr().out
    main(["E1-Math-1.5B-24GB", "--gpu_memory", "79.2"])
    assert "| card | 85.0 GB (79.2 GiB) |" in capsys.readouterr().out
    main(["E1-Math-1.5B-server", "--gpus", "4"])
    assert "GPU-hours" not in capsys.readouterr().out
    with pytest.raises(SystemExit) as error:
        main(["E1-Math-7B", "--gpus", "2", "--gpu_memory", "24"])
    assert error.value.code == 1
    printed = capsys.readouterr().out
    assert "It does not fit:" in printed and "7.62 B parameters, 2 GPUs, ZeRO-3" in printed


@pytest.mark.parametrize("config", ["ddp", "one_gpu"])
def test_weights_of_16_bits_without_deepspeed_are_in_the_verdict(
    config: str, capsys: pytest.CaptureFixture[str], offline: None
) -> None:
    with pytest.raises(SystemExit) as error:
        main(["E1-Math-1.5B", "--accelerate_config", config, "--gpu_memory", "200"])
    assert error.value.code == 1
    said = "It would learn next to nothing: weights of 16 bits without DeepSpeed have no fp32 masters"
    assert said in capsys.readouterr().out
    adapter = ["--use_peft", "true", "--lora_target_modules", "[all-linear]"]
    for others in (["--dtype", "float32"], adapter):
        main(["E1-Math-1.5B", "--accelerate_config", config, "--gpu_memory", "200", *others])
        assert "It would learn" not in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(file.stem for file in (ROOT / "recipes").glob("*.yaml")))
def test_every_recipe_has_weights_in_which_steps_arrive(name: str) -> None:
    fields = fields_of(ROOT / "recipes" / f"{name}.yaml")
    assert not Setup.of(fields, accelerate(fields["accelerate_config"])).rounds_away
