"""The plan of a recipe: counts against built models, bytes against hand calculation, and what it says does not fit."""

import json
import os
import re
import shutil
import weakref
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_origin, get_type_hints

import huggingface_hub
import pytest
import torch
import yaml
from accelerate import DeepSpeedPlugin
from conftest import NANO, ROOT, in_group
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config
from transformers.integrations.deepspeed import (
    HfDeepSpeedConfig,
    is_deepspeed_zero3_enabled,
    unset_hf_deepspeed_config,
)
from transformers.trainer_utils import SaveStrategy
from trl import ModelConfig
from vllm.v1.kv_cache_interface import FullAttentionSpec

from e1_trl.command_line import run_command
from e1_trl.errors import UserError
from e1_trl.plan import estimate
from e1_trl.plan.architecture import KNOWN, Architecture
from e1_trl.plan.command import main, report
from e1_trl.plan.estimate import MARGIN, Memory, activations, memory, saved
from e1_trl.plan.setup import DEFAULTS, Setup
from e1_trl.plan.verdict import fitting, remedy, verdict
from e1_trl.recipes import fields_of
from e1_trl.report.markdown import around_section
from e1_trl.train import main as train
from e1_trl.training.arguments import TrlFields
from e1_trl.training.config import E1Config
from e1_trl.training.recipe_as_run import E1ScriptArguments
from experiments.fits import make_table
from tests.reduced.case import ALTERNATIVES

CARD = int(79.2 * 2**30)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked on the Hub."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def recipe(name: str, **overrides: Any) -> dict[str, Any]:
    return {**fields_of(ROOT / "recipes" / f"{name}.yaml"), **overrides}


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
SMALL = {"num_hidden_layers": 2, "pad_token_id": 0}
# Published parameters, in billions. Of Qwen3.5-4B without its vision tower; the others as their safetensors count them.
PUBLISHED = {
    **{"DeepScaleR-1.5B-Preview": 1.78, "DeepSeek-R1-Distill-Qwen-1.5B": 1.78, "Skywork-OR1-Math-7B": 7.62},
    **{"DeepCoder-14B-Preview": 14.77, "AceReason-Nemotron-14B": 14.77, "Qwen3-1.7B": 1.72, "Qwen3-4B": 4.02},
    **{"Qwen3.5-4B": 4.21, "SmolLM3-3B": 3.08, "gpt-oss-20b-BF16": 20.91},
}


@pytest.mark.parametrize("model", KNOWN)
def test_the_dimensions_of_the_recipes_models_give_what_is_built_of_them(model: str) -> None:
    known, fields = Architecture.of(model), recipe("E1-Math-1.5B-24GB")
    assert round(known.parameters / 1e9, 2) == PUBLISHED[model.split("/")[1]]
    config = AutoConfig.for_model(**KNOWN[model]).get_text_config()
    with torch.device("meta"):
        whole = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        layer = sum(parameter.numel() for parameter in whole.model.layers.parameters()) / known.layers
        targets = {"target_modules": fields["lora_target_modules"], "task_type": "CAUSAL_LM"}
        adapted = get_peft_model(whole, LoraConfig(r=fields["lora_r"], **targets))
    assert known.layer == pytest.approx(layer, rel=1e-5)
    trained = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    assert sum(parameter.numel() for parameter in trained) == known.adapted * fields["lora_r"]
    assert {parameter.dtype for parameter in trained} == {torch.float32}
    shape = {"num_kv_heads": config.num_key_value_heads, "head_size": known.head, "dtype": torch.bfloat16}
    cache = FullAttentionSpec(block_size=16, **shape)
    assert known.attending * cache.page_size_bytes == 16 * known.kv_bytes


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["qwen2", "llama", "qwen3", "gemma3_text", "mistral", "phi3", "smollm3", "olmo2"])
def test_a_model_of_any_dense_kind_is_counted_from_its_folder(kind: str, tied: bool, tmp_path: Path) -> None:
    config = AutoConfig.for_model(kind, **TINY, **SMALL, head_dim=32, tie_word_embeddings=tied)
    config.save_pretrained(tmp_path)
    found = Architecture.of(str(tmp_path))
    model = AutoModelForCausalLM.from_config(config)
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert (found.output_head, found.layers) == (64 * 256, 2)
    layer = sum(parameter.numel() for parameter in model.model.layers.parameters()) // 2
    assert found.layer == pytest.approx(layer, rel=1e-3)
    keys = model(torch.ones(1, 3, dtype=torch.int), use_cache=True).past_key_values.layers[0].keys
    assert 2 * 2 * keys[:, :, 0].nbytes // keys.element_size() * 2 == found.kv_bytes


# Configurations as published. NVIDIA counts 31.6 B of Nemotron 3 Nano, of which 3.2 B active without embeddings.
HYBRID = {
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    **{"hidden_size": 2688, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "n_groups": 8},
    **{
        "mamba_num_heads": 64,
        "mamba_head_dim": 64,
        "ssm_state_size": 128,
        "n_routed_experts": 128,
        "vocab_size": 131072,
    },
    **{"num_experts_per_tok": 6, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712},
}
OLMO = {"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 11008, "vocab_size": 100278}
QWEN = {
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "moe_intermediate_size": 768,
    "num_key_value_heads": 4,
    "head_dim": 128,
}
FAMILIES = [  # billions of parameters and of those active in layers, layers with a cache, its numbers for a token
    ("nemotron_h", HYBRID, 31.58, 2.88, 6, 6 * 2 * 2 * 128, "Layers of linear_attention, moe have no cache"),
    ("olmo3", OLMO, 7.30, 6.48, 32, 32 * 2 * 32 * 128, "Sliding windows are planned for as if"),
    ("qwen3_moe", QWEN, 30.53, 2.73, 48, 48 * 2 * 4 * 128, "Experts: all are held, and 8 of each layer"),
    ("deepseek_v3", {}, 671.03, 35.70, 61, 61 * (512 + 64), "8 of each layer compute a token"),
    ("qwen3_next", {}, 79.67, 3.25, 12, 12 * 2 * 2 * 256, "Layers of linear_attention have no cache"),
    ("mamba2", {}, 7.29, 7.02, 0, 0, "Layers of linear_attention have no cache"),
    ("qwen3_vl", {}, 12.05, 10.80, 32, 32 * 2 * 32 * 128, "Only the text model is planned for"),
]


@pytest.mark.parametrize(("kind", "more", "whole", "active", "attending", "cached", "note"), FAMILIES)
def test_a_model_of_any_family_is_counted_and_its_report_says_what_is_left_out(
    kind: str, more: dict[str, Any], whole: float, active: float, attending: int, cached: int, note: str, tmp_path: Path
) -> None:
    AutoConfig.for_model(kind, **more).save_pretrained(tmp_path)
    setup = Setup.of({"model_name_or_path": str(tmp_path), "dtype": "bfloat16"}, accelerate("zero3"))
    found = setup.architecture
    assert round(found.parameters / 1e9, 2) == whole
    assert round(found.layers * found.active / 1e9, 2) == active
    assert (found.attending, found.kv_bytes) == (attending, 2 * cached)
    taken = memory(setup, CARD)
    assert note in report(taken) and estimate.seconds(replace(taken, engine=10**12), 100, "padded") > 0


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("deepseek_v2", "cannot be planned for: its configuration has no num_experts_per_tok"),
        ("gemma4", "cannot be planned for: 'head_dim' is a per-layer attribute"),
        ("vit", "cannot be planned for: "),
    ],
)
def test_a_model_that_cannot_be_planned_for_is_one_line(kind: str, named: str, tmp_path: Path) -> None:
    AutoConfig.for_model(kind).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=named):
        Architecture.of(str(tmp_path))


def test_a_training_under_zero3_plans_without_sharing_the_planned_model_out(tmp_path: Path) -> None:
    Qwen2Config(**TINY, **SMALL).save_pretrained(tmp_path)
    zero3 = HfDeepSpeedConfig({"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1})
    assert is_deepspeed_zero3_enabled() and zero3.is_zero3()
    try:
        assert Architecture.of(str(tmp_path)).parameters > 0
    finally:
        unset_hf_deepspeed_config()


# Training state in GB, calculated by hand: bytes per parameter and GPU, over 8 GPUs.
STATES = [
    ("E1-Math-1.5B", "zero2", {}, 1.777e9 * (2 + 2 + 4 / 8 + 12 / 8)),
    ("E1-Math-1.5B", "ddp", {"dtype": "float32"}, 1.777e9 * (4 + 4 + 4 + 4 + 8)),  # the buckets hold gradients, too
    ("E1-Math-1.5B", "zero2", {"dtype": "float32"}, 1.777e9 * (2 + 2 + 4 / 8 + 12 / 8)),
    ("E1-Math-1.5B-1GPU", "one_gpu", {}, 1.777e9 * (4 + 4 + 4 + 8)),
    ("E1-Math-1.5B-24GB", "one_gpu", {}, 1.777e9 * 4 + 36.93e6 * (4 + 4 + 8)),
    ("E1-Math-1.5B-24GB", "zero2", {"dtype": "bfloat16"}, 1.777e9 * 2 + 36.93e6 * (2 + 4 / 8 + 12 / 8)),
    ("E1-Math-7B", "zero3", {}, 7.616e9 * (2 + 2 + 4 + 12) / 8),
    ("E1-Code-14B", "zero3", {}, 14.770e9 * (2 + 4 + 12) / 8),
    ("E1-AceReason-14B", "zero3_offload", {}, 14.770e9 * 2 / 8),
]
# The checkpoint's bytes a parameter: the model, its copy under ZeRO-2, fp32 masters and two moments.
BEST = {"save_strategy": SaveStrategy.BEST, "save_steps": 400, "eval_steps": 50, "save_total_limit": None}
DISKS = [
    ("E1-Math-1.5B", "zero2", {}, 4 * 1.777e9 * 16 + 1.777e9 * 2),
    ("E1-Math-7B", "zero3", {}, 4 * 7.616e9 * 14 + 7.616e9 * 2),
    ("E1-Math-1.5B-24GB", "one_gpu", {}, 4 * 36.93e6 * 12 + 36.93e6 * 4),
    ("E1-Math-1.5B", "zero2", {"save_total_limit": None}, 20 * 1.777e9 * 16 + 1.777e9 * 2),  # 400 steps, every 20
    ("E1-Math-1.5B", "zero2", {"save_total_limit": None, "save_steps": 0.1}, 10 * 1.777e9 * 16 + 1.777e9 * 2),
    ("E1-Math-1.5B", "zero2", {"max_steps": -1}, 4 * 1.777e9 * 16 + 1.777e9 * 2),
    ("E1-Math-1.5B", "zero2", {"save_total_limit": 1}, 2 * 1.777e9 * 16 + 1.777e9 * 2),
    ("E1-Math-1.5B", "zero2", BEST, 8 * 1.777e9 * 16 + 1.777e9 * 2),  # 400 steps, a validation every 50
    ("E1-Math-1.5B", "zero2", {**BEST, "eval_steps": 0.25}, 4 * 1.777e9 * 16 + 1.777e9 * 2),
    ("E1-Math-1.5B", "zero2", {**BEST, "eval_steps": None, "save_total_limit": 2}, 3 * 1.777e9 * 16 + 1.777e9 * 2),
    ("E1-Math-1.5B", "zero2", {"save_strategy": "epoch", "save_steps": 400}, 4 * 1.777e9 * 16 + 1.777e9 * 2),
    ("E1-Math-1.5B", "zero2", {"save_strategy": "no"}, 1.777e9 * 2),
    ("E1-Math-1.5B", "zero2", {"save_only_model": True}, 4 * 1.777e9 * 2 + 1.777e9 * 2),
]


@pytest.mark.parametrize(
    ("bytes_of", "name", "config", "overrides", "expected"),
    [*(("state", *row) for row in STATES), *(("disk", *row) for row in DISKS)],
)
def test_training_state_and_disk_are_bytes_per_parameter(
    bytes_of: str, name: str, config: str, overrides: dict[str, Any], expected: float
) -> None:
    assert getattr(planned(name, config, **overrides), bytes_of) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("name", sorted(file.stem for file in (ROOT / "recipes").glob("*.yaml")))
def test_every_recipe_fits_its_cards_in_weights_that_small_steps_move(name: str) -> None:
    fields = fields_of(ROOT / "recipes" / f"{name}.yaml")
    setup = Setup.of(fields, accelerate(fields["accelerate_config"]))
    assert not setup.rounds_away
    for gib in (22.0, 22.1, 23.64, 24.0) if "24GB" in name else (79.2,):  # L4 and A10G, RTX 4090, all of it
        taken = memory(setup, int(gib * 2**30))
        assert not taken.problems and not taken.cannot_fit
        assert max(taken.training, taken.generation) < (1 - MARGIN) * taken.card
    if name.startswith("E1-"):
        budgets = {"E1-Math-1.5B-3K": 3072 + 1024, "E1-Qwen3.5-4B": 2048 + 1024}.get(name, 1024 + 1024)
        prompt = 2048 if "14B" in name else 1024
        assert (setup.steps, setup.context) == (2, prompt + budgets + 1)
        assert setup.rollouts == (1024 if setup.rank is None else 256)


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
    """A real model on this CPU, in fp32 under autocast or in bf16, whole or with an adapter; and its plan."""

    def __init__(self, folder: Path, config: Any, dtype: str, checkpointing: bool = False, adapter: bool = False):
        config.save_pretrained(folder)
        self.folder, self.dtype = folder, dtype
        self.fields: dict[str, Any] = {"gradient_checkpointing": checkpointing, "use_peft": adapter}
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
        self.fields["attn_implementation"] = model.config._attn_implementation
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


EXPERTS = {"moe_intermediate_size": 192, "num_experts": 8, "num_experts_per_tok": 2}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    ("kind", "more", "tolerance"),
    [
        ("qwen2", {}, 0.005),
        ("llama", {"pad_token_id": 0}, 0.005),
        ("qwen3", {"head_dim": 128}, 0.06),  # wider attention, with norms of its own
        ("olmo2", {"pad_token_id": 0}, 0.09),
        ("glm4", {"head_dim": 64, "pad_token_id": 0}, 0.06),
        ("gemma3_text", {"head_dim": 64, "pad_token_id": 0}, 0.15),
        ("qwen2", {"attn_implementation": "eager"}, 0.03),
        ("qwen3_moe", {**EXPERTS, "head_dim": 64}, 0.07),
        ("olmoe", {**EXPERTS, "pad_token_id": 0, "eos_token_id": 1}, 0.03),
        ("qwen3_5_text", {**LINEAR, "full_attention_interval": 9}, 0.15),
    ],
)
def test_what_a_layer_keeps_for_its_backward_pass_is_what_a_real_one_does(
    kind: str, more: dict[str, Any], tolerance: float, dtype: str, tmp_path: Path
) -> None:
    configs = [AutoConfig.for_model(kind, num_hidden_layers=layers, **TINY, **more) for layers in (1, 2)]
    one, two = (Tiny(tmp_path / str(config.num_hidden_layers), config, dtype) for config in configs)
    # Of two sequences: the third less the first, so that copies of weights do not count.
    measured = [model.saved(3) - model.saved(1) for model in (one, two)]
    assert saved(one.setup(2)) == pytest.approx(measured[1] - measured[0], rel=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.parametrize(("dtype", "adapter"), [("bfloat16", False), ("float32", False), ("bfloat16", True)])
def test_the_activations_of_a_micro_batch_are_at_least_those_of_a_real_backward_pass(
    dtype: str, adapter: bool, checkpointing: bool, tmp_path: Path
) -> None:
    model = Tiny(tmp_path, Qwen2Config(**TINY, num_hidden_layers=3), dtype, checkpointing, adapter)
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


@pytest.mark.parametrize(
    ("name", "config"), [(name, config) for name, configs in ALTERNATIVES.items() for config in configs]
)
def test_the_configurations_that_recipes_name_besides_their_own_fit(name: str, config: str) -> None:
    fields = ALTERNATIVES[name][config]
    taken = planned(name, config, **fields)
    assert not taken.problems
    if config == "zero3_offload":  # with a larger engine
        words = f"--accelerate_config zero3_offload --vllm_gpu_memory_utilization {taken.setup.utilization}"
        assert words in (ROOT / "recipes" / f"{name}.yaml").read_text()
        # Masters, two moments, and gradients twice.
        assert taken.host == pytest.approx(14.770e9 * (4 + 8 + 4 + 4), rel=0.01) and taken.optimizer == 0
        assert planned(name, "zero3", **fields).problems


@pytest.mark.parametrize("gib", [40, 46, 72, 75, 79.2, 80, 94])
def test_a_share_that_is_too_large_is_lowered_to_the_largest_that_fits(gib: float) -> None:
    card = int(gib * 2**30)
    setup = planned("E1-Math-1.5B", "zero2", vllm_gpu_memory_utilization=0.95, vllm_enable_sleep_mode=True).setup
    changed = fitting(setup, 8, card)
    assert changed is not None and list(changed) == ["utilization"]
    largest = changed["utilization"]
    assert not memory(replace(setup, utilization=largest), card).problems
    assert memory(replace(setup, utilization=largest + 0.01), card).problems


def test_a_smaller_micro_batch_keeps_the_steps_of_a_generation() -> None:
    own = {"generation_batch_size": None, "steps_per_generation": 6, "vllm_enable_sleep_mode": True}
    setup = planned("E1-Math-1.5B", "zero2", per_device_train_batch_size=16, **own).setup
    for gib in range(80, 20, -2):
        if (changed := fitting(setup, 8, gib * 2**30)) and "batch" in changed:
            assert changed["batch"] * changed["passes"] == setup.batch * 6
            assert replace(setup, **changed).steps == setup.steps
            return
    raise AssertionError("no smaller micro-batch was found")


CACHE = "vLLM's share of 17.0 GB leaves 0.0 GB to its cache, which holds less than 1/5 of the sequences"
FP32 = {"dtype": "float32"}
BATCHES = "it fits with --per_device_train_batch_size 16 --gradient_accumulation_steps 32"


@pytest.mark.parametrize(
    ("name", "config", "overrides", "problem", "cure"),
    [
        ("E1-Math-1.5B", "ddp", FP32, "training takes 92.1 GB", "fits with --vllm_enable_sleep_mode true"),
        ("E1-Math-1.5B", "ddp", FP32 | {"card": 20 * 2**30}, "training takes", "shard or offload more (ZeRO"),
        ("E1-Math-1.5B-24GB", "one_gpu", {"card": 19 * 2**30}, "1/5 of the sequences", "lower generation_batch"),
        ("E1-Math-7B", "zero3", {"per_device_train_batch_size": 64}, "training takes", BATCHES),
        ("E1-Math-7B", "zero3", {"vllm_gpu_memory_utilization": 0.2}, CACHE, "--vllm_gpu_memory_utilization"),
    ],
)
def test_each_problem_comes_with_the_fewest_fields_to_change(
    name: str, config: str, overrides: dict[str, Any], problem: str, cure: str
) -> None:
    taken = planned(name, config, **overrides)
    assert problem in " ".join(taken.problems) and cure in remedy(taken.setup, taken.card)


def test_an_adapter_is_merged_under_zero3_into_whole_weights_beside_those_of_the_engine() -> None:
    taken = planned("E1-gpt-oss-20b", "zero3")
    # A share of the weights, all of them, half of them in the engine with its overhead; CUDA, NCCL and fragments.
    assert taken.generation == pytest.approx(20.915e9 * (2 / 8 + 2 + 2 / 2) + 3e9 + 7e9, rel=2e-3)
    awake = planned("E1-gpt-oss-20b", "zero3", vllm_enable_sleep_mode=False)  # without fragments
    assert awake.generation == pytest.approx(20.915e9 * (2 / 8 + 2) + 0.4 * CARD + 5e9, rel=2e-3)


def test_the_table_of_what_fits_is_as_it_would_be_made_now() -> None:
    document = ROOT / "docs" / "recipes.md"
    made = make_table()
    assert document.read_text() == made.join(around_section(document, "fits")), (
        f"run python -m experiments.fits for {document}"
    )


def test_a_recipe_with_an_engine_of_two_gpus_does_not_fit_one() -> None:
    assert fitting(planned("E1-Code-14B", "zero3").setup, 1, 1000 * 2**30) is None


def started(name: str, stage: int, **overrides: Any) -> tuple[Any, ModelConfig]:
    """What a process of eight is told of a recipe, under DeepSpeed if `stage` is not 0."""
    given = {**DEFAULTS, **recipe(name, **overrides)}
    plugin = DeepSpeedPlugin(zero_stage=stage) if stage else None
    others = {"world_size": 8, "model_init_kwargs": None, "output_dir": given["output_dir"]}
    args = SimpleNamespace(**{key: given[key] for key in DEFAULTS}, deepspeed_plugin=plugin, **others)
    return args, ModelConfig(model_name_or_path=given["model_name_or_path"], dtype=given["dtype"])


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Pretends a disk with so many bytes free."""

    def pretend(bytes_: float) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=bytes_))

    pretend(1e13)
    return pretend


def test_a_training_whose_checkpoints_the_disk_cannot_hold_is_refused_at_its_start(
    free: Callable[[float], None], tmp_path: Path
) -> None:
    output = tmp_path / "runs" / "new"  # neither is there yet
    args, model = started("E1-Math-1.5B", 2, output_dir=str(output))
    for card in (CARD, None):  # on GPUs, and on CPUs
        free(117.3e9)
        assert "output_dir" not in verdict(args, model, card, skip=False)
        free(117.2e9)
        with pytest.raises(UserError) as error:
            verdict(args, model, card, skip=False)
        assert str(error.value) == (
            f"output_dir {output} needs 117.3 GB more for 4 checkpoints of 28.4 GB and the model, and 117.2 GB are "
            "free: lower save_total_limit, or name an output_dir on another disk; or train all the same with "
            "skip_memory_check: true"
        )
        assert "needs 117.3 GB" in verdict(args, model, card, skip=True)
    # A run that resumes has written some of it.
    (output / "checkpoint-20").mkdir(parents=True)
    with (output / "checkpoint-20" / "optimizer.pt").open("wb") as file:
        file.truncate(28 * 10**9)  # which take no place on a disk
    free(89.2e9)
    assert "needs 89.3 GB more" in verdict(args, model, None, skip=True)
    free(89.3e9)
    assert verdict(args, model, None, skip=False) == ""


def test_a_training_on_cpus_needs_the_disk_and_its_dry_run_does_not(
    free: Callable[[float], None], nano_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--dataset_name", nano_data, "--output_dir", tmp_path, "--use_cpu", "true")
    words = [str(word) for word in ("--config", NANO, *given)]
    free(10_000)
    with pytest.raises(UserError, match=rf"^output_dir {tmp_path} needs .* GB are free: lower save_total_limit"):
        train(words)
    train([*words, "--dry_run", "true"])
    assert f"output_dir {tmp_path} needs" in capsys.readouterr().out


def test_a_training_that_cannot_fit_is_refused_unless_it_is_told_to_skip_that(free: Any) -> None:
    args, model = started("E1-Math-1.5B", 0, dtype="float32", vllm_gpu_memory_utilization=0.6)
    said = r"vLLM's share \(51.0 GB\) exceed it; .*; or train all the same with skip_memory_check: true"
    with pytest.raises(ValueError, match=said) as error:
        verdict(args, model, CARD, skip=False)
    assert "\n" not in str(error.value)
    assert "it fits with --vllm_gpu_memory_utilization 0.18" in verdict(args, model, CARD, skip=True)
    # Slow for want of cache, not impossible.
    args, model = started("E1-Code-14B", 3, vllm_gpu_memory_utilization=0.4)
    assert "holds less than 1/5 of the sequences" in verdict(args, model, CARD, skip=False)


def test_what_cannot_be_planned_is_said_and_does_not_stop_a_training(
    free: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    args, model = started("E1-Math-1.5B", 2)
    model.model_name_or_path = "somebody/else"
    assert verdict(args, model, CARD, skip=False).startswith("memory: not planned (somebody/else cannot be")
    assert verdict(args, model, None, skip=False) == ""
    assert "adamw_8bit cannot" in verdict(*started("E1-Code-14B", 0, optim="adamw_8bit"), CARD, skip=False)
    args, model = started("E1-Code-14B", 3)
    args.deepspeed_plugin.offload_param_device = "cpu"
    assert "offload_param_device cpu cannot" in verdict(args, model, CARD, skip=False)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert "FSDP cannot be planned for" in verdict(*started("E1-Code-14B", 0), CARD, skip=False)


def test_an_optimizer_that_the_host_cannot_hold_is_refused(free: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    args, model = started("E1-AceReason-14B", 3)
    args.deepspeed_plugin.offload_optimizer_device = "cpu"
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 256e9 // 4096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    with pytest.raises(UserError, match=r"takes 295\.4 GB of the host's memory, and this machine has 256\.0 GB: use"):
        verdict(args, model, CARD, skip=False)
    assert verdict(args, model, CARD, skip=True).startswith("memory, calculated")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")  # of two machines, each of which holds a half
    assert verdict(args, model, CARD, skip=False).startswith("memory, calculated")


def test_the_defaults_that_it_assumes_are_those_of_the_trainer() -> None:
    args, model = E1Config("runs/nothing", bf16=False, use_cpu=True), ModelConfig()
    script = E1ScriptArguments()
    types: dict[str, Any] = {}
    for kind in (ModelConfig, E1ScriptArguments, E1Config):
        types |= get_type_hints(kind)
    for field, value in DEFAULTS.items():
        if field not in ("dtype", "generation_batch_size", "steps_per_generation", "save_strategy"):
            (found,) = [getattr(each, field) for each in (args, model, script) if hasattr(each, field)]
            assert found == value, field
    plain = get_type_hints(TrlFields)
    plain |= {field: str for field, hint in plain.items() if get_origin(hint) is Literal}  # words that TRL checks late
    for field in plain.keys() - {"dtype", "optim", "save_strategy"}:  # of a library's own types
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
engine.save_checkpoint(sys.argv[2])
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
    text = in_group(ALLOCATES, json.dumps(dimensions), tmp_path / "saved", folder=tmp_path)
    (printed,) = [line for line in text.splitlines() if "BYTES" in line]
    allocated = json.loads(printed.partition("BYTES ")[2])
    Qwen2Config(**dimensions).save_pretrained(tmp_path / "model")
    fields = {"model_name_or_path": str(tmp_path / "model"), "dtype": "bfloat16"}
    zero3 = {"distributed_type": "DEEPSPEED", "num_processes": 2, "deepspeed_config": {"zero_stage": 3}}
    taken = memory(Setup.of(fields, zero3), CARD)
    for name, bytes_ in allocated.items():
        assert bytes_ == pytest.approx(getattr(taken, name), rel=0.01), name
    saved_bytes = sum(file.stat().st_size for file in (tmp_path / "saved").rglob("*.pt"))
    assert saved_bytes + taken.model == pytest.approx(taken.checkpoint, rel=0.03)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("E1-Math-1.5B --thinking-budget null", "thinking_budget is null"),
        ("E1-Math-1.5B-1GPU --gpus 4", "in one process, not in 4; for several, pass --accelerate_config ddp$"),
        ("E1-Math-1.5B --use_peft true", r"lora_target_modules None cannot be planned for, only \['all-linear']$"),
        ("E1-Math-1.5B-24GB --lora_modules_to_save [lm_head]", "save .* cannot be planned for, only None"),
        ("E1-gpt-oss-20b --lora_target_parameters [down_proj]", "parameters .* cannot be planned for, only None"),
        ("E1-Math-1.5B --model_name_or_path some/model", "some/model cannot be planned for: "),
        ("E1-Math-1.5B --beta", "expected pairs --FIELD VALUE"),
        ("E1-Math-1.5B --per_device_trian_batch_size 64", "did you mean per_device_train_batch_size"),
        ("nano", "cpu trains on CPUs; a plan needs a configuration for GPUs"),
        ("E1-Math-1.5B --num_generations 7", r"rollouts; expected a multiple of 7 \(num_generations\)$"),
        ("E1-Math-1.5B --per_device_train_batch_size 3", r"multiple of 24 \(rows of a pass on all GPUs\)$"),
        ("E1-Code-14B --gpus 9 --generation_batch_size 1152", "size is 2, which does not divide the 9 processes"),
    ],
)
def test_what_cannot_be_planned_is_one_line(words: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message) as error:
        run_command("e1 plan", lambda: main(words.split()))
    assert str(error.value).startswith("e1 plan: ") and "\n" not in str(error.value)


def test_a_generation_takes_longer_for_padding_waves_of_sampling_and_gathered_weights() -> None:
    taken = planned("E1-Math-1.5B", "zero2")
    positions = estimate.widths(taken.setup, 101)
    packed, longest = 101 + 0.7 * 2049, 101 + 2049
    # Of 16 lengths that are spread evenly over 1 to 3 the longest is 2 + 15 / 17 on average.
    trimmed = packed + (longest - packed) * 15 / 17
    assert positions["padded"] == pytest.approx((longest, longest))
    assert positions["trimmed"] == pytest.approx((packed, trimmed))

    # Without a reference model and checkpointing, one forward pass less in scoring and one in learning.
    def forward(width: float) -> float:
        return 2 * (1.777e9 - 151_936 * 1536) * width + 2 * 28 * 1536 * width**2

    alone = planned("E1-Math-1.5B", "zero2", beta=0, gradient_checkpointing=False)
    less = estimate.seconds(taken, 101, "trimmed") - estimate.seconds(alone, 101, "trimmed")
    assert less == pytest.approx(128 * (forward(packed) + forward(trimmed)) / 4e14, rel=1e-2)

    # Sequences of mean length, for which the cache has room by half, are sampled in two waves, which read as much of
    # the cache as one.
    halved = replace(taken, engine=taken.engine - taken.engine_cache + int(128 * packed * 28_672 / 2))
    slower = estimate.seconds(halved, 101, "trimmed") - estimate.seconds(taken, 101, "trimmed")
    assert slower == pytest.approx(2049 * (0.002 + 2 * 1.777e9 / 2e12), rel=1e-3)
    # ZeRO-3: each of 8 micro-batches gathers 7 of 8 parts for old, reference, forward and backward.
    zero3 = replace(taken, setup=replace(taken.setup, zero=3))
    gathers = estimate.seconds(zero3, 101, "trimmed") - estimate.seconds(taken, 101, "trimmed")
    assert gathers == pytest.approx(8 * 4 * 2 * 1.777e9 * 7 / 8 / 3e11, rel=1e-3)


# Seconds of a generation by an independent calculation, for mean prompts and rows without padding, at 40% of an H100's
# peak, and the most at 30%: 23 = 11 of decoding, 9 of passes, 3 around; 71 = 26 + 43 + 2; 155 = 64 + 87 + 4. ZeRO-3's
# gathers are on top: 3 and 8.
ROWS = [
    ("E1-Math-1.5B", "zero2", 101, 23, 27),
    ("E1-Math-7B", "zero3", 101, 71 + 3, 86 + 3),
    ("E1-Code-14B", "zero3", 450, 155 + 8, 185 + 8),
]


@pytest.mark.parametrize(("name", "config", "prompt", "expected", "most"), ROWS)
def test_a_generation_takes_as_long_as_an_independent_calculation_says(
    name: str, config: str, prompt: int, expected: float, most: float
) -> None:
    taken = planned(name, config)
    assert estimate.seconds(taken, prompt, "packed") == pytest.approx(expected, rel=0.05)
    trimmed = estimate.seconds(taken, prompt, "trimmed")  # rows of a micro-batch are as long as its longest
    assert expected < trimmed < most


SMALL_CARDS = "E1-Math-7B --gpus 2 --gpu_memory 24"
ONE_GPU = "E1-Math-1.5B --gpus 1"
WITHOUT_DEEPSPEED = [f"E1-Math-1.5B --gpu_memory 200 --accelerate_config {config}" for config in ("ddp", "one_gpu")]
LOST = "It would learn next to nothing: 16-bit weights have no fp32 master copy without DeepSpeed"


@pytest.mark.parametrize(
    ("words", "status", "printed"),
    [
        ("E1-Math-1.5B", 0, "It fits."),
        ("E1-Math-1.5B", 0, "prompts of 101 tokens on average"),
        ("E1-Math-1.5B", 0, "| disk, for all GPUs | 117.3 GB: 4 checkpoints of 28.4 GB at once"),
        ("E1-Code-14B", 0, "prompts of 450 tokens on average"),
        ("E1-Code-14B --prompt_tokens 1000", 0, "prompts of 1000 tokens on average"),
        ("E1-Math-1.5B --attn_implementation sdpa", 0, "| trimmed |"),
        ("E1-Math-1.5B --padding_free false", 0, "| padded |"),
        ("E1-Math-1.5B-24GB", 0, "| card | 23.6 GB (22.0 GiB) |"),
        ("E1-Math-1.5B-24GB --gpu_memory 79.2", 0, "| card | 85.0 GB (79.2 GiB) |"),
        (SMALL_CARDS, 1, "7.62 B parameters, 2 GPUs, ZeRO-3"),
        (SMALL_CARDS, 1, "It does not fit; shard or offload more"),
        (ONE_GPU, 0, "another batch, which e1 train refuses: the recipe's batch is 512 rollouts a step"),
        (ONE_GPU, 0, "; e1 plan calls --num_processes --gpus.\n"),
        ("E1-Math-1.5B --gpus 3", 0, "another batch"),  # in passes that do not divide a generation
        *((words, 1, LOST) for words in WITHOUT_DEEPSPEED),
    ],
)
def test_the_command_prints_the_verdict(
    words: str, status: int, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^1$") if status else nullcontext():
        main(words.split())
    assert printed in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        ("E1-Math-1.5B-server --gpus 4", "GPU-hours"),  # a server is not timed
        ("E1-Math-1.5B --gpus 8", "another batch"),
        (f"{ONE_GPU} --gradient_accumulation_steps 32", "another batch"),
        *((f"{words} --dtype float32", "It would learn") for words in WITHOUT_DEEPSPEED),
        *((f"{words} --use_peft true --lora_target_modules [all-linear]", "It would") for words in WITHOUT_DEEPSPEED),
    ],
)
def test_the_command_warns_of_nothing_else(words: str, absent: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(words.split())
    assert absent not in capsys.readouterr().out


def test_the_whole_training_takes_as_many_generations(capsys: pytest.CaptureFixture[str]) -> None:
    main(["E1-Math-1.5B"])
    printed = capsys.readouterr().out
    hours = float(re.findall(r"packed .* \| (\S+) \|$", printed, re.M)[0])
    whole = float(re.findall(r"max_steps 400 makes 200 generations: (\S+) GPU-hours", printed)[0])
    assert whole == pytest.approx(200 * hours, abs=0.11)
