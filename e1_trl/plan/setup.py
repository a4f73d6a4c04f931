"""A recipe and an Accelerate configuration as they are launched, and what of them decides memory."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from e1_trl.arguments import Count, Natural, from_yaml, read_value
from e1_trl.budget import PROMPT
from e1_trl.command_line import CommandParser
from e1_trl.errors import UserError
from e1_trl.plan.architecture import Architecture, require
from e1_trl.recipes import fields_of, read_mapping, resource, shipped
from e1_trl.training.arguments import BudgetedTraining, RecipeArguments, TrlFields
from e1_trl.training.budgets import FIELDS, Budgets

FORCED = 1  # token, of the marker
OWN = (*FIELDS, "max_prompt_length", "padding_free", "gpu_memory")
RECORDS = (TrlFields, BudgetedTraining, RecipeArguments)
HINTS = {name: hint for kind in RECORDS for name, hint in get_type_hints(kind, include_extras=True).items()}
# TRL's and our own, of the fields that a plan reads.
DEFAULTS: Mapping[str, Any] = {
    each.name: each.default for kind in RECORDS for each in fields(kind) if kind is TrlFields or each.name in OWN
}


@dataclass(frozen=True)
class Setup:
    """One training on one node."""

    architecture: Architecture
    gpus: int
    zero: int  # the stage; 0 is DistributedDataParallel, where each GPU holds everything
    offload: bool  # the optimizer's state lies in the host's memory
    dtype: int  # bytes of a weight
    adapter: int | None  # parameters of the LoRA adapter that is trained; None where the model is
    reference: bool
    checkpointing: bool  # of activations
    context: int  # tokens of a whole sequence: prompt, thinking, close, solution
    prompt: int  # tokens of the longest prompt
    batch: int  # sequences that a GPU learns from at once
    accumulation: int  # of such micro-batches, in an optimizer step
    rollouts: int  # sequences of one generation, over all GPUs
    steps: float  # of the optimizer, for each generation
    utilization: float
    sleep: bool
    served: bool  # vLLM has GPUs of its own, which are not planned for
    tensor_parallel: int
    checkpoints: int  # on disk at once, the one that is being written included

    @property
    def rounds_away(self) -> bool:
        """Whether steps are lost in weights of 16 bits, of which only DeepSpeed keeps fp32 masters."""
        return self.dtype == 2 and self.zero == 0 and self.adapter is None

    @classmethod
    def of(cls, recipe: Mapping[str, Any], accelerate: Mapping[str, Any]) -> "Setup":
        """The setup of a recipe's fields under an Accelerate configuration's.

        Raises:
            UserError: what cannot be planned for, by name.
        """
        fields = {**recipe, **read_fields(recipe)}
        budgets = Budgets.of(fields)
        completion = budgets.completion_tokens(FORCED)
        if completion is None:
            unbounded = FIELDS[0] if budgets.largest.thinking is None else FIELDS[1]
            raise UserError(f"{unbounded} is null: without bound on the tokens there is nothing to plan with")
        if not fields.get("model_name_or_path"):
            raise UserError("the recipe names no model (model_name_or_path)")
        model = read_value("model_name_or_path", fields["model_name_or_path"], str)
        deepspeed = read_value("deepspeed_config", accelerate.get("deepspeed_config", {}), dict)
        kind = accelerate.get("distributed_type", "NO")
        offload = deepspeed.get("offload_optimizer_device", "none")
        if fields["use_peft"] and fields["lora_target_modules"] != ["all-linear"]:
            require("lora_target_modules", [fields["lora_target_modules"]], ["all-linear"])
        require("optim", [getattr(fields["optim"], "value", fields["optim"])], ["adamw_torch", "adamw_torch_fused"])
        require("distributed_type", [kind], ["DEEPSPEED", "MULTI_GPU", "NO"])
        require("offload_param_device", [deepspeed.get("offload_param_device", "none")], ["none"])
        require("offload_optimizer_device", [offload], ["none", "cpu"])
        zero = read_value("zero_stage", deepspeed.get("zero_stage", 0), Natural) if kind == "DEEPSPEED" else 0
        gpus = read_value("num_processes", accelerate.get("num_processes", 1), Count)
        accumulation = fields["gradient_accumulation_steps"]
        micro_batch = fields["per_device_train_batch_size"] * gpus  # on all of them
        rollouts = fields["generation_batch_size"] or micro_batch * (fields["steps_per_generation"] or accumulation)
        architecture = Architecture.of(model, fields["model_revision"], fields["trust_remote_code"])
        limit = max(0, fields["save_total_limit"] or 0)
        every = fields["save_steps"] if fields["save_steps"] >= 1 else fields["save_steps"] * fields["max_steps"]
        saves = math.ceil(fields["max_steps"] / every) if fields["max_steps"] > 0 else limit + 1  # or more: unknown
        saves = 0 if getattr(fields["save_strategy"], "value", fields["save_strategy"]) == "no" else saves
        return cls(
            architecture=architecture,
            gpus=gpus,
            zero=zero,
            offload=offload == "cpu",
            # DeepSpeed computes in bf16, whatever the model was loaded in.
            dtype=4 if fields["dtype"] in ("float32", "auto", None) and zero == 0 else 2,
            adapter=architecture.adapted * fields["lora_r"] if fields["use_peft"] else None,
            reference=fields["beta"] != 0,
            checkpointing=bool(fields["gradient_checkpointing"]),
            context=(fields["max_prompt_length"] or PROMPT) + completion,
            prompt=fields["max_prompt_length"] or PROMPT,
            batch=fields["per_device_train_batch_size"],
            accumulation=accumulation,
            rollouts=rollouts,
            steps=rollouts / (micro_batch * accumulation) * fields["num_iterations"],
            utilization=fields["vllm_gpu_memory_utilization"],
            sleep=bool(fields["vllm_enable_sleep_mode"]),
            served=fields["vllm_mode"] == "server",
            tensor_parallel=fields["vllm_tensor_parallel_size"],
            checkpoints=min(saves, limit + 1) if limit else saves,
        )


def read_fields(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Read the fields that a plan needs, with their defaults where a recipe does not set them.

    Raises:
        UserError: a field is of another type, or beyond a limit.
    """
    return {name: read_value(name, recipe.get(name, default), HINTS[name]) for name, default in DEFAULTS.items()}


@dataclass(frozen=True)
class Launch:
    """A recipe as a command line launches it."""

    recipe: Path
    recipe_fields: Mapping[str, Any]  # as they stand there
    given: Mapping[str, Any]  # fields that have another value on the command line
    accelerate_config: str  # a name or a file
    accelerate: Mapping[str, Any]  # its fields, with the number of processes that is asked for

    @classmethod
    def read(cls, recipe: str, accelerate_config: str | None, processes: int | None, words: Sequence[str]) -> "Launch":
        """A recipe by name or file, with pairs `--field value`; what is None is as the files have it.

        Raises:
            UserError: a file cannot be read, no Accelerate configuration is named, or these are no pairs.
        """
        file = resource("recipes", recipe)
        fields = fields_of(file)
        if len(words) % 2 or any(not word.startswith("--") for word in words[::2]):
            raise UserError(f"fields of the recipe are overridden by pairs --FIELD VALUE, not {' '.join(words)}")
        pairs = zip(words[::2], words[1::2], strict=True)
        name = accelerate_config or fields.get("accelerate_config")
        if name is None:
            raise UserError(f"{recipe} names no accelerate_config: name one")
        accelerate = read_mapping(resource("accelerate_configs", name))
        if processes:
            accelerate["num_processes"] = processes
        given = {field.removeprefix("--"): from_yaml(field, value) for field, value in pairs}
        return cls(file, fields, given, name, accelerate)

    @property
    def fields(self) -> dict[str, Any]:
        """All fields, read and with defaults where a plan needs them."""
        given = {**self.recipe_fields, **self.given}
        return {**given, **read_fields(given)}

    @property
    def setup(self) -> Setup:
        return Setup.of(self.fields, self.accelerate)


def launch_parser(command: str, about: str, example: str) -> CommandParser:
    """Make the parser of a command that takes a recipe, and fields of it as the pairs that `Launch.read` takes."""
    about += f"\nAny field of the recipe can be overridden:\n\n  {command} {example}"
    made = CommandParser(command, "RECIPE [OPTIONS] [--FIELD VALUE …]", about)
    made.add_argument("recipe", metavar="RECIPE", help=f"Recipe: a file, or one of {', '.join(shipped('recipes'))}.")
    made.add_argument("--accelerate_config", metavar="NAME", help="Accelerate configuration. Default: the recipe's.")
    return made
