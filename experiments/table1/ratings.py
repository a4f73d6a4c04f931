"""The Codeforces rating (Elo) of a model, and the file that keeps what it takes of the contests.

A model takes part in contests that people have finished. What it solves, and at which attempt, has a rank among them,
and its rating is the one of which that rank was to be expected. So compute it CodeElo (Quan et al., arXiv 2501.01257)
and DeepCoder, whose script has made the numbers of Elastic Reasoning. As there, ranks count from 0 and expected ranks
from 1, which flatters by one place; a problem that was not asked counts as not solved; how long an answer took plays no
role. Knows nothing of the network or of tables of answers.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from e1_trl.atomic import write_atomically
from e1_trl.report.statistics import Estimate

ATTEMPTS = 8  # of a problem that count, the first ones
TOO_FEW = 200  # participants; a contest with no more does not count
POINTS_LOST = 50  # by each failed attempt before the success, of a problem that has points
PENALTY = 10  # for each, of a problem that has none
ABOVE = 100  # a model's rating is less than the best participant's and this
RESAMPLES = 1000
OFFICIAL = "CONTESTANT"

Attempts = Mapping[str, Sequence[bool]]  # whether each has passed, in order, by the problem's index in its contest


class Standing(NamedTuple):
    """What places a participant, or a model."""

    points: float
    penalty: float

    @property
    def place(self) -> tuple[float, float]:
        """Smaller is better: more points, and if as many, less penalty."""
        return -self.points, self.penalty


@dataclass(frozen=True)
class Contest:
    """What ratings take of a finished contest.

    Attributes:
        id: the number in its address.
        problems: points of each by its index ("A", "B1"); None where a success counts 1 and failed attempts as penalty.
        standings: of its rated participants, best first.
        old_ratings: those they came with, in increasing order.
    """

    id: int
    problems: Mapping[str, float | None]
    standings: tuple[Standing, ...]
    old_ratings: tuple[int, ...]

    @classmethod
    def of(cls, standings: Mapping[str, Any], rating_changes: Mapping[str, Any]) -> "Contest | None":
        """From what Codeforces answers to contest.standings and contest.ratingChanges.

        Its participants are those official ones that both name, by the handle of a party's first member. None if they
        are too few, or one is named twice.

        Raises:
            ValueError: these are no such answers.
        """
        try:
            problems, rows = standings["result"]["problems"], standings["result"]["rows"]
            # Copies that others keep hold official participants only, and have left out that they are.
            rows = [row for row in rows if row["party"].get("participantType", OFFICIAL) == OFFICIAL]
            named = [(row["party"]["members"][0]["handle"], row) for row in rows]
            rated = [(change["handle"], change["oldRating"]) for change in rating_changes["result"]]
            both = {handle for handle, _ in named} & {handle for handle, _ in rated}
            placed = [Standing(row["points"], row["penalty"]) for handle, row in named if handle in both]
            old_ratings = sorted(rating for handle, rating in rated if handle in both)
            if len(placed) != len(old_ratings) or len(placed) <= TOO_FEW:
                return None
            points = {problem["index"]: problem.get("points") for problem in problems}
            ordered = tuple(sorted(placed, key=lambda standing: standing.place))
            return cls(problems[0]["contestId"], points, ordered, tuple(old_ratings))
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"an answer of another shape ({type(error).__name__}: {error})") from error


def problem_parts(problem_id: str) -> tuple[int, str]:
    """Contest and index of a problem: 1971 and "B1" for "1971B1" or "1971/B1".

    Raises:
        ValueError: it names none of Codeforces.
    """
    match = re.fullmatch(r"(\d+)/?([A-Z]\d*)", problem_id)
    if match is None:
        raise ValueError(f"{problem_id!r} is no problem of Codeforces; those are called like 1971A or 1971/B1")
    return int(match[1]), match[2]


def score(contest: Contest, attempts: Attempts) -> Standing:
    """What the first success among the first `ATTEMPTS` attempts at each problem makes together."""
    points = penalty = 0.0
    for index, value in contest.problems.items():
        passed = list(attempts.get(index, ()))[:ATTEMPTS]
        if not any(passed):
            continue
        failed = passed.index(True)
        if value is None:
            points += 1
            penalty += PENALTY * failed
        else:
            points += max(0.0, value - POINTS_LOST * failed)
    return Standing(points, penalty)


def rank(contest: Contest, standing: Standing) -> int:
    """How many participants are as good or better."""
    return bisect_right(contest.standings, standing.place, key=lambda other: other.place)


def rating(contest: Contest, attempts: Attempts) -> int:
    """The largest rating, from 0 to 99 over the best participant's, whose expected rank is that of the attempts.

    The expected rank is one more than the sum of the probabilities with which participants win over that rating.
    """
    place = rank(contest, score(contest, attempts))
    others = np.array(contest.old_ratings, dtype=float)
    low, high = 0, int(others.max()) + ABOVE
    while high - low > 1:
        middle = (low + high) // 2
        expected = 1 + float(np.sum(1 / (1 + 10 ** ((middle - others) / 400))))
        low, high = (low, middle) if expected < place else (middle, high)
    return low


def overall(ratings: Sequence[int], seed: int = 0) -> Estimate:
    """The mean of the ratings of one model in several contests, with its 95% interval.

    The interval is a bootstrap over contests only, with `RESAMPLES` resamplings: it says how far the mean would lie
    elsewhere with other contests, and knows neither problems nor attempts. Few contests make it too narrow, and one
    makes it a point.
    """
    drawn = np.random.default_rng(seed).choice(ratings, (RESAMPLES, len(ratings))).mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Estimate(float(np.mean(ratings)), float(low), float(high))


@dataclass(frozen=True)
class Standings:
    """What a file holds: contests by id, the address they are from, and how many people have each rating."""

    source: str
    population: Mapping[int, int]
    contests: dict[int, Contest] = field(default_factory=dict)

    def percentile(self, rating: float) -> float:
        """Percent of the people whose rating is lower, to one decimal as published."""
        below = sum(count for other, count in self.population.items() if other < rating)
        return round(100 * below / sum(self.population.values()), 1)

    def write(self, path: Path) -> None:
        """Keep them in one JSON file.

        Raises:
            StoreError: it could not be written, as on a full disk.
        """
        ordered = [vars(self.contests[number]) for number in sorted(self.contests)]
        content = {"source": self.source, "population": dict(self.population), "contests": ordered}
        text = json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n"
        write_atomically(path, lambda file: file.write_text(text))

    @classmethod
    def read(cls, path: Path) -> "Standings":
        """What `write` left in a file.

        Raises:
            ValueError: it left nothing there.
        """
        if not path.is_file():
            raise ValueError(f"there is no file {path}; `python -m experiments.table1.elo {path}` writes it")
        try:
            content = json.loads(path.read_text())
            contests = {}
            for entry in content["contests"]:
                placed = tuple(Standing(*row) for row in entry["standings"])
                contests[entry["id"]] = Contest(entry["id"], entry["problems"], placed, tuple(entry["old_ratings"]))
            population = {int(rating): count for rating, count in content["population"].items()}
            return cls(content["source"], population, contests)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"{path} is no file of standings ({error!r}); `python -m experiments.table1.elo` writes such a file"
            ) from error
