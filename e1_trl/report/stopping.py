"""Earliest budgets at which thoughts could have stopped, computed from their answers at several budgets.

A thought is sampled once and answered at each budget, so its answers show from where on it was right, and where a rule
that looks only at answers would have stopped. Solutions are sampled, so part of every change between two is chance.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e1_trl.answers.grade import Outcome
from e1_trl.report import statistics
from e1_trl.report.conditions import Conditions
from e1_trl.report.rows import REFERENCE
from e1_trl.report.samples import EVALUATION, PLACE, budget_of, texts
from e1_trl.rollout import ThinkingEnd


@dataclass(frozen=True)
class OverLargest:
    """Accuracy of a rule minus that of the largest budget for all, paired, with its interval."""

    difference: float
    ci_low: float
    ci_high: float


@dataclass(frozen=True)
class Rule:
    """A rule that stops each thought at one of the budgets, with its accuracy and mean tokens.

    An oracle stops where a thought is right for the first time, and at the largest budget if it never is. Agreement of
    k stops where the policy closes the thinking, or an answer equals the k before it (Fu et al. 2025, which the paper
    cites); the tokens of every solution that it looks at count. The oracle takes the best of several independent
    solutions, and so gains with the number of budgets by chance alone. `over_largest` is `None` for the largest budget.
    Accuracies are means over problems, tokens over thoughts, of which problems may have unequal numbers.
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
    """Thinking that the thoughts of a model need, by separate budgets with one solution budget."""

    model: str  # its name
    thoughts: int  # number of thoughts that were answered at every budget; shares are of these
    budgets: list[str]  # in increasing order
    first_right: list[float]  # share that is right at each budget, and at no smaller one; the rest is never right
    wrong_again: list[float]  # share that is wrong at each budget, and right at the one below
    # Mean thinking tokens that thoughts first right at each budget add up to the largest budget; `None` if no thought
    # is.
    tokens_beyond: list[float | None]
    # Share of the forced answers at each budget whose solution closes the thinking again or runs out of its own
    # budget, less that share after natural closes at the largest budget (0 without natural closes); `None` if no
    # answer is forced.
    escape_ratio: list[float | None]
    rules: list[Rule]  # the first is the largest budget for all


@dataclass(frozen=True)
class _Thoughts:
    """Arrays of shape thoughts × budgets; the thoughts of a problem are next to each other."""

    problem: NDArray[np.int64]  # of each thought
    right: NDArray[np.bool_]
    forced: NDArray[np.bool_]
    closed: NDArray[np.bool_]
    escaped: NDArray[np.bool_]
    thinking: NDArray[np.int64]  # tokens
    solution: NDArray[np.int64]  # tokens
    answer: NDArray[np.object_]  # all right answers are equal; null: no answer

    def rule(self, name: str, at: NDArray[np.int64], paid: NDArray[np.int64]) -> Rule:
        """Evaluate a rule that stops each thought `at` the index of a budget, for the solution tokens `paid` there."""
        here = (np.arange(len(at)), at)
        right = self.right.astype(float)
        accuracy = statistics.accuracy(self.by_problem(right[here]))
        over = None
        if (at < right.shape[1] - 1).any():
            found = statistics.difference(self.by_problem(right[here] - right[:, -1]))
            over = OverLargest(found.mean, found.low, found.high)
        thinking = float(self.thinking[here].mean())
        tokens = thinking + float(paid[here].mean())
        return Rule(name, accuracy.mean, accuracy.low, accuracy.high, tokens, thinking, over)

    def by_problem(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values of thoughts by problem; their means if some problems have fewer thoughts than others."""
        own = pd.Series(values).groupby(self.problem)
        return values.reshape(own.ngroups, -1) if own.size().nunique() == 1 else own.mean().to_numpy()[:, None]

    def escape(self, at: int) -> float | None:
        forced = self.escaped[self.forced[:, at], at]
        closed = self.escaped[self.closed[:, -1], -1]
        return float(forced.mean() - (closed.mean() if len(closed) else 0.0)) if len(forced) else None

    def agreement(self, k: int) -> Rule:
        same = (self.answer[:, 1:] == self.answer[:, :-1]) & pd.notna(self.answer[:, 1:])
        stops = ~self.forced
        for end in range(k, stops.shape[1]):
            stops[:, end] |= same[:, end - k : end].all(axis=1)
        stops[:, -1] = True
        return self.rule(f"agreement of {k}", stops.argmax(axis=1), self.solution.cumsum(axis=1))


def stopping(table: pd.DataFrame, votes: bool) -> list[Stopping]:
    """Analyse each model and solution budget with one thought for several thinking budgets, not sampled for each.

    Evaluations that were joined share no thoughts.

    Rules by agreement need answers that can be compared (`votes`), as those of mathematics.
    """
    independent = [text for text in table["conditions"].unique() if Conditions.from_text(text).independent]
    shared = ~table["conditions"].isin(independent)
    separate = table[(table["method"] == REFERENCE) & table["thinking_budget"].notna() & shared]
    columns = ["model", "solution_budget", *separate.columns.intersection([EVALUATION])]
    groups = separate.groupby(columns, sort=False, dropna=False)
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
    at_once = own.assign(none=answers["thinking_end"] == ThinkingEnd.NONE).groupby(PLACE)["none"].transform("any")
    wide = own[at_all & ~at_once].sort_values([*PLACE, "thinking_budget"])
    budgets = [str(budget_of(row)) for _, row in wide.drop_duplicates("thinking_budget").iterrows()]
    if len(budgets) < 2:
        return None
    arrays: dict[str, Any] = {name: wide[name].to_numpy().reshape(-1, len(budgets)) for name in columns}
    of = _Thoughts(wide["problem"].to_numpy()[:: len(budgets)], **arrays)
    if (~of.forced[:, :-1] & (of.thinking[:, :-1] != of.thinking[:, 1:])).any():
        return None  # a thought that ended on its own goes on: each budget was sampled separately
    last = len(budgets) - 1
    first = np.where(of.right.any(axis=1), of.right.argmax(axis=1), len(budgets))  # beyond the last: never right
    beyond = [(of.thinking[:, -1] - of.thinking[:, at])[first == at] for at in range(len(budgets))]
    lost = of.right[:, :-1] & ~of.right[:, 1:]
    return Stopping(
        model=answers["model"].iloc[0],
        thoughts=len(first),
        budgets=budgets,
        first_right=[float((first == at).mean()) for at in range(len(budgets))],
        wrong_again=[0.0, *map(float, lost.mean(axis=0))],
        tokens_beyond=[float(each.mean()) if len(each) else None for each in beyond],
        escape_ratio=[of.escape(at) for at in range(len(budgets))],
        rules=[
            of.rule("largest budget", np.full(len(first), last), of.solution),
            of.rule("oracle", np.minimum(first, last), of.solution),
            *(of.agreement(k) for k in range(1, len(budgets) if votes else 1)),
        ],
    )
