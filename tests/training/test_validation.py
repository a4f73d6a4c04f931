"""How the prompts of an evaluation are shared among processes."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import TrainerControl, TrainerState

from e1_trl.training.validation import BudgetEvaluation, share


@given(count=st.integers(1, 60), processes=st.integers(1, 9))
def test_every_prompt_is_answered_and_all_processes_take_equally_many(count: int, processes: int) -> None:
    shares = [share(count, process, processes) for process in range(processes)]
    assert {index for part in shares for index in part} == set(range(count))
    assert {len(part) for part in shares} == {-(-count // processes)}


@pytest.mark.parametrize(
    ("step", "log", "evaluates"),
    [
        (0, [], True),
        (2, [{"step": 2, "reward": 0.1}, {"step": 0, "eval_budget/8+8/accuracy": 0.5}], True),
        (2, [{"step": 2, "eval_budget/8+8/accuracy": 0.5}, {"step": 2, "reward": 0.1}], False),
    ],
)
def test_a_resumed_run_evaluates_only_what_its_log_lacks(step: int, log: list[dict[str, Any]], evaluates: bool) -> None:
    evaluated = []
    trainer = SimpleNamespace(evaluate=lambda: evaluated.append(step))
    evaluation = BudgetEvaluation(trainer, None, [], None)  # type: ignore[arg-type]
    evaluation.on_train_begin(None, TrainerState(global_step=step, log_history=log), TrainerControl())  # type: ignore[arg-type]
    assert bool(evaluated) == evaluates
