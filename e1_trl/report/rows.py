"""The numbers of a report, computed from the table of answers: rows, differences between them, and lines over budgets.

Every number that is printed or drawn anywhere has its one definition here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from e1_trl.budget import Budget
from e1_trl.grading.grade import PROGRAM_FAULTS, Outcome
from e1_trl.report import statistics
from e1_trl.report.samples import CELL, texts
from e1_trl.rollout import ThinkingEnd
from e1_trl.trained import Point

REFERENCE = "separate"  # the method that others are compared with
MIXED = "mixed"  # separate budgeting whose thinking is another model's
PROGRAMS = "programs"  # the grader of which rows have faults
UNANSWERED_ENDS = (ThinkingEnd.EOS, ThinkingEnd.CUT)


@dataclass(frozen=True)
class Row(Point):
    """One method at one budget, of one model on one benchmark, with everything that is known of it. Means in tokens.

    `accuracy` is avg@k and `maj_at_k` is at k = `samples`; `pass_at_k` holds k = 1, 2, 4, … and `samples`. Tokens are
    those sampled and, as thinking, the "Wait" that s1 puts in; forced ones after the thinking are not counted. Ratios
    and shares are of all answers:

    - `closed_ratio`, `forced_ratio`, `eos_ratio` and `cut_ratio`, how the thinking ended, add up to 1;
    - `accuracy`, `wrong`, `unevaluated`, `unparseable`, `censored` (cut off or ended before there was an answer) and,
      of programs, `faults` add up to 1;
    - `unboxed`: the answer was read without a box, which s1 allows after its forced text.

    Programs have no `maj_at_k`, since no two need be the same text, and `faults` is the share of every outcome but
    right and wrong (`ungraded` is the grader's own); of mathematics these are all `unparseable`.

    `seed` is that of the sampling, `commit` the one that finished it.
    """

    model: str
    pass_at_k: dict[str, float]
    maj_at_k: float | None
    mean_thinking_tokens: float
    mean_solution_tokens: float
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
    faults: dict[str, float] = field(default_factory=dict)


class Alike(StrEnum):
    """What the two sides of a difference have in common."""

    BUDGET = "budget"
    TOKENS = "tokens used"  # the other side lies on the line through its points, over the logarithm of the tokens


@dataclass(frozen=True)
class Difference:
    """Accuracy of a row minus that of another, paired over the same problems and samples, with its interval.

    Budgets and `mean_tokens` are the row's; `minus_mean_tokens` are those of the other.
    """

    model: str
    method: str
    minus_model: str
    minus_method: str
    benchmark: str
    alike: Alike
    thinking_budget: int | None
    solution_budget: int | None
    mean_tokens: float
    minus_mean_tokens: float
    difference: float
    ci_low: float
    ci_high: float

    @property
    def budget(self) -> Budget:
        return Budget(self.thinking_budget, self.solution_budget)


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
    """The rows of a table of graded answers, in the order in which they were asked for."""
    cells = table.groupby(CELL, sort=False, dropna=False)
    return [_measure(answers.sort_values(["problem", "sample"])) for _, answers in cells]


def _measure(answers: pd.DataFrame) -> Measured:
    first = answers.iloc[0]
    outcome, end = answers["outcome"], answers["thinking_end"]
    right = _correct(answers)
    correct = _matrix(answers, right)
    estimate = statistics.accuracy(correct)
    problems, samples = correct.shape
    given = np.array(texts(answers["answer"]), dtype=object).reshape(problems, samples)
    ks = [*(2**i for i in range((samples - 1).bit_length())), samples]
    thinking, solution = answers["thinking_tokens"], answers["solution_tokens"]
    closed, forced = end == ThinkingEnd.CLOSED, end == ThinkingEnd.FORCED
    told = outcome.isin([Outcome.CORRECT, Outcome.WRONG, Outcome.UNEVALUATED])
    unanswered = outcome.isin([Outcome.UNBOXED, Outcome.NO_PROGRAM])
    censored = unanswered & (answers["truncated"] | end.isin(UNANSWERED_ENDS))
    are_programs = first["grader"] == PROGRAMS
    other = ~told & ~censored
    row = Row(
        model=first["model"],
        method=first["method"],
        benchmark=first["benchmark"],
        thinking_budget=_optional(first["thinking_budget"]),
        solution_budget=_optional(first["solution_budget"]),
        problems=problems,
        samples=samples,
        accuracy=estimate.mean,
        ci_low=estimate.low,
        ci_high=estimate.high,
        pass_at_k={str(k): statistics.pass_at_k(correct, k) for k in ks},
        maj_at_k=None if are_programs else statistics.maj_at_k(correct, given.tolist()),
        mean_tokens=float((thinking + solution).mean()),
        mean_thinking_tokens=float(thinking.mean()),
        mean_solution_tokens=float(solution.mean()),
        closed_ratio=float(closed.mean()),
        forced_ratio=float(forced.mean()),
        eos_ratio=float((end == ThinkingEnd.EOS).mean()),
        cut_ratio=float((end == ThinkingEnd.CUT).mean()),
        truncated_ratio=float(answers["truncated"].mean()),
        accuracy_forced=float(right[forced].mean()) if forced.any() else None,
        accuracy_closed=float(right[closed].mean()) if closed.any() else None,
        wrong=float((outcome == Outcome.WRONG).mean()),
        unevaluated=float((outcome == Outcome.UNEVALUATED).mean()),
        unparseable=0.0 if are_programs else float(other.mean()),
        censored=float(censored.mean()),
        unboxed=float(answers["unboxed"].mean()),
        seed=int(first["seed"]),
        commit=first["commit"],
        faults={str(fault): float((other & (outcome == fault)).mean()) for fault in PROGRAM_FAULTS}
        if are_programs
        else {},
    )
    return Measured(row, answers)


def _optional(budget: Any) -> int | None:
    return None if pd.isna(budget) else int(budget)


def difference(one: Measured, other: Measured) -> Difference | None:
    """Accuracy of `one` minus that of `other`; `None` if they do not answer the same problems as often."""
    if one.asked != other.asked:
        return None
    paired = statistics.difference(one.point.correct - other.point.correct)
    return _difference(one.row, other.row, Alike.BUDGET, other.row.mean_tokens, paired)


def _difference(
    row: Row, minus: Row, alike: Alike, minus_mean_tokens: float, estimate: statistics.Estimate
) -> Difference:
    return Difference(
        model=row.model,
        method=row.method,
        minus_model=minus.model,
        minus_method=minus.method,
        benchmark=row.benchmark,
        alike=alike,
        thinking_budget=row.thinking_budget,
        solution_budget=row.solution_budget,
        mean_tokens=row.mean_tokens,
        minus_mean_tokens=minus_mean_tokens,
        difference=estimate.mean,
        ci_low=estimate.low,
        ci_high=estimate.high,
    )


def between(measured: Sequence[Measured], model: str, minus_model: str) -> list[Difference]:
    """One model against another, by the same method at the same budget; mixed models against separate budgeting."""
    others = {(other.row.method, other.row.budget): other for other in measured if other.row.model == minus_model}
    pairs = [
        (one, others.get((REFERENCE if one.row.method == MIXED else one.row.method, one.row.budget)))
        for one in measured
        if one.row.model == model
    ]
    return [found for one, other in pairs if other is not None and (found := difference(one, other)) is not None]


def _over_reference(measured: Sequence[Measured], model: str) -> list[Difference]:
    """Every method of a model against separate budgeting, at the same budget and at as many tokens used."""
    own = [each for each in measured if each.row.model == model]
    reference = [each for each in own if each.row.method == REFERENCE]
    found = []
    for one in own:
        if one.row.method == REFERENCE:
            continue
        same = [other for other in reference if other.row.budget == one.row.budget]
        found += [paired for other in same if (paired := difference(one, other)) is not None]
        line = [other for other in reference if other.asked == one.asked]
        values = statistics.minus_interpolated(one.point, [other.point for other in line])
        if values is not None:
            estimate = statistics.difference(values)
            found.append(_difference(one.row, line[0].row, Alike.TOKENS, one.row.mean_tokens, estimate))
    return found


def differences(measured: Sequence[Measured]) -> list[Difference]:
    """Every method against separate budgeting of the same model, and every model against the first."""
    models = list(dict.fromkeys(each.row.model for each in measured))
    return [
        *(found for model in models for found in _over_reference(measured, model)),
        *(found for model in models[1:] for found in between(measured, model, models[0])),
    ]


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
        fit = statistics.log_fit([each.row.mean_tokens for each in line], [each.row.accuracy for each in line])
        found.append(Line(model, method, benchmark, area.mean, area.low, area.high, fit))
    return found


def _line(row: Row) -> tuple[str, str, str]:
    return row.model, row.method, row.benchmark
