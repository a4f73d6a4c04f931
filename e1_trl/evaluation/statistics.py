"""Statistics of answers: accuracy with its interval, pass@k, maj@k, area under the curve, fit to log tokens.

Everything takes a matrix of one value per problem (rows) and sample (columns). The intervals are SciPy's bootstrap over
two stages: problems are drawn with replacement, then samples of each drawn problem.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb
from scipy.stats import binomtest, bootstrap, linregress

RESAMPLES = 2000
BATCH = 100  # resamples drawn at a time, which bounds the memory


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95% interval."""

    mean: float
    low: float
    high: float


def mean(values: NDArray[np.float64], seed: int = 0) -> Estimate:
    """Mean over problems and samples of any value of `values` (problems × samples), by two-stage bootstrap.

    The difference of two methods is such a value, too: paired, as both answered the same problems from the same
    samples.

    Raises:
        ValueError: one problem, of which there is nothing to draw.
    """
    problems, samples = values.shape
    average = float(values.mean())
    if problems < 2:
        raise ValueError("the bootstrap over problems needs 2 or more of them")
    if (values == values[0, 0]).all():
        return Estimate(average, average, average)
    rng = np.random.default_rng(seed)

    def two_stage(drawn: NDArray[np.int64], axis: int) -> NDArray[np.float64]:
        chosen = rng.integers(samples, size=(*drawn.shape, samples))
        return values[drawn[..., None], chosen].mean(axis=(-2, -1))

    interval = bootstrap(
        (np.arange(problems),),
        two_stage,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=BATCH,
        method="percentile",
        rng=rng,
    ).confidence_interval
    return Estimate(average, float(interval.low), float(interval.high))


def accuracy(correct: NDArray[np.float64], seed: int = 0) -> Estimate:
    """avg@k with its interval. Wilson's where a bootstrap says nothing: one sample each, one problem, or all alike."""
    problems, samples = correct.shape
    if samples == 1 or problems == 1 or (correct == correct[0, 0]).all():
        interval = binomtest(round(correct.mean(axis=1).sum()), problems).proportion_ci(method="wilson")
        return Estimate(float(correct.mean()), interval.low, interval.high)
    return mean(correct, seed)


def pass_at_k(correct: NDArray[np.float64], k: int) -> float:
    """The probability that one of `k` samples is right, without bias (Chen et al., arXiv 2107.03374, equation 1)."""
    samples = correct.shape[1]
    right = correct.sum(axis=1)
    return float(np.mean(1 - comb(samples - right, k) / comb(samples, k)))


def maj_at_k(correct: NDArray[np.float64], answers: Sequence[Sequence[str | None]]) -> float:
    """Accuracy of the most frequent answer of all samples of a problem; a tie counts with the share that is right.

    Answers are the same if their boxed texts are. Samples without an answer (`None`) do not vote.
    """
    shares = []
    for row, given in zip(correct, answers, strict=True):
        votes = Counter(answer for answer in given if answer is not None)
        top = [answer for answer, count in votes.items() if count == max(votes.values())]
        verdict = {answer: right for answer, right in zip(given, row, strict=True) if answer is not None}
        shares.append(float(np.mean([verdict[answer] for answer in top])) if top else 0.0)
    return float(np.mean(shares))


def area(curve: NDArray[np.float64], budgets: Sequence[int], seed: int = 0) -> Estimate:
    """Mean accuracy over the logarithm of the budget, between the smallest and the largest: the area under the curve.

    `curve` is budgets × problems × samples; `budgets` are its total budgets in tokens, increasing.
    """
    x = np.log2(np.asarray(budgets, dtype=float))
    return mean(np.trapezoid(curve, x, axis=0) / (x[-1] - x[0]), seed)


@dataclass(frozen=True)
class Fit:
    """Accuracy per doubling of the tokens, as the paper's log-linear scaling has it."""

    per_doubling: float
    standard_error: float
    r_squared: float


def log_fit(tokens: Sequence[float], accuracies: Sequence[float]) -> Fit | None:
    """Least squares of accuracy on log2 of the mean tokens, one point per budget.

    `None` if all used as many tokens, or all are as accurate.
    """
    if max(tokens) == min(tokens) or max(accuracies) == min(accuracies):
        return None
    line = linregress(np.log2(tokens), accuracies)
    return Fit(float(line.slope), float(line.stderr), float(line.rvalue**2))
