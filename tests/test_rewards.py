"""Rewards look at the solution, however the completion was written."""

import inspect
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from trl.trainer import grpo_trainer

from e1_trl.grading import Grader
from e1_trl.rewards import Accuracy, format_reward, make_rewards
from e1_trl.rollout import ThinkingEnd


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(time_limit=60, workers=1) as grader:
        yield grader


class Call:
    """The keyword arguments with which TRL calls a reward, and what it logged."""

    def __init__(self, **columns: list[Any]):
        self.metrics: dict[str, list[float]] = defaultdict(list)
        self.extra: dict[str, list[str]] = {}
        count = len(columns["solution"])
        self.arguments: dict[str, Any] = columns | {
            "prompts": [[{"role": "user", "content": "1 + 1"}]] * count,
            "completions": [[{"role": "assistant", "content": r"so \boxed{2}</think>"}]] * count,
            "completion_ids": [[1, 2, 3]] * count,
            "prompt_tokens": [3] * count,
            "trainer_state": None,
            "log_metric": lambda name, value: self.metrics[name].append(value),
            "log_extra": self.extra.__setitem__,
        }


def test_accuracy_grades_the_solution_and_logs_what_went_wrong(grader: Grader) -> None:
    call = Call(
        solution=[r"\boxed{2}", r"\boxed{3}", "2", "", r"\boxed{((}"],
        answers=[["2"], ["2"], ["2"], ["2"], ["2", "two"]],
    )
    assert Accuracy(grader)(**call.arguments) == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert call.metrics == {
        "grading/timed_out": [0.0] * 5,
        "grading/crashed": [0.0] * 5,
        "grading/unboxed": [0.0, 0.0, 1.0, 1.0, 0.0],
        "grading/unparseable": [0.0, 0.0, 0.0, 0.0, 1.0],
    }
    assert call.extra == {"outcome": ["correct", "wrong", "unboxed", "unboxed", "unparseable"]}


def test_hostile_answers_are_wrong_and_counted(grader: Grader) -> None:
    grader.grade([r"\boxed{1}"], [["1"]])
    grader.time_limit = 1
    call = Call(solution=[r"\boxed{9^{9^{9^{9}}}}"] * 2, answers=[["2"]] * 2)
    assert Accuracy(grader)(**call.arguments) == [0.0, 0.0]
    assert call.metrics["grading/timed_out"] == [1.0, 1.0]
    grader.time_limit = 60


def test_format_wants_one_box_in_a_solution_that_ended_by_itself() -> None:
    call = Call(
        solution=[r"\boxed{2}", r"\boxed{2}", "2", r"\boxed{2}, \boxed{2}", r"\boxed{2}", ""],
        thinking_end=["closed", "forced", "closed", "closed", "closed", "eos"],
        solution_truncated=[False, False, False, False, True, False],
    )
    assert format_reward(**call.arguments) == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_format_takes_the_rollouts_enum_as_well_as_its_values() -> None:
    ends = [ThinkingEnd.CLOSED, ThinkingEnd.EOS]
    call = Call(solution=[r"\boxed{2}"] * 2, thinking_end=ends, solution_truncated=[False] * 2)
    assert format_reward(**call.arguments) == [1.0, 0.0]


def test_rewards_are_made_by_name_in_order(grader: Grader) -> None:
    rewards = make_rewards(["format", "accuracy"], grader)
    assert [reward.__name__ for reward in rewards] == ["format", "accuracy"]


def test_unknown_reward_is_named_with_those_there_are(grader: Grader) -> None:
    with pytest.raises(ValueError, match=r"^unknown reward 'acuracy'; available are accuracy, format$"):
        make_rewards(["accuracy", "acuracy"], grader)


def test_trl_still_passes_what_the_rewards_take() -> None:
    source = inspect.getsource(grpo_trainer.GRPOTrainer._calculate_rewards)
    assert 'reward_kwargs["log_metric"]' in source
    assert 'reward_kwargs["log_extra"]' in source
