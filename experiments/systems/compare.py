"""Systems against each other: differences of mean accuracy over the budgets, with seeds and problems as two chances.

A system's training would have come out otherwise from other seeds, and so would its answers on other problems. An
interval over problems alone is one about these few trained models; one over seeds alone is about these 2,048 problems.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t

from e1_trl.report.markdown import table
from e1_trl.report.statistics import Estimate, Values, difference
from experiments.systems.measure import BANNED, FREE_ROW, THINKING, Row, unpack

# Each against E1, whose budget of 36 tokens was chosen, random budgets also against twice that, what gives credit at
# several budgets of one thought or has an advantage of its own against random ones, the control of forks, the mean of
# the forks' weights, and E1 against no training.
PAIRS = (
    *((name, "e1") for name in ("e1_random", "e1_random_rows", "e1_18", "e1_72", "e1_144")),
    *((name, "e1_72") for name in ("e1_random", "e1_random_rows")),
    *((name, "e1_random_rows") for name in ("forks", "forks_mean", "anytime", "s_grpo", "gfpo", "lead", "mgpo")),
    ("rows_quarter", "e1_random_rows"),
    ("forks_mean", "rows_quarter"),
    ("forks_mean, averaged", "e1_random_rows"),
    ("e1", BANNED),
)
HEADER = ("system", "minus", "seeds", "points", "over seeds: Welch's t, p", "95% over problems", "95% over both", "p")


@dataclass(frozen=True)
class Comparison:
    """A difference with its standard error and Student's degrees of freedom."""

    difference: float
    error: float
    df: float

    @property
    def t(self) -> float:
        return self.difference / self.error

    @property
    def p(self) -> float:
        """Probability of a difference as large, either way, if there is none."""
        return float(2 * t.sf(abs(self.t), self.df))

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the 95% interval."""
        half = float(t.ppf(0.975, self.df)) * self.error
        return self.difference - half, self.difference + half


def over_seeds(ones: Values, others: Values) -> Comparison:
    """Compare the means of two systems by Welch's test, one value per seed."""
    return _test(float(ones.mean() - others.mean()), [_of_mean(ones), _of_mean(others)])


def over_both(ones: Values, others: Values) -> Comparison:
    """Compare two systems whose seeds and problems are both drawn at random, and crossed.

    The variance of the difference is the sum of three: of either system's mean over its seeds, and of the paired
    differences of the problems (the seeds averaged) over the problems. Student's degrees of freedom are Satterthwaite's
    for that sum. What is chance in single answers is in the seeds' means and in the problems' differences, and so
    counts twice: with three seeds each and 200 problems, an interval of 95% covers 95 to 99%
    (tests/report/test_systems_compare.py), most where seeds do not differ. Subtracting that part once would gain little
    and, from three seeds, could leave nothing of their variance.

    Args:
        ones, others: seeds × problems; the problems are the same, the seeds need not be. A system with one seed is
            taken as it is: what its other trainings would differ by is not known.
    """
    paired = ones.mean(axis=0) - others.mean(axis=0)
    seeds = [_of_mean(each.mean(axis=1)) for each in (ones, others) if len(each) > 1]
    parts = [*seeds, _of_mean(paired)]
    return _test(float(paired.mean()), parts)


def over_problems(ones: Values, others: Values) -> Estimate:
    """Compare two systems as they were trained: the paired interval over problems, the seeds averaged."""
    return difference((ones.mean(axis=0) - others.mean(axis=0))[:, None])


def answers(rows: Sequence[Row]) -> Values | None:
    """Mean accuracy over the budgets, seeds × problems; `None` where a row has not kept its answers."""
    if not rows or not all(row.get("right") for row in rows):
        return None
    return np.stack([unpack(row["right"], FREE_ROW + 1)[: len(THINKING)].mean(axis=0) for row in rows])


def compare_pairs(systems: Mapping[str, Sequence[Row]]) -> dict[tuple[str, str], Comparison]:
    """Test the pairs of which both systems have several seeds and have kept their answers, over seeds and problems."""
    found = {}
    for pair in PAIRS:
        ones, others = (answers(systems.get(name, ())) for name in pair)
        if ones is not None and others is not None and min(len(ones), len(others)) > 1:
            found[pair] = over_both(ones, others)
    return found


def comparisons(systems: Mapping[str, Sequence[Row]], family: int) -> str:
    """Tabulate all pairs of which there are rows, and say which differences are shown over seeds and problems.

    What needs more seeds, or answers that were not kept, is left empty. A difference is shown if its p is below 0.05
    divided by the number of differences that are tested on all miniatures (Bonferroni).

    Args:
        systems: the rows of each system, one a seed.
        family: how many differences are tested on all miniatures.
    """
    lines = []
    tests = compare_pairs(systems)
    for name, minus in PAIRS:
        if not (name in systems and minus in systems):
            continue
        own, other = systems[name], systems[minus]
        means = [np.array([row["mean_accuracy"] for row in rows]) for rows in (own, other)]
        kept = [answers(rows) for rows in (own, other)]
        welch = problems = both = p = ""
        if min(map(len, means)) > 1:
            test = over_seeds(*means)
            welch = f"{test.t:+.1f} (df {test.df:.1f}), {_probability(test.p)}"
        if kept[0] is not None and kept[1] is not None:
            paired = over_problems(kept[0], kept[1])
            problems = _points(paired.low, paired.high)
        if (name, minus) in tests:
            test = tests[name, minus]
            both, p = _points(*test.interval), _probability(test.p)
        points = f"{100 * (means[0].mean() - means[1].mean()):+.2f}"
        lines.append((name, minus, f"{len(own)}, {len(other)}", points, welch, problems, both, p))
    return table(HEADER, lines) + (f"\n{_shown(tests, family)}\n" if tests else "")


def _shown(tests: Mapping[tuple[str, str], Comparison], family: int) -> str:
    """Say which of some differences are shown, by their p."""
    level = 0.05 / family
    shown = [f"`{name}` minus `{minus}`" for (name, minus), test in tests.items() if test.p < level]
    return (
        f"Of {len(tests)} differences over both, those with a p below {level:.4f} (0.05 divided by {family}, the "
        f"number tested on all miniatures) are shown: {', '.join(shown) or 'none'}."
    )


def _of_mean(values: Values) -> tuple[float, int]:
    """The variance of the mean of some values, and its degrees of freedom."""
    return float(values.var(ddof=1)) / len(values), len(values) - 1


def _test(difference: float, parts: Sequence[tuple[float, int]]) -> Comparison:
    """A difference whose variance is the sum of parts, each with its degrees of freedom (Welch and Satterthwaite)."""
    variance = sum(part for part, _ in parts)
    return Comparison(difference, variance**0.5, variance**2 / sum(part**2 / df for part, df in parts))


def _points(low: float, high: float) -> str:
    return f"{100 * low:+.2f} to {100 * high:+.2f}"


def _probability(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"
