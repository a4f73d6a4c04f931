"""Launches and their memory: a recipe under an Accelerate configuration, and the numbers that decide its memory."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from e1_trl.arguments import Count, Natural, from_yaml, read_value
from e1_trl.budget import PROMPT
from e1_trl.command_line import CommandParser
from e1_trl.errors import UserError, user_errors
from e1_trl.recipes import fields_of, read_mapping, resource, shipped
from e1_trl.training.arguments import BudgetedTraining, TrlFields
from e1_trl.training.budgets import FIELDS, Budgets
from e1_trl.training.recipe_arguments import RecipeArguments

SIZES = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
# Configurations of the recipes' models, all Qwen2, so that a plan downloads nothing.
KNOWN = read_mapping(Path(__file__).with_name("models.yaml"))
FORCED = 1  # token of the end-of-thinking marker
OWN = (*FIELDS, "max_prompt_length", "padding_free", "gpu_memory")
RECORDS = (TrlFields, BudgetedTraining, RecipeArguments)
HINTS = {name: hint for kind in RECORDS for name, hint in get_type_hints(kind, include_extras=True).items()}
# Defaults, TRL's and our own, of the fields that a plan reads.
DEFAULTS: Mapping[str, Any] = {
    each.name: each.default for kind in RECORDS for each in fields(kind) if kind is TrlFields or each.name in OWN
}


@dataclass(frozen=True)
class Architecture:
    """A decoder of attention and dense layers, counted in numbers, not bytes."""

    parameters: int  # tied weights count once
    output_head: int  # parameters of the matrix from hidden states to logits
    layer: int  # mean parameters of a layer
    normed: int  # inputs of a layer's norms for one token
    adapted: int  # parameters of a LoRA adapter of rank 1 on all linear layers but the output head
    layers: int
    hidden: int
    mlp: int  # width within a layer
    heads: int
    kv_heads: int
    head: int  # dimensions
    notes: tuple[str, ...]  # sentences on what a plan leaves out

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache of one token, in bfloat16."""
        return 4 * self.layers * self.kv_heads * self.head

    @classmethod
    @cache
    def of(cls, model: str, revision: str | None = None, trust_remote_code: bool = False) -> "Architecture":
        """Return the architecture of a model: from a folder, the recipes' models, the Hub's cache or the Hub.

        Raises:
            UserError: the model is not found, or its memory does not follow from these dimensions.
        """
        try:
            import torch
        except ImportError as error:
            raise UserError(f"a plan needs PyTorch (pip install 'e1-trl[train]'): {error}") from error
        with user_errors(f"{model} cannot be planned for", Exception):  # code on the Hub may raise anything
            config = _read_config(model, revision, trust_remote_code)
            text = config.get_text_config()
            sizes = (read_value(f"{model}: {name}", getattr(text, name, None), Count) for name in SIZES)
            layers, hidden, mlp, heads = sizes
            types = set(getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None) or ())
            require(f"{model}: layers of", sorted(types), ["attention", "full_attention", "sliding_attention"])
            require(f"{model}: kv_lora_rank", [getattr(text, "kv_lora_rank", None)], [None])
            built = _build(text, trust_remote_code)
            output = built.get_output_embeddings()
            embeddings = built.get_input_embeddings().weight
            kv_heads = getattr(text, "num_key_value_heads", None) or heads
            head = getattr(text, "head_dim", None) or hidden // heads
        for name, each in built.named_parameters():
            if each.ndim > 2 or "expert" in name:
                raise UserError(f"{model}: {name} cannot be planned for, only attention and dense layers")
        parameters = sum(each.numel() for each in built.parameters())
        norms = [each.numel() for name, each in built.named_parameters() if name.endswith("norm.weight")]
        alike = (heads + kv_heads) // 2  # all heads share one norm of queries and one of keys, if any
        windows = "sliding_attention" in types or getattr(text, "sliding_window", None)
        notes = {
            "Only the text model is planned for.": text is not config,
            "Sliding windows are planned for as if layers saw the whole context.": windows,
        }
        linear = [each for each in built.modules() if isinstance(each, torch.nn.Linear) and each is not output]
        return cls(
            parameters=parameters,
            output_head=output.weight.numel(),
            layer=(parameters - sum(each.numel() for each in {output.weight, embeddings})) // layers,
            # Without the last norm.
            normed=(sum(size * (alike if size == head else 1) for size in norms) - hidden) // layers,
            adapted=sum(each.in_features + each.out_features for each in linear),
            layers=layers,
            hidden=hidden,
            mlp=mlp,
            heads=heads,
            kv_heads=kv_heads,
            head=head,
            notes=tuple(note for note, holds in notes.items() if holds),
        )


def _read_config(model: str, revision: str | None, trust_remote_code: bool) -> Any:
    from transformers import AutoConfig

    if model in KNOWN and not Path(model).is_dir():
        return AutoConfig.for_model("qwen2", tie_word_embeddings=False, **KNOWN[model])
    options = {"revision": revision, "trust_remote_code": trust_remote_code}
    try:
        return AutoConfig.from_pretrained(model, local_files_only=True, **options)
    except OSError:
        return AutoConfig.from_pretrained(model, **options)


def _build(config: Any, trust_remote_code: bool) -> Any:
    """Build a model without values. Under ZeRO-3 it would be sharded, so Transformers is told that it already is."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.modeling_utils import set_zero3_state

    with torch.device("meta"), set_zero3_state():
        return AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)


def require(name: str, found: Collection[Any], planned: Collection[Any]) -> None:
    """Raise a `UserError` that names the first value found that is not among the planned ones."""
    for each in found:
        if each not in planned:
            raise UserError(f"{name} {each} cannot be planned for, only {' and '.join(map(str, planned))}")


@dataclass(frozen=True)
class Setup:
    """One training on one node."""

    architecture: Architecture
    gpus: int
    zero: int  # the stage; 0 is DistributedDataParallel, where each GPU holds everything
    offload: bool  # the optimizer's state is in the host's memory
    dtype: int  # bytes of a weight
    adapter: int | None  # parameters of the trained LoRA adapter; None if the whole model is trained
    reference: bool
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

    @property
    def rounds_away(self) -> bool:
        """Return whether steps are lost in weights of 16 bits, of which only DeepSpeed keeps fp32 masters."""
        return self.dtype == 2 and self.zero == 0 and self.adapter is None

    @classmethod
    def of(cls, recipe: Mapping[str, Any], accelerate: Mapping[str, Any]) -> "Setup":
        """Return the setup of a recipe's fields under an Accelerate configuration's.

        Raises:
            UserError: a field has a value that cannot be planned for.
        """
        fields = {**recipe, **read_fields(recipe)}
        if not fields.get("model_name_or_path"):
            raise UserError("the recipe names no model (model_name_or_path)")
        model = read_value("model_name_or_path", fields["model_name_or_path"], str)
        prompt = fields["max_prompt_length"] or PROMPT
        context = prompt + _completion(fields)
        zero, offload = _read_sharding(accelerate)
        if fields["use_peft"] and fields["lora_target_modules"] != ["all-linear"]:
            require("lora_target_modules", [fields["lora_target_modules"]], ["all-linear"])
        require("optim", [getattr(fields["optim"], "value", fields["optim"])], ["adamw_torch", "adamw_torch_fused"])
        gpus = read_value("num_processes", accelerate.get("num_processes", 1), Count)
        batch = fields["per_device_train_batch_size"]
        accumulation = fields["gradient_accumulation_steps"]
        rollouts = fields["generation_batch_size"] or batch * gpus * (fields["steps_per_generation"] or accumulation)
        architecture = Architecture.of(model, fields["model_revision"], fields["trust_remote_code"])
        return cls(
            architecture=architecture,
            gpus=gpus,
            zero=zero,
            offload=offload,
            # DeepSpeed computes in bf16, whatever the model was loaded in.
            dtype=4 if fields["dtype"] in ("float32", "auto", None) and zero == 0 else 2,
            adapter=architecture.adapted * fields["lora_r"] if fields["use_peft"] else None,
            reference=fields["beta"] != 0,
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
    require("distributed_type", [kind], ["DEEPSPEED", "MULTI_GPU", "NO"])
    require("offload_param_device", [deepspeed.get("offload_param_device", "none")], ["none"])
    require("offload_optimizer_device", [offload], ["none", "cpu"])
    zero = read_value("zero_stage", deepspeed.get("zero_stage", 0), Natural) if kind == "DEEPSPEED" else 0
    return zero, offload == "cpu"


def _checkpoints(fields: Mapping[str, Any]) -> int:
    """Count the checkpoints on disk at once; without `max_steps`, as many as `save_total_limit` allows."""
    if fields["save_strategy"] == "no":
        return 0
    limit = max(0, fields["save_total_limit"] or 0)
    if fields["max_steps"] <= 0:
        return limit + 1
    every = fields["save_steps"] if fields["save_steps"] >= 1 else fields["save_steps"] * fields["max_steps"]
    saves = math.ceil(fields["max_steps"] / every)
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
        """Read a recipe by name or file, and pairs `--field value` that override it; None keeps the files' values.

        Raises:
            UserError: a file cannot be read, no Accelerate configuration is named, or the words are not pairs.
        """
        file = resource("recipes", recipe)
        fields = fields_of(file)
        if len(words) % 2 or any(not word.startswith("--") for word in words[::2]):
            raise UserError(f"expected pairs --FIELD VALUE that override the recipe, found {' '.join(words)}")
        pairs = zip(words[::2], words[1::2], strict=True)
        name = accelerate_config or fields.get("accelerate_config")
        if name is None:
            raise UserError(f"{recipe} has no accelerate_config: pass --accelerate_config NAME")
        accelerate = read_mapping(resource("accelerate_configs", name))
        if processes:
            accelerate["num_processes"] = processes
        given = {field.removeprefix("--"): from_yaml(field, value) for field, value in pairs}
        return cls(file, fields, given, name, accelerate)

    @property
    def fields(self) -> dict[str, Any]:
        """All fields, with defaults where a plan needs them."""
        given = {**self.recipe_fields, **self.given}
        return {**given, **read_fields(given)}

    @property
    def setup(self) -> Setup:
        return Setup.of(self.fields, self.accelerate)


def launch_parser(command: str, about: str, example: str) -> CommandParser:
    """Make the parser of a command that takes a recipe, and pairs for `Launch.read` that override its fields."""
    about += f"\nAny field of the recipe can be overridden:\n\n  {command} {example}"
    made = CommandParser(command, "RECIPE [OPTIONS] [--FIELD VALUE …]", about)
    made.add_argument("recipe", metavar="RECIPE", help=f"Recipe: a file or one of {', '.join(shipped('recipes'))}.")
    made.add_argument("--accelerate_config", metavar="NAME", help="Accelerate configuration. Default: the recipe's.")
    return made
