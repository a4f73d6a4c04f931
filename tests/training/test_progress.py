"""Output for a person who watches a run, of the main process alone."""

from array import array
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import BASE
from transformers import AutoTokenizer, TrainerControl, TrainerState

from e1_trl.rollout import Completion, ThinkingEnd
from e1_trl.training import progress
from e1_trl.training.progress import Progress, metrics_of, transcripts

STEP = {
    "loss": 0.1,
    "reward": 0.42,
    "rewards/accuracy/mean": 0.4,
    "thinking/closed_ratio": 0.6,
    "thinking/forced_ratio": 0.35,
    "thinking/eos_ratio": 0.05,
    "solution/truncated_ratio": 0.1,
    "thinking/mean_tokens": 45.4,
    "solution/mean_tokens": 14.9,
}


@pytest.fixture(autouse=True)
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 0.0))


def shown(capsys: pytest.CaptureFixture[str], logs: dict[str, Any], main: bool = True) -> str:
    watched, control = Progress(), TrainerControl()
    state = TrainerState(global_step=2, max_steps=10, is_world_process_zero=main)
    for _ in range(2):
        watched.on_step_begin(None, state, control)  # type: ignore[arg-type]
        watched.on_step_end(None, state, control)  # type: ignore[arg-type]
    watched.on_log(None, state, control, logs=logs)  # type: ignore[arg-type]
    return capsys.readouterr().out


def test_a_step_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, STEP) == (
        "step 2/10 | reward 0.420 | accuracy 40.0% | closed 60% forced 35% eos 5% truncated 10% | tokens 45 + 15 | "
        "0.0 s/step | 0:00:00 left\n"
    )
    assert shown(capsys, STEP, main=False) == ""


def test_the_pace_is_that_since_the_last_line_and_the_rest_takes_the_mean_of_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 2.0, 10.0, 14.0, 20.0, 25.0])  # of steps that take 2, 4 and 5 seconds
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    watched, control = Progress(), TrainerControl()
    for step in (1, 2, 3):
        state = TrainerState(global_step=step, max_steps=10, is_world_process_zero=True)
        watched.on_step_begin(None, state, control)  # type: ignore[arg-type]
        watched.on_step_end(None, state, control)  # type: ignore[arg-type]
        if step > 1:
            watched.on_log(None, state, control, logs=STEP)  # type: ignore[arg-type]
    paces = [line.split(" | ")[-2:] for line in capsys.readouterr().out.splitlines()]
    assert paces == [["3.0 s/step", "0:00:24 left"], ["5.0 s/step", "0:00:26 left"]]


def test_evaluations_and_the_end_have_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    evaluation = {f"eval_{name}": value for name, value in STEP.items()}
    assert shown(capsys, evaluation).startswith("step 2/10 | evaluation | reward 0.420 | accuracy 40.0% |")
    numbers = {"accuracy": 0.5, "forced_ratio": 0.9, "eos_ratio": 0.1, "thinking_tokens": 16.0, "solution_tokens": 9.6}
    logs = {f"eval_budget/{budget}/{name}": value for budget in ("8+8", "16+16") for name, value in numbers.items()}
    del logs["eval_budget/16+16/accuracy"]  # the grader failed on everything
    first, second = shown(capsys, logs).splitlines()
    assert first == "step 2/10 | budget 8+8 | accuracy 50.0% | forced 90% eos 10% | tokens 16 + 10"
    assert second == "step 2/10 | budget 16+16 | forced 90% eos 10% | tokens 16 + 10"
    # TRL adds the metrics of the last steps to it where logging_steps does not divide their number.
    for last in ({}, STEP):
        assert shown(capsys, {"train_runtime": 601.0, **last}) == "trained 2 steps in 0:10:01\n"


def test_unanswered_thoughts_warn_once(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    shown(capsys, {**STEP, "thinking/eos_ratio": 0.2})
    assert not caplog.messages
    watched = Progress()
    state = TrainerState(global_step=2, max_steps=10, is_world_process_zero=True)
    evaluation = {f"eval_{name}": value for name, value in STEP.items()}
    for share in (0.83, 0.9):
        watched.on_log(None, state, TrainerControl(), logs={**evaluation, "eval_thinking/eos_ratio": share})
    (warning,) = caplog.messages
    assert warning.startswith("step 2/10: 83% of the thoughts ended in an end-of-sequence token, without an answer")
    assert all(cause in warning for cause in ("chat_template_kwargs", "the marker", "end-of-sequence token"))


def test_rollouts_are_shown_as_text_with_the_forced_close_marked_and_both_kinds_first() -> None:
    tokenizer = AutoTokenizer.from_pretrained(BASE)

    def completion(end: ThinkingEnd, thinking: str, forced: str, solution: str) -> Completion:
        parts = [tokenizer.encode(text, add_special_tokens=False) for text in (thinking, forced, solution)]
        thought, close, solved = map(len, parts)
        return Completion(array("i", chain(*parts)), end, thought, close, close, solved, truncated=False)

    closed = completion(ThinkingEnd.CLOSED, "a=7</think>", "", "\\boxed{7}")
    forced = completion(ThinkingEnd.FORCED, "a=7;Wait ", "</think>", "\\boxed{8}")
    long = completion(ThinkingEnd.CLOSED, "a=7;" * 1000 + "</think>", "", "\\boxed{7}")
    prompt = tokenizer.encode("a=7;a?")
    rollouts = [(prompt, each) for each in (closed, long, forced)]
    shown = transcripts(tokenizer, rollouts, [1.0, 1.0, 0.0], None)
    assert shown.splitlines() == [
        "--- thinking forced after 5 tokens, solution of 3, reward 0.000",
        "a=7;a?",
        "a=7;Wait ‖</think>‖\\boxed{8}",
        "--- thinking closed after 4 tokens, solution of 3, reward 1.000",
        "a=7;a?",
        "a=7</think>\\boxed{7}",
    ]
    assert transcripts(tokenizer, rollouts, [1.0, 1.0, 0.0], 0) == ""
    last = transcripts(tokenizer, rollouts, [1.0, 1.0, 0.0], 3).splitlines()[-1]
    assert " […] " in last and last.endswith("\\boxed{7}") and len(last) < 700


def test_forks_of_a_thought_share_its_tokens_and_no_others() -> None:
    completions = [Completion(array("i", [0] * n), ThinkingEnd.EOS, n, 0, 0, 0, False) for n in (3, 5, 9, 2)]
    for forks, sampled in ((1, [3, 5, 9, 2]), (2, [2.5, 2.5, 4.5, 4.5])):
        logged = [value for name, value in metrics_of(completions, forks) if name == "thinking/sampled_tokens"]
        assert logged == sampled
