"""Differences between systems: their intervals hold what they promise, and the table takes the rows that there are."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_ind

from e1_trl.report.statistics import Values
from experiments.systems.compare import PAIRS, answers, compare_pairs, comparisons, over_both, over_seeds
from experiments.systems.measure import FREE_ROW, THINKING, pack

PROBLEMS, SEEDS = 200, 3


def drawn(rng: np.random.Generator, seeds: float, problems: float) -> tuple[Values, Values]:
    """Two systems of equal means, as seeds × problems.

    Single answers vary by 1, a system's problems by `problems` besides, and its seeds' means by as many times as
    single answers move them.
    """
    shared = rng.normal(size=PROBLEMS)

    def system() -> Values:
        own = problems * rng.normal(size=PROBLEMS)
        shifts = seeds / PROBLEMS**0.5 * rng.normal(size=(SEEDS, 1))
        return shared + own + shifts + rng.normal(size=(SEEDS, PROBLEMS))

    return system(), system()


@pytest.mark.parametrize("seeds", [0.0, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("problems", [0.0, 1.0])
def test_an_interval_over_seeds_and_problems_covers_what_it_says(seeds: float, problems: float) -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(1000):
        low, high = over_both(*drawn(rng, seeds, problems)).interval
        held += low <= 0 <= high
    assert 0.94 <= held / 1000 <= 1


def test_over_seeds_is_welchs_test() -> None:
    ones, others = np.array([0.757, 0.756, 0.758]), np.array([0.747, 0.750, 0.7495])
    ours, theirs = over_seeds(ones, others), ttest_ind(ones, others, equal_var=False)
    assert (ours.t, ours.p, ours.df) == pytest.approx((theirs.statistic, theirs.pvalue, theirs.df))
    assert ours.interval == pytest.approx(tuple(theirs.confidence_interval()))


def row(right: Values | None, seed: int) -> dict[str, Any]:
    """A row as the file has it, with its answers or without."""
    kept = {} if right is None else {"right": pack(right)}
    mean = 0.7 + seed / 1000 if right is None else float(right[: len(THINKING)].mean())
    return {"system": "any", "seed": seed, "mean_accuracy": mean, **kept}


def test_the_table_takes_the_rows_that_there_are() -> None:
    rng = np.random.default_rng(0)
    kept = [row(rng.random((FREE_ROW + 1, 80)) < 0.7, seed) for seed in (42, 43, 44)]
    better = [row(rng.random((FREE_ROW + 1, 80)) < 0.9, seed) for seed in (42, 43, 44)]
    found = answers(better)
    assert found is not None and found.shape == (3, 80)
    assert found.mean(axis=1) == pytest.approx([each["mean_accuracy"] for each in better])

    first, minus = PAIRS[0]
    _, _, whole, _, shown = comparisons({first: better, minus: kept}, 1).splitlines()
    assert shown.endswith(f" are shown: `{first}` minus `{minus}`.")
    alike = comparisons({first: kept, minus: kept}, 1).splitlines()
    assert alike[-1].startswith("Of 1 differences over both, ") and alike[-1].endswith(" are shown: none.")
    assert whole.startswith(f"| {first} | {minus} | 3, 3 | +2") and "(df " in whole and whole.endswith("| <0.001 |")
    assert whole.count(" to ") == 2
    one_seed = comparisons({first: better[:1], minus: kept}, 1).splitlines()[2]
    assert one_seed.count(" to ") == 1 and one_seed.endswith(" |  |  |") and "df" not in one_seed
    forgotten = comparisons({first: better, minus: [row(None, seed) for seed in (42, 43)]}, 1).splitlines()[2]
    assert "df" in forgotten and " to " not in forgotten
    assert len(comparisons({first: better}, 1).splitlines()) == 2


def test_a_difference_is_shown_if_it_would_be_among_those_of_all_miniatures() -> None:
    rng = np.random.default_rng(0)
    shares, seeds = (0.8, 0.7), (42, 43, 44)
    ones, others = ([row(rng.random((FREE_ROW + 1, 80)) < share, seed) for seed in seeds] for share in shares)
    (pair, *_) = PAIRS
    systems = dict(zip(pair, (ones, others), strict=True))
    (test,) = compare_pairs(systems).values()
    assert 1e-6 < test.p < 0.02
    most = int(0.05 / test.p)
    assert not comparisons(systems, most).endswith(" are shown: none.\n")
    assert comparisons(systems, most + 1).endswith(" are shown: none.\n")


def test_one_seed_of_a_system_is_taken_as_it_is() -> None:
    ones, other = drawn(np.random.default_rng(0), 4.0, 1.0)
    seeds, problems = ones.mean(axis=1), ones.mean(axis=0) - other[0]
    error = (seeds.var(ddof=1) / SEEDS + problems.var(ddof=1) / PROBLEMS) ** 0.5
    assert over_both(ones, other[:1]).error == over_both(other[:1], ones).error == pytest.approx(error)
