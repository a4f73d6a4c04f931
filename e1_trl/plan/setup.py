"""Launches and their memory: a recipe under an Accelerate configuration, and the numbers that decide its memory."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from e1_trl.arguments import Count, Natural, from_yaml, read_value
from e1_trl.budget import PROMPT
from e1_trl.command_line import CommandParser, hints_of, names_in
from e1_trl.errors import UserError
from e1_trl.plan.architecture import Architecture
from e1_trl.recipes import fields_of, processes_of, read_mapping, resource, shipped
from e1_trl.training.arguments import BudgetedTraining, TrlFields
from e1_trl.training.budgets import FIELDS, Budgets
from e1_trl.training.launch import FOR_SEVERAL, starts_one
from e1_trl.training.recipe_arguments import RecipeArguments

FORCED = 1  # token of the end-of-thinking marker
OWN = (*FIELDS, "max_prompt_length", "padding_free", "gpu_memory")
RECORDS = (TrlFields, BudgetedTraining, RecipeArguments)
HINTS = hints_of(*RECORDS)
# Defaults, TRL's and our own, of the fields that a plan reads.
DEFAULTS: Mapping[str, Any] = {
    each.name: each.default for kind in RECORDS for each in fields(kind) if kind is TrlFields or each.name in OWN
}


def require(name: str, found: Any, *planned: Any) -> None:
    """Raise a `UserError` if the value found is not among the planned ones."""
    if found not in planned:
        raise UserError(f"{name} {found} cannot be planned for, only {' and '.join(map(str, planned))}")


@dataclass(frozen=True)
class Setup:
    """One training on one node."""

    model: str
    revision: str | None
    trust_remote_code: bool
    gpus: int
    zero: int  # the stage; 0 is DistributedDataParallel, where each GPU holds everything
    offload: bool  # the optimizer's state is in the host's memory
    dtype: int  # bytes of a weight
    rank: int | None  # of the trained LoRA adapter; None if the whole model is trained
    reference: bool
    eager: bool  # attention that keeps a matrix of its weights
    checkpointing: bool  # of activations
    context: int  # tokens of a whole sequence: prompt, thinking, close, solution
    prompt: int  # tokens of the longest prompt
    batch: int  # sequences in a micro-batch of one GPU
    accumulation: int  # micro-batches of an optimizer step
    rollouts: int  # sequences of one generation, over all GPUs
    steps: float  # optimizer steps per generation
    utilization: float  # vLLM's share of a GPU
    sleep: bool
    served: bool  # vLLM has GPUs of its own, which the plan leaves out
    tensor_parallel: int
    checkpoints: int  # most on disk at once, including the one that is being written
    only_weights: bool = False  # are in a checkpoint: no state of the optimizer
    passes: int | None = None  # `steps_per_generation`, if that sets the size of a generation

    @property
    def architecture(self) -> Architecture:
        """The model's numbers; raises as `Architecture.of` does."""
        return Architecture.of(self.model, self.revision, self.trust_remote_code)

    @property
    def adapter(self) -> int | None:
        """Parameters of the trained adapter, if any."""
        return None if self.rank is None else self.rank * self.architecture.adapted

    @property
    def rounds_away(self) -> bool:
        """Return whether rounding loses steps: 16-bit weights without fp32 masters, which only DeepSpeed keeps."""
        return self.dtype == 2 and self.zero == 0 and self.rank is None

    @classmethod
    def of(cls, recipe: Mapping[str, Any], accelerate: Mapping[str, Any]) -> "Setup":
        """Make the setup of a recipe's fields under the fields of an Accelerate configuration."""
        fields = {**recipe, **read_fields(recipe)}
        if not fields.get("model_name_or_path"):
            raise UserError("the recipe names no model (model_name_or_path)")
        model = read_value("model_name_or_path", fields["model_name_or_path"], str)
        prompt = fields["max_prompt_length"] or PROMPT
        context = prompt + _completion(fields)
        zero, offload = _read_sharding(accelerate)
        if fields["use_peft"]:
            require("lora_target_modules", fields["lora_target_modules"], ["all-linear"])
            require("lora_modules_to_save", fields["lora_modules_to_save"], None)
            require("lora_target_parameters", fields["lora_target_parameters"], None)
        require("optim", getattr(fields["optim"], "value", fields["optim"]), "adamw_torch", "adamw_torch_fused")
        gpus = read_value("num_processes", accelerate.get("num_processes", 1), Count)
        if gpus > 1 and starts_one(accelerate):
            raise UserError(f"distributed_type NO trains in one process, not in {gpus}; {FOR_SEVERAL}")
        batch = fields["per_device_train_batch_size"]
        accumulation = fields["gradient_accumulation_steps"]
        rollouts = fields["generation_batch_size"] or batch * gpus * (fields["steps_per_generation"] or accumulation)
        return cls(
            model=model,
            revision=fields["model_revision"],
            trust_remote_code=fields["trust_remote_code"],
            gpus=gpus,
            zero=zero,
            offload=offload,
            # DeepSpeed computes in bf16, whatever the model was loaded in.
            dtype=4 if fields["dtype"] in ("float32", "auto", None) and zero == 0 else 2,
            rank=fields["lora_r"] if fields["use_peft"] else None,
            reference=fields["beta"] != 0,
            eager=fields["attn_implementation"] == "eager",
            checkpointing=bool(fields["gradient_checkpointing"]),
            context=context,
            prompt=prompt,
            batch=batch,
            accumulation=accumulation,
            rollouts=rollouts,
            steps=rollouts / (batch * gpus * accumulation) * fields["num_iterations"],
            utilization=fields["vllm_gpu_memory_utilization"],
            sleep=bool(fields["vllm_enable_sleep_mode"]),
            served=fields["vllm_mode"] == "server",
            tensor_parallel=fields["vllm_tensor_parallel_size"],
            checkpoints=_checkpoints(fields),
            only_weights=fields["save_only_model"],
            passes=None if fields["generation_batch_size"] else fields["steps_per_generation"],
        )


def _completion(fields: Mapping[str, Any]) -> int:
    budgets = Budgets.of(fields)
    completion = budgets.completion_tokens(FORCED)
    if completion is None:
        unbounded = FIELDS[0] if budgets.largest.thinking is None else FIELDS[1]
        raise UserError(f"{unbounded} is null: a plan needs a bound on the tokens")
    return completion


def _read_sharding(accelerate: Mapping[str, Any]) -> tuple[int, bool]:
    """Read the ZeRO stage, and whether the optimizer's state is offloaded."""
    deepspeed = read_value("deepspeed_config", accelerate.get("deepspeed_config", {}), dict)
    kind = accelerate.get("distributed_type", "NO")
    offload = deepspeed.get("offload_optimizer_device", "none")
    require("distributed_type", kind, "DEEPSPEED", "MULTI_GPU", "NO")
    require("offload_param_device", deepspeed.get("offload_param_device", "none"), "none")
    require("offload_optimizer_device", offload, "none", "cpu")
    zero = read_value("zero_stage", deepspeed.get("zero_stage", 0), Natural) if kind == "DEEPSPEED" else 0
    return zero, offload == "cpu"


def _checkpoints(fields: Mapping[str, Any]) -> int:
    """Count the checkpoints on disk at once; by epochs or without `max_steps`, as many as `save_total_limit` allows."""
    strategy = getattr(fields["save_strategy"], "value", fields["save_strategy"])
    if strategy == "no":
        return 0
    limit = max(0, fields["save_total_limit"] or 0)
    every = {"steps": fields["save_steps"], "best": fields["eval_steps"]}.get(strategy)  # best: at most all validations
    if fields["max_steps"] <= 0 or not every:
        return limit + 1
    saves = math.ceil(fields["max_steps"] / (every if every >= 1 else every * fields["max_steps"]))
    return min(saves, limit + 1) if limit else saves


def read_fields(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Read and check the fields that a plan needs, with their defaults where a recipe does not set them."""
    return {name: read_value(name, recipe.get(name, default), HINTS[name]) for name, default in DEFAULTS.items()}


@dataclass(frozen=True)
class Launch:
    """A recipe as a command line launches it."""

    recipe: Path
    recipe_fields: Mapping[str, Any]
    given: Mapping[str, Any]  # fields that the command line overrides
    accelerate_config: str  # a name or a file
    accelerate: Mapping[str, Any]  # its fields, with the command line's number of processes

    @classmethod
    def read(cls, recipe: str, accelerate_config: str | None, processes: int | None, words: Sequence[str]) -> "Launch":
        """Read a recipe by name or file, and pairs `--field value` that override it; None keeps the files' values."""
        file = resource("recipes", recipe)
        fields = fields_of(file)
        if len(words) % 2 or any(not word.startswith("--") for word in words[::2]):
            raise UserError(f"expected pairs --FIELD VALUE that override the recipe, found {' '.join(words)}")
        pairs = zip(names_in(words[::2]), words[1::2], strict=True)
        name = accelerate_config or fields.get("accelerate_config")
        if name is None:
            raise UserError(f"{recipe} has no accelerate_config: pass --accelerate_config NAME")
        accelerate = read_mapping(resource("accelerate_configs", name))
        if processes:
            accelerate["num_processes"] = processes
        given = {field: from_yaml(field, value) for field, value in pairs}
        return cls(file, fields, given, name, accelerate)

    @property
    def fields(self) -> dict[str, Any]:
        """All fields, with defaults where a plan needs them."""
        given = {**self.recipe_fields, **self.given}
        return {**given, **read_fields(given)}

    @property
    def setup(self) -> Setup:
        """The setup; raises a `UserError` if groups and passes do not divide a generation, or engines the GPUs.

        With other processes than the recipe's, `check_batch` says what keeps its batch.
        """
        fields = self.fields
        setup = Setup.of(fields, self.accelerate)
        if setup.gpus % setup.tensor_parallel and not setup.served:
            engine = f"vllm_tensor_parallel_size is {setup.tensor_parallel}"
            raise UserError(f"{engine}, which does not divide the {setup.gpus} processes; set it to 1, or start others")
        passes = setup.batch * setup.gpus
        counts = {"num_generations": fields["num_generations"]}
        if setup.gpus == processes_of(self.recipe_fields, setup.gpus):
            counts["rows of a pass on all GPUs"] = passes
        for name, count in counts.items():
            if setup.rollouts % count:
                raise UserError(f"a generation has {setup.rollouts} rollouts; expected a multiple of {count} ({name})")
        return setup


def launch_parser(command: str, about: str, example: str) -> CommandParser:
    """Make the parser of a command that takes a recipe, and pairs for `Launch.read` that override its fields."""
    about += f"\nAny field of the recipe can be overridden:\n\n  {command} {example}"
    made = CommandParser(command, "RECIPE [OPTIONS] [--FIELD VALUE …]", about)
    made.add_argument("recipe", metavar="RECIPE", help=f"Recipe: a file or one of {', '.join(shipped('recipes'))}.")
    made.add_argument("--accelerate_config", metavar="NAME", help="Accelerate configuration. Default: the recipe's.")
    return made
