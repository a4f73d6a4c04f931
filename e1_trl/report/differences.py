"""Paired differences between rows: methods against separate budgeting, and models against each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from e1_trl.budget import Budget
from e1_trl.report import statistics
from e1_trl.report.rows import MIXED, REFERENCE, Measured


class Alike(StrEnum):
    """What the two sides of a difference have in common."""

    BUDGET = "budget"
    TOKENS = "tokens used"  # the other side lies on the line through its points, over the logarithm of the tokens


@dataclass(frozen=True)
class Difference:
    """Accuracy of a row minus that of another, paired over the same problems and samples, with its interval.

    Budgets and `mean_tokens` are the row's; `minus_mean_tokens` are those of the other. `unlike` names the conditions
    under which the two were asked and sampled otherwise (fields of `Conditions`).
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
    unlike: tuple[str, ...] = ()

    @property
    def budget(self) -> Budget:
        return Budget(self.thinking_budget, self.solution_budget)


def difference(one: Measured, other: Measured) -> Difference | None:
    """Accuracy of `one` minus that of `other`; `None` if they do not answer the same problems as often."""
    if one.asked != other.asked:
        return None
    estimate = statistics.difference(one.point.correct - other.point.correct)
    return _difference(one, other, Alike.BUDGET, other.row.mean_tokens, estimate)


def _difference(
    one: Measured, minus: Measured, alike: Alike, minus_mean_tokens: float, estimate: statistics.Estimate
) -> Difference:
    return Difference(
        model=one.row.model,
        method=one.row.method,
        minus_model=minus.row.model,
        minus_method=minus.row.method,
        benchmark=one.row.benchmark,
        alike=alike,
        thinking_budget=one.row.thinking_budget,
        solution_budget=one.row.solution_budget,
        mean_tokens=one.row.mean_tokens,
        minus_mean_tokens=minus_mean_tokens,
        difference=estimate.mean,
        ci_low=estimate.low,
        ci_high=estimate.high,
        unlike=one.conditions.unlike(minus.conditions),
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
            found.append(_difference(one, line[0], Alike.TOKENS, one.row.mean_tokens, estimate))
    return found


def differences(measured: Sequence[Measured]) -> list[Difference]:
    """Every method against separate budgeting of the same model, and every model against those before it."""
    models = list(dict.fromkeys(each.row.model for each in measured))
    return [
        *(found for model in models for found in _over_reference(measured, model)),
        *(found for minus, model in combinations(models, 2) for found in between(measured, model, minus)),
    ]
