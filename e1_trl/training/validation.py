"""Accuracy at several budgets while a training runs, from the trainer's own engine (the paper's figure 3)."""

import hashlib
import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, IntervalStrategy

from e1_trl.answers.grade import Grader, Outcome
from e1_trl.budget import Budget
from e1_trl.errors import UserError
from e1_trl.rollout import ThinkingEnd
from e1_trl.training.config import E1Config
from e1_trl.training.progress import BUDGET
from e1_trl.training.trainer import E1Trainer

logger = logging.getLogger(__name__)


class BestCheckpoint(TrainerCallback, ExportableState):
    """Finds the best checkpoint of a resumed training in `output_dir`, wherever that folder was earlier.

    Transformers forgets a checkpoint that has moved, and would end a training with its last weights, not the best.
    The best by another measure than `measured` is forgotten, with a warning.
    """

    def __init__(self, measured: str):
        self.measured = measured

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"measured": self.measured}}

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        saved = state.stateful_callbacks.get(type(self).__name__, {}).get("attributes", {}).get("measured")
        if state.best_metric is not None and saved not in (None, self.measured):
            logger.warning(
                "the best so far, %g at step %s, was of %s, and is forgotten: this run validates by %s",
                *(state.best_metric, state.best_global_step, saved, self.measured),
            )
            state.best_metric = state.best_global_step = state.best_model_checkpoint = None
        state.stateful_callbacks[type(self).__name__] = self.state()
        if state.best_global_step is None or state.best_model_checkpoint is not None:
            return
        best = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.best_global_step}"
        if best.is_dir():
            state.best_model_checkpoint = str(best)
        elif args.load_best_model_at_end:
            raise UserError(f"load_best_model_at_end is true, and the best checkpoint, {best}, is gone")


def describe_measure(args: E1Config, problems: Dataset | None) -> str:
    """Describe how the best weights are chosen: by which metric, and on which problems."""
    prompts = [] if problems is None else list(problems["prompt"])
    name = hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:8]
    return f"{args.metric_for_best_model}, {args.eval_samples} answers to each of {len(prompts)} problems ({name})"


@dataclass(eq=False)
class Validation(TrainerCallback):
    """Replaces the trainer's evaluation, as a callback: `trainer.add_callback(Validation(trainer, ...))`.

    Answers all prompts at every budget, with the training's temperature and top_p, and logs
    `eval_budget/<budget>/accuracy`, which `metric_for_best_model` may name, `thinking_tokens` and `solution_tokens`
    (means, in tokens), `forced_ratio` and `eos_ratio`. Answers on which the grader failed count in no accuracy. Runs
    as `eval_strategy` says, and before the first step and after the last.

    Attributes:
        prompts: with the columns `prompt` and `answers` of `e1_trl.training.data.load`.
        budgets: budgets that fit the engine's context.
        grader: grades the solutions.
        samples: number of answers per prompt and budget, over which accuracy is averaged.
    """

    trainer: E1Trainer
    prompts: Dataset
    budgets: Sequence[Budget]
    grader: Grader
    samples: int = 1

    def __post_init__(self) -> None:
        self.trainer.validation = self.evaluate
        self.trainer.args.eval_on_start = False  # `on_train_begin` does that

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.global_step == 0:  # a resumed run validates when it is due
            self.trainer.evaluate()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.global_step == state.max_steps and args.eval_strategy != IntervalStrategy.EPOCH:
            control.should_evaluate = True

    def evaluate(self) -> dict[str, float]:
        """Answer and grade with the present weights. Prompts are split over the processes; padding answers some twice.

        Returns:
            The logged metrics; an accuracy is NaN if no answer was graded, so that this checkpoint is never the best.
        """
        trainer = self.trainer
        answers = list(range(len(self.prompts) * self.samples))
        # Processes of a tensor-parallel group generate in lockstep, so all get equally many prompts.
        with trainer.accelerator.split_between_processes(answers, apply_padding=True) as own:
            prompts = self.prompts.select([index // self.samples for index in own])
        metrics: dict[str, float] = {}
        completed = trainer.complete(list(prompts["prompt"]), self.budgets)
        for budget, completions in zip(self.budgets, completed, strict=True):
            grades = self.grader.grade(trainer.solution_texts(completions), list(prompts["answers"]))
            rows = [
                {
                    "answer": index,
                    "accuracy": None if grade.outcome is Outcome.UNGRADED else grade.correct,
                    "thinking_tokens": completion.thinking_tokens,
                    "solution_tokens": completion.solution_tokens,
                    "forced_ratio": completion.thinking_end is ThinkingEnd.FORCED,
                    "eos_ratio": completion.thinking_end is ThinkingEnd.EOS,
                }
                for index, grade, completion in zip(own, grades, completions, strict=True)
            ]
            table = pd.DataFrame(gather_object(rows)).drop_duplicates("answer", keep="last").drop(columns="answer")
            metrics |= {f"{BUDGET}{budget}/{name}": mean for name, mean in table.astype(float).mean().items()}
        known = {name: mean for name, mean in metrics.items() if not math.isnan(mean)}
        Trainer.log(trainer, known)  # GRPOTrainer.log would add the training's own metrics
        if unknown := sorted(metrics.keys() - known.keys()):
            logger.warning("nothing could be graded, so there is no %s", ", ".join(unknown))
        return metrics  # NaN compares as neither better nor worse
