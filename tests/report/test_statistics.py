"""Statistics against what is known by other means: brute force, simulation, the bootstrap, closed forms."""

from collections.abc import Callable, Sequence
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest

from e1_trl.report import statistics
from e1_trl.report.statistics import Point

Values = NDArray[np.float64]
Interval = Callable[[Values], tuple[float, float]]


def bootstrap(values: Values, rng: np.random.Generator, resamples: int = 2000) -> tuple[float, float]:
    """The percentile bootstrap over problems."""
    problems = len(values)
    drawn = rng.multinomial(problems, [1 / problems] * problems, size=resamples) / problems
    low, high = np.quantile(drawn @ values.mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def closed(interval: Callable[[Values], statistics.Estimate]) -> Interval:
    def ends(values: Values) -> tuple[float, float]:
        estimate = interval(values)
        return estimate.low, estimate.high

    return ends


def coverage(truth: float, trials: list[Values], interval: Interval) -> float:
    ends = [interval(values) for values in trials]
    return float(np.mean([low - 1e-9 <= truth <= high + 1e-9 for low, high in ends]))


def abilities(rng: np.random.Generator, rate: float, alike: float, problems: int) -> Values:
    """How often each problem is answered: beta-distributed, with the correlation `alike` between samples."""
    scale = (1 - alike) / alike
    return rng.beta(rate * scale, (1 - rate) * scale, size=problems)


def answers(rng: np.random.Generator, rate: float, alike: float, problems: int, samples: int) -> Values:
    ability = abilities(rng, rate, alike, problems)
    return (rng.random((problems, samples)) < ability[:, None]).astype(float)


def differences(
    rng: np.random.Generator,
    problems: int,
    samples: int,
    rate: float,
    alike: float,
    better: float,
    whole: bool,
    count: int,
) -> list[Values]:
    """`count` differences between two models, of which the second answers a share `better` of the first's errors.

    Either a share of the problems that the first does not answer, `whole`: each with all its samples; or of its
    samples, spread over all problems.
    """
    found = []
    for _ in range(count):
        ability = abilities(rng, rate, alike, problems)[:, None]
        solved = (rng.random((problems, 1)) < better) if whole else better
        one = rng.random((problems, samples)) < ability
        other = rng.random((problems, samples)) < ability + (1 - ability) * solved
        found.append(other.astype(float) - one)
    return found


def test_pass_at_k_is_the_share_of_subsets_with_a_right_answer() -> None:
    rng = np.random.default_rng(0)
    correct = (rng.random((6, 5)) < 0.3).astype(float)
    for k in range(1, 6):
        subsets = [any(row[list(subset)]) for row in correct for subset in combinations(range(5), k)]
        assert statistics.pass_at_k(correct, k) == pytest.approx(np.mean(subsets))
    assert statistics.pass_at_k(correct, 1) == pytest.approx(correct.mean())


def test_maj_at_k_counts_the_most_frequent_answer_and_shares_ties() -> None:
    correct = np.array([[1, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]], dtype=float)
    given = [["4", "5", None, "4"], ["4", "5", "5", "6"], [None] * 4, ["4", "5", None, None]]
    assert statistics.maj_at_k(correct, given) == pytest.approx((1 + 0 + 0 + 0.5) / 4)


def test_one_sample_a_problem_has_wilsons_interval() -> None:
    for right, problems in ((0, 1), (0, 30), (3, 30), (29, 30), (512, 512), (137, 512)):
        correct = (np.arange(problems) < right).astype(float)[:, None]
        estimate, wilson = statistics.accuracy(correct), binomtest(right, problems).proportion_ci(method="wilson")
        assert (estimate.mean, estimate.low, estimate.high) == pytest.approx(
            (right / problems, wilson.low, wilson.high)
        )


def test_copies_of_samples_say_no_more_than_the_samples() -> None:
    rng = np.random.default_rng(5)
    for samples in (1, 2, 4):
        one, other = (rng.random((2, 40, samples)) < [[[0.6]], [[0.8]]]).astype(float)
        copies = np.repeat(one, 16, axis=1), np.repeat(other, 16, axis=1)
        assert _ends(statistics.accuracy(copies[0])) == pytest.approx(_ends(statistics.accuracy(one)))
        assert _ends(statistics.difference(copies[1] - copies[0])) == pytest.approx(
            _ends(statistics.difference(other - one))
        )


def _ends(estimate: statistics.Estimate) -> tuple[float, float]:
    return estimate.low, estimate.high


def test_an_accuracys_interval_covers_what_it_says_near_the_edges_too() -> None:
    rng = np.random.default_rng(1)
    covered = {
        case: coverage(case[2], [answers(rng, case[2], case[3], case[0], case[1]) for _ in range(250)], interval)
        for interval in [closed(statistics.accuracy)]
        for case in product((10, 30, 100), (1, 4, 16), (0.02, 0.1, 0.5, 0.9, 0.98), (0.05, 0.4, 0.9))
    }
    assert np.mean(list(covered.values())) >= 0.95
    assert min(covered.values()) >= 0.9, covered


def test_the_bootstrap_covers_far_less_there() -> None:
    rng = np.random.default_rng(1)
    trials = [answers(rng, 0.98, 0.4, problems=30, samples=4) for _ in range(250)]
    assert coverage(0.98, trials, lambda values: bootstrap(values, rng, 500)) < 0.85
    assert coverage(0.98, trials, closed(statistics.accuracy)) >= 0.94
    few = [answers(rng, 0.02, 0.4, problems=10, samples=1) for _ in range(500)]
    assert coverage(0.02, few, lambda values: bootstrap(values, rng, 500)) < 0.25
    assert coverage(0.02, few, closed(statistics.accuracy)) >= 0.95


def test_the_bootstrap_of_a_difference_covers_far_less_with_few_problems() -> None:
    rng = np.random.default_rng(1)
    trials = differences(rng, 10, 1, rate=0.95, alike=0.4, better=0.02, whole=False, count=500)
    assert coverage(0.05 * 0.02, trials, lambda values: bootstrap(values, rng, 500)) < 0.35
    assert coverage(0.05 * 0.02, trials, closed(statistics.difference)) >= 0.95


@pytest.mark.parametrize("samples", [1, 4, 16])
def test_many_problems_away_from_the_edges_have_the_bootstraps_interval(samples: int) -> None:
    rng = np.random.default_rng(2)
    correct = answers(rng, 0.4, 0.3, 1000, samples)
    estimate, (low, high) = statistics.accuracy(correct), bootstrap(correct, rng)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=0.1 * (high - low))
    paired = correct - answers(rng, 0.5, 0.3, 1000, samples)
    estimate, (low, high) = statistics.difference(paired), bootstrap(paired, rng)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=0.1 * (high - low))


def covered(rng: np.random.Generator, count: int, **grid: Sequence[float]) -> dict[tuple[float, ...], float]:
    """How often the interval of a difference holds the truth, for each case of a grid, in `count` trials."""
    return {
        case: coverage(
            (1 - named["rate"]) * named["better"],
            differences(rng, **named, count=count),
            closed(statistics.difference),
        )
        for case in product(*grid.values())
        if (named := dict(zip(grid, case, strict=True)))
    }


def test_a_differences_interval_covers_what_it_says_where_whole_problems_differ_and_samples_agree() -> None:
    """As on AIME: the fewest problems, and 16 samples that agree or do not."""
    grid = {"rate": (0.1, 0.5, 0.9), "alike": (0.4, 0.9), "better": (0.1, 0.3), "whole": (True, False)}
    found = covered(np.random.default_rng(6), 250, problems=[30], samples=[16], **grid)
    assert np.mean(list(found.values())) >= 0.96
    assert min(found.values()) >= 0.92, found


@pytest.mark.slow
def test_a_differences_interval_covers_what_it_says_with_few_problems_too() -> None:
    grid = {"problems": (10, 30, 100), "samples": (1, 4, 16), "rate": (0.1, 0.5, 0.95), "alike": (0.4, 0.9)}
    found = covered(np.random.default_rng(3), 250, **grid, better=(0.0, 0.02, 0.2), whole=(True, False))
    assert np.mean(list(found.values())) >= 0.97
    assert min(found.values()) >= 0.91, found


def test_two_problems_without_a_difference_show_nothing() -> None:
    none = statistics.difference(np.zeros((2, 4)))
    assert none.mean == 0 and none.low == -none.high and none.high > 0.5
    assert statistics.difference(np.zeros((512, 1))).high == pytest.approx(0.0054, abs=0.0001)
    all_better = statistics.difference(np.ones((1, 1)))
    assert all_better.mean == 1 and all_better.low < 0 and all_better.high == 1


def test_a_paired_difference_is_narrower_than_two_intervals() -> None:
    rng = np.random.default_rng(2)
    one = (rng.random((100, 2)) < 0.5).astype(float)
    other = np.where(rng.random((100, 2)) < 0.05, 1.0, one)
    difference = statistics.difference(other - one)
    assert difference.low <= (other - one).mean() <= difference.high
    width = statistics.accuracy(one).high - statistics.accuracy(one).low
    assert difference.high - difference.low < width / 2


def points(rng: np.random.Generator, problems: int, samples: int) -> list[Point]:
    """Three budgets of one method, and truncation at one between them: what is long is wrong."""
    natural = rng.lognormal(5, 0.6, (problems, 1)) * rng.lognormal(0, 0.3, (problems, samples))
    hard, shape = rng.random((problems, 1)), (problems, samples)
    line = []
    for budget in (64, 128, 256):
        chance = np.where(natural <= budget, 0.95 - 0.3 * hard, 0.1)
        tokens = np.minimum(natural, budget) + rng.integers(5, 30, shape)
        line.append(Point((rng.random(shape) < chance).astype(float), tokens))
    chance = np.where(natural <= 180, 0.95 - 0.3 * hard, 0.0)
    return [*line, Point((rng.random(shape) < chance).astype(float), np.minimum(natural, 180))]


@pytest.mark.parametrize("samples", [1, 4])
def test_the_difference_at_equal_tokens_has_the_interval_of_a_bootstrap_that_interpolates_anew(samples: int) -> None:
    rng = np.random.default_rng(4)
    *line, point = points(rng, 600, samples)
    values = statistics.minus_interpolated(point, line)
    assert values is not None
    estimate = statistics.difference(values)

    def interpolated(weights: Values) -> float:
        tokens, accuracies = (
            [float(weights @ each.mean(axis=1)) for each in matrices]
            for matrices in ([each.tokens for each in (*line, point)], [each.correct for each in (*line, point)])
        )
        return accuracies[-1] - float(np.interp(np.log(tokens[-1]), np.log(tokens[:-1]), accuracies[:-1]))

    assert estimate.mean == pytest.approx(interpolated(np.full(600, 1 / 600)))
    drawn = rng.multinomial(600, [1 / 600] * 600, size=1500) / 600
    low, high = np.quantile([interpolated(weights) for weights in drawn], [0.025, 0.975])
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=0.1 * (high - low))


def test_a_line_is_compared_with_as_far_as_it_reaches() -> None:
    def at(tokens: float, right: int) -> Point:
        return Point((np.arange(10) < right).astype(float)[:, None], np.full((10, 1), tokens))

    line = [at(100, 4), at(400, 8)]
    middle = statistics.minus_interpolated(at(200, 5), line)
    assert middle is not None and middle.mean() == pytest.approx(0.5 - 0.6)
    for tokens, there in ((99.5, 0.4), (401, 0.8)):
        edge = statistics.minus_interpolated(at(tokens, 5), line)
        assert edge is not None and edge.mean() == pytest.approx(0.5 - there)
    assert statistics.minus_interpolated(at(90, 5), line) is None
    assert statistics.minus_interpolated(at(450, 5), line) is None
    assert statistics.minus_interpolated(at(100, 5), [at(100, 4), at(100.5, 8)]) is None, "one spot is no line"


def test_the_area_of_a_line_over_log_budget_is_its_middle() -> None:
    line = np.stack([np.full((10, 2), value) for value in (0.2, 0.4, 0.6)])
    assert statistics.area(line, [64, 128, 256]).mean == pytest.approx(0.4)


def lines(rng: np.random.Generator, problems: int) -> list[Point]:
    """Budgets of which each doubles the tokens of the one before, for a tenth more of the answers: points over them."""
    ability = rng.random((problems, 1))
    return [
        Point((rng.random((problems, 4)) < 0.8 * ability + 0.1 * i).astype(float), 2.0**i * (50 + 100 * ability))
        for i in range(3)
    ]


def test_a_fit_has_an_interval_over_problems() -> None:
    rng = np.random.default_rng(7)
    fits = [statistics.log_fit(lines(rng, 100)) for _ in range(100)]
    assert all(fit is not None and fit.ci_low < fit.per_doubling < fit.ci_high for fit in fits)
    assert np.mean([fit.ci_low <= 0.1 <= fit.ci_high for fit in fits if fit is not None]) >= 0.9
    assert statistics.log_fit(line := lines(rng, 30)) == statistics.log_fit(line), "it draws by a seed of its own"


def test_a_fit_needs_three_points_that_lie_apart_over_a_doubling_of_the_tokens() -> None:
    def at(tokens: float, right: int) -> Point:
        return Point((np.arange(100) < right).astype(float)[:, None], np.full((100, 1), tokens))

    fit = statistics.log_fit([at(64, 20), at(128, 40), at(256, 60)])
    assert fit is not None and fit.per_doubling == pytest.approx(0.2) and fit.r_squared == pytest.approx(1)
    assert statistics.log_fit([at(64, 20), at(90, 40), at(127, 60)]) is None, "less than a doubling"
    assert statistics.log_fit([at(64, 20), at(128, 40)]) is None
    assert statistics.log_fit([at(46.3, 27), at(100.1, 98), at(100.12, 99), at(100.1, 98)]) is None
    assert statistics.log_fit([at(64, 50), at(128, 50), at(256, 50)]) is None
