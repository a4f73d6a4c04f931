"""Statistics against what is known by other means: brute force, simulation, the bootstrap, closed forms."""

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest

from e1_trl.report import statistics
from e1_trl.report.statistics import Estimate, Scores

Values = NDArray[np.float64]


def ends(estimate: Estimate) -> tuple[float, float]:
    return estimate.low, estimate.high


def coverage(truth: float, trials: Sequence[Values], interval: Callable[[Values], Estimate]) -> float:
    found = [interval(values) for values in trials]
    return float(np.mean([each.low - 1e-9 <= truth <= each.high + 1e-9 for each in found]))


def abilities(rng: np.random.Generator, rate: float, alike: float, problems: int) -> Values:
    """How often each problem is answered: beta-distributed, with the correlation `alike` between samples."""
    scale = (1 - alike) / alike
    return rng.beta(rate * scale, (1 - rate) * scale, size=(problems, 1))


def answers(rng: np.random.Generator, rate: float, alike: float, problems: int, samples: int) -> Values:
    return (rng.random((problems, samples)) < abilities(rng, rate, alike, problems)).astype(float)


def difference(
    rng: np.random.Generator, problems: int, samples: int, rate: float, alike: float, better: float, whole: bool
) -> Values:
    """That between two models, of which the second answers a share `better` of the first's errors.

    Either a share of the problems that the first does not answer, `whole`: each with all its samples; or of its
    samples, spread over all problems.
    """
    ability = abilities(rng, rate, alike, problems)
    solved = (rng.random((problems, 1)) < better) if whole else better
    one = rng.random((problems, samples)) < ability
    other = rng.random((problems, samples)) < ability + (1 - ability) * solved
    return other.astype(float) - one


def test_pass_at_k_is_the_share_of_subsets_with_a_right_answer() -> None:
    correct = (np.random.default_rng(0).random((6, 5)) < 0.3).astype(float)
    for k in range(1, 6):
        subsets = [any(row[list(subset)]) for row in correct for subset in combinations(range(5), k)]
        assert statistics.pass_at_k(correct, k) == pytest.approx(np.mean(subsets))
    many = np.array([[1.0] * 300 + [0.0] * 900, [0.0] * 1200])
    assert statistics.pass_at_k(many, 512) == pytest.approx(0.5)  # whose binomial coefficients are infinite


def test_maj_at_k_counts_the_most_frequent_answer_and_shares_ties() -> None:
    correct = np.array([[1, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]], dtype=float)
    given = [["4", "5", None, "4"], ["4", "5", "5", "6"], [None] * 4, ["4", "5", None, None], [None, None, "5", None]]
    assert statistics.maj_at_k(correct, given) == pytest.approx((1 + 0 + 0 + 0.5 + 1) / 5)


def test_one_sample_a_problem_has_wilsons_interval() -> None:
    for right, problems in ((0, 1), (0, 30), (3, 30), (29, 30), (512, 512), (137, 512)):
        estimate = statistics.accuracy((np.arange(problems) < right).astype(float)[:, None])
        wilson = binomtest(right, problems).proportion_ci(method="wilson")
        assert estimate.mean == pytest.approx(right / problems)
        assert ends(estimate) == pytest.approx((wilson.low, wilson.high))


def test_copies_of_samples_say_no_more_than_the_samples() -> None:
    rng = np.random.default_rng(5)
    for samples in (1, 2, 4):
        one, other = (rng.random((2, 40, samples)) < [[[0.6]], [[0.8]]]).astype(float)
        for estimate, values in ((statistics.accuracy, one), (statistics.difference, other - one)):
            assert ends(estimate(np.repeat(values, 16, axis=1))) == pytest.approx(ends(estimate(values)))


def test_an_accuracys_interval_covers_what_it_says_near_the_edges_too() -> None:
    rng = np.random.default_rng(1)
    covered = {
        case: coverage(rate, [answers(rng, rate, alike, problems, samples) for _ in range(250)], statistics.accuracy)
        for case in product((10, 30, 100), (1, 4, 16), (0.02, 0.1, 0.5, 0.9, 0.98), (0.05, 0.4, 0.9))
        for problems, samples, rate, alike in [case]
    }
    assert np.mean(list(covered.values())) >= 0.95
    assert min(covered.values()) >= 0.9, covered


AIME = {"problems": [30], "samples": [16], "rate": (0.1, 0.5, 0.9), "alike": (0.4, 0.9), "better": (0.1, 0.3)}
ALL = {
    **{"problems": (10, 30, 100), "samples": (1, 4, 16), "rate": (0.1, 0.5, 0.95), "alike": (0.4, 0.9)},
    "better": (0.0, 0.02, 0.2),
}


@pytest.mark.parametrize(
    ("grid", "seed", "mean", "least"),
    [(AIME, 6, 0.96, 0.92), pytest.param(ALL, 3, 0.97, 0.91, marks=pytest.mark.slow)],
    ids=["as on AIME: few problems, and samples that agree or do not", "few problems"],
)
def test_a_differences_interval_covers_what_it_says(
    grid: dict[str, Sequence[Any]], seed: int, mean: float, least: float
) -> None:
    rng, covered = np.random.default_rng(seed), {}
    for case in product(*grid.values(), (True, False)):
        problems, samples, rate, alike, better, whole = case
        trials = [difference(rng, problems, samples, rate, alike, better, whole) for _ in range(250)]
        covered[case] = coverage((1 - rate) * better, trials, statistics.difference)
    assert np.mean(list(covered.values())) >= mean
    assert min(covered.values()) >= least, covered


def test_two_problems_without_a_difference_show_nothing() -> None:
    none = statistics.difference(np.zeros((2, 4)))
    assert none.mean == 0 and none.low == -none.high and none.high > 0.5
    assert statistics.difference(np.zeros((512, 1))).high == pytest.approx(0.0054, abs=0.0001)
    all_better = statistics.difference(np.ones((1, 1)))
    assert all_better.mean == 1 and all_better.low < 0 and all_better.high == 1


def thoughts_at(
    rng: np.random.Generator, problems: int, samples: int, varied: float, edges: tuple[float, float]
) -> list[Scores]:
    """Three budgets of one method, right with the first chance where a thought was forced, else with the second."""
    shape = (problems, samples)
    natural = rng.lognormal(5.3, varied, (problems, 1)) * rng.lognormal(0, 0.4, shape)
    hard = 1 - rng.random((problems, 1)) / 2
    line = []
    for budget in (64, 256, 512):
        chance = hard * np.where(natural <= budget, edges[1], edges[0])
        tokens = np.minimum(natural, budget) + rng.integers(5, 30, shape)
        line.append(Scores((rng.random(shape) < chance).astype(float), tokens))
    return line


@pytest.mark.parametrize("samples", [1, 4])
def test_the_difference_at_equal_tokens_has_the_interval_of_a_bootstrap_that_interpolates_anew(samples: int) -> None:
    rng = np.random.default_rng(4)
    low, point, high = points = thoughts_at(rng, 600, samples, 0.6, (0.1, 0.9))
    values = statistics.minus_interpolated(point, [low, high])
    assert values is not None
    estimate = statistics.difference(values)

    def interpolated(weights: Values) -> float:
        tokens = np.log([weights @ each.tokens.mean(axis=1) for each in points])
        right = np.array([weights @ each.correct.mean(axis=1) for each in points])
        return float(right[1] - np.interp(tokens[1], tokens[[0, 2]], right[[0, 2]]))

    assert estimate.mean == pytest.approx(interpolated(np.full(600, 1 / 600)))
    drawn = rng.multinomial(600, [1 / 600] * 600, size=1500) / 600
    first, last = np.quantile([interpolated(weights) for weights in drawn], [0.025, 0.975])
    assert ends(estimate) == pytest.approx((first, last), abs=0.1 * (last - first))


def at(tokens: float, percent: int) -> Scores:
    """So many of a hundred right, with as many tokens each."""
    return Scores((np.arange(100) < percent).astype(float)[:, None], np.full((100, 1), tokens))


def test_a_line_is_compared_with_as_far_as_it_reaches() -> None:
    line = [at(400, 80), at(100, 40), at(200, 40)]
    for tokens, there in ((99.5, 0.4), (150, 0.4), (400 / 2**0.5, 0.6), (401, 0.8)):
        values = statistics.minus_interpolated(at(tokens, 50), line)
        assert values is not None and values.mean() == pytest.approx(0.5 - there)
    assert statistics.minus_interpolated(at(98, 50), line) is None
    assert statistics.minus_interpolated(at(408, 50), line) is None
    assert statistics.minus_interpolated(at(100, 50), [at(100, 40), at(100.5, 80)]) is None, "one spot is no line"


def test_the_area_of_a_line_over_log_budget_is_its_middle() -> None:
    line = np.stack([np.full((10, 2), value) for value in (0.2, 0.4, 0.6)])
    assert statistics.area(line, [64, 128, 256]) == pytest.approx(np.full((10, 2), 0.4))
    assert statistics.area(line, [64, 256, 512]) == pytest.approx(np.full((10, 2), (2 * 0.3 + 0.5) / 3))


def test_a_fits_interval_covers_what_it_says_with_few_problems_too() -> None:
    rng, covered = np.random.default_rng(7), {}
    for varied, edges in product((0.3, 1.0), ((0.02, 0.3), (0.1, 0.9), (0.5, 1.0))):
        truth = statistics.log_fit(thoughts_at(rng, 100_000, 1, varied, edges))
        assert truth is not None
        for problems, samples in product((10, 30, 100), (1, 4)):
            fits = [statistics.log_fit(thoughts_at(rng, problems, samples, varied, edges)) for _ in range(150)]
            held = [fit.ci_low <= truth.per_doubling <= fit.ci_high for fit in fits if fit is not None]
            covered[varied, edges, problems, samples] = np.mean(held)
    assert np.mean(list(covered.values())) >= 0.95
    assert min(covered.values()) >= 0.9, covered


LENGTHS = st.sampled_from([1.0, 5.0, 100.0, 400.0])
ANSWERS = st.lists(st.lists(st.tuples(st.booleans(), LENGTHS), min_size=3, max_size=3), min_size=1, max_size=8)


@given(ANSWERS)
def test_every_fit_is_made_of_numbers_however_few_problems_take_more_tokens(answers: list[Any]) -> None:
    line = [
        Scores(np.array([[float(right)] for right, _ in own]), np.array([[tokens] for _, tokens in own]))
        for own in zip(*answers, strict=True)
    ]
    fit = statistics.log_fit(line)
    if fit is not None:
        assert all(np.isfinite([fit.per_doubling, fit.ci_low, fit.ci_high, fit.r_squared]))
        assert fit.ci_low <= fit.per_doubling <= fit.ci_high


def test_a_fit_needs_three_points_that_lie_apart_over_a_doubling_of_the_tokens() -> None:
    fit = statistics.log_fit([at(64, 20), at(128, 40), at(256, 60)])
    assert fit is not None and fit.per_doubling == pytest.approx(0.2) and fit.r_squared == pytest.approx(1)
    loose = statistics.log_fit([at(64, 20), at(128, 60), at(256, 40)])
    assert loose is not None and loose.r_squared == pytest.approx(0.25)
    assert statistics.log_fit([at(64, 20), at(90, 40), at(127, 60)]) is None, "less than a doubling"
    assert statistics.log_fit([at(64, 20), at(90, 40), at(128, 60)]) is not None
    assert statistics.log_fit([at(64, 20), at(128, 40)]) is None
    assert statistics.log_fit([at(46.3, 27), at(100.1, 98), at(100.12, 99), at(100.1, 98)]) is None
    assert statistics.log_fit([at(64, 50), at(128, 50), at(256, 50)]) is None
