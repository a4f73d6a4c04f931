"""A training ends with the step that reaches so many generated tokens, counted from what it has logged."""

from typing import Any

import pytest
from transformers import TrainerControl, TrainerState
from trl import GRPOConfig

from e1_trl.training.token_limit import TokenLimit, generated_tokens, rollouts_of_a_step

LOGGED = {"thinking/mean_tokens": 30.0, "solution/mean_tokens": 5.0}


def test_every_step_since_the_last_logged_one_counts() -> None:
    history: list[dict[str, Any]] = [
        {"step": 1, **LOGGED},
        {"step": 1, "eval_budget/36+8/accuracy": 0.5},
        {"step": 4, "thinking/mean_tokens": 10.0, "solution/mean_tokens": 0.5},
        {"step": 4, "train_runtime": 3.0, **LOGGED},  # what no line was about, of a step that was
    ]
    assert generated_tokens(history, 8) == 8 * 35 + 3 * 8 * 10.5
    assert generated_tokens([], 8) == 0


def arguments(iterations: int = 1) -> GRPOConfig:
    sizes = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_generations": 2}
    return GRPOConfig(output_dir="unused", use_cpu=True, bf16=False, num_iterations=iterations, **sizes)


@pytest.mark.parametrize(("tokens", "ends"), [(281, False), (280, True), (None, False)])
def test_the_step_that_reaches_the_limit_is_the_last(tokens: int | None, ends: bool) -> None:
    state, control = TrainerState(log_history=[{"step": 1, **LOGGED}]), TrainerControl()
    assert rollouts_of_a_step(arguments()) == 8
    TokenLimit(tokens).on_log(arguments(), state, control)
    assert control.should_training_stop is ends


def test_steps_that_repeat_a_generation_sample_nothing() -> None:
    assert rollouts_of_a_step(arguments(iterations=2)) == 4
