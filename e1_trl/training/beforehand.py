"""Refusals and warnings before a training, of faults that would stay silent while it runs.

A dataset is refused before the model is loaded.
"""

import inspect
import logging
import os
from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import is_peft_model, parse_flag_from_env
from datasets import Dataset
from peft import PeftConfig
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_utils import SaveStrategy

from e1_trl.arguments import OF_A_WHOLE_BASE
from e1_trl.budget import PROMPT
from e1_trl.errors import UserError
from e1_trl.marker import Marker
from e1_trl.problems.prompts import MEASURED, drop_long, explain_unthinking
from e1_trl.training.arguments import ROUNDS_AWAY
from e1_trl.training.config import E1Config
from e1_trl.training.groups import Advantage, GroupReward
from e1_trl.training.progress import columns_of
from e1_trl.training.rewards import Accuracy, Reward, name_of, warn_of_thinking

logger = logging.getLogger(__name__)

# Columns that rewards receive of every completion, next to the dataset's.
ROLLOUT_COLUMNS = frozenset(["solution_text", *columns_of((), ())])
TRLS_REWARD_ARGUMENTS = frozenset(
    ["prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric"]
)
MEANS_OVER_ROWS = {"grpo", "sapo", "dr_grpo", "luspo"}  # losses in which a row counts even if it has no token
UNMERGED = ["ADALORA", "OSF", "TRAINABLE_TOKENS"]  # kinds of adapters that cannot be merged, and fields of such
UNMERGED += ["layer_replication", "alora_invocation_tokens", "trainable_token_indices", "is_prompt_learning"]


def check_datasets(
    train: Dataset,
    evaluation: Dataset | dict[str, Dataset] | None,
    rewards: Sequence[Reward],
    args: E1Config,
    tokenizer: PreTrainedTokenizerBase,
) -> tuple[Dataset, Dataset | dict[str, Dataset] | None]:
    """Check that rewards find their columns and prompts let the model think, and drop rows with too long prompts.

    Fewer prompts than one generation takes are refused, too: TRL would end before the first step.
    """

    def check(dataset: Dataset) -> Dataset:
        _check_columns(dataset, rewards, args)
        if MEASURED in dataset.column_names:  # by `e1_trl.training.data.load`
            return dataset
        template = args.chat_template_kwargs or {}
        marker = Marker.from_tokenizer(tokenizer, args.marker, args.forced_text)
        measured = drop_long(dataset, tokenizer, args.max_prompt_length or PROMPT, template, marker)
        if dataset is train and (unasked := explain_unthinking(tokenizer, marker, measured[0]["prompt"], template)):
            logger.warning("%s", unasked)
        return measured

    train = check(train)
    needed = args.generation_batch_size // args.num_generations
    if len(train) < needed:
        raise UserError(
            f"{len(train)} prompts are too few to train on: one generation takes {needed} (generation_batch_size = "
            f"{args.generation_batch_size} rollouts, {args.num_generations} of each)"
        )
    if isinstance(evaluation, dict):
        return train, {name: check(each) for name, each in evaluation.items()}
    return train, None if evaluation is None else check(evaluation)


def _check_columns(dataset: Dataset, rewards: Sequence[Reward], args: E1Config) -> None:
    if not isinstance(dataset, Dataset):
        raise UserError(f"prompts are checked before training; give a loaded Dataset, not {type(dataset).__name__}")
    columns = set(dataset.column_names)
    if "prompt" not in columns:
        raise UserError(f"the dataset has no column 'prompt', only {', '.join(sorted(columns))}; rename one")
    taken = ROLLOUT_COLUMNS
    if not all(isinstance(reward, Accuracy) for reward in rewards):  # to which TRL passes these
        taken |= {"prompts", "completions"}
    if clash := sorted(columns & taken):
        raise UserError(f"the dataset's column {clash[0]!r} is also one of the rollout's; rename it")
    if pictures := sorted(columns & {"image", "images"}):
        raise UserError(f"the dataset has a column {pictures[0]!r}; budgeted rollouts take text only, remove it")
    graded = any(isinstance(reward, Accuracy) for reward in rewards)
    kept = {"prompt"} if args.remove_unused_columns else columns
    given = kept | ROLLOUT_COLUMNS | TRLS_REWARD_ARGUMENTS
    for reward in rewards:
        said = f"the reward {name_of(reward)}"
        if isinstance(reward, GroupReward) and reward.needs_accuracy and not graded:
            raise UserError(f"{said} must know which answers are right; add accuracy to reward_funcs")
        if isinstance(reward, str | torch.nn.Module):  # a reward model, which takes text
            continue
        parameters = inspect.signature(reward).parameters
        for name, each in parameters.items():
            needed = each.default is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
            if needed and name not in given:
                raise UserError(
                    f"{said} takes {name!r}, which is neither a column of the dataset ({', '.join(sorted(kept))}"
                    f"{', as remove_unused_columns is true' * args.remove_unused_columns}) nor one of a completion "
                    f"({', '.join(sorted(ROLLOUT_COLUMNS))}); rename it, or set it: {{name: …, {name}: …}}"
                )
        if all(each.kind is not each.VAR_KEYWORD for each in parameters.values()):
            raise UserError(f"{said} must end with **others, as it gets all columns, or be named with its options")


def check_advantage(args: E1Config, advantage: Advantage | None, rewards: Sequence[Reward]) -> None:
    """Raise a `UserError` if a setting needs TRL's advantages, or if it is one that `advantage` does not read."""
    if advantage is None:
        return
    for name, usual in (("multi_objective_aggregation", "sum_then_normalize"), ("scale_rewards", "group")):
        if (value := getattr(args, name)) != usual:
            raise UserError(f"{name} is {value}, which `advantage` does not read; remove one")
    if args.loss_type == "vespo" or args.off_policy_mask_threshold is not None:
        raise UserError(
            "loss_type vespo and off_policy_mask_threshold need one advantage of a completion, and `advantage` may "
            "give its thinking and its solution two; remove one"
        )
    if check := getattr(getattr(advantage, "func", advantage), "check_settings", None):  # of `training.advantages`
        check(advantage, args, rewards)


def check_precision(args: E1Config, model: str | PreTrainedModel, adapter: Any = None) -> None:
    """Raise a `UserError` for 16-bit weights without fp32 masters, which only DeepSpeed and FSDP keep.

    `model` is a name, or the model to train; with `adapter`, PEFT's configuration, an adapter in fp32 is trained.
    """
    if isinstance(adapter, PeftConfig):
        _check_adapter(args, adapter)
    if (version := _fsdp_version(args)) == 1:  # TRL never sees the weights of its outermost unit, maybe all
        raise UserError("under FSDP's version 1, vLLM would not get all weights; set fsdp_version to 2 in fsdp_config")
    if args.deepspeed_plugin is not None or version or adapter is not None:
        return
    low = [dtype for dtype in _trained_dtypes(args, model) if dtype.itemsize == 2]
    if low:
        name = str(low[0]).removeprefix("torch.")
        raise UserError(f"dtype is {name}, and learning_rate is {args.learning_rate:g}: {ROUNDS_AWAY}")


def _fsdp_version(args: E1Config) -> int:
    """Return the version of FSDP by the recipe, or else by Accelerate's configuration; 0 without it."""
    if args.fsdp:
        return int(args.fsdp_plugin_args["fsdp_version"])
    return parse_flag_from_env("ACCELERATE_USE_FSDP") and int(os.environ.get("FSDP_VERSION", "1"))


def _trained_dtypes(args: E1Config, model: str | PreTrainedModel) -> set[torch.dtype]:
    if not isinstance(model, str):
        if getattr(model, "is_loaded_in_4bit", False) or getattr(model, "is_loaded_in_8bit", False):
            raise UserError("the model is quantized by bitsandbytes, which vLLM no longer has; train another one")
        return {each.dtype for each in model.parameters() if each.requires_grad}
    given = (args.model_init_kwargs or {}).get("dtype", "float32")  # TRL's default
    if given in ("auto", None):
        revision = (args.model_init_kwargs or {}).get("revision")
        given = AutoConfig.from_pretrained(model, revision=revision, trust_remote_code=args.trust_remote_code).dtype
    dtype = getattr(torch, given) if isinstance(given, str) else given
    return set() if dtype is None else {dtype}


def _check_adapter(args: E1Config, config: Any) -> None:
    """Raise a `UserError` for PEFT's configuration of an adapter that cannot be merged, or changes its base."""
    name = str(config.peft_type.value)
    plugin = args.deepspeed_plugin
    if plugin is not None and plugin.zero_stage < 3 and (args.bf16 or args.fp16):
        raise UserError(
            f"under ZeRO-{plugin.zero_stage} an adapter's base changes, as 16 bits round it at each merge for vLLM; "
            "use accelerate_config zero3, or dtype float32 without DeepSpeed"
        )
    if name in UNMERGED or (found := [each for each in UNMERGED if getattr(config, each, None)]):
        what = name if name in UNMERGED else f"{name} with {found[0]}"
        raise UserError(f"the adapter is {what}, which cannot be merged into the weights that vLLM gets; train LoRA")
    bias = getattr(config, "bias", "none")
    start = str(getattr(config, "init_lora_weights", True)).lower()
    if args.beta and (bias != "none" or start not in OF_A_WHOLE_BASE):
        raise UserError(
            f"beta compares with a base, which bias {bias} with init_lora_weights {start} changes; unset beta"
        )


def _ends(model: PreTrainedModel) -> list[torch.nn.Module]:
    return [*filter(None, (model.get_input_embeddings(), model.get_output_embeddings()))]


def _unread(model: PreTrainedModel) -> dict[str, torch.nn.Parameter]:
    """Return the trained parameters of a model's parts that read images, by name."""
    if model.config.get_text_config() is model.config:
        return {}
    read = {id(each) for part in (model.get_decoder(), *_ends(model)) for each in part.parameters()}
    return {name: each for name, each in model.named_parameters() if each.requires_grad and id(each) not in read}


def _check_adapters(args: E1Config, model: PreTrainedModel) -> None:
    """Raise a `UserError` for a model with adapters that train nothing, or that vLLM would not get whole."""
    if not any(each.requires_grad for each in model.parameters()):
        raise UserError("no weight of the adapter is trained; load it with is_trainable=True")
    for config in model.peft_config.values():
        _check_adapter(args, config)
        if isinstance(config.target_modules, set):
            config.target_modules = sorted(config.target_modules)  # else the file differs from one save to the next
    base = model.get_base_model()
    trained = any(each.requires_grad for end in _ends(base) for each in end.parameters())
    if unread := _unread(base):
        raise UserError(
            f"the adapter trains {min(unread)}, which no text reaches and vLLM leaves out; set target_modules, or "
            "lora_target_modules, to the language model's, such as .*language_model.*_proj"
        )
    if trained and base.config.get_text_config().tie_word_embeddings:
        raise UserError(
            "the adapter trains embeddings that are tied to the head, which vLLM would not get; leave them out of "
            "target_modules and modules_to_save"
        )


def check_model(args: E1Config, model: PreTrainedModel) -> None:
    """Check precision and adapter of a loaded model, freeze its parts that read images, and make it savable.

    No gradient reaches those parts: DDP would wait for one, and an optimizer would hold states for nothing.
    At the first checkpoint, Transformers refuses to save a model with sampling parameters but without `do_sample`.
    """
    check_precision(args, model)
    if is_peft_model(model):
        _check_adapters(args, model)
    else:
        for each in _unread(model).values():
            each.requires_grad_(False)
    if model.generation_config is not None:
        try:
            model.generation_config.validate(strict=True)
        except ValueError:
            model.generation_config.do_sample = True


def warn_beforehand(args: E1Config, model: PreTrainedModel, rewards: Sequence[Reward], names: Sequence[str]) -> None:
    """Warn of settings with which a training learns less than its recipe says, or something else."""
    warn_of_thinking(names, rewards)
    if args.top_p < 1:
        logger.warning(
            "top_p is %g: vLLM samples from another distribution than the trainer computes; set it to 1", args.top_p
        )
    if is_peft_model(model) and any(each.itemsize == 2 and not each.requires_grad for each in model.parameters()):
        said = "the adapter is merged for vLLM into weights of 16 bits: small changes round away, and the base drifts"
        logger.warning("%s; set dtype to float32, without DeepSpeed, which casts the weights", said)
    if args.mask_truncated_completions and args.loss_type in MEANS_OVER_ROWS:
        logger.warning(
            "mask_truncated_completions with loss_type %s: masked completions count in the loss's mean over rows, "
            "so the gradient shrinks by their share; loss_type dapo divides by the remaining tokens",
            args.loss_type,
        )
    generation = args.steps_per_generation * args.num_iterations
    is_inside = args.save_steps >= 1 and args.save_steps * args.gradient_accumulation_steps % generation  # not a share
    if args.save_strategy == SaveStrategy.STEPS and is_inside:
        logger.warning(
            "save_steps is %d, and a generation lasts %g optimizer steps: a training that resumes inside "
            "a generation samples it again and goes on with other rollouts; set save_steps to a multiple",
            *(args.save_steps, generation / args.gradient_accumulation_steps),
        )
    if args.eval_strategy != "no" and not args.eval_budgets and args.budgets.fixed is None:
        logger.warning(
            "evaluations sample at the scheduled budgets of their step (%s), so their curve mixes policy and budget; "
            "eval_budgets evaluates at fixed ones",
            args.budgets,
        )
