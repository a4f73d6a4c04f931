"""Rewards look at the solution, however the completion was written."""

import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trl.trainer.utils import get_callable_name

from e1_trl.answers.grade import Grade, Outcome
from e1_trl.answers.mathematics.grader import MathematicsGrader
from e1_trl.problems.prompts import MEASURED
from e1_trl.training.named_rewards import TRLS_REWARDS, format_reward, make_rewards
from e1_trl.training.rewards import Accuracy, name_of, sees_all, warn_of_thinking
from e1_trl.training.trainer import E1Trainer


@pytest.fixture(scope="module")
def grader() -> Iterator[MathematicsGrader]:
    with MathematicsGrader(time_limit=60, workers=1) as grader:
        yield grader


class Call:
    """The keyword arguments with which TRL calls a reward, and what it logged."""

    def __init__(self, **columns: list[Any]):
        self.metrics: dict[str, list[float]] = defaultdict(list)
        self.extra: dict[str, list[str]] = {}
        count = len(columns["solution_text"])
        self.arguments: dict[str, Any] = columns | {
            "prompts": [[{"role": "user", "content": "1 + 1"}]] * count,
            "completions": [[{"role": "assistant", "content": r"so \boxed{2}</think>"}]] * count,
            "completion_ids": [[1, 2, 3]] * count,
            MEASURED: [3] * count,
            "trainer_state": None,
            "log_metric": lambda name, value: self.metrics[name].append(value),
            "log_extra": self.extra.__setitem__,
        }


def test_accuracy_grades_the_solution_and_logs_what_went_wrong(grader: MathematicsGrader) -> None:
    call = Call(
        solution_text=[r"\boxed{2}", r"\boxed{3}", "2", "", r"\boxed{((}", r"\boxed{1 + 1}"],
        answers=[["2"], ["2"], ["2"], ["2"], ["2", "two"], ["2"]],
    )
    assert Accuracy(grader)(**call.arguments) == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    (waited,) = call.metrics.pop("seconds/waiting_for_grades")
    assert waited > 0
    assert call.metrics == {
        "grading/unevaluated": [0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        "grading/timed_out": [0.0] * 6,
        "grading/crashed": [0.0] * 6,
        "grading/unboxed": [0.0, 0.0, 1.0, 1.0, 0.0, 0.0],
        "grading/unparseable": [0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
        "grading/worked_in_box": [0.0] * 6,
    }
    assert call.extra == {"outcome": ["correct", "wrong", "unboxed", "unboxed", "unparseable", "unevaluated"]}


def test_what_was_worked_out_in_the_box_is_counted_and_earns_nothing(grader: MathematicsGrader) -> None:
    boxes = ["6*8=48", "100/4=25=48", "x=6*8=48", "6*8=49", "x=48", "f(2)=48", "AB = 48", "48", "6*8=48"]
    answers = [["48"]] * 8 + [["6*8=48", "48"]]
    call = Call(solution_text=[rf"\boxed{{{box}}}" for box in boxes], answers=answers)
    assert Accuracy(grader)(**call.arguments) == [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert call.metrics["grading/worked_in_box"] == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert call.metrics["grading/unevaluated"] == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert call.extra["outcome"][:4] == ["unevaluated", "unevaluated", "unevaluated", "wrong"]
    evaluated = grader.grade(call.arguments["solution_text"], answers)
    assert [grade.correct for grade in evaluated] == [True] * 3 + [False] + [True] * 5


def test_a_grader_of_ones_own_that_only_grades_is_not_told_of_what_is_sampled() -> None:
    class Plain:
        faults = (Outcome.UNEVALUATED,)

        def grade(self, solutions: list[str], references: list[list[str]]) -> list[Grade]:
            return [Grade(Outcome.CORRECT, None)] * len(solutions)

    rewards = [Accuracy(Plain()), format_reward]  # type: ignore[arg-type]
    trainer = SimpleNamespace(reward_funcs=rewards, _rows=[{"answers": ["2"]}], solution_texts=lambda _: ["2"])
    E1Trainer._begin_grading(trainer, 0, None)  # type: ignore[arg-type]
    call = Call(solution_text=["2"], answers=[["2"]])
    assert rewards[0](**call.arguments) == [1.0]


@pytest.mark.parametrize(
    ("solution", "end", "truncated", "reward"),
    [
        (r"\boxed{2}", "closed", False, 1.0),
        (r"\fbox{2}", "forced", False, 1.0),
        (r"\boxed {2}", "closed", False, 1.0),
        (r"\boxed{2}", "closed", True, 0.0),
        ("2", "closed", False, 0.0),
        ("", "eos", False, 0.0),
        (r"\boxed{", "closed", False, 0.0),
        (r"\boxed{x", "closed", False, 0.0),
        (r"\boxed{}", "closed", False, 0.0),
        (r"\boxed{2} and \fbox{3}", "closed", False, 0.0),
        (r"\boxed{\fbox{2}}", "closed", False, 0.0),
    ],
)
def test_format_wants_one_box_in_a_finished_solution(solution: str, end: str, truncated: bool, reward: float) -> None:
    call = Call(solution_text=[solution], thinking_end=[end], solution_truncated=[truncated])
    assert format_reward(**call.arguments) == [reward]


def test_rewards_are_made_by_name_in_order_and_trls_and_models_see_all(grader: MathematicsGrader) -> None:
    rewards = make_rewards(["format", "accuracy", "accuracy_reward"], None, grader)
    assert [reward.__name__ for reward in rewards] == ["format", "accuracy", "accuracy_reward"]  # type: ignore[union-attr]
    assert [sees_all(reward) for reward in rewards] == [False, False, True]
    assert sees_all("org/reward-model") and sees_all(torch.nn.Linear(1, 1))
    assert sees_all(partial(TRLS_REWARDS["accuracy_reward"]))  # type: ignore[arg-type]
    assert not sees_all(partial(format_reward))


def test_rewards_that_judge_the_thinking_are_named(grader: MathematicsGrader, caplog: pytest.LogCaptureFixture) -> None:
    names = ["format", "accuracy", "accuracy_reward"]
    warn_of_thinking(names, make_rewards(names, None, grader))
    warn_of_thinking(["think_format_reward"], make_rewards(["think_format_reward"], None, grader))
    warn_of_thinking(["format"], make_rewards(["format"], None, grader))
    assert [" ".join(line.split()[:4]) for line in caplog.messages] == [
        "the rewards accuracy_reward see",
        "the rewards think_format_reward see",
        "think_format_reward is 0 for",
    ]
    # As it says: the completion begins after the <think> of the prompt.
    completion = [[{"role": "assistant", "content": "a=1;</think>\\boxed{1}"}]]
    assert TRLS_REWARDS["think_format_reward"](completions=completion) == [0.0]  # type: ignore[operator]


def test_a_reward_is_one_of_ones_own_and_takes_arguments_from_the_recipe_as_trls_factories_do(
    grader: MathematicsGrader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "def brevity(solution_text, **_): return [-len(t) for t in solution_text]\n"
        "def upto(n): return lambda thinking_tokens, **_: [t <= n for t in thinking_tokens]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    punished = {"name": "get_soft_overlong_punishment", "max_completion_len": 4, "soft_punish_cache": 2}
    specs = ["mine.brevity", punished, {"name": "mine.upto", "n": 8}]
    brevity, overlong, upto = make_rewards(specs, [1.0, 1.0, 1.0], grader)
    assert brevity(**Call(solution_text=["ab", ""]).arguments) == [-2, 0]  # type: ignore[operator]
    assert overlong(completion_ids=[[1] * 2, [1] * 3, [1] * 5]) == [0, -0.5, -1]  # type: ignore[operator]
    assert upto(thinking_tokens=[8, 9]) == [True, False]  # type: ignore[operator]
    assert [sees_all(reward) for reward in (brevity, overlong, upto)] == [False, True, False]
    for spec, message in (
        ("acuracy", "^unknown reward 'acuracy'; available are accuracy, format, accuracy_reward"),
        ("mine.length", r"the reward 'mine\.length' cannot be imported: .*length"),
        ({"name": "accuracy", "strict": True}, "unknown reward 'accuracy'; available are l1_exact, l1_max, "),
        ({"max_len": 8}, "the reward {'max_len': 8} has no name; write"),
        ({"name": "mine.upto"}, r"the reward mine.upto cannot be made with {}: .*'n'"),
        ({"name": "get_repetition_penalty_reward", "max_penalty": 1}, "cannot be made with {'max_penalty': 1}: "),
    ):
        with pytest.raises(ValueError, match=message) as error:
            make_rewards([spec], None, grader)
        assert "\n" not in str(error.value)
    (tmp_path / "groups.py").write_text(
        "from e1_trl.training.groups import GroupReward\n"
        "class First(GroupReward):\n"
        "    def __init__(self, bonus=1.0): self.bonus = bonus\n"
        "    def of(self, group): return [self.bonus] * len(group.tokens)\n"
        "class Empty(GroupReward): pass\n"
    )
    first, half = make_rewards(["groups.First", {"name": "groups.First", "bonus": 0.5}], None, grader)
    assert (first.bonus, half.bonus) == (1.0, 0.5)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"the reward groups\.Empty cannot be made with {}: .*abstract"):
        make_rewards(["groups.Empty"], None, grader)
    with pytest.raises(ValueError, match="reward_weights has 2 values for the 1 rewards accuracy"):
        make_rewards(["accuracy"], [1.0, 2.0], grader)


def test_messages_name_a_reward_as_trl_logs_it() -> None:
    rewards = [format_reward, partial(partial(sees_all), x=1), MathematicsGrader, SimpleNamespace(), lambda **_: []]
    assert [name_of(each) for each in rewards] == [get_callable_name(each) for each in rewards]
    assert name_of(rewards[1]) == "sees_all"
