"""Statistics of answers: accuracy with its interval, pass@k, maj@k, area under a line, fit to log tokens.

Functions take matrices with one value per problem (row) and sample (column). Intervals are 95% and over problems, of
which a benchmark has too few: samples of one problem agree more than by chance, so each problem counts with its mean.

The bootstrap over problems covers far less than 95% near 0 and 1 and with few problems (see also Bowyer et al., arXiv
2503.01747), and nothing if all problems agree. The intervals here are closed forms over the problems and two more, one
at each extreme; tests/report/test_statistics.py says how often they hold. With many problems they are as wide as the
bootstrap's. The interval of a fit is that of a difference, of each problem's share in the slope.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, multimode

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

Values = NDArray[np.float64]

Z = NormalDist().inv_cdf(0.975)
SAME_TOKENS = 0.01  # mean tokens that differ by a smaller share are one point of a line


@dataclass(frozen=True)
class Estimate:
    mean: float
    low: float
    high: float


def accuracy(values: Values) -> Estimate:
    """Estimate the mean of values between 0 and 1; of whether answers are right, that is avg@k.

    The interval is Wilson's for the effective number of problems: their number times the variance that a single answer
    per problem would have, over the variance of the problems' means. With one sample each, it is Wilson's interval
    itself. Both variances include two more problems, one always right and one never.
    """
    problems = values.mean(axis=1)
    mean = float(problems.mean())
    padded = np.append(problems, (0.0, 1.0))
    effective = len(problems) * padded.mean() * (1 - padded.mean()) / padded.var()
    shrinkage = 1 + Z**2 / effective
    center = (mean + Z**2 / (2 * effective)) / shrinkage
    half = Z / shrinkage * np.sqrt(mean * (1 - mean) / effective + Z**2 / (4 * effective**2))
    return Estimate(mean, max(0.0, float(center - half)), min(1.0, float(center + half)))


def difference(values: Values) -> Estimate:
    """Estimate the mean of paired differences between -1 and 1: one matrix of accuracies minus another.

    The interval is Student's for the problems' means and two more problems with differences ±√r. Here r is the mean
    square of the problems' means over that of all samples, with two problems of ±1 included: 1 if the samples of each
    problem differ equally, as copies do, and smallest if each differs by chance. With one sample each, this is the
    adjustment of Bonett and Price (2012, doi 10.3102/1076998611411915) with Student's quantile for the normal one.
    """
    problems = values.mean(axis=1)
    most = np.sqrt((np.sum(problems**2) + 2) / (np.sum(np.mean(values**2, axis=1)) + 2))
    padded = np.append(problems, (most, -most))
    half = t.ppf(0.975, len(padded) - 1) * padded.std(ddof=1) / np.sqrt(len(padded))
    center = padded.mean()
    return Estimate(float(problems.mean()), max(-1.0, float(center - half)), min(1.0, float(center + half)))


def pass_at_k(correct: Values, k: int) -> float:
    """Estimate without bias the probability that one of `k` samples is right (Chen et al., arXiv 2107.03374, eq. 1)."""
    samples = correct.shape[1]
    right = correct.sum(axis=1)
    # In factors, since binomial coefficients of thousands of samples are infinite.
    missed = [0.0 if n < k else float(np.prod(1 - k / np.arange(n + 1, samples + 1))) for n in samples - right]
    return float(1 - np.mean(missed))


def maj_at_k(correct: Values, values: Sequence[Sequence[str | None]]) -> float:
    """Compute the accuracy of the most frequent answer to each problem; a tie counts with the share that is right.

    All right answers are equal; others are if their values are, and without one (`None`) they do not vote.
    """
    shares = []
    for row, given in zip(correct, values, strict=True):
        cast = zip(given, row, strict=True)
        top = multimode("" if right else f"={value}" for value, right in cast if right or value is not None)
        shares.append(top.count("") / len(top) if top else 0.0)
    return float(np.mean(shares))


def area(line: NDArray[np.float64], budgets: Sequence[int]) -> Values:
    """Compute the area under each answer's line (budgets × problems × samples): the mean over log budgets, increasing.

    The result, problems × samples, can be estimated as an `accuracy`, or as a `difference` if the line is one.
    """
    x = np.log2(np.asarray(budgets, dtype=float))
    return np.asarray(np.trapezoid(line, x, axis=0) / (x[-1] - x[0]))


@dataclass(frozen=True)
class Scores:
    """Correctness (0 or 1) and tokens of the answers of one method at one budget (problems × samples)."""

    correct: Values
    tokens: Values

    @property
    def mean_tokens(self) -> float:
        return float(self.tokens.mean())


def apart(tokens: Sequence[float]) -> list[int]:
    """Return the indices of points that differ by more than `SAME_TOKENS`, by increasing tokens."""
    found: list[int] = []
    for i in sorted(range(len(tokens)), key=lambda i: tokens[i]):
        if not found or tokens[i] > (1 + SAME_TOKENS) * tokens[found[-1]]:
            found.append(i)
    return found


def minus_interpolated(point: Scores, line: Sequence[Scores]) -> Values | None:
    """Compute the accuracy of a point minus that of a line at equal mean tokens; `None` beyond the ends of the line.

    The line is linear in the logarithm of the tokens between the points of `line`, which answer the same problems and
    samples. The mean of the returned values (problems × samples) is exactly the difference. Each value is linearized in
    all means that the difference depends on, so that `difference` computes its interval: mean tokens are as uncertain
    as accuracy.
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
    """Accuracy gained per doubling of the tokens (the paper's log-linear scaling), with its 95% interval."""

    per_doubling: float
    ci_low: float
    ci_high: float
    r_squared: float


def log_fit(line: Sequence[Scores]) -> Fit | None:
    """Fit accuracy to log2 of the mean tokens by least squares, one point per budget on the same problems.

    The interval is that of a `difference`, scaled to the steepest slopes that a problem can have, up and down. Each
    answer counts with its share in the slope, linearized in the means of accuracy and of tokens. `None` if fewer than
    three points lie `apart`, all accuracies are equal, or the most tokens are less than twice the fewest.
    """
    tokens = np.stack([point.tokens for point in line])
    right = np.stack([point.correct for point in line])
    means = tokens.mean(axis=(1, 2))
    y = right.mean(axis=(1, 2))
    x = np.log2(means)
    if len(apart(means.tolist())) < 3 or np.ptp(x) < 1 or not np.ptp(y):
        return None
    across = x - x.mean()
    up = y - y.mean()
    spread = (across**2).sum()
    slope = (across * up).sum() / spread
    steepest = np.abs(across).sum() / 2 / spread  # right on one side of the middle, wrong on the other
    doublings = (tokens / means[:, None, None] - 1) / np.log(2)
    shares = np.tensordot(across, right - y[:, None, None], 1) + np.tensordot(up - 2 * slope * across, doublings, 1)
    found = difference((slope + shares / spread) / steepest)
    r_squared = np.corrcoef(x, y)[0, 1] ** 2
    return Fit(float(slope), found.low * steepest, found.high * steepest, float(r_squared))
