"""When a thought could have been stopped: what answers at several budgets know of it, without a new token.

A thought is sampled once and answered at each budget, so its answers tell from where on it was right, and what a rule
that looks at answers alone would have stopped at. Solutions are sampled, so part of every change between two is chance.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e1_trl.answers.grade import Outcome
from e1_trl.report import statistics
from e1_trl.report.rows import REFERENCE
from e1_trl.report.samples import budget_of, texts
from e1_trl.rollout import ThinkingEnd

PLACE = ["problem", "sample"]


@dataclass(frozen=True)
class OverLargest:
    """Accuracy of a rule minus that of the largest budget for all, paired, with its interval."""

    difference: float
    ci_low: float
    ci_high: float


@dataclass(frozen=True)
class Rule:
    """A rule that stops each thought at one of the budgets, with the tokens that it takes in the mean.

    An oracle stops where a thought is right for the first time, and at the largest budget where it never is. Agreement
    of k stops where the policy closes the thinking, or an answer equals the k before it (Fu et al. 2025, the paper's
    reference 8); every solution that it has looked at is paid for. The oracle takes the best of several independent
    solutions, so that it gains with more budgets by chance alone. `over_largest` is `None` for the largest budget.
    """

    name: str
    accuracy: float
    ci_low: float
    ci_high: float
    mean_tokens: float
    mean_thinking_tokens: float
    over_largest: OverLargest | None


@dataclass(frozen=True)
class Stopping:
    """What thoughts of a model need, by separate budgets that differ in the thinking alone. Shares are of all thoughts.

    Attributes:
        model: its name.
        thoughts: how many there are that were answered at every budget.
        budgets: in increasing order.
        first_right: how many are right at each budget, and at no smaller one; the rest is never right.
        wrong_again: how many are wrong at a budget after they were right at the one before.
        tokens_beyond: of those that are first right at each budget, the thinking tokens that they take beyond what they
            had then at the largest one, in the mean. `None` where there are none.
        escape_ratio: of the forced answers at each budget, the share whose solution goes on thinking: it closes the
            thinking again, or runs out of its own budget; less the share of those that do so after a natural close,
            at the largest budget (0 if nothing is closed there). `None` where nothing is forced.
        rules: what they reach; the first is the largest budget for all.
    """

    model: str
    thoughts: int
    budgets: list[str]
    first_right: list[float]
    wrong_again: list[float]
    tokens_beyond: list[float | None]
    escape_ratio: list[float | None]
    rules: list[Rule]


@dataclass(frozen=True)
class _Thoughts:
    """Thoughts × budgets: those of a problem one after the other, all at every budget."""

    problems: int
    right: NDArray[np.bool_]
    forced: NDArray[np.bool_]
    closed: NDArray[np.bool_]
    escaped: NDArray[np.bool_]
    thinking: NDArray[np.int64]
    solution: NDArray[np.int64]
    answer: NDArray[np.object_]  # the same for all right ones; null: there is none

    def rule(self, name: str, at: NDArray[np.int64], paid: NDArray[np.int64]) -> Rule:
        """What is reached where each thought is stopped at a budget, with the solutions that are `paid` for there."""
        here = (np.arange(len(at)), at)
        right = self.right.astype(float)
        accuracy = statistics.accuracy(right[here].reshape(self.problems, -1))
        over = None
        if (at < right.shape[1] - 1).any():
            found = statistics.difference((right[here] - right[:, -1]).reshape(self.problems, -1))
            over = OverLargest(found.mean, found.low, found.high)
        thinking, solution = float(self.thinking[here].mean()), float(paid[here].mean())
        return Rule(name, accuracy.mean, accuracy.low, accuracy.high, thinking + solution, thinking, over)

    def escape(self, at: int) -> float | None:
        """How many more forced solutions at a budget go on thinking than solutions after a natural close."""
        forced = self.escaped[self.forced[:, at], at]
        closed = self.escaped[self.closed[:, -1], -1]
        return float(forced.mean() - (closed.mean() if len(closed) else 0.0)) if len(forced) else None

    def agreement(self, k: int) -> Rule:
        """Stop where the policy does, or where an answer equals the k before it; at the last budget at the latest."""
        same = (self.answer[:, 1:] == self.answer[:, :-1]) & pd.notna(self.answer[:, 1:])
        stops = ~self.forced
        for end in range(k, stops.shape[1]):
            stops[:, end] |= same[:, end - k : end].all(axis=1)
        stops[:, -1] = True
        return self.rule(f"agreement of {k}", stops.argmax(axis=1), self.solution.cumsum(axis=1))


def stopping(table: pd.DataFrame, votes: bool) -> list[Stopping]:
    """Of each model, and each solution budget, that has one thought for two thinking budgets or more.

    Where each budget was sampled by itself, there is none.

    Args:
        table: graded answers.
        votes: whether two answers can be compared, as of mathematics; rules by agreement need that.
    """
    separate = table[(table["method"] == REFERENCE) & table["thinking_budget"].notna()]
    groups = separate.groupby(["model", "solution_budget"], sort=False, dropna=False)
    found = (_stopping(own, votes) for _, own in groups)
    return [each for each in found if each is not None]


def _stopping(answers: pd.DataFrame, votes: bool) -> Stopping | None:
    right = answers["outcome"] == Outcome.CORRECT
    columns = {
        "right": right,
        "forced": answers["thinking_end"] == ThinkingEnd.FORCED,
        "closed": answers["thinking_end"] == ThinkingEnd.CLOSED,
        "escaped": answers["truncated"] | answers["closes_again"],
        "thinking": answers["thinking_tokens"],
        "solution": answers["solution_tokens"],
        "answer": ("=" + pd.Series(texts(answers["value"]), index=answers.index, dtype=object)).mask(right, ""),
    }
    own = answers[[*PLACE, "thinking_budget", "solution_budget"]].assign(**columns)
    at_all = own.groupby(PLACE)["thinking_budget"].transform("count") == own["thinking_budget"].nunique()
    wide = own[at_all].sort_values([*PLACE, "thinking_budget"])
    budgets = [str(budget_of(row)) for _, row in wide.drop_duplicates("thinking_budget").iterrows()]
    if len(budgets) < 2:
        return None
    arrays: dict[str, Any] = {name: wide[name].to_numpy().reshape(-1, len(budgets)) for name in columns}
    of = _Thoughts(wide["problem"].nunique(), **arrays)
    if (~of.forced[:, :-1] & (of.thinking[:, :-1] != of.thinking[:, 1:])).any():
        return None  # what has ended by itself goes on: these are thoughts of each budget's own
    last = len(budgets) - 1
    first = np.where(of.right.any(axis=1), of.right.argmax(axis=1), len(budgets))  # where one is right, if any
    beyond = of.thinking[:, -1:] - of.thinking
    lost = of.right[:, :-1] & ~of.right[:, 1:]
    return Stopping(
        model=answers["model"].iloc[0],
        thoughts=len(first),
        budgets=budgets,
        first_right=[float((first == at).mean()) for at in range(len(budgets))],
        wrong_again=[0.0, *map(float, lost.mean(axis=0))],
        tokens_beyond=[_mean(beyond[first == at, at]) for at in range(len(budgets))],
        escape_ratio=[of.escape(at) for at in range(len(budgets))],
        rules=[
            of.rule("largest budget", np.full(len(first), last), of.solution),
            of.rule("oracle", np.minimum(first, last), of.solution),
            *(of.agreement(k) for k in range(1, len(budgets) if votes else 1)),
        ],
    )


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None
