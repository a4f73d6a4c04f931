"""Statistics against what is known by other means: brute force, simulation, closed forms."""

from itertools import combinations

import numpy as np
import pytest

from e1_trl.evaluation import statistics


def test_pass_at_k_is_the_share_of_subsets_with_a_right_answer() -> None:
    rng = np.random.default_rng(0)
    correct = (rng.random((6, 5)) < 0.3).astype(float)
    for k in range(1, 6):
        subsets = [any(row[list(subset)]) for row in correct for subset in combinations(range(5), k)]
        assert statistics.pass_at_k(correct, k) == pytest.approx(np.mean(subsets))
    assert statistics.pass_at_k(correct, 1) == pytest.approx(correct.mean())


def test_maj_at_k_counts_the_most_frequent_answer_and_shares_ties() -> None:
    correct = np.array([[1, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]], dtype=float)
    answers = [["4", "5", None, "4"], ["4", "5", "5", "6"], [None] * 4, ["4", "5", None, None]]
    assert statistics.maj_at_k(correct, answers) == pytest.approx((1 + 0 + 0 + 0.5) / 4)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for trial in range(100):
        ability = rng.beta(1.0, 1.0, size=60)  # problems differ, so samples of one problem agree more than chance
        correct = (rng.random((60, 4)) < ability[:, None]).astype(float)
        estimate = statistics.accuracy(correct, seed=trial)
        covered += estimate.low <= 0.5 <= estimate.high
    assert covered >= 88


def test_problems_are_resampled_and_not_answers() -> None:
    alike = np.repeat((np.arange(50) % 2).astype(float)[:, None], 16, axis=1)
    interval = statistics.accuracy(alike)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * np.sqrt(0.25 / 50), rel=0.15)


def test_a_paired_difference_is_narrower_than_two_intervals() -> None:
    rng = np.random.default_rng(2)
    one = (rng.random((100, 2)) < 0.5).astype(float)
    other = np.where(rng.random((100, 2)) < 0.05, 1.0, one)
    difference = statistics.mean(other - one)
    assert difference.low <= (other - one).mean() <= difference.high
    width = statistics.accuracy(one).high - statistics.accuracy(one).low
    assert difference.high - difference.low < width / 2


def test_all_right_of_few_still_has_an_interval() -> None:
    estimate = statistics.accuracy(np.ones((20, 1)))
    assert estimate.mean == 1 and estimate.low < 0.9


def test_the_area_of_a_line_over_log_budget_is_its_middle() -> None:
    budgets = [64, 128, 256]
    curve = np.stack([np.full((10, 2), value) for value in (0.2, 0.4, 0.6)])
    assert statistics.area(curve, budgets).mean == pytest.approx(0.4)
    fit = statistics.log_fit(budgets, [0.2, 0.4, 0.6])
    assert fit is not None and fit.per_doubling == pytest.approx(0.2) and fit.r_squared == pytest.approx(1)
    assert statistics.log_fit([9.0, 9.0, 9.0], [0.1, 0.2, 0.3]) is None
