"""Paired differences between rows: methods against separate budgeting, and models against each other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations

from e1_trl.budget import Budget
from e1_trl.report import statistics
from e1_trl.report.rows import MIXED, REFERENCE, Measured, by_solution


class Alike(StrEnum):
    """Quantity that is equal on both sides of a difference."""

    BUDGET = "budget"
    TOKENS = "tokens used"  # the other side is interpolated between its points, over the logarithm of the tokens


@dataclass(frozen=True)
class Difference:
    """Accuracy of a row minus that of another, paired over the same problems and samples, with its 95% interval.

    Budgets and `mean_tokens` are the row's, `minus_mean_tokens` those of the other. `unlike` names what differs: fields
    of `Conditions`, and `commit` and `graded_by` of the rows.
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
    unlike: tuple[str, ...]

    @property
    def budget(self) -> Budget:
        return Budget(self.thinking_budget, self.solution_budget)

    @classmethod
    def of(cls, one: Measured, minus: Measured, at_tokens: statistics.Values | None = None) -> "Difference":
        """Compare two rows at the same budget; or one row with a line, by its differences `at_tokens` per answer."""
        row = one.row
        values = one.scores.correct - minus.scores.correct if at_tokens is None else at_tokens
        estimate = statistics.difference(values)
        return cls(
            model=row.model,
            method=row.method,
            minus_model=minus.row.model,
            minus_method=minus.row.method,
            benchmark=row.benchmark,
            alike=Alike.BUDGET if at_tokens is None else Alike.TOKENS,
            thinking_budget=row.thinking_budget,
            solution_budget=row.solution_budget,
            mean_tokens=row.mean_tokens,
            minus_mean_tokens=minus.row.mean_tokens if at_tokens is None else row.mean_tokens,
            difference=estimate.mean,
            ci_low=estimate.low,
            ci_high=estimate.high,
            unlike=one.unlike(minus),
        )


def _pairs(measured: Sequence[Measured], model: str, minus_model: str) -> list[tuple[Measured, Measured]]:
    """Pair rows of two models by method and budget; a mixed model's with separate budgeting."""
    others = {(other.row.method, other.row.budget): other for other in measured if other.row.model == minus_model}
    own = [each for each in measured if each.row.model == model]
    like = {MIXED: REFERENCE, REFERENCE: MIXED}
    pairs = [(one, [(name, one.row.budget) for name in (one.row.method, like.get(one.row.method))]) for one in own]
    found = [(one, next((others[cell] for cell in cells if cell in others), None)) for one, cells in pairs]
    return [(one, other) for one, other in found if other is not None]


def between(measured: Sequence[Measured], model: str, minus_model: str) -> list[Difference]:
    """Compare two models by method and budget, where both answered the same problems equally often."""
    pairs = _pairs(measured, model, minus_model)
    return [Difference.of(one, other) for one, other in pairs if one.asked == other.asked]


def _over_reference(measured: Sequence[Measured], one: Measured) -> list[Difference]:
    """Compare a row with separate budgeting of its model, at the same budget and at the same tokens.

    At the same tokens the solution budget is the row's own, or else the largest.
    """
    separate = [each for each in measured if (each.row.model, each.row.method) == (one.row.model, REFERENCE)]
    alike = [other for other in separate if other.asked == one.asked]
    found = [Difference.of(one, other) for other in alike if other.row.budget == one.row.budget]
    parts = by_solution(alike, lambda each: each.row)
    largest = max(parts, key=lambda solution: math.inf if solution is None else solution)
    line = parts.get(one.row.solution_budget, parts[largest])
    at_tokens = statistics.minus_interpolated(one.scores, [other.scores for other in line])
    if at_tokens is None:
        return found
    unlike = dict.fromkeys(name for other in line for name in one.unlike(other))
    return [*found, replace(Difference.of(one, line[0], at_tokens), unlike=tuple(unlike))]


def differences(measured: Sequence[Measured]) -> list[Difference]:
    """Compare every method with separate budgeting of its model, and every model with those in front of it."""
    models = list(dict.fromkeys(each.row.model for each in measured))
    methods = [each for model in models for each in measured if each.row.model == model]
    return [
        *(found for one in methods if one.row.method != REFERENCE for found in _over_reference(measured, one)),
        *(found for minus, model in combinations(models, 2) for found in between(measured, model, minus)),
    ]


def not_compared(measured: Sequence[Measured]) -> list[str]:
    """Describe rows that do not share problems and samples: with separate budgeting, or between models."""
    models = list(dict.fromkeys(each.row.model for each in measured))
    pairs = []
    for one in (each for each in measured if each.row.method != REFERENCE):
        separate = [each for each in measured if (each.row.model, each.row.method) == (one.row.model, REFERENCE)]
        if alike := [each for each in separate if each.row.budget == one.row.budget] or separate:
            other = next((each for each in alike if each.asked == one.asked), alike[0])
            pairs.append((f"{one.row.model}, methods and {REFERENCE}", one, other))
    for minus, model in combinations(models, 2):
        pairs += [(f"{model} and {minus}", *pair) for pair in _pairs(measured, model, minus)]
    found: dict[str, list[str]] = {}
    for names, one, other in pairs:
        if one.asked != other.asked:
            own, others = (f"{each.row.problems:,} problems, {each.row.samples} each" for each in (one, other))
            why = f"{own}, against {others}" if own != others else "not the same problems or samples"
            found.setdefault(f"{names} ({why})", []).append(f"{one.row.method} {one.row.budget}")
    return [f"{names}: {', '.join(cells)}" for names, cells in found.items()]
