"""Statistics of answers: accuracy with its interval, pass@k, maj@k, area under a line, fit to log tokens.

Everything takes matrices of one value per problem (rows) and sample (columns), and knows nothing of where they are
from. Intervals are 95% and over problems, which is what a benchmark has too few of: the samples of one problem agree
more than chance, so each problem counts with their mean.

The bootstrap over problems would be the general way to such intervals. It covers far less than it says near 0 and 1 and
with few problems (see also Bowyer et al., arXiv 2503.01747), and none of it if all problems agree. The intervals of an
accuracy and of a difference are closed forms that look at the problems and at two more, one at either end of what
chance can do. Over all cases that tests/report/test_statistics.py tries, from 10 problems, 1 to 16 samples and 2 to 98%
right, they cover 95% or more on average; in each of them an accuracy's covers at least 90%, and a difference's 91%,
whether models differ in whole problems or in samples of all. With many problems they are as wide as the bootstrap's.
The interval of a fit is a difference's, of each problem's share in the slope: no resample can be without a slope.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb
from scipy.stats import t

Values = NDArray[np.float64]

Z = NormalDist().inv_cdf(0.975)
SAME_TOKENS = 0.01  # means of tokens that differ by a smaller share are one point, between which no line is drawn


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95% interval."""

    mean: float
    low: float
    high: float


def accuracy(values: Values) -> Estimate:
    """Mean of values between 0 and 1, as of whether answers are right (then it is avg@k).

    The interval is Wilson's for the effective number of problems: their number times the variance that one answer a
    problem would have, over the variance that the problems' means have. With one sample each, that is Wilson's interval
    itself. The two variances count a problem that is always right and one that never is, too.
    """
    problems = values.mean(axis=1)
    mean, n = float(problems.mean()), len(problems)
    padded = np.append(problems, (0.0, 1.0))
    effective = n * padded.mean() * (1 - padded.mean()) / padded.var()
    shrinkage = 1 + Z**2 / effective
    center = (mean + Z**2 / (2 * effective)) / shrinkage
    half = Z / shrinkage * np.sqrt(mean * (1 - mean) / effective + Z**2 / (4 * effective**2))
    return Estimate(mean, max(0.0, float(center - half)), min(1.0, float(center + half)))


def difference(values: Values) -> Estimate:
    """Mean of paired differences between -1 and 1, one matrix of accuracies minus another of the same problems.

    The interval is Student's for the problems' means and two problems more, of differences ±√r, where r is the share
    that is left of the samples' mean square in the problems' means, two problems of ±1 counted: 1 where a problem's
    samples differ alike, as copies do, and least where each differs by chance. For one sample each, that is the
    adjustment of Bonett and Price (2012, doi 10.3102/1076998611411915) with Student's quantile in place of the normal
    one.
    """
    problems = values.mean(axis=1)
    most = np.sqrt((np.sum(problems**2) + 2) / (np.sum(np.mean(values**2, axis=1)) + 2))
    padded = np.append(problems, (most, -most))
    half = t.ppf(0.975, len(padded) - 1) * padded.std(ddof=1) / np.sqrt(len(padded))
    center = padded.mean()
    return Estimate(float(problems.mean()), max(-1.0, float(center - half)), min(1.0, float(center + half)))


def pass_at_k(correct: Values, k: int) -> float:
    """The probability that one of `k` samples is right, without bias (Chen et al., arXiv 2107.03374, equation 1)."""
    samples = correct.shape[1]
    right = correct.sum(axis=1)
    return float(np.mean(1 - comb(samples - right, k) / comb(samples, k)))


def maj_at_k(correct: Values, values: Sequence[Sequence[str | None]]) -> float:
    """Accuracy of the most frequent answer of all samples of a problem; a tie counts with the share that is right.

    All right answers are one, and of others those with the same value. Samples without an answer (`None`) do not vote.
    """
    shares = []
    for row, given in zip(correct, values, strict=True):
        votes = Counter(
            "" if right else f"={value}" for value, right in zip(given, row, strict=True) if value is not None
        )
        top = [answer for answer, count in votes.items() if count == max(votes.values())]
        shares.append(top.count("") / len(top) if top else 0.0)
    return float(np.mean(shares))


def area(line: NDArray[np.float64], budgets: Sequence[int]) -> Values:
    """Area under the line of each answer: its mean over the logarithm of the budget, from the smallest to the largest.

    `line` is budgets × problems × samples, of accuracies or of differences between them, whose mean with its interval
    is then that of an `accuracy` or a `difference`; `budgets` are its total budgets in tokens, increasing.
    """
    x = np.log2(np.asarray(budgets, dtype=float))
    return np.asarray(np.trapezoid(line, x, axis=0) / (x[-1] - x[0]))


@dataclass(frozen=True)
class Scores:
    """One method at one budget: whether its answers are right, and the tokens that each took (problems × samples)."""

    correct: Values
    tokens: Values

    @property
    def mean_tokens(self) -> float:
        return float(self.tokens.mean())


def apart(tokens: Sequence[float]) -> list[int]:
    """Indices of the points that lie apart from each other on the axis of mean tokens, in increasing order."""
    found: list[int] = []
    for i in sorted(range(len(tokens)), key=lambda i: tokens[i]):
        if not found or tokens[i] > (1 + SAME_TOKENS) * tokens[found[-1]]:
            found.append(i)
    return found


def minus_interpolated(point: Scores, line: Sequence[Scores]) -> Values | None:
    """Accuracy of a point minus that of a line at as many mean tokens; `None` where the line does not reach.

    The line is linear in the logarithm of the tokens between the points of `line`, which answer the same problems and
    samples. The mean of what is returned (problems × samples) is the difference exactly. Each value is linearized in
    the means that the difference depends on, tokens included, so that `difference` has its interval: how many tokens a
    method takes on average is known no better than its accuracy.
    """
    means = [other.mean_tokens for other in line]
    ordered = [line[i] for i in apart(means)]
    for low, high in pairwise(ordered):
        if not low.mean_tokens / (1 + SAME_TOKENS) <= point.mean_tokens <= high.mean_tokens * (1 + SAME_TOKENS):
            continue
        doublings = np.log(high.mean_tokens / low.mean_tokens)
        share = np.clip(np.log(point.mean_tokens / low.mean_tokens) / doublings, 0, 1)
        slope = (high.correct.mean() - low.correct.mean()) / doublings
        relative = [each.tokens / each.mean_tokens for each in (point, low, high)]
        along = relative[0] - (1 - share) * relative[1] - share * relative[2]
        return point.correct - (1 - share) * low.correct - share * high.correct - slope * along
    return None


@dataclass(frozen=True)
class Fit:
    """Accuracy per doubling of the tokens, as the paper's log-linear scaling has it, with its 95% interval."""

    per_doubling: float
    ci_low: float
    ci_high: float
    r_squared: float


def log_fit(line: Sequence[Scores]) -> Fit | None:
    """Least squares of accuracy on log2 of the mean tokens, one point per budget, which answer the same problems.

    The interval is that of a `difference`, between problems that are as steep as one can be, up or down. Each answer
    counts with its share in the slope, linearized in the means of accuracy and of tokens. `None` if fewer than three
    points lie apart from each other, all are as accurate, or the most tokens are not twice the fewest.
    """
    tokens = np.stack([point.tokens for point in line])
    right = np.stack([point.correct for point in line])
    means, y = tokens.mean(axis=(1, 2)), right.mean(axis=(1, 2))
    x = np.log2(means)
    if len(apart(means.tolist())) < 3 or np.ptp(x) < 1 or not np.ptp(y):
        return None
    across, up = x - x.mean(), y - y.mean()
    spread = (across**2).sum()
    slope = (across * up).sum() / spread
    steepest = np.abs(across).sum() / 2 / spread  # wrong at all points on one side of the middle, right on the other
    doublings = (tokens / means[:, None, None] - 1) / np.log(2)
    shares = np.tensordot(across, right - y[:, None, None], 1) + np.tensordot(up - 2 * slope * across, doublings, 1)
    found = difference((slope + shares / spread) / steepest)
    r_squared = np.corrcoef(x, y)[0, 1] ** 2
    return Fit(float(slope), found.low * steepest, found.high * steepest, float(r_squared))
