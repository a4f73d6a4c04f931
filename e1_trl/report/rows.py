"""The numbers of a report, computed from the table of answers: rows, and lines over budgets.

Every number that is printed or drawn anywhere has its one definition here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e1_trl.answers.grade import Outcome
from e1_trl.answers.kinds import kind_of
from e1_trl.checkpoints.budget_file import Point
from e1_trl.report import statistics
from e1_trl.report.conditions import Conditions
from e1_trl.report.samples import CELL, texts
from e1_trl.rollout import ThinkingEnd

REFERENCE = "separate"  # the method that others are compared with
MIXED = "mixed"  # separate budgeting whose thinking is another model's
BOXES_ONLY = "boxes only"  # after the name of a method: its answers that were read without a box are none
UNANSWERED_ENDS = (ThinkingEnd.EOS, ThinkingEnd.CUT)


@dataclass(frozen=True)
class Row(Point):
    """One method at one budget, of one model on one benchmark, with everything that is known of it. Means in tokens.

    `accuracy` is avg@k and `maj_at_k` is at k = `samples`; `pass_at_k` holds k = 1, 2, 4, … and `samples`. Tokens are
    those sampled and, as thinking, the "Wait" that s1 puts in; those forced after the thinking, close and words, are
    `mean_forced_tokens`. `left_out` problems were asked for and are too long for `max_prompt_length`; `response_limit`
    is the longest completion where the budget is unlimited, `None` where that is what the context leaves. Ratios and
    shares are of all answers:

    - `closed_ratio`, `forced_ratio`, `eos_ratio` and `cut_ratio`, how the thinking ended, add up to 1;
    - `accuracy`, `wrong`, `unevaluated`, `unparseable`, `censored` (cut off or ended before there was an answer) and,
      of programs, `faults` add up to 1;
    - `unboxed`: the answer was read without a box, which s1 allows after its forced text (`BOXES_ONLY` does not).

    Programs have no `maj_at_k`, since no two need be the same text, and `faults` is the share of every outcome but
    right and wrong (`ungraded` is the grader's own); of mathematics these are all `unparseable`.

    `seed` is that of the sampling, `commit` the one that finished it, `graded_by` what graded it.
    """

    model: str
    pass_at_k: dict[str, float]
    maj_at_k: float | None
    mean_thinking_tokens: float
    mean_solution_tokens: float
    mean_forced_tokens: float
    response_limit: int | None
    left_out: int
    closed_ratio: float
    eos_ratio: float
    cut_ratio: float
    truncated_ratio: float
    accuracy_forced: float | None
    accuracy_closed: float | None
    wrong: float
    unevaluated: float
    unparseable: float
    censored: float
    unboxed: float
    seed: int
    commit: str
    graded_by: str
    faults: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """One method of one model over all its budgets: area under the line, and the fit of accuracy to log2 tokens."""

    model: str
    method: str
    benchmark: str
    area: float
    ci_low: float
    ci_high: float
    fit: statistics.Fit | None


@dataclass(frozen=True)
class Measured:
    """A row together with the answers that it was computed from."""

    row: Row
    answers: pd.DataFrame  # in the order of problems and samples

    @cached_property
    def point(self) -> statistics.Point:
        tokens = self.answers["thinking_tokens"] + self.answers["solution_tokens"]
        return statistics.Point(_matrix(self.answers, _correct(self.answers)), _matrix(self.answers, tokens))

    @cached_property
    def conditions(self) -> Conditions:
        return Conditions.from_text(self.answers["conditions"].iloc[0])

    @cached_property
    def asked(self) -> list[Any]:
        """What the answers are answers to: problem, sample and accepted answers."""
        columns = (self.answers[name] for name in ("problem", "sample", "answers"))
        return [(problem, sample, *accepted) for problem, sample, accepted in zip(*columns, strict=True)]


def _correct(answers: pd.DataFrame) -> "pd.Series[bool]":
    return answers["outcome"] == Outcome.CORRECT


def _matrix(answers: pd.DataFrame, column: Iterable[Any]) -> NDArray[np.float64]:
    """A column of ordered answers as problems × samples."""
    return np.asarray(column, dtype=float).reshape(answers["problem"].nunique(), -1)


def summarize(table: pd.DataFrame) -> list[Measured]:
    """The rows of a table of graded answers, in the order in which they were asked for; strictly read ones beside."""
    found = []
    for _, answers in table.groupby(CELL, sort=False, dropna=False):
        ordered = answers.sort_values(["problem", "sample"])
        found.append(_measure(ordered))
        if ordered["unboxed"].any():
            found.append(_measure(_boxes_only(ordered)))
    return found


def _boxes_only(answers: pd.DataFrame) -> pd.DataFrame:
    """The same answers under another method's name, without what was read of them outside of a box."""
    unboxed = answers["unboxed"]
    return answers.assign(
        method=f"{answers['method'].iloc[0]}, {BOXES_ONLY}",
        outcome=answers["outcome"].mask(unboxed, Outcome.UNBOXED.value),
        value=answers["value"].mask(unboxed),
        unboxed=False,
    )


def _measure(answers: pd.DataFrame) -> Measured:
    first = answers.iloc[0]
    outcome, end = answers["outcome"], answers["thinking_end"]
    right = _correct(answers)
    correct = _matrix(answers, right)
    estimate = statistics.accuracy(correct)
    problems, samples = correct.shape
    budgets = [_optional(first[name]) for name in ("thinking_budget", "solution_budget")]
    given = np.array(texts(answers["value"]), dtype=object).reshape(problems, samples)
    ks = [*(2**i for i in range((samples - 1).bit_length())), samples]
    thinking, solution = answers["thinking_tokens"], answers["solution_tokens"]
    closed, forced = end == ThinkingEnd.CLOSED, end == ThinkingEnd.FORCED
    told = outcome.isin([Outcome.CORRECT, Outcome.WRONG, Outcome.UNEVALUATED])
    unanswered = outcome.isin([Outcome.UNBOXED, Outcome.NO_PROGRAM])
    censored = unanswered & (answers["truncated"] | end.isin(UNANSWERED_ENDS))
    kind = kind_of(first["grader"])
    other = ~told & ~censored
    row = Row(
        model=first["model"],
        method=first["method"],
        benchmark=first["benchmark"],
        thinking_budget=budgets[0],
        solution_budget=budgets[1],
        problems=problems,
        samples=samples,
        accuracy=estimate.mean,
        ci_low=estimate.low,
        ci_high=estimate.high,
        pass_at_k={str(k): statistics.pass_at_k(correct, k) for k in ks},
        maj_at_k=statistics.maj_at_k(correct, given.tolist()) if kind.votes else None,
        mean_tokens=float((thinking + solution).mean()),
        mean_thinking_tokens=float(thinking.mean()),
        mean_solution_tokens=float(solution.mean()),
        mean_forced_tokens=float(answers["forced_tokens"].mean()),
        response_limit=Conditions.from_text(first["conditions"]).response if None in budgets else None,
        left_out=int(first["asked_problems"]) - problems,
        closed_ratio=float(closed.mean()),
        forced_ratio=float(forced.mean()),
        eos_ratio=float((end == ThinkingEnd.EOS).mean()),
        cut_ratio=float((end == ThinkingEnd.CUT).mean()),
        truncated_ratio=float(answers["truncated"].mean()),
        accuracy_forced=float(right[forced].mean()) if forced.any() else None,
        accuracy_closed=float(right[closed].mean()) if closed.any() else None,
        wrong=float((outcome == Outcome.WRONG).mean()),
        unevaluated=float((outcome == Outcome.UNEVALUATED).mean()),
        unparseable=0.0 if kind.faults else float(other.mean()),
        censored=float(censored.mean()),
        unboxed=float(answers["unboxed"].mean()),
        seed=int(first["seed"]),
        commit=first["commit"],
        graded_by=first["graded_by"],
        faults={str(fault): float((other & (outcome == fault)).mean()) for fault in kind.faults},
    )
    return Measured(row, answers)


def _optional(budget: Any) -> int | None:
    return None if pd.isna(budget) else int(budget)


def lines(measured: Sequence[Measured]) -> list[Line]:
    """Every method of every model that has three limited budgets or more."""
    found = []
    limited = [(total, each) for each in measured if (total := each.row.budget.completion_tokens(0)) is not None]
    limited.sort(key=lambda pair: (_line(pair[1].row), pair[0]))
    for (model, method, benchmark), group in groupby(limited, key=lambda pair: _line(pair[1].row)):
        budgets, line = zip(*group, strict=True)
        if len(set(budgets)) < 3 or any(each.asked != line[0].asked for each in line):
            continue
        area = statistics.area(np.stack([each.point.correct for each in line]), budgets)
        fit = statistics.log_fit([each.point for each in line])
        found.append(Line(model, method, benchmark, area.mean, area.low, area.high, fit))
    return found


def _line(row: Row) -> tuple[str, str, str]:
    return row.model, row.method, row.benchmark
