"""Accuracy at several budgets while a training runs, from the trainer's own engine (the paper's figure 3)."""

from collections.abc import Sequence
from typing import Any

from accelerate.utils import gather_object
from datasets import Dataset
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from e1_trl.budget import Budget
from e1_trl.grading import Grader
from e1_trl.rollout import ThinkingEnd
from e1_trl.trainer import E1Trainer


class BudgetEvaluation(TrainerCallback):
    """Every `steps` steps, answers all prompts at every budget and logs `eval_budget/<budget>/accuracy` and more.

    Also logged: `thinking_tokens`, `solution_tokens` (means, in tokens) and `forced_ratio`. Before the first step and
    after the last, too.

    Args:
        trainer: whose engine and weights are used; `trainer.add_callback(BudgetEvaluation(trainer, ...))`.
        prompts: the columns `prompt` and `answers`, as `to_prompts` makes them.
        budgets: budgets that fit the engine's context.
        grader: grades the solutions.
        steps: optimizer steps between two evaluations.

    Raises:
        ValueError: a budget does not fit the engine's context.
    """

    def __init__(self, trainer: E1Trainer, prompts: Dataset, budgets: Sequence[Budget], grader: Grader, steps: int):
        for budget in budgets:
            budget.thinking_limit(max(prompts["prompt_tokens"]), len(trainer.marker.forced_ids), trainer.context)
        self.trainer = trainer
        self.prompts = prompts
        self.budgets = budgets
        self.grader = grader
        self.steps = steps

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.evaluate()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step % self.steps == 0 or state.global_step == state.max_steps:
            self.evaluate()

    def evaluate(self) -> None:
        """Answer and grade at the weights of now. Every process takes its part of the prompts."""
        trainer, accelerator = self.trainer, self.trainer.accelerator
        own = list(range(accelerator.process_index, len(self.prompts), accelerator.num_processes))
        # Tensor-parallel groups run together, so all processes take equally many.
        while len(own) * accelerator.num_processes < len(self.prompts):
            own.append(own[-1] if own else 0)
        prompts = self.prompts.select(own)
        logs: dict[str, float] = {}
        for budget in self.budgets:
            completions = trainer.complete(list(prompts["prompt"]), budget)
            solutions = trainer.processing_class.batch_decode(
                [completion.solution_ids for completion in completions], skip_special_tokens=True
            )
            grades = self.grader.grade(solutions, list(prompts["answers"]))
            rows = gather_object(
                [
                    (index, grade.correct, c.thinking_tokens, c.solution_tokens, c.thinking_end is ThinkingEnd.FORCED)
                    for index, grade, c in zip(own, grades, completions, strict=True)
                ]
            )
            unique = list({row[0]: row[1:] for row in rows}.values())
            names = ("accuracy", "thinking_tokens", "solution_tokens", "forced_ratio")
            for name, values in zip(names, zip(*unique, strict=True), strict=True):
                logs[f"eval_budget/{budget}/{name}"] = sum(values) / len(values)
        # Past GRPOTrainer.log, which would log the metrics of the training's step here; and what is logged on the side
        # must not keep that step from being logged.
        should_log = trainer.control.should_log
        Trainer.log(trainer, logs)
        trainer.control.should_log = should_log
