"""Ends a training after so many generated tokens, by which trainings are compared: budgets change what a step costs."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import TrainerCallback, TrainerState
from transformers.trainer_utils import IntervalStrategy, SaveStrategy
from trl import GRPOConfig

PARTS = ("thinking/mean_tokens", "solution/mean_tokens")


def generated_tokens(history: Sequence[Mapping[str, Any]], rollouts: float) -> int:
    """Tokens that a training has sampled, of all its rollouts, by what it has logged; forced ones are none.

    Args:
        history: the `log_history` of its state.
        rollouts: of an optimizer step.
    """
    total, last = 0.0, 0
    for entry in history:
        if PARTS[0] in entry:
            total += (entry["step"] - last) * rollouts * sum(entry[part] for part in PARTS)
            last = entry["step"]
    return round(total)


def rollouts_of_a_step(args: GRPOConfig) -> float:
    """New rollouts of an optimizer step, of all processes: fewer where steps repeat a generation."""
    rows = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
    return rows / args.num_iterations


class TokenLimit(TrainerCallback):
    """Ends the training with the first logged step that reaches `tokens`; never if that is `None`.

    As at `max_steps`, an evaluation and a checkpoint follow where their strategy is `steps`; by epochs they do anyway.
    """

    def __init__(self, tokens: int | None):
        self.tokens = tokens

    def on_log(self, args: GRPOConfig, state: TrainerState, control: Any, **_: Any) -> None:
        if self.tokens is None or generated_tokens(state.log_history, rollouts_of_a_step(args)) < self.tokens:
            return
        control.should_training_stop = True
        if args.eval_strategy == IntervalStrategy.STEPS:
            control.should_evaluate = True
        if args.save_strategy == SaveStrategy.STEPS:
            control.should_save = True
