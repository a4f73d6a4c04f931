"""TRL's GRPO with budget-constrained rollouts: `E1Trainer`.

Everything that is not about the budget is TRL's: the loss, the advantages, importance-sampling correction, DeepSpeed,
PEFT, checkpoints, logging. The private names of TRL and vLLM that are touched are listed, with the reason for each, in
docs/private-names.md.
"""

import copy
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from accelerate.utils import is_peft_model
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback, ProgressCallback
from trl import GRPOTrainer
from trl.extras.profiling import profiling_context

from e1_trl.budget import Budget
from e1_trl.engines.colocated import make_training_engine, starting
from e1_trl.engines.engine import OnCompletion, ignore_completion
from e1_trl.errors import UserError
from e1_trl.rollout import Completion, Rollout
from e1_trl.training.beforehand import check_precision, check_size, checked, warn_beforehand
from e1_trl.training.budgets import Generation, Generations, RolloutKey, key_of
from e1_trl.training.callbacks import DataOrder, MasterWeights, RewardState, TokenLimit
from e1_trl.training.config import E1Config, ModelFacts
from e1_trl.training.groups import reward_groups
from e1_trl.training.logprob_gap import LogprobGap
from e1_trl.training.packing import Packing
from e1_trl.training.phases import SAMPLING, SCORING, SYNC, Phases
from e1_trl.training.progress import DedupFilter, Progress, columns_of, log_traces, metrics_of, parts, transcripts
from e1_trl.training.rewards import Accuracy, Reward
from e1_trl.training.scoring import PARTS_ON_CPU, Layout, layout_of, scored
from e1_trl.training.versions import warn_of_versions

warn_of_versions()


class E1Trainer(GRPOTrainer):
    """GRPO in which every completion is sampled under the separate budgets of Elastic Reasoning.

    Takes what `GRPOTrainer` takes, except `rollout_func`, `tools`, `environment_factory` and datasets that are not
    loaded; prompts longer than `max_prompt_length` are dropped, with a count. Reward functions receive, besides the
    dataset's columns, one value per completion of `solution_text` (what follows the close, which is what is graded; ""
    if there is none), `thinking_end` (`"closed"`, `"forced"`, `"eos"` or `"total"`), `thinking_tokens`,
    `solution_tokens` and `solution_truncated`.

    The model card is TRL's. `e1_trl.training.cards.write_cards` has ours written instead, with `budget.json`, from
    which evaluation and serving take budgets and marker.

    Raises:
        UserError: budget, context length, dataset, rewards and configuration do not fit together; before the model is
            loaded.
        EngineError: while training, when the engine does not hold the weights that it was sent.
        RuntimeError: while training, when the policy computes no numbers any more.
    """

    def __init__(
        self,
        model: str | PreTrainedModel,
        reward_funcs: Reward | list[Reward],
        args: E1Config,
        train_dataset: Dataset,
        eval_dataset: Dataset | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        **kwargs: Any,
    ):
        if own := {"rollout_func", "tools", "environment_factory"} & kwargs.keys():
            raise UserError(f"E1Trainer makes its own rollouts; it does not take {sorted(own)}")
        facts = ModelFacts.of(args, model, processing_class)
        check_precision(args, model, adapter=kwargs.get("peft_config") is not None)
        rewards = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
        with args.main_process_first(desc="checking the prompts"):
            train_dataset = check_size(checked(train_dataset, rewards, args, facts.tokenizer), args)
            if eval_dataset is not None:
                eval_dataset = checked(eval_dataset, rewards, args, facts.tokenizer)
        args = copy.copy(args)
        args.max_completion_length = facts.completion
        args.vllm_max_model_length = facts.thinking_close.context
        revision = (args.model_init_kwargs or {}).get("revision")
        with starting(revision if args.vllm_mode == "colocate" else None, args.world_size):
            super().__init__(
                model=model,
                reward_funcs=reward_funcs,
                args=args,
                train_dataset=train_dataset,
                eval_dataset=eval_dataset,
                processing_class=facts.tokenizer,
                rollout_func=E1Trainer.rollout,
                **kwargs,
            )
        check_precision(args, self.model)
        warn_beforehand(args, self.model, rewards, self.reward_func_names)
        causal = self._causal_model(self.model)
        self.layout, why = layout_of(causal, args.padding_free, self.aux_loss_enabled)
        self.thinking_close, self.budgets = facts.thinking_close, args.budgets
        name = model if isinstance(model, str) else model.name_or_path
        self.base: tuple[str, str | None] = (name, revision)  # of the model that is trained: name, revision
        self.write_card: Callable[..., None] | None = None
        self._table_step: int | None = None  # when a table of completions was last logged
        self.num_completions_to_print = 0  # of TRL's table, in the place of which there are `transcripts`
        self._rows: list[dict[str, Any]] = []  # of the dataset, for each rollout of this process, the last ones
        self._rollouts: list[tuple[list[int], Completion]] = []  # of these
        self._rewards: list[float] = []  # of these
        self._gap = LogprobGap()
        self.validation: Callable[[], dict[str, float]] | None = None
        for callback in (PrinterCallback, ProgressCallback):
            self.remove_callback(callback)
        limit = TokenLimit(args.max_generated_tokens)
        for added in (Packing(self, why), Progress(), RewardState(rewards), DataOrder(), limit):
            self.add_callback(added)
        if self.is_deepspeed_enabled and name:
            self.add_callback(MasterWeights(name, revision))
        for handler in logging.getLogger("vllm").handlers:  # it repeats its warnings at every weight sync
            handler.addFilter(DedupFilter())
        self._generations = Generations()
        self._phases = Phases(self.accelerator.device)
        self.engine = make_training_engine(
            self.vllm_generation, self.thinking_close, self.accelerator, is_peft_model(self.model), args.seed
        )
        self.vllm_generation.sync_weights = self._phases.measured(SYNC, self.vllm_generation.sync_weights)

    @staticmethod
    def rollout(prompts: list[Any], trainer: "E1Trainer") -> dict[str, list[Any]]:
        """TRL's `rollout_func`: one budgeted completion for each of this process's prompts, and its bookkeeping."""
        prompt_ids, _, _ = trainer._tokenize_prompts(prompts)
        # As TRL names it; validation is not a part of it.
        with profiling_context(trainer, "vLLM.generate"), trainer._phases.measure(SAMPLING):
            generation = trainer._generations.next(trainer.model.training, trainer.state.global_step)
            first = trainer.accelerator.process_index * len(prompts)
            budgets = [
                trainer.budgets.at(RolloutKey(trainer.args.seed, generation, key_of(row), first + at))
                for at, row in enumerate(trainer._rows)
            ]
            completions = trainer._complete(prompt_ids, budgets, generation, trainer._begin_grading)
        trainer._rollouts = list(zip(prompt_ids, completions, strict=True))

        bookkeeping = columns_of(completions)
        shown = {"parts": parts(trainer.processing_class, completions)} if trainer.args.log_completions else {}
        for column, values in {**bookkeeping, **shown}.items():
            trainer._log_completion_extra(column, values)
        trainer._log_metric("weights/compared_tensors", trainer.engine.compared_tensors)
        for completion in completions:
            for metric, value in metrics_of(completion).items():
                trainer._log_metric(metric, value)
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": [completion.token_ids.tolist() for completion in completions],
            "logprobs": [completion.logprobs for completion in completions],
            "env_mask": [
                each.trained_mask(trainer.args.trained_close, len(trainer.thinking_close.marker.ids))
                for each in completions
            ],
            "solution_text": trainer.solution_texts(completions),
            **bookkeeping,
        }

    def solution_texts(self, completions: Sequence[Completion]) -> list[str]:
        """What is graded of each completion, as text."""
        return self.processing_class.batch_decode([each.graded_ids for each in completions], skip_special_tokens=True)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log the table of completions every `completions_steps` steps, and the metrics each time."""
        step, last = self.state.global_step, self._table_step
        due = last is None or step - last >= self.args.completions_steps
        self.log_completions = self.args.log_completions and due
        if self.log_completions:
            self._table_step = step
        super().log(logs, start_time)
        if self.log_completions and self.is_world_process_zero() and self._rollouts:
            count = self.args.num_completions_to_print
            print(transcripts(self.processing_class, self._rollouts, self._rewards, count), flush=True)
            if "trackio" in self.args.report_to:
                log_traces(self.processing_class, self._rollouts, self._rewards, step)

    def evaluate(self, *arguments: Any, **options: Any) -> dict[str, float]:
        """What a `Validation` measures if there is one, and TRL's evaluation at the training budget if not."""
        if self.validation is None:
            return super().evaluate(*arguments, **options)
        metrics = self.validation()
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def create_model_card(self, model_name: str | None = None, **more: Any) -> None:
        """TRL's hook, before every save and upload: write our card if `write_cards` has asked for it, else TRL's."""
        if self.write_card is None:
            super().create_model_card(model_name, **more)
        elif self.is_world_process_zero():
            self.write_card(**more)

    def complete(self, prompts: list[Any], budgets: Sequence[Budget]) -> list[list[Completion]]:
        """Complete this process's prompts at each of the budgets, which fit the context, with the weights of now.

        A collective operation. Nothing is logged and nothing is trained on.
        """
        self.vllm_generation.sync_weights()  # once for all; an engine that sleeps in between syncs when it wakes
        ids, step = self._tokenize_prompts(prompts)[0], self.state.global_step
        names = [self._generations.next(False, step) for _ in budgets]
        return [self._complete(ids, [budget] * len(ids), name) for budget, name in zip(budgets, names, strict=True)]

    def _complete(
        self,
        prompt_ids: list[list[int]],
        budgets: list[Budget],
        generation: Generation,
        finished: OnCompletion = ignore_completion,
    ) -> list[Completion]:
        rollouts = [Rollout(ids, budget, self.thinking_close) for ids, budget in zip(prompt_ids, budgets, strict=True)]
        return self.engine.complete(rollouts, generation, finished)

    def _begin_grading(self, row: int, completion: Completion) -> None:
        """Hand what has just been sampled to its grader, while the engine samples what is left."""
        for reward in self.reward_funcs:
            if isinstance(reward, Accuracy):
                reward.begin(self.solution_texts([completion])[0], self._rows[row]["answers"])

    def _calculate_rewards(
        self,
        inputs: list[dict[str, Any]],
        prompts: list[Any],
        completions: list[Any],
        completion_ids_list: list[list[int]],
    ) -> torch.Tensor:
        """Add the mean reward of the completions that ended their thinking in each way, `reward/forced` and so on.

        A completion whose grader failed has no reward at all, whatever its other rewards are: TRL leaves such a row out
        of its group's mean, and gives it no advantage.
        """
        for metric, value in self._phases.take().items():
            self._log_metric(metric, value)
        rewards_per_func = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        graded = [index for index, reward in enumerate(self.reward_funcs) if isinstance(reward, Accuracy)]
        training = self.model.training
        size = self.num_generations if training else self.num_generations_eval
        rows = [{**row, "completion_ids": ids} for row, ids in zip(inputs, completion_ids_list, strict=True)]
        reward_groups(self.reward_funcs, rewards_per_func, next(iter(graded), None), rows, size, training)
        rewards_per_func[rewards_per_func[:, graded].isnan().any(dim=1)] = torch.nan
        weights = self.reward_weights.to(rewards_per_func.device)
        rewards = (rewards_per_func * weights).nansum(dim=1).masked_fill(rewards_per_func.isnan().all(dim=1), torch.nan)
        start = self.accelerator.process_index * len(inputs)
        self._rewards = rewards[start : start + len(inputs)].tolist()
        for row, reward in zip(inputs, self._rewards, strict=True):
            if not math.isnan(reward):
                self._log_metric(f"reward/{row['thinking_end']}", reward)
        return rewards_per_func

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Keep the rows; watch the gap between the engine's and the trainer's log-probabilities of their rollouts.

        Where one optimizer step learns from a whole generation, the policy is the one that sampled, and TRL takes its
        ratio to itself for 1 if there are no old log-probabilities. Those that it has compared with vLLM's come from
        passes of other shapes than the policy's, and in 16 bits they round differently.
        """
        self._rows = inputs
        self._phases.forget()
        output = super()._generate_and_score_completions(inputs)
        if self.args.gradient_accumulation_steps % (self.args.steps_per_generation * self.num_iterations) == 0:
            output.pop("old_per_token_logps", None)
        metrics = self._metrics["train" if self.model.training else "eval"]
        if gaps := metrics.get("sampling/sampling_logp_difference/mean", []):
            self._gap.see(gaps[-1], self.state.global_step)
        return output

    def _causal_model(self, model: torch.nn.Module) -> PreTrainedModel:
        """A policy or reference without what it is wrapped in, an adapter included."""
        model = self.accelerator.unwrap_model(model)
        return model.get_base_model() if is_peft_model(model) else model

    def _get_per_token_logps_and_entropies(
        self, model: torch.nn.Module, *batch: Any, batch_size: int | None = None, **more: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """TRL's, of old, reference and new policy, without padding where the model's attention allows for that.

        `batch`: token ids, their mask, and how many of the columns are completions.
        """
        scoring = self.model.training and not torch.is_grad_enabled()  # not what is learned from
        with self._phases.measure(SCORING) if scoring else nullcontext():
            if self.layout is Layout.PADDED:
                return super()._get_per_token_logps_and_entropies(model, *batch, batch_size=batch_size, **more)
            ids, mask, kept = batch
            backbone, packed = self._causal_model(model).base_model, self.layout is Layout.PACKED
            alone = self.accelerator.num_processes == 1 and ids.device.type == "cpu"
            # Without a gradient the rows of a whole generation are sorted: a pass has rows of about one length already.
            cut_into = PARTS_ON_CPU if alone and torch.is_grad_enabled() and not packed else 1
            with profiling_context(self, "_get_per_token_logps_and_entropies"), self.accelerator.autocast():
                return *scored(model, backbone, ids, mask, kept, batch_size or len(ids), packed, cut_into), None

    def compute_loss(self, *arguments: Any, **options: Any) -> torch.Tensor:
        """TRL's loss; a RuntimeError where that is NaN, which neither TRL nor Transformers would log."""
        loss: torch.Tensor = super().compute_loss(*arguments, **options)
        if loss.isnan():
            raise RuntimeError(
                f"step {self.state.global_step}: the loss is NaN: the policy computes no numbers any more; resume from "
                "a checkpoint before it, with a lower learning_rate or max_grad_norm"
            )
        return loss
