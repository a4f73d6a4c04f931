"""Contradictions between a recipe and the launcher that started it, found before anything is loaded.

Transformers silently prefers the recipe's precision, and compares the rest with DeepSpeed's configuration only after
model and engine have started.
"""

import os
from copy import deepcopy
from typing import Any

import torch
from transformers import TrainingArguments
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

from e1_trl.errors import UserError
from e1_trl.training.cuda import gpu_fault


def check_environment(fp16: bool, bf16: bool | None, ddp_backend: str | None, use_cpu: bool) -> None:
    """Raise a `UserError` if fields contradict each other or the launcher, or if PyTorch cannot use the GPUs."""
    on_cpu = use_cpu or _is_set("ACCELERATE_USE_CPU")
    if not on_cpu and (fault := gpu_fault()) is not None:
        raise UserError(fault)
    if fp16 and bf16:
        raise UserError("fp16 and bf16 are both true; set one of them to false")
    recipes = "fp16" if fp16 else "no" if bf16 is False else "bf16"  # unset, bf16 is true in TRL
    launchers = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    if launchers not in ("no", recipes):
        precision = f"fp16: {fp16}, bf16: {recipes == 'bf16'}".lower()
        raise UserError(
            f"mixed precision is {recipes} in the recipe ({precision}) and {launchers} in the Accelerate configuration "
            "(mixed_precision); make them equal, or set mixed_precision to 'no', which leaves it to the recipe"
        )
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1 and _is_set("ACCELERATE_USE_DEEPSPEED") and ddp_backend is None and not torch.cuda.is_available():
        raise UserError(
            f"the launcher started {processes} processes, and each would train alone: without GPUs, processes of "
            "DeepSpeed need ddp_backend: gloo, and ddp_backend is unset"
        )


def is_alone() -> bool:
    """Return whether there is no process group: one process, and no DeepSpeed, which makes a group even of one."""
    return int(os.environ.get("WORLD_SIZE", "1")) == 1 and not _is_set("ACCELERATE_USE_DEEPSPEED")


def check_launcher(args: TrainingArguments) -> None:
    """Raise a `UserError` that names both values if DeepSpeed's configuration or this machine contradicts a field."""
    if args.fp16 and args.device.type == "cpu":
        why = "use_cpu is true" if args.use_cpu else "this machine shows no GPU"
        raise UserError(f"fp16 is true and {why}: only GPUs compute in fp16; set fp16 to false, and bf16 as well")
    if args.deepspeed_plugin is None:
        return
    compared = _Compared(args.deepspeed_plugin.deepspeed_config)
    compared.trainer_config_process(args, args.auto_find_batch_size)
    # Each reads "- ds gradient_clipping=0.5 vs hf max_grad_norm=1.0".
    pairs = [each.removeprefix("- ds ").split(" vs hf ") for each in compared.mismatches]
    if pairs:
        said = "; ".join(f"{recipes} in the recipe, {others} in DeepSpeed's" for others, recipes in pairs)
        raise UserError(
            f"{said} (deepspeed_config of the Accelerate configuration); make them equal, or remove "
            "DeepSpeed's value, so that the recipe's is used"
        )


class _Compared(HfTrainerDeepSpeedConfig):
    """Copy of a configuration for comparison, which does not become the configuration of this process."""

    def __init__(self, config: dict[str, Any]):
        self.config = deepcopy(config)
        self.mismatches: list[str] = []


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "false").lower() == "true"
