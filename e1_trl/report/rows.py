"""The numbers of a report, computed from the table of answers: rows, and lines over budgets.

Numbers of one model at one budget, or over its budgets, are defined here alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from e1_trl.answers.grade import PASSING, Outcome
from e1_trl.answers.mathematics.numerals import works_out
from e1_trl.checkpoints.budget_file import Point
from e1_trl.report import statistics
from e1_trl.report.conditions import Conditions
from e1_trl.report.samples import PLACE, ROW, answer_type, budget_of, texts
from e1_trl.rollout import ThinkingEnd

REFERENCE = "separate"  # the method that others are compared with
MIXED = "mixed"  # separate budgeting whose thinking is another model's
BOXES_ONLY = "boxes only"  # after the name of a method: answers that were read without a box do not count
MADE_BY = ("commit", "graded_by")  # fields of a row: what sampled it and what graded it
Rows = TypeVar("Rows")  # a row, or what has one
UNANSWERED = "unanswered"  # there is no answer, since the thinking ended in EOS or a budget ran out


@dataclass(frozen=True, kw_only=True)
class Row(Point):
    """One method at one budget, of one model on one benchmark, with every number that a report has of it.

    `accuracy` is avg@k, with its 95% interval; `maj_at_k` is at k = `samples`, and `pass_at_k` holds k = 1, 2, 4, … and
    `samples`. Budgets (`None`: unlimited) and means are in tokens. Means count sampled tokens, and s1's "Wait" as
    thinking; `mean_forced_tokens` counts those forced after the thinking. `left_out` problems were requested and are
    too long for `max_prompt_length`; `response_limit` is the longest completion under an unlimited budget, `None` where
    the context is the limit. Ratios and shares are of all answers:

    - `closed_ratio`, `forced_ratio`, `eos_ratio`, `total_ratio`, `prompt_ratio` (the prompt had closed it) and
      `none_ratio` (none began) say how the thinking ended, and add up to 1;
    - `accuracy`, `wrong`, `unevaluated`, `unparseable`, `unanswered` and, for programs, `faults` add up to 1;
    - `truncated_ratio`: a budget ran out before the end; `unboxed`: read without a box, after s1's forced text;
      `worked_in_box`: the box has arithmetic in front of an equals sign (`works_out`).

    Programs have no `maj_at_k`; their `faults` hold the share of each outcome but right and wrong. Other answers have
    no `faults`: `unparseable` is the share of all outcomes that have no field here. `ungraded` is a part of these: that
    the grader failed, in mathematics also that it timed out or crashed. `commit` finished the sampling.
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
    total_ratio: float
    truncated_ratio: float
    accuracy_forced: float | None
    accuracy_closed: float | None
    wrong: float
    unevaluated: float
    unparseable: float
    unanswered: float
    unboxed: float
    seed: int
    commit: str
    graded_by: str
    faults: dict[str, float]
    worked_in_box: float
    prompt_ratio: float
    none_ratio: float
    ungraded: float


@dataclass(frozen=True)
class Line:
    """One method of one model over its budgets: area under the line, and the fit of accuracy to log2 tokens."""

    model: str
    method: str
    benchmark: str
    area: float
    ci_low: float
    ci_high: float
    fit: statistics.Fit | None
    totals: tuple[int, int]  # smallest and largest total budget, in tokens
    solution_budget: int | None  # of all its rows, where several share one
    unlike: tuple[str, ...]  # conditions, and fields of `MADE_BY`, that differ among its rows


@dataclass(frozen=True)
class Measured:
    """A row and the scores of its answers; `asked` holds problem, sample and accepted answers of each, in order."""

    row: Row
    scores: statistics.Scores
    asked: list[tuple[Any, ...]]
    conditions: Conditions

    def unlike(self, other: "Measured") -> tuple[str, ...]:
        """Name the conditions, and the fields of `MADE_BY`, that differ."""
        own = [name for name in MADE_BY if getattr(self.row, name) != getattr(other.row, name)]
        return (*self.conditions.unlike(other.conditions), *own)


def summarize(table: pd.DataFrame) -> list[Measured]:
    """Compute the rows of a table of graded answers, in its order; a method with unboxed answers has more rows.

    They are at all its budgets and of all models, so that they are lines that can be compared.
    """
    found = []
    lenient = set(table["method"][table["unboxed"]])
    for _, answers in table.groupby(ROW, sort=False, dropna=False):
        found.append(_measure(answers))
        if answers["method"].iloc[0] in lenient:
            found.append(_measure(_boxes_only(answers)))
    return found


def _boxes_only(answers: pd.DataFrame) -> pd.DataFrame:
    """Rename the method, and count answers that were read without a box as missing."""
    unboxed = answers["unboxed"]
    return answers.assign(
        method=f"{answers['method'].iloc[0]}, {BOXES_ONLY}",
        outcome=answers["outcome"].mask(unboxed, Outcome.UNBOXED.value),
        value=answers["value"].mask(unboxed),
        answer=answers["answer"].mask(unboxed),
        unboxed=False,
    )


def final_outcome(answers: pd.DataFrame) -> "pd.Series[Any]":
    """Return the outcome of each answer, or `UNANSWERED`."""
    none = answers["outcome"].isin([Outcome.UNBOXED, Outcome.NO_PROGRAM])
    early = answers["truncated"] | answers["thinking_end"].isin([ThinkingEnd.EOS, ThinkingEnd.TOTAL])
    return answers["outcome"].mask(none & early, UNANSWERED)


def _measure(answers: pd.DataFrame) -> Measured:
    answers = answers.sort_values(PLACE)
    right = answers["outcome"] == Outcome.CORRECT
    tokens = answers["thinking_tokens"] + answers["solution_tokens"]
    shape = (answers["problem"].nunique(), -1)
    scores = statistics.Scores(*(np.asarray(column, dtype=float).reshape(shape) for column in (right, tokens)))
    asked = [(*place, *accepted) for *place, accepted in answers[[*PLACE, "answers"]].itertuples(index=False)]
    conditions = Conditions.from_text(answers["conditions"].iloc[0])
    return Measured(_row(answers, scores, conditions), scores, asked, conditions)


def _row(answers: pd.DataFrame, scores: statistics.Scores, conditions: Conditions) -> Row:
    first = answers.iloc[0]
    kind = answer_type(answers)
    budget = budget_of(first)
    outcome = final_outcome(answers)
    right = outcome == Outcome.CORRECT
    other = ~outcome.isin([Outcome.CORRECT, Outcome.WRONG, Outcome.UNEVALUATED, UNANSWERED])
    ended = {end: answers["thinking_end"] == end for end in ThinkingEnd}
    closed = ended[ThinkingEnd.CLOSED]
    forced = ended[ThinkingEnd.FORCED]
    problems, samples = scores.correct.shape
    accuracy = statistics.accuracy(scores.correct)
    values = np.array(texts(answers["value"]), dtype=object).reshape(problems, samples).tolist()
    ks = [*(2**i for i in range((samples - 1).bit_length())), samples]
    unlimited = None in (budget.thinking, budget.solution)
    return Row(
        benchmark=first["benchmark"],
        method=first["method"],
        thinking_budget=budget.thinking,
        solution_budget=budget.solution,
        problems=problems,
        samples=samples,
        accuracy=accuracy.mean,
        ci_low=accuracy.low,
        ci_high=accuracy.high,
        mean_tokens=scores.mean_tokens,
        model=first["model"],
        pass_at_k={str(k): statistics.pass_at_k(scores.correct, k) for k in ks},
        maj_at_k=statistics.maj_at_k(scores.correct, values) if kind.votes else None,
        mean_thinking_tokens=_mean(answers["thinking_tokens"]),
        mean_solution_tokens=_mean(answers["solution_tokens"]),
        mean_forced_tokens=_mean(answers["forced_tokens"]),
        response_limit=conditions.response if unlimited else None,
        left_out=int(first["asked_problems"]) - problems,
        truncated_ratio=_mean(answers["truncated"]),
        accuracy_forced=_mean(right[forced]) if forced.any() else None,
        accuracy_closed=_mean(right[closed]) if closed.any() else None,
        wrong=_mean(outcome == Outcome.WRONG),
        unevaluated=_mean(outcome == Outcome.UNEVALUATED),
        unparseable=0.0 if kind.faults else _mean(other),
        unanswered=_mean(outcome == UNANSWERED),
        unboxed=_mean(answers["unboxed"]),
        seed=int(first["seed"]),
        commit=first["commit"],
        graded_by=first["graded_by"],
        faults={str(fault): _mean(outcome == fault) for fault in kind.faults},
        ungraded=_mean(outcome.isin((Outcome.UNGRADED,) if kind.faults else PASSING)),
        worked_in_box=_mean(answers["answer"].fillna("").map(works_out) & ~answers["unboxed"]) if kind.boxed else 0.0,
        **{f"{end}_ratio": _mean(own) for end, own in ended.items()},
    )


def _mean(column: "pd.Series[Any]") -> float:
    return float(column.mean())


def by_solution(rows: Sequence[Rows], row_of: Callable[[Rows], Row]) -> dict[int | None, list[Rows]]:
    """Part the rows of a method by their solution budgets if a thinking budget has several of these, as in a grid.

    Otherwise, as where both parts grow together, the rows stay one, under `None`.
    """
    parts: dict[int | None, list[Rows]] = {}
    for each in rows:
        parts.setdefault(row_of(each).solution_budget, []).append(each)
    several = len({row_of(each).thinking_budget for each in rows}) < len(rows)
    return parts if several else {None: list(rows)}


def lines(measured: Sequence[Measured]) -> list[Line]:
    """Compute a line for each method of each model on each benchmark, and for each of its solution budgets.

    A method has a line if it ran at three or more different limited totals, always on the same problems and samples.
    Budgets of one total count as one, with the mean of their accuracies.
    """
    by_method: dict[tuple[str, str, str], list[Measured]] = {}
    for each in measured:
        if each.row.budget.completion_tokens(0) is not None:
            by_method.setdefault((each.row.model, each.row.method, each.row.benchmark), []).append(each)
    found = []
    for name in sorted(by_method):
        for solution, own in by_solution(by_method[name], lambda each: each.row).items():
            pairs = sorted(
                ((each.row.budget.completion_tokens(0) or 0, each) for each in own),
                key=lambda pair: (pair[0], pair[1].row.thinking_budget or 0),
            )
            budgets = sorted({total for total, _ in pairs})
            if len(budgets) < 3 or any(each.asked != own[0].asked for each in own):
                continue
            at = [[each.scores.correct for total, each in pairs if total == budget] for budget in budgets]
            area = statistics.accuracy(statistics.area(np.stack([np.mean(each, axis=0) for each in at]), budgets))
            fit = statistics.log_fit([each.scores for _, each in pairs])
            unlike = tuple(dict.fromkeys(differs for each in own for differs in own[0].unlike(each)))
            totals = budgets[0], budgets[-1]
            found.append(Line(*name, area.mean, area.low, area.high, fit, totals, solution, unlike))
    return found
