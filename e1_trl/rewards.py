r"""Rewards as functions of the solution segment.

TRL calls a reward with the columns of the dataset and those our rollout adds, one value per completion. What these
rewards look at is `solution` (the text after the close of the thinking, "" if there is none), how the thinking ended,
and whether the solution was cut; never the whole completion, so a box inside the thinking earns nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any

from e1_trl.grading import Grader, Outcome
from e1_trl.rollout import ThinkingEnd

Reward = Callable[..., list[float]]


class Accuracy:
    """1.0 for a solution whose boxed answer equals one of the accepted answers, else 0.0.

    A hostile answer, which times out or crashes its worker, is a wrong one. Logs which part of the completions went
    wrong other than by being wrong, as `grading/timed_out`, `crashed`, `unboxed` and `unparseable` (ratios), and every
    completion's outcome.
    """

    __name__ = "accuracy"

    def __init__(self, grader: Grader):
        self.grader = grader

    def __call__(
        self,
        *,
        solution: Sequence[str],
        answers: Sequence[Sequence[str]],
        log_metric: Callable[[str, float], None],
        log_extra: Callable[[str, list[str]], None],
        **_: Any,
    ) -> list[float]:
        grades = self.grader.grade(solution, answers)
        for outcome in (Outcome.TIMED_OUT, Outcome.CRASHED, Outcome.UNBOXED, Outcome.UNPARSEABLE):
            for grade in grades:  # once per completion: TRL averages what it is given over ranks and steps
                log_metric(f"grading/{outcome}", float(grade.outcome is outcome))
        log_extra("outcome", [grade.outcome.value for grade in grades])
        return [float(grade.correct) for grade in grades]


def format_reward(
    *, solution: Sequence[str], thinking_end: Sequence[str], solution_truncated: Sequence[bool], **_: Any
) -> list[float]:
    r"""1.0 for a solution that ended by itself and holds exactly one `\boxed{`, else 0.0."""
    return [
        float(end != ThinkingEnd.EOS and not truncated and text.count(r"\boxed{") == 1)
        for text, end, truncated in zip(solution, thinking_end, solution_truncated, strict=True)
    ]


format_reward.__name__ = "format"  # what TRL logs it under


REWARDS: dict[str, Callable[[Grader], Reward]] = {"accuracy": Accuracy, "format": lambda grader: format_reward}


def check_rewards(names: Sequence[str], weights: Sequence[float] | None) -> None:
    """Raise ValueError if a name is unknown, or the weights are not as many."""
    for name in names:
        if name not in REWARDS:
            raise ValueError(f"unknown reward {name!r}; available are {', '.join(REWARDS)}")
    if weights is not None and len(weights) != len(names):
        raise ValueError(f"reward_weights has {len(weights)} values for the {len(names)} rewards {', '.join(names)}")


def make_rewards(names: Sequence[str], grader: Grader) -> list[Reward]:
    """The rewards of these names, in this order.

    Raises:
        ValueError: a name is unknown.
    """
    check_rewards(names, None)
    return [REWARDS[name](grader) for name in names]
