"""The Codeforces rating of what was evaluated, among the people who took part in the contests.

    python -m experiments.table1.elo standings.json --problems problems.jsonl --population ratings.json

asks Codeforces for the contests, once and slowly; stopped at any moment, the same command resumes. With that file as
`--standings`, `python -m experiments.table1` rates. How a rating is computed stands in `experiments.table1.ratings`.
"""

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from time import sleep
from typing import Any

import httpx
import pandas as pd

from e1_trl.answers.grade import Outcome
from e1_trl.atomic import StoreError
from e1_trl.budget import Budget
from e1_trl.report import samples
from e1_trl.report.statistics import Estimate
from experiments.table1 import ratings
from experiments.table1.ratings import Contest, Standings, problem_parts

API = "https://codeforces.com/api"
DELAY = 2.0  # seconds between two requests, the API's own rule
TRIES = 5  # of one request, each after twice the delay of the one before
TIMEOUT = 120.0  # seconds for one answer: the largest standings have 15 MB
BUSY = (429, 500, 502, 503, 504)  # these pass, as does its word on being asked too fast
LIMIT = "limit exceeded"


class RefusalError(ValueError):
    """There is no such contest to be had: Codeforces' own words, or why it does not count."""


def request(address: str, method: str, contest: int, delay: float = DELAY) -> dict[str, Any]:
    """What Codeforces, or a copy of it, answers about a contest, `delay` seconds from now.

    The contest is the only parameter. Whoever does not manage the contest is refused standings with any other.

    Raises:
        RefusalError: it refuses.
        ValueError: it has not answered, `TRIES` times.
    """
    url, fault = f"{address}/{method}", ""
    for attempt in range(TRIES):
        sleep(delay * 2**attempt)
        try:
            response = httpx.get(url, params={"contestId": contest}, timeout=TIMEOUT, follow_redirects=True)
        except httpx.HTTPError as error:
            fault = repr(error)
            continue
        try:
            answer = response.json()
        except ValueError:  # a page for people, such as one that says to wait
            answer = {}
        if answer.get("status") == "OK":
            return answer
        fault = answer.get("comment", f"HTTP {response.status_code}")
        if answer and response.status_code not in BUSY and LIMIT not in fault:
            raise RefusalError(fault)
    raise ValueError(f"{url} has not answered about contest {contest}, {TRIES} times: {fault}")


def contest(address: str, number: int, delay: float = DELAY) -> Contest:
    """A contest, from Codeforces.

    Raises:
        RefusalError: there is none that is rated, or it does not count.
        ValueError: Codeforces does not answer, or with something else.
    """
    changes = request(address, "contest.ratingChanges", number, delay)  # the smaller, refused if nobody was rated
    standings = request(address, "contest.standings", number, delay)
    try:
        found = Contest.of(standings, changes)
    except ValueError as error:
        raise ValueError(f"{address} on contest {number}: {error}") from error
    if found is None:
        raise RefusalError(f"it has no more than {ratings.TOO_FEW} rated participants, or one is named twice")
    return found


def fetch(arguments: argparse.Namespace) -> None:
    """Ask for the contests that the file does not have, and write it after each.

    Raises:
        StoreError, ValueError, OSError: one line about what is wrong; what was fetched before is in the file.
    """
    file, address = arguments.file, arguments.api.rstrip("/")
    wanted = arguments.contests or contests_of(arguments.problems)
    if file.exists():
        kept = Standings.read(file)
        if kept.source != address:
            raise ValueError(f"{file} is from {kept.source}, not from {address}; fetch into another file")
    elif arguments.population is None:
        raise ValueError(f"{file} is a new file, and needs the ratings of all people: name them as --population")
    else:
        kept = Standings(address, {})
    if arguments.population is not None:
        kept = replace(kept, population=read_population(arguments.population))
    file.parent.mkdir(parents=True, exist_ok=True)
    kept.write(file)
    for number in [each for each in dict.fromkeys(wanted) if each not in kept.contests]:
        try:
            kept.contests[number] = contest(address, number, arguments.delay)
        except RefusalError as refusal:
            print(f"contest {number} is left out: {refusal}", file=sys.stderr)
        else:
            kept.write(file)
            print(f"contest {number}", flush=True)
    print(f"{file} has {len(kept.contests)} contests")


def contests_of(problems: Path) -> list[int]:
    """The contests that the problems of a file are from.

    Raises:
        ValueError: a row is none of Codeforces.
    """
    found = []
    for number, line in enumerate(filter(str.strip, problems.read_text().split("\n")), 1):
        try:
            row = json.loads(line)
            found.append(problem_parts(str(row["problem_id"] if "problem_id" in row else row["id"]))[0])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{problems}, row {number}: {error!r}; a row has problem_id or id, as 1971A") from error
    return found


def read_population(file: Path) -> dict[int, int]:
    """How many people have each rating.

    Raises:
        ValueError: it is no object of counts, or all are 0.
    """
    try:
        population = {int(rating): int(count) for rating, count in json.loads(file.read_text()).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f'{file} is no object of counts by rating, as {{"1500": 61}}: {error}') from error
    if sum(population.values()) < 1:
        raise ValueError(f"{file} counts nobody")
    return population


@dataclass(frozen=True)
class Rating:
    """That of one method at one budget, of one model.

    Attributes:
        budget: as "1024+1024".
        rating: the mean over the contests that count, with its 95% interval over contests.
        percentile: percent of all people whose rating is lower.
        contests: how many count: those that the standings have.
        left_out: contests that the standings lack, and problems that their contests lack.
    """

    model: str
    method: str
    budget: str
    rating: Estimate
    percentile: float
    contests: int
    left_out: tuple[str, ...]


def rate(answers: pd.DataFrame, standings: Standings) -> list[Rating]:
    """The ratings of a table of graded answers, in its order.

    Raises:
        ValueError: a problem is none of Codeforces, or the standings have none of their contests.
    """
    return [_rate(cell, standings) for _, cell in answers.groupby(samples.CELL, sort=False, dropna=False)]


def _rate(cell: pd.DataFrame, standings: Standings) -> Rating:
    tried = attempts(cell)
    contests = [standings.contests[number] for number in tried if number in standings.contests]
    if not contests:
        raise ValueError(f"the standings have none of the contests {', '.join(map(str, tried))}")
    mean = ratings.overall([ratings.rating(contest, tried[contest.id]) for contest in contests])
    first = cell.iloc[0]
    thinking, solution = (
        None if pd.isna(first[name]) else int(first[name]) for name in ("thinking_budget", "solution_budget")
    )
    unknown = [f"{each.id}{index}" for each in contests for index in tried[each.id] if index not in each.problems]
    return Rating(
        model=first["model"],
        method=first["method"],
        budget=str(Budget(thinking, solution)),
        rating=mean,
        percentile=standings.percentile(mean.mean),
        contests=len(contests),
        left_out=(*(str(number) for number in tried if number not in standings.contests), *unknown),
    )


def attempts(cell: pd.DataFrame) -> dict[int, dict[str, list[bool]]]:
    """Whether the samples of each problem have passed, in order, by contest and index. What is ungraded has not.

    Raises:
        ValueError: a problem is none of Codeforces (`problem_id`), or there twice.
    """
    tried: dict[int, dict[str, list[bool]]] = {}
    for _, answers in cell.sort_values(["problem", "sample"]).groupby("problem"):
        first = answers.iloc[0]
        name = first["problem_id"]
        try:
            number, index = problem_parts(name if isinstance(name, str) else "")
        except ValueError as error:
            raise ValueError(f"{first['benchmark']}, problem {first['problem']}: {error}") from error
        if index in tried.setdefault(number, {}):
            raise ValueError(f"{first['benchmark']} has the problem {number}{index} twice")
        tried[number][index] = (answers["outcome"] == Outcome.CORRECT).tolist()
    return tried


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line, `sys.argv` if `argv` is None."""
    parser = argparse.ArgumentParser(prog="experiments.table1.elo", description="Fetch contests from Codeforces.")
    parser.add_argument("file", type=Path, help="where they are written, beside those that it has")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--contests", type=int, nargs="+", metavar="ID", help="their numbers")
    which.add_argument("--problems", type=Path, metavar="FILE", help="JSON lines with problem_id or id, as 1971A")
    parser.add_argument(
        "--population", type=Path, metavar="FILE", help="JSON object: people by rating; unset: the file's"
    )
    parser.add_argument("--api", default=API, metavar="ADDRESS", help="Codeforces, or a copy of it")
    parser.add_argument("--delay", type=float, default=DELAY, help="seconds between two requests")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Fetch contests, or say in one line what is wrong."""
    try:
        fetch(parse(argv))
    except (StoreError, ValueError, OSError) as error:
        sys.exit(f"experiments.table1.elo: {' '.join(str(error).split())}")


if __name__ == "__main__":
    main()
