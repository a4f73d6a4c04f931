"""The Codeforces rating (Elo) of a model among the people who took part in the contests.

A model takes part in contests that people have finished. What it solves, and at which attempt, has a rank among them,
and its rating is the one of which that rank was to be expected. So compute it CodeElo (Quan et al., arXiv 2501.01257)
and DeepCoder, whose script has made the numbers of Elastic Reasoning. As there, ranks count from 0 and expected ranks
from 1, which flatters by one place; a problem without an answer counts as not solved; how long an answer took plays no
role. Knows nothing of the network (`experiments.table1.elo`).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from e1_trl.answers.grade import Outcome
from e1_trl.atomic import write_atomically
from e1_trl.budget import Budget
from e1_trl.errors import UserError, user_errors
from e1_trl.report import samples
from e1_trl.report.statistics import Estimate

ATTEMPTS = 8  # of a problem that count, the first ones
TOO_FEW = 200  # participants; a contest with no more does not count
POINTS_LOST = 50  # by each failed attempt before the success, of a problem that has points
PENALTY = 10  # for each, of a problem that has none
ABOVE = 100  # a model's rating is less than the best participant's and this
RESAMPLES = 1000

Attempts = Mapping[str, Sequence[bool]]  # whether each has passed, in order, by the problem's index in its contest


class Standing(NamedTuple):
    """Standing of a participant or a model: more points are better, then less penalty."""

    points: float
    penalty: float


@dataclass(frozen=True)
class Contest:
    """Facts of a finished contest that ratings need.

    Attributes:
        id: the number in its address.
        problems: points of each by its index ("A", "B1"); None where a success counts 1 and failed attempts as penalty.
        standings, old_ratings: of its rated participants, and those they came with, each in an order of its own.
    """

    id: int
    problems: Mapping[str, float | None]
    standings: Sequence[Standing]
    old_ratings: Sequence[int]

    @classmethod
    def of(cls, standings: Mapping[str, Any], changes: Sequence[Mapping[str, Any]]) -> "Contest | None":
        """From the results of contest.standings and contest.ratingChanges.

        Its participants are those official ones that both name, by the handle of a party's first member. None if they
        are too few, or one is named twice.
        """
        # Copies that others keep hold official participants only, and have left out that they are.
        rows = [row for row in standings["rows"] if row["party"].get("participantType", "CONTESTANT") == "CONTESTANT"]
        placed = [(row["party"]["members"][0]["handle"], Standing(row["points"], row["penalty"])) for row in rows]
        rated = [(change["handle"], change["oldRating"]) for change in changes]
        both = {handle for handle, _ in placed} & {handle for handle, _ in rated}
        results = [standing for handle, standing in placed if handle in both]
        old_ratings = sorted(rating for handle, rating in rated if handle in both)
        if len(results) != len(old_ratings) or len(results) <= TOO_FEW:
            return None
        points = {problem["index"]: problem.get("points") for problem in standings["problems"]}
        ordered = sorted(results, key=lambda one: (-one.points, one.penalty))
        return cls(standings["problems"][0]["contestId"], points, ordered, old_ratings)

    def score(self, attempts: Attempts) -> Standing:
        """Sum the points of the first success among the first `ATTEMPTS` attempts at each problem."""
        points = penalty = 0.0
        for index, value in self.problems.items():
            passed = list(attempts.get(index, ()))[:ATTEMPTS]
            if not any(passed):
                continue
            failed = passed.index(True)
            points += 1 if value is None else max(0.0, value - POINTS_LOST * failed)
            penalty += PENALTY * failed if value is None else 0
        return Standing(points, penalty)

    def rank(self, standing: Standing) -> int:
        """Count the participants that are as good or better."""
        mine = (-standing.points, standing.penalty)
        return sum((-points, penalty) <= mine for points, penalty in self.standings)

    def rating(self, attempts: Attempts) -> int:
        """The largest rating, from 0 to 99 over the best participant's, whose expected rank is that of the attempts.

        The expected rank is one more than the sum of the probabilities with which participants win over that rating.
        """
        place = self.rank(self.score(attempts))
        others = np.array(self.old_ratings, dtype=float)
        low, high = 0, int(others.max()) + ABOVE
        while high - low > 1:
            middle = (low + high) // 2
            expected = 1 + float(np.sum(1 / (1 + 10 ** ((middle - others) / 400))))
            low, high = (low, middle) if expected < place else (middle, high)
        return low


@dataclass(frozen=True)
class Standings:
    """Content of a standings file: contests by number, and the number of people with each rating."""

    population: Mapping[int, int]
    contests: dict[int, Contest]

    def percentile(self, rating: float) -> float:
        """Percent of the people whose rating is lower, to one decimal as published."""
        below = sum(count for other, count in self.population.items() if other < rating)
        return round(100 * below / sum(self.population.values()), 1)

    def write(self, file: Path) -> None:
        """Keep them in one JSON file, whose folder is made."""
        contests = [vars(self.contests[number]) for number in sorted(self.contests)]
        text = json.dumps({"population": self.population, "contests": contests}, allow_nan=False) + "\n"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text)

    @classmethod
    def read(cls, file: Path) -> "Standings":
        """Read a file of `write`.

        Raises:
            UserError: it cannot be read, or holds something else.
        """
        about = f"{file} is no file of standings, as `python -m experiments.table1.elo` writes it"
        with user_errors(about, OSError, KeyError, TypeError, AttributeError, ValueError):
            content = json.loads(file.read_text())
            contests = {
                each["id"]: Contest(**{**each, "standings": [Standing(*row) for row in each["standings"]]})
                for each in content["contests"]
            }
            return cls({int(rating): count for rating, count in content["population"].items()}, contests)


def problem_parts(name: str) -> tuple[int, str]:
    """Contest and index of a problem: 1971 and "B1" for "1971B1" or "1971/B1"; a ValueError for what is none."""
    match = re.fullmatch(r"(\d+)/?([A-Z]\d*)", name)
    if match is None:
        raise UserError(f"{name!r} is no problem of Codeforces; those are called like 1971A or 1971/B1")
    return int(match[1]), match[2]


def overall(ratings: Sequence[int], seed: int = 0) -> Estimate:
    """The mean of a model's ratings in several contests, with a 95% interval: a bootstrap over contests only.

    It knows neither problems nor attempts. Few contests make it too narrow, and one makes it a point.
    """
    drawn = np.random.default_rng(seed).choice(ratings, (RESAMPLES, len(ratings))).mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Estimate(float(np.mean(ratings)), float(low), float(high))


@dataclass(frozen=True)
class Rating:
    """Rating of one method at one budget ("1024+1024") of one model.

    Attributes:
        rating: the mean over the contests that count, with its 95% interval over contests.
        percentile: percent of all people whose rating is lower.
        contests: how many count: those that the standings have.
        left_out: contests that the standings lack, and problems that their contests lack.
        unasked: problems of the contests that count, without an answer; they count as not solved.
    """

    model: str
    method: str
    budget: str
    rating: Estimate
    percentile: float
    contests: int
    left_out: tuple[str, ...]
    unasked: tuple[str, ...]


def rate(answers: pd.DataFrame, standings: Standings) -> list[Rating]:
    """The ratings of a table of graded answers, in its order.

    Raises:
        ValueError: a problem is none of Codeforces or there twice, or the standings have none of the contests.
    """
    ratings = []
    for (model, _, method, *budget), group in answers.groupby(samples.ROW, sort=False, dropna=False):
        tried = attempts_in(group)
        contests = [standings.contests[number] for number in tried if number in standings.contests]
        if not contests:
            raise UserError(f"the standings have none of the contests {', '.join(map(str, tried))}")
        mean = overall([contest.rating(tried[contest.id]) for contest in contests])
        parts = (None if pd.isna(part) else int(part) for part in budget)
        missing = [str(number) for number in tried if number not in standings.contests]
        missing += [f"{each.id}{index}" for each in contests for index in tried[each.id] if index not in each.problems]
        unasked = [f"{each.id}{index}" for each in contests for index in each.problems if index not in tried[each.id]]
        place = (mean, standings.percentile(mean.mean), len(contests), tuple(missing), tuple(unasked))
        ratings.append(Rating(model, method, str(Budget(*parts)), *place))
    return ratings


def attempts_in(answers: pd.DataFrame) -> dict[int, dict[str, list[bool]]]:
    """Return whether the samples of each problem passed, in order, by contest and index; ungraded ones did not."""
    tried: dict[int, dict[str, list[bool]]] = {}
    for _, ours in answers.sort_values(["problem", "sample"]).groupby("problem"):
        name = ours["problem_id"].iloc[0]
        number, index = problem_parts(name if isinstance(name, str) else "")
        if index in tried.setdefault(number, {}):
            raise UserError(f"the problem {number}{index} is there twice")
        tried[number][index] = (ours["outcome"] == Outcome.CORRECT).tolist()
    return tried
