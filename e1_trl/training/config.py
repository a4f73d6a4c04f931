"""Configuration of a training: `E1Config`, GRPO's plus the budget, and `ModelFacts`, which follow from a model, too.

Knows nothing about data, rewards or a loaded model.
"""

import logging
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from torch.cuda import is_available
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin
from transformers.integrations import get_available_reporting_integrations
from transformers.trainer_utils import HubStrategy, IntervalStrategy, SaveStrategy
from trl import GRPOConfig

from e1_trl.arguments import check_fields, from_yaml, option, secrets_in
from e1_trl.budget import PROMPT, Budget, ThinkingClose
from e1_trl.engines.engine import end_ids
from e1_trl.errors import UserError, user_errors
from e1_trl.marker import Marker
from e1_trl.training.arguments import BudgetedTraining, TrlFields
from e1_trl.training.budgets import FIELDS, Budgets
from e1_trl.training.cuda import gpu_fault

logger = logging.getLogger(__name__)

# Sampling parameters that no recipe may set: they follow from the budget; or they are the seed, which every request
# derives from the recipe's; or they would start again in the solution, which is a request of its own.
OWN_SAMPLING_PARAMETERS = {
    *("n", "max_tokens", "min_tokens", "stop", "stop_token_ids", "logprobs", "detokenize", "output_kind", "seed"),
    *("frequency_penalty", "presence_penalty", "repetition_detection", "structured_outputs", "thinking_token_budget"),
}
FIELDS_OF_SAMPLING = {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"}


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "false").lower() == "true"


@dataclass
class E1Config(BudgetedTraining, GRPOConfig):
    """GRPO's configuration plus the training budget `(t*, s*)` (arXiv 2505.05315, section 3.2).

    The help of each field of `BudgetArguments` and `BudgetedTraining` describes it. Further notes:

    Parameters:
        num_completions_to_print (`int`, *optional*):
            Rollouts printed as text with each table of completions, in place of TRL's table; two if unset.
        vllm_importance_sampling_mode (`str`, defaults to `"token_truncate"`):
            TRL's default weighs a completion by the product of its tokens' ratios and drops it beyond a bound. Over
            thousands of tokens that product is mostly rounding, so here each token has its own.
        disable_dropout (`bool`, defaults to `True`), router_aux_loss_coef (`float`, defaults to 0):
            TRL's defaults keep the dropout of an adapter, and the weight of a load-balancing loss that a model was
            pretrained with (0.9 in gpt-oss).
        deepspeed_plugin:
            From the Accelerate configuration. Under ZeRO, gradients are accumulated and reduced in fp32 unless
            `data_types` and `communication_data_type` of its DeepSpeed configuration say otherwise; DeepSpeed's own
            default is the dtype in which the model computes. ZeRO-3 gathers the weights of a model that it saves.

    Raises:
        UserError: a field is of another type or beyond a limit, contradicts another or the launcher, or cannot hold
            for budgeted rollouts.
    """

    max_completion_length: int | None = option(
        None, "Default: follows from the budget. If it is set, the budget must not exceed it."
    )
    vllm_importance_sampling_mode: str = option(
        "token_truncate", "token_truncate, token_mask, sequence_truncate or sequence_mask; see TRL."
    )
    hub_strategy: HubStrategy | str = option(
        "end", "When to upload with `push_to_hub`: end (once), every_save and others."
    )
    use_vllm: bool = option(True, "Must be true: rollouts are budgeted inside vLLM.")
    disable_dropout: bool = option(True, "Train without dropout, which vLLM does not apply.")
    router_aux_loss_coef: float | None = option(
        0.0, "Weight of the load-balancing loss of a mixture of experts; null: its configuration's, which may be large."
    )

    def __post_init__(self) -> None:
        self.metric_for_best_model: str | None = self.metric_for_best_model or None  # "" unsets a recipe's
        chooses_best = self.metric_for_best_model is not None or self.load_best_model_at_end
        if str(self.scale_rewards).lower() in ("true", "false"):  # text where it comes from a file or command line
            self.scale_rewards: str = "group" if str(self.scale_rewards).lower() == "true" else "none"
        check_fields(self, BudgetedTraining, TrlFields)
        if self.eval_budgets:  # replaces TRL's evaluation, whose batch would have to be divisible
            self.num_generations_eval: int | None = 1
            self.eval_steps: float | None = self.eval_steps or 10
            if self.eval_strategy == IntervalStrategy.NO:
                self.eval_strategy: IntervalStrategy | str = IntervalStrategy.STEPS
        self._check_environment()
        # A single process has no process group, except under DeepSpeed, which makes a group even of one.
        if os.environ.get("WORLD_SIZE", "1") == "1" and not _is_set("ACCELERATE_USE_DEEPSPEED"):
            self.ddp_backend: str | None = None  # Transformers would ask for the size of a group that does not exist
        super().__post_init__()
        if self.fp16 and self.device.type == "cpu":  # Accelerate would train in fp32, without a word
            raise UserError("fp16 is true, and only GPUs compute in it; set fp16 and bf16 to false")
        if self.restore_callback_states_from_checkpoint:
            raise UserError("restore_callback_states_from_checkpoint would replace our callbacks; remove it")
        if self.accelerator_config.split_batches or self.accelerator_config.dispatch_batches:
            raise UserError("unset accelerator_config's split_batches and dispatch_batches, which prompts do not allow")
        if self.max_generated_tokens is not None and self.logging_strategy == IntervalStrategy.NO:
            raise UserError(
                "max_generated_tokens is checked at logged steps, and logging_strategy is no; set it to steps"
            )
        installed = get_available_reporting_integrations()
        if absent := [name for name in self.report_to if name not in installed]:  # else an error after loading
            raise UserError(f"report_to names {absent[0]!r}, which is not installed; pip install {absent[0]}")
        if self.deepspeed_plugin is not None and self.deepspeed_plugin.zero_stage >= 1:
            settings = self.deepspeed_plugin.deepspeed_config
            settings.setdefault("communication_data_type", "fp32")
            settings.setdefault("data_types", {}).setdefault("grad_accum_dtype", "fp32")
            # Else ZeRO-3 saves shards in place of a model.
            settings["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] = True
        for name in FIELDS:
            setattr(self, name, from_yaml(name, getattr(self, name)))
        self._check_budgets()
        if chooses_best:
            self._check_best()
        self._check_rollouts()
        if self.push_to_hub:
            self._check_upload()

    def _check_environment(self) -> None:
        if not (self.use_cpu or _is_set("ACCELERATE_USE_CPU")) and (fault := gpu_fault()) is not None:
            raise UserError(fault)
        # Transformers silently prefers the recipe's precision to the launcher's.
        own = "fp16" if self.fp16 else "no" if self.bf16 is False else "bf16"  # unset, bf16 is true in TRL
        if (launchers := os.environ.get("ACCELERATE_MIXED_PRECISION", "no")) not in ("no", own):
            raise UserError(
                f"mixed precision is {own} in the recipe (fp16, bf16) and {launchers} in the Accelerate configuration "
                "(mixed_precision); make them equal, or set mixed_precision to 'no', which leaves it to the recipe"
            )
        size = os.environ.get("WORLD_SIZE", "1")
        if size != "1" and _is_set("ACCELERATE_USE_DEEPSPEED") and not (is_available() or self.ddp_backend):
            raise UserError(f"each of {size} processes would train alone: on CPUs, DeepSpeed needs ddp_backend: gloo")

    def _check_budgets(self) -> None:
        forks = self.budgets.forks
        rows = self.per_device_train_batch_size * self.steps_per_generation  # which TRL has set by now
        named = "per_device_train_batch_size * steps_per_generation"
        for name, count in (("num_generations", self.num_generations), (named, rows)):
            if count % forks:
                raise UserError(f"{name} is {count}; expected a multiple of the {forks} forks of thinking_budget")
        best = f"eval_{(self.metric_for_best_model or '').removeprefix('eval_')}"
        metrics = [f"eval_budget/{budget}/accuracy" for budget in self.evaluation_budgets]
        if metrics and self.metric_for_best_model is not None and best not in metrics:
            raise UserError(
                f"metric_for_best_model is {self.metric_for_best_model!r}, and eval_budgets measure "
                f"{', '.join(metrics)}"
            )

    def _check_best(self) -> None:
        """Raise a `UserError` if the best validation may have no checkpoint, or the last step none next to it."""
        validates = IntervalStrategy(self.eval_strategy)
        saves = SaveStrategy(self.save_strategy)
        if self.metric_for_best_model is None or validates == "no" or saves in (SaveStrategy.NO, SaveStrategy.BEST):
            return
        if self.save_total_limit == 1:  # then Transformers deletes the last one as the training ends
            raise UserError("save_total_limit is 1, and metric_for_best_model keeps the best and the last; set it to 2")
        given = f"eval_strategy {validates.value} and save_strategy {saves.value}"
        if validates.value == saves.value:
            # Without max_steps, shares are of a number of steps that is not known yet.
            every, saved = (
                math.ceil(self.max_steps * each) if each < 1 and self.max_steps > 0 else each
                for each in (self.eval_steps or 0, self.save_steps)
            )
            if validates == IntervalStrategy.EPOCH or every == saved or (min(every, saved) >= 1 and every % saved == 0):
                return
            given = f"eval_steps {self.eval_steps:g} and save_steps {self.save_steps:g}"
        raise UserError(
            f"metric_for_best_model with {given}: where the best validation has no checkpoint, another model would be "
            "kept; make the two equal"
        )

    def _check_rollouts(self) -> None:
        if not self.use_vllm:
            raise UserError("use_vllm is false; budgeted rollouts need vLLM (vllm_mode 'colocate' or 'server')")
        if self.vllm_structured_outputs_regex is not None:
            raise UserError("vllm_structured_outputs_regex cannot hold over a rollout's two requests; remove it")
        given = self.generation_kwargs if isinstance(self.generation_kwargs, dict) else {}
        if own := sorted(FIELDS_OF_SAMPLING & given.keys()):
            raise UserError(f"generation_kwargs sets {own}, which have fields of their own; set those")
        if own := sorted(OWN_SAMPLING_PARAMETERS & given.keys()):
            raise UserError(f"generation_kwargs sets {own}, which cannot hold over a rollout's two requests; remove it")

    def _check_upload(self) -> None:
        if secret := secrets_in(vars(self)):
            raise UserError(
                f"{secret[0]} is set, and would be uploaded inside training_args.bin; set the variable HF_TOKEN "
                "instead, or log in with `hf auth login`"
            )
        tables = Path(self.output_dir) / "completions"
        if tables.is_dir() and not tables.is_symlink():
            raise UserError(
                f"{tables} holds a run's completions, which push_to_hub would upload with the model; move it away"
            )

    @property
    def n_gpu(self) -> int:
        """At most one GPU: Transformers would copy the model to all GPUs that it sees, which TRL refuses."""
        return min(super().n_gpu, 1)

    @property
    def budgets(self) -> Budgets:
        return Budgets.of(vars(self))

    @property
    def evaluation_budgets(self) -> list[Budget]:
        return [Budget.parse(text) for text in self.eval_budgets]

    def longest_prompt(self, marker: Marker, model_context: int) -> int:
        """Return `max_prompt_length`; if unset, the default, or less if the budgets leave less of the context."""
        if self.max_prompt_length is not None:
            return self.max_prompt_length
        close = ThinkingClose(marker, self.vllm_max_model_length or model_context)
        left = min(budget.longest_prompt(close) for budget in (*self.budgets.extremes(), *self.evaluation_budgets))
        return max(1, min(PROMPT, left))  # if nothing is left, a prompt of one token is refused

    def fit(self, marker: Marker, model_context: int) -> tuple[ThinkingClose, int]:
        """Return the close of the thinking and the longest completion in tokens for a model of `model_context` tokens.

        If the budget is limited, the context is no longer than needed. Raises a `UserError` if it is too short.
        """
        prompt = self.longest_prompt(marker, model_context)
        budgets = (*self.budgets.extremes(), *self.evaluation_budgets)
        whole = ThinkingClose(marker, model_context)
        lengths = [budget.completion_tokens(whole.forced_after(budget.thinking)) for budget in budgets]
        needed = [model_context if tokens is None else prompt + tokens for tokens in lengths]
        close = replace(whole, context=self.vllm_max_model_length or min(max(needed), model_context))
        for budget in budgets:
            budget.thinking_limit(prompt, close)
        longest = max(tokens or close.context - prompt for tokens in lengths[: len(self.budgets.extremes())])
        if self.max_completion_length is not None and self.max_completion_length < longest:
            raise UserError(
                f"max_completion_length is {self.max_completion_length}, but the budget {self.budgets} with its "
                f"forced tokens makes completions of up to {longest} tokens; lower the budget, or leave it unset"
            )
        return close, self.max_completion_length or longest


@dataclass(frozen=True)
class ModelFacts:
    """Tokenizer, close of the thinking, and longest completion of a training, before the model's weights are loaded."""

    tokenizer: PreTrainedTokenizerBase
    thinking_close: ThinkingClose
    completion: int  # tokens

    @classmethod
    def of(cls, args: E1Config, model: str | PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None) -> Self:
        """Fit the budget into a model's context, and set `max_prompt_length` of `args` if it is unset."""
        if isinstance(tokenizer, ProcessorMixin):
            tokenizer = tokenizer.tokenizer
        name = model if isinstance(model, str) else model.name_or_path
        hub = {"revision": (args.model_init_kwargs or {}).get("revision"), "trust_remote_code": args.trust_remote_code}
        with user_errors(f"the model {name}", OSError, ValueError):
            if tokenizer is None:
                tokenizer = AutoTokenizer.from_pretrained(
                    name, padding_side="left", truncation_side="left", mistral_format=False, **hub
                )
            config = AutoConfig.from_pretrained(name, **hub) if isinstance(model, str) else model.config
        marker = Marker.from_tokenizer(tokenizer, args.marker, args.forced_text)
        marker.check(end_ids(name, hub["revision"], tokenizer, args.trust_remote_code))
        context = config.get_text_config().max_position_embeddings
        close, completion = args.fit(marker, context)
        prompt = args.longest_prompt(marker, context)
        if args.max_prompt_length is None and prompt < PROMPT:
            logger.warning(
                "max_prompt_length is unset: %d tokens, which is what the budgets leave of the context of %d",
                *(prompt, args.vllm_max_model_length or context),
            )
        args.max_prompt_length = prompt
        return cls(tokenizer, close, completion)
