"""A recipe and an Accelerate configuration as they are launched, and what of them and of the model decides memory."""

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
# Configurations of the recipes' models, all Qwen2, so that nobody need have them at hand.
KNOWN = read_mapping(Path(__file__).with_name("models.yaml"))
FORCED = 1  # token, of the marker
OWN = (*FIELDS, "max_prompt_length", "padding_free", "gpu_memory")
RECORDS = (TrlFields, BudgetedTraining, RecipeArguments)
HINTS = {name: hint for kind in RECORDS for name, hint in get_type_hints(kind, include_extras=True).items()}
# TRL's and our own, of the fields that a plan reads.
DEFAULTS: Mapping[str, Any] = {
    each.name: each.default for kind in RECORDS for each in fields(kind) if kind is TrlFields or each.name in OWN
}


@dataclass(frozen=True)
class Architecture:
    """A decoder of attention and dense layers. Counts are of numbers, not of bytes."""

    parameters: int  # tied ones count once
    output_head: int  # parameters of the matrix from hidden states to logits
    layer: int  # parameters of one, on average
    normed: int  # what the norms of a layer take of one token
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
        """The architecture of a model in a folder, of the recipes, in the Hub's cache or on the Hub, in this order.

        Raises:
            UserError: it is nowhere, or of a kind whose memory does not follow from these dimensions.
        """
        try:
            import torch
            from transformers import AutoConfig, AutoModelForCausalLM
            from transformers.modeling_utils import set_zero3_state
        except ImportError as error:
            raise UserError(f"a plan needs PyTorch (pip install 'e1-trl[train]'): {error}") from error
        options = {"revision": revision, "trust_remote_code": trust_remote_code}
        with user_errors(f"{model} cannot be planned for", Exception):  # its configuration, or its code, may raise any
            if model in KNOWN and not Path(model).is_dir():
                config = AutoConfig.for_model("qwen2", tie_word_embeddings=False, **KNOWN[model])
            else:
                try:
                    config = AutoConfig.from_pretrained(model, local_files_only=True, **options)
                except OSError:
                    config = AutoConfig.from_pretrained(model, **options)
            text = config.get_text_config()
            sizes = (read_value(f"{model}: {name}", getattr(text, name, None), Count) for name in SIZES)
            layers, hidden, mlp, heads = sizes
            types = set(getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None) or ())
            require(f"{model}: layers of", sorted(types), ["attention", "full_attention", "sliding_attention"])
            require(f"{model}: kv_lora_rank", [getattr(text, "kv_lora_rank", None)], [None])
            # Under ZeRO-3 this model would be shared out, too; so it is said to be already.
            with torch.device("meta"), set_zero3_state():
                built = AutoModelForCausalLM.from_config(text, trust_remote_code=trust_remote_code)
            output, embeddings = built.get_output_embeddings(), built.get_input_embeddings().weight
            kv_heads = getattr(text, "num_key_value_heads", None) or heads
            head = getattr(text, "head_dim", None) or hidden // heads
        for name, each in built.named_parameters():
            if each.ndim > 2 or "expert" in name:
                raise UserError(f"{model}: {name} cannot be planned for, only attention and dense layers")
        parameters = sum(each.numel() for each in built.parameters())
        outside = {output.weight, embeddings}
        norms = [each.numel() for name, each in built.named_parameters() if name.endswith("norm.weight")]
        alike = (heads + kv_heads) // 2  # queries and keys may have a norm each, which all of their heads share
        linear = [each for each in built.modules() if isinstance(each, torch.nn.Linear) and each is not output]
        windows = "sliding_attention" in types or getattr(text, "sliding_window", None)
        notes = {
            "Only the model of text is planned for.": text is not config,
            "Sliding windows are planned for as if layers saw all of the context.": windows,
        }
        return cls(
            parameters=parameters,
            output_head=output.weight.numel(),
            layer=(parameters - sum(each.numel() for each in outside)) // layers,
            normed=(sum(size * (alike if size == head else 1) for size in norms) - hidden) // layers,  # less the last
            adapted=sum(each.in_features + each.out_features for each in linear),
            layers=layers,
            hidden=hidden,
            mlp=mlp,
            heads=heads,
            kv_heads=kv_heads,
            head=head,
            notes=tuple(note for note, holds in notes.items() if holds),
        )


def require(name: str, found: Collection[Any], planned: Collection[Any]) -> None:
    """Raise a `UserError` that names the first of what is found that cannot be planned for."""
    for each in found:
        if each not in planned:
            raise UserError(f"{name} {each} cannot be planned for, only {' and '.join(map(str, planned))}")


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
