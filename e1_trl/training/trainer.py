"""TRL's GRPO with budget-constrained rollouts: `E1Trainer`. All else is TRL's: loss, DeepSpeed, checkpoints."""

import copy
import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from accelerate.utils import is_peft_model
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback, ProgressCallback

from e1_trl.budget import Budget
from e1_trl.engines.colocated import make_training_engine
from e1_trl.engines.engine import OnCompletion, ignore
from e1_trl.errors import UserError
from e1_trl.rollout import Completion, Rollout, ThinkingEnd
from e1_trl.training import beforehand
from e1_trl.training.budgets import Generation, RolloutKey, key_of
from e1_trl.training.callbacks import DataOrder, MasterWeights, ResumedFields, RewardState, StartChecks, TokenLimit
from e1_trl.training.config import E1Config, ModelFacts
from e1_trl.training.groups import Advantage, advantages_of, reward_groups
from e1_trl.training.phases import SAMPLING, SCORING, SYNC, Phases
from e1_trl.training.progress import Progress, columns_of, metrics_of, transcripts
from e1_trl.training.rewards import Accuracy, Reward
from e1_trl.training.scoring import PARTS_ON_CPU, Layout, layout_of, scored
from e1_trl.trl_internals import HookedTrainer, starting
from e1_trl.versions import check_versions

check_versions()


class E1Trainer(HookedTrainer):
    """GRPO in which every completion is sampled under the separate budgets of Elastic Reasoning.

    Takes the arguments of `GRPOTrainer` except `rollout_func`, `tools` and `environment_factory`. Datasets cannot be
    streamed; prompts longer than `max_prompt_length` are dropped with a warning. Reward functions receive the dataset's
    columns and, for each completion, `solution_text` (the graded text after the close of the thinking, "" if there is
    none), `thinking_end` (`"closed"`, `"forced"`, `"eos"` or `"total"`), `thinking_tokens`, `thinking_budget`,
    `solution_tokens` and `solution_truncated`. `advantage` replaces TRL's advantages by a function of a group. Without
    `e1_trl.training.cards.write_cards`, the model card is TRL's.

    Raises:
        UserError: budget, context, data, rewards and configuration do not fit together; mostly before a model loads.
        EngineError: while training, if the engine does not hold the weights that it was sent.
        RuntimeError: while training, if the loss is NaN.
    """

    def __init__(
        self,
        model: str | PreTrainedModel,
        reward_funcs: Reward | list[Reward],
        args: E1Config,
        train_dataset: Dataset,
        eval_dataset: Dataset | dict[str, Dataset] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        advantage: Advantage | None = None,
        **kwargs: Any,
    ):
        if not isinstance(args, E1Config):
            raise UserError(f"args is of {type(args).__name__}; expected E1Config, which has all fields of GRPOConfig")
        if own := [name for name in ("rollout_func", "tools", "environment_factory") if kwargs.pop(name, None)]:
            raise UserError(f"E1Trainer makes its own rollouts; it does not take {own}")
        facts = ModelFacts.of(args, model, processing_class)
        rewards = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
        beforehand.check_advantage(args, advantage, rewards)
        beforehand.check_precision(args, model, adapter=kwargs.get("peft_config"))
        with args.main_process_first(desc="checking the prompts"):
            datasets = beforehand.check_datasets(train_dataset, eval_dataset, rewards, args, facts.tokenizer)
        args = copy.copy(args)
        args.max_completion_length = facts.completion
        args.vllm_max_model_length = facts.thinking_close.context
        if isinstance(model, str) or args.beta:  # TRL spreads what one process loads over all GPUs that it sees
            args.model_init_kwargs = {"device_map": None, **(args.model_init_kwargs or {})}
        revision = (args.model_init_kwargs or {}).get("revision")
        with starting(revision if args.vllm_mode == "colocate" else None, args.world_size):
            super().__init__(
                model=model,
                reward_funcs=reward_funcs,
                args=args,
                train_dataset=datasets[0],
                eval_dataset=datasets[1],
                processing_class=facts.tokenizer,
                rollout_func=E1Trainer.rollout,
                **kwargs,
            )
        beforehand.check_model(args, self.model)
        beforehand.warn_beforehand(args, self.model, rewards, self.reward_func_names)
        self.thinking_close = facts.thinking_close
        self.budgets = args.budgets
        self._advantage = advantage  # None is TRL's
        self._advantages: list[tuple[float, float]] = []  # of this process's last rollouts: thinking and solution
        self.base: tuple[str, str | None] = (model if isinstance(model, str) else model.name_or_path, revision)
        self.write_card: Callable[..., None] | None = None
        self.validation: Callable[[], dict[str, float]] | None = None
        self._table_step = -math.inf  # when a table of completions was last logged
        self._rows: list[dict[str, Any]] = []  # dataset row of each of this process's last rollouts
        self._rollouts: list[tuple[list[int], Completion]] = []  # prompt ids and completion of each
        self._rewards: list[float] = []  # weighted sum of the rewards of each
        self._generations: Counter[tuple[bool, int]] = Counter()
        self._add_callbacks(rewards)
        self._phases = Phases(self.accelerator.device)
        self.engine = make_training_engine(
            self.vllm, self.thinking_close, self.accelerator, is_peft_model(self.model), args.seed
        )
        self.vllm.replace_sync(self._phases.measure(SYNC)(self.vllm.sync))

    def _add_callbacks(self, rewards: Sequence[Reward]) -> None:
        names: list[str] = self.reward_func_names  # keys of logs, so equal ones are numbered
        names[:] = [f"{own}_{i}" if names.count(own) > 1 else own for i, own in enumerate(names, 1)]
        for callback in (PrinterCallback, ProgressCallback):
            self.remove_callback(callback)
        causal = self._causal_model(self.model)
        self.layout, why = layout_of(causal, self.args.padding_free, self.has_aux_loss)
        own = self.optimizer is None and type(self).create_optimizer is E1Trainer.create_optimizer
        of_run = (DataOrder(), ResumedFields(own), TokenLimit(self.args.max_generated_tokens))
        for added in (StartChecks(self, why), Progress(), RewardState(rewards), *of_run):
            self.add_callback(added)
        name, revision = self.base
        if self.is_deepspeed_enabled and name:
            self.add_callback(MasterWeights(name, revision))

    @property
    def _forks(self) -> int:
        return self.budgets.forks if self.model.training else 1

    @staticmethod
    def rollout(prompts: list[Any], trainer: "E1Trainer") -> dict[str, list[Any]]:
        """Sample one budgeted completion for each of this process's prompts: TRL's `rollout_func`."""
        prompt_ids = trainer.tokenize(prompts)[0]
        with trainer.profiled("vLLM.generate"), trainer._phases.measure(SAMPLING):
            generation = trainer._next_generation(trainer.model.training)
            first = trainer.accelerator.process_index * len(prompts)
            budgets = [
                trainer.budgets.at(RolloutKey(trainer.args.seed, generation, key_of(row), first + at))
                for at, row in enumerate(trainer._rows)
            ]
            completions = trainer._complete(prompt_ids, budgets, generation, trainer._begin_grading, trainer._forks)
        trainer._rollouts = list(zip(prompt_ids, completions, strict=True))
        closes = (trainer.args.trained_close, len(trainer.thinking_close.marker.ids))
        bookkeeping = columns_of(completions, budgets)
        for column, values in bookkeeping.items():
            trainer.log_column(column, values)
        if trainer.args.log_completions:
            trainer.log_column("parts", [[*map(trainer.processing_class.decode, each.parts)] for each in completions])
        trainer.log_metric("weights/compared_tensors", trainer.engine.compared_tensors)
        for metric, value in metrics_of(completions, trainer._forks):
            trainer.log_metric(metric, value)
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": [completion.token_ids.tolist() for completion in completions],
            "logprobs": [completion.logprobs for completion in completions],
            "env_mask": [each.trained_mask(*closes) for each in completions],
            "solution_text": trainer.solution_texts(completions),
            **bookkeeping,
        }

    def _next_generation(self, training: bool) -> Generation:
        """Name a generation by its step and its number within the step, which a resumed run repeats."""
        step = self.state.global_step
        self._generations[training, step] += 1
        return (training, step, self._generations[training, step])

    def solution_texts(self, completions: Sequence[Completion]) -> list[str]:
        """Decode the graded part of each completion."""
        return self.processing_class.batch_decode([each.graded_ids for each in completions], skip_special_tokens=True)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log the metrics, and every `completions_steps` steps the table of completions."""
        step = self.state.global_step
        is_due = step - self._table_step >= self.args.completions_steps
        is_shown = self.args.log_completions and is_due and bool(self._rollouts)
        if is_shown:
            self._table_step = step
        self.show_table(is_shown)
        super().log(logs, start_time)
        if is_shown and self.is_world_process_zero():
            count = self.args.num_completions_to_print
            print(transcripts(self.processing_class, self._rollouts, self._rewards, count), flush=True)

    def evaluate(self, *arguments: Any, **options: Any) -> dict[str, float]:
        """Run the `Validation` if there is one and no dataset is given, else TRL's evaluation at the trained budget."""
        if self.validation is None or arguments or options.get("eval_dataset") is not None:
            if self.state.global_step and not self.is_in_train:
                self.vllm.sync()  # TRL syncs only after a step, not after the best weights were loaded
            return super().evaluate(*arguments, **options)
        metrics = self.validation()
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def create_model_card(self, model_name: str | None = None, **more: Any) -> None:
        """Write our card if `write_cards` was called, else TRL's; TRL calls this before every save and upload."""
        if self.write_card is None:
            super().create_model_card(model_name, **more)
        elif self.is_world_process_zero():
            self.write_card(**more)

    def complete(self, prompts: list[Any], budgets: Sequence[Budget]) -> list[list[Completion]]:
        """Complete this process's prompts at each budget, which must fit the context. A collective operation."""
        self.vllm.sync()  # for all budgets; in sleep mode, the engine syncs again when it wakes for the next one
        ids = self.tokenize(prompts)[0]
        names = [self._next_generation(training=False) for _ in budgets]
        return [self._complete(ids, [budget] * len(ids), name) for budget, name in zip(budgets, names, strict=True)]

    def _complete(
        self,
        prompt_ids: list[list[int]],
        budgets: list[Budget],
        generation: Generation,
        on_completion: OnCompletion = ignore,
        forks: int = 1,
    ) -> list[Completion]:
        rollouts = [Rollout(ids, budget, self.thinking_close) for ids, budget in zip(prompt_ids, budgets, strict=True)]
        if any(each.thinking_end is ThinkingEnd.PROMPT for each in rollouts):  # checked only in datasets
            raise UserError("a prompt has closed the thinking; look at chat_template_kwargs")
        return self.engine.complete(rollouts, generation, on_completion, forks)

    def _begin_grading(self, row: int, completion: Completion) -> None:
        """Hand a completion to the grader while the engine samples the others."""
        for reward in self.reward_funcs:
            if isinstance(reward, Accuracy):
                reward.begin(self.solution_texts([completion])[0], self._rows[row]["answers"])

    def extend_rewards(self, rewards: torch.Tensor, rows: list[dict[str, Any]], token_ids: list[list[int]]) -> None:
        """Add rewards of groups, and log the mean reward by how the thinking ended, `reward/forced` and so on.

        A completion whose grader failed has no reward: TRL leaves it out of its group, and gives it no advantage.
        """
        for metric, value in self._phases.take().items():
            self.log_metric(metric, value)
        graded = [index for index, reward in enumerate(self.reward_funcs) if isinstance(reward, Accuracy)]
        column = next(iter(graded), None)
        training = self.model.training
        size = self.num_generations if training else self.num_generations_eval
        of_groups = [{**row, "completion_ids": ids} for row, ids in zip(rows, token_ids, strict=True)]
        groups = reward_groups(self.reward_funcs, rewards, column, of_groups, size, training, self._forks)
        rewards[rewards[:, graded].isnan().any(dim=1)] = torch.nan
        weighted = rewards * self.reward_weights.to(rewards.device)
        sums = weighted.nansum(dim=1).masked_fill(rewards.isnan().all(dim=1), torch.nan)
        start = self.accelerator.process_index * len(rows)
        own = slice(start, start + len(rows))
        self._rewards = sums[own].tolist()
        if self._advantage:
            self._advantages = advantages_of(groups, sums.tolist(), self._advantage)[own]
            self.log_column("thinking_advantage", [thinking for thinking, _ in self._advantages])
            self.log_column("solution_advantage", [solution for _, solution in self._advantages])
        for row, reward in zip(rows, self._rewards, strict=True):
            if not math.isnan(reward):
                self.log_metric(f"reward/{row['thinking_end']}", reward)

    def spread_advantages(self, length: int) -> list[list[float]] | None:
        """Return the advantages of this process's rollouts for each of `length` tokens; `None` for TRL's."""
        if self._advantage is None:
            return None
        lengths = [completion.thinking_tokens + completion.close_tokens for _, completion in self._rollouts]
        return [[a] * n + [b] * (length - n) for (a, b), n in zip(self._advantages, lengths, strict=True)]

    def begin_generation(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows
        self._phases.take()  # drops, for example, those of a validation

    def _causal_model(self, model: torch.nn.Module) -> PreTrainedModel:
        """Return a policy or reference without its wrappers, PEFT's included."""
        model = self.accelerator.unwrap_model(model, keep_torch_compile=False)
        return model.get_base_model() if is_peft_model(model) else model

    def scoring(self) -> AbstractContextManager[None]:
        is_old = self.model.training and not torch.is_grad_enabled()
        return self._phases.measure(SCORING) if is_old else nullcontext()

    def score(
        self, model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor, kept: int, batch_size: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Score rows with the old, reference or new policy without padding; the last `kept` columns are completions."""
        backbone = self._causal_model(model).base_model
        packed = self.layout is Layout.PACKED
        alone = self.accelerator.num_processes == 1 and ids.device.type == "cpu"
        # Only passes with a gradient are cut: others take the rows of a generation by length, almost without padding.
        cut_into = PARTS_ON_CPU if alone and torch.is_grad_enabled() and not packed else 1
        with self.accelerator.autocast():
            return scored(model, backbone, ids, mask, kept, batch_size or len(ids), packed, cut_into)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        """Return no batches to a finished training that resumes."""
        return super().get_batch_samples(epoch_iterator, num_batches * (not self.control.should_training_stop), device)

    def compute_loss(self, *arguments: Any, **options: Any) -> torch.Tensor:
        """Return TRL's loss, or raise a RuntimeError if it is NaN, which neither TRL nor Transformers would log."""
        loss: torch.Tensor = super().compute_loss(*arguments, **options)
        if loss.isnan():
            raise RuntimeError(
                f"step {self.state.global_step}: the loss is NaN; resume from an earlier checkpoint, with a lower "
                "learning_rate or max_grad_norm, into another output_dir"
            )
        return loss
