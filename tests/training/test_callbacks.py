"""Callbacks of the trainer: memory of rewards, limit of tokens, validation, gap of log-probabilities, phases."""

import json
import logging
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    Qwen2Config,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import GRPOConfig

from e1_trl.errors import UserError
from e1_trl.training.callbacks import ResumedFields, RewardState, TokenLimit, generated_tokens, generation_of
from e1_trl.training.groups import Group, GroupReward
from e1_trl.training.lengths import Hapo, LaserD
from e1_trl.training.phases import SAMPLING, SYNC, Phases
from e1_trl.training.progress import FIRST, GAP, Progress
from e1_trl.training.validation import BestCheckpoint, Validation, describe_measure

KEY = "0123456789abcdef"
ON_CPU: dict[str, Any] = {"use_cpu": True, "bf16": False, "report_to": "none"}


def remembering() -> tuple[Hapo, LaserD, RewardState]:
    hapo, laser = Hapo(), LaserD(lowest=100, highest=300, step=100)
    return hapo, laser, RewardState([len, hapo, laser])


def test_each_reward_has_its_own_memory_back_from_a_checkpoint(tmp_path: Path) -> None:
    hapo, laser, memory = remembering()
    hapo.memory["problems"][KEY], laser.memory["targets"] = 200, [300, 200, 100]
    TrainerState(stateful_callbacks=[memory]).save_to_json(str(tmp_path / "trainer_state.json"))
    restored, other, again = remembering()
    again.on_train_begin(None, TrainerState.load_from_json(str(tmp_path / "trainer_state.json")), None)
    assert restored.memory == {"problems": {KEY: 200}} and other.memory == laser.memory
    exchanged = RewardState([len, LaserD(lowest=100, highest=300, step=100), Hapo()])
    exchanged.on_train_begin(None, TrainerState.load_from_json(str(tmp_path / "trainer_state.json")), None)
    assert exchanged.rewards["1 laser_d"].memory["targets"] == [300, 300, 300]


def test_a_checkpoint_without_memory_is_resumed_and_saved_as_any(tmp_path: Path) -> None:
    TrainerState().save_to_json(str(tmp_path / "trainer_state.json"))
    hapo, _, memory = remembering()
    older = TrainerState.load_from_json(str(tmp_path / "trainer_state.json"))
    memory.on_train_begin(None, older, None)
    assert hapo.memory == {"problems": {}}
    assert json.loads(json.dumps(older.stateful_callbacks["RewardState"])) == memory.state()  # where a save looks it up


def test_a_run_that_begins_anew_keeps_what_its_rewards_begin_with() -> None:
    hapo, laser, memory = remembering()
    began = TrainerState(stateful_callbacks=[memory])  # as Transformers makes it, of the callbacks themselves
    memory.on_train_begin(None, began, None)
    assert hapo.memory == {"problems": {}} and laser.memory["targets"] == [300] * 3
    hapo.memory["problems"][KEY] = 5
    assert began.stateful_callbacks["RewardState"]["attributes"]["1 hapo"] == {"problems": {}}


def test_a_reward_of_ones_own_remembers_without_being_told_how() -> None:
    @dataclass(frozen=True)
    class Counting(GroupReward):
        bonus: float = 1.0

        def of(self, group: Group) -> list[float]:
            return [self.bonus] * len(group.tokens)

        def remember(self, groups: Sequence[Group]) -> None:
            self.memory["seen"] = self.memory.get("seen", 0) + len(groups)

    counting = Counting()
    memory = RewardState([counting])
    counting.remember([])
    saved = TrainerState(stateful_callbacks=[memory])
    again = RewardState([Counting()])
    again.on_train_begin(None, saved, None)
    assert again.state() == memory.state() == {"args": {}, "attributes": {"0 Counting": {"seen": 0}}}


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
    # Four forks that share their thought's longest: 30 tokens each, of which a quarter of the longest was sampled.
    assert generated_tokens([{"step": 2, "thinking/sampled_tokens": 12.0, **LOGGED}], 8) == 2 * 8 * (12 + 5)


def test_a_generation_counts_when_it_is_sampled_however_many_steps_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    history: list[dict[str, Any]] = [{"step": 1, **LOGGED}, {"step": 2}, {"step": 3, **LOGGED}]
    assert [generated_tokens(history[:logged], 16, 2) for logged in (1, 2, 3)] == [16 * 35, 16 * 35, 2 * 16 * 35]
    assert generated_tokens(history[:1], 4, Fraction(1, 2)) == 2 * 4 * 35  # a step on two generations
    monkeypatch.setattr(GRPOConfig, "world_size", 8)
    assert generation_of(arguments()) == (64, 1), "of all processes"


def arguments(iterations: int = 1) -> GRPOConfig:
    sizes = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_generations": 2}
    return GRPOConfig(output_dir="unused", num_iterations=iterations, **ON_CPU, **sizes)


@pytest.mark.parametrize(("tokens", "ends"), [(281, False), (280, True), (None, False)])
def test_the_step_that_reaches_the_limit_is_the_last(tokens: int | None, ends: bool) -> None:
    state, control = TrainerState(log_history=[{"step": 1, **LOGGED}]), TrainerControl()
    assert generation_of(arguments()) == (8, 1)
    assert generation_of(arguments(iterations=2)) == (8, 2)  # steps that repeat a generation sample nothing
    TokenLimit(tokens).on_log(arguments(), state, control)
    assert control.should_training_stop is ends
    for steps, is_finished in ((1, True), (2, ends)):  # of a run that resumes
        resumed, control = TrainerState(global_step=1, max_steps=steps, log_history=state.log_history), TrainerControl()
        TokenLimit(tokens).on_train_begin(arguments(), resumed, control)
        assert control.should_training_stop is is_finished


class Rollouts(TrainerCallback):
    """Adds the tokens of a rollout to every log, and notes the steps of evaluations."""

    def __init__(self) -> None:
        self.evaluated: list[int] = []

    def on_log(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        state.log_history[-1] |= LOGGED

    def on_evaluate(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        self.evaluated.append(state.global_step)


def trainer(args: TrainingArguments, *callbacks: TrainerCallback, problems: int = 200) -> Trainer:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 8}
    model = AutoModelForCausalLM.from_config(Qwen2Config(**sizes, num_attention_heads=2, num_key_value_heads=2))
    rows = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}] * problems
    return Trainer(model, args, train_dataset=rows, eval_dataset=rows[:2], callbacks=[*callbacks])


def test_a_resumed_run_has_the_fields_of_adam_and_the_intervals_of_its_recipe(tmp_path: Path) -> None:
    fixed = {**ON_CPU, "logging_steps": 1, "lr_scheduler_type": "linear"}

    def train(steps: int, resumed: Path | None = None, **fields: Any) -> Trainer:
        made = trainer(TrainingArguments(str(tmp_path), max_steps=steps, **fixed, **fields), ResumedFields())
        made.train(resume_from_checkpoint=resumed and str(resumed))
        return made

    train(4, learning_rate=0.4, save_steps=2, weight_decay=0.5)
    adam = {"adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-6}
    made = train(4, tmp_path / "checkpoint-2", learning_rate=0.2, save_steps=1, weight_decay=0.2, **adam)
    rates = [entry["learning_rate"] for entry in made.state.log_history if "learning_rate" in entry]
    assert rates == pytest.approx([0.4, 0.3, 0.1, 0.05]) and (tmp_path / "checkpoint-3").exists()
    assert [group["weight_decay"] for group in made.optimizer.param_groups] == [0.2, 0]  # none of biases and norms
    assert [(group["betas"], group["eps"]) for group in made.optimizer.param_groups] == [((0.8, 0.95), 1e-6)] * 2
    made.model.peft_config = {"default": None, "ref": None}  # Transformers loads neither
    with pytest.raises(UserError, match=r"^several adapters, as in a PeftModel with beta, cannot resume"):
        made.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))


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
    sizes = {"per_device_train_batch_size": 2, "num_generations": 2, "num_generations_eval": 1}
    args = GRPOConfig(str(tmp_path), **ON_CPU, logging_steps=1, max_steps=40, **strategies, **sizes)
    rollouts = Rollouts()
    training = trainer(args, rollouts, TokenLimit(2 * 35 * 3))
    training.train()
    assert training.state.global_step == 3 and rollouts.evaluated == evaluated
    assert [folder.name.removeprefix("checkpoint-") for folder in tmp_path.glob("checkpoint-*")] == saved


@pytest.mark.parametrize(("step", "validates"), [(0, 1), (2, 0)])
def test_a_run_is_validated_before_its_first_step_and_not_where_it_resumes(step: int, validates: int) -> None:
    steps = []
    trainer = SimpleNamespace(evaluate=lambda: steps.append(step), args=SimpleNamespace())
    validation = Validation(trainer, None, [], None)  # type: ignore[arg-type]
    validation.on_train_begin(None, TrainerState(global_step=step), TrainerControl())
    assert len(steps) == validates


@pytest.mark.parametrize(("strategy", "asks"), [("steps", True), ("epoch", False)])
def test_the_last_step_is_validated_once(strategy: str, asks: bool) -> None:
    args, control = SimpleNamespace(eval_strategy=strategy), TrainerControl()
    validation = Validation(SimpleNamespace(args=args), None, [], None)  # type: ignore[arg-type]
    validation.on_step_end(args, TrainerState(global_step=4, max_steps=4), control)  # type: ignore[arg-type]
    assert control.should_evaluate is asks


def seen(caplog: pytest.LogCaptureFixture, gaps: list[float]) -> list[int]:
    """The steps that were warned of."""
    progress = Progress()
    state = TrainerState(is_world_process_zero=True)
    with caplog.at_level(logging.WARNING):
        for step, value in enumerate(gaps):
            for logs in ({GAP: value}, {"eval_loss": 0.0}):  # an evaluation does not repeat a warning
                state.log_history.append({**logs, "step": step})
                progress.on_log(None, state, TrainerControl(), logs=logs)
    return [int(record.getMessage().split(":")[0].removeprefix("step ")) for record in caplog.records]


def test_a_limit_of_tokens_is_not_counted_by_another_batch_than_sampled_them() -> None:
    first = TrainerState(max_steps=9)
    TokenLimit(500).on_train_begin(arguments(), first, TrainerControl())
    saved = {"log_history": [{"step": 1, **LOGGED}], "stateful_callbacks": first.stateful_callbacks}
    TokenLimit(500).on_train_begin(arguments(), TrainerState(global_step=1, max_steps=9, **saved), TrainerControl())
    other = TrainerState(global_step=1, max_steps=9, **saved)
    with pytest.raises(UserError, match=r"generations of 8 rollouts for 1 steps; this run has 8 rollouts for 2 steps"):
        TokenLimit(500).on_train_begin(arguments(iterations=2), other, TrainerControl())
    TokenLimit(None).on_train_begin(arguments(iterations=2), other, TrainerControl())
    with pytest.raises(UserError, match="generations of 8 rollouts for 1 steps"):  # also after one without a limit
        TokenLimit(500).on_train_begin(arguments(iterations=2), other, TrainerControl())


def test_the_best_checkpoint_is_found_in_a_folder_that_was_moved(tmp_path: Path) -> None:
    """By a finished training that is resumed to upload its best weights."""

    def training(folder: Path) -> Trainer:
        strategies = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
        best = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": True}
        args = TrainingArguments(str(folder), **ON_CPU, max_steps=3, learning_rate=0.01, **strategies, **best)
        return trainer(args, BestCheckpoint("loss"), problems=8)  # one step an epoch

    first = training(tmp_path / "run")
    first.train()
    assert first.state.best_global_step == 1  # the loss falls, of which the largest is called the best
    elsewhere = training(tmp_path / "elsewhere")
    elsewhere.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))
    (tmp_path / "run").rename(tmp_path / "moved")
    moved = training(tmp_path / "moved")
    moved.train(resume_from_checkpoint=True)
    weights = [each.model.lm_head.weight for each in (first, elsewhere, moved)]
    assert torch.equal(weights[0], weights[1]) and torch.equal(weights[0], weights[2])
    shutil.rmtree(tmp_path / "moved" / "checkpoint-1")
    with pytest.raises(UserError, match=r"load_best_model_at_end is true, and the best checkpoint, .*-1, is gone"):
        training(tmp_path / "moved").train(resume_from_checkpoint=True)


@pytest.mark.parametrize(
    "other", [{"metric_for_best_model": "eval_loss"}, {"eval_samples": 2}, {"problems": ["2"]}, {"problems": None}, {}]
)
def test_a_resumed_run_forgets_another_measures_best(other: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    def begun(state: TrainerState, **given: Any) -> TrainerState:
        fields = {"metric_for_best_model": "eval_reward", "eval_samples": 1, "problems": ["1"], **given}
        prompts = fields.pop("problems")
        problems = prompts and Dataset.from_dict({"prompt": prompts})
        callback = BestCheckpoint(describe_measure(SimpleNamespace(**fields), problems))
        callback.on_train_begin(None, state, TrainerControl())
        return state

    saved = begun(TrainerState()).stateful_callbacks
    best = {"best_metric": 0.25, "best_global_step": 20, "best_model_checkpoint": "checkpoint-20"}
    state = begun(TrainerState(global_step=40, stateful_callbacks=saved, **best), **other)
    assert {name: getattr(state, name) for name in best} == (dict.fromkeys(best) if other else best)
    assert ("the best so far, 0.25 at step 20, was of eval_reward, 1 answers" in caplog.text) is bool(other)


def test_a_gap_is_judged_by_the_first_ones_of_its_run_unless_it_is_gross(caplog: pytest.LogCaptureFixture) -> None:
    usual = [0.01, 0.02, 0.015, 0.01, 0.02]
    assert len(usual) == FIRST
    assert seen(caplog, [*usual, 0.05, 0.07, 0.07, 0.15]) == [6, 8]  # above 0.06, then above twice what was said
    assert "in this run's first generations it was at most 0.02" in caplog.records[0].getMessage()
    caplog.clear()
    assert seen(caplog, [0.3, 0.3, 0.3, 0.3, 0.3, 0.3]) == [0]


def test_a_second_of_a_phase_inside_another_counts_once() -> None:
    phases = Phases(torch.device("cpu"))
    send = phases.measure(SYNC)(lambda seconds: time.sleep(seconds))
    began = time.monotonic()
    send(0.02)
    with phases.measure(SAMPLING):
        send(0.2)
        time.sleep(0.02)
    whole = time.monotonic() - began
    metrics = phases.take()
    assert metrics["seconds/sync"] >= 0.22 and metrics["seconds/sampling"] >= 0.02
    assert sum(metrics.values()) <= whole
    assert phases.take() == {}
