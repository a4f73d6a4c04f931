"""A training ends with the step that reaches so many generated tokens, counted from what it has logged."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
from transformers import AutoModelForCausalLM, Qwen2Config, Trainer, TrainerControl, TrainerState
from trl import GRPOConfig

from e1_trl.training.callbacks import TokenLimit, generated_tokens, rollouts_of_a_step

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


class Training(Trainer):
    """One whose logs have the tokens of a rollout, and which notes at which step it evaluates."""

    evaluated: ClassVar[list[int]] = []

    def log(self, logs: dict[str, float], *more: Any) -> None:
        super().log({**logs, **LOGGED} if "loss" in logs else logs, *more)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        self.evaluated.append(self.state.global_step)
        self.log({"eval_loss": 0.0})
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, {})
        return {"eval_loss": 0.0}


@pytest.mark.parametrize(
    ("strategies", "evaluated", "saved"),
    [
        ({"eval_strategy": "steps", "eval_steps": 10, "save_strategy": "steps", "save_steps": 10}, [3], ["3"]),
        ({"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "no"}, [3], []),
        ({"eval_strategy": "no", "save_strategy": "steps", "save_steps": 3}, [], ["3"]),
        ({"eval_strategy": "epoch", "save_strategy": "epoch"}, [3], ["3"]),
    ],
)
def test_a_training_that_reaches_the_limit_ends_with_a_validation_and_a_checkpoint(
    strategies: dict[str, Any], evaluated: list[int], saved: list[str], tmp_path: Path
) -> None:
    args = GRPOConfig(
        str(tmp_path),
        **{"use_cpu": True, "bf16": False, "report_to": "none", "logging_steps": 1, "max_steps": 40, **strategies},
        **{"per_device_train_batch_size": 2, "num_generations": 2, "num_generations_eval": 1},
    )
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 8}
    model = AutoModelForCausalLM.from_config(Qwen2Config(**sizes, num_attention_heads=2, num_key_value_heads=2))
    rows = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}] * 200
    training = Training(model, args, train_dataset=rows, eval_dataset=rows, callbacks=[TokenLimit(2 * 35 * 3)])
    training.evaluated.clear()
    training.train()
    assert training.state.global_step == 3 and training.evaluated == evaluated
    assert [folder.name.removeprefix("checkpoint-") for folder in tmp_path.glob("checkpoint-*")] == saved


def test_steps_that_repeat_a_generation_sample_nothing() -> None:
    assert rollouts_of_a_step(arguments(iterations=2)) == 4
