"""Validation of a run that resumes."""

from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState

from e1_trl.training.validation import Validation


@pytest.mark.parametrize(
    ("step", "log", "validates"),
    [
        (0, [], True),
        (2, [{"step": 2, "reward": 0.1}, {"step": 0, "eval_budget/8+8/accuracy": 0.5}], True),
        (2, [{"step": 2, "eval_budget/8+8/accuracy": 0.5}, {"step": 2, "reward": 0.1}], False),
    ],
)
def test_a_resumed_run_validates_only_what_its_log_lacks(step: int, log: list[dict[str, Any]], validates: bool) -> None:
    steps = []
    trainer = SimpleNamespace(evaluate=lambda: steps.append(step), args=SimpleNamespace())
    validation = Validation(trainer, None, [], None)  # type: ignore[arg-type]
    validation.on_train_begin(None, TrainerState(global_step=step, log_history=log), TrainerControl())
    assert bool(steps) == validates
