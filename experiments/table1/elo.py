"""Asks Codeforces for the contests of problems, once and slowly; stopped at any moment, the same command resumes.

    python -m experiments.table1.elo standings.json --problems problems.jsonl --population ratings.json

With that file as `--standings`, `python -m experiments.table1` rates.
"""

import argparse
import json
import sys
from pathlib import Path
from time import sleep
from typing import Any

import httpx

from e1_trl.command_line import run_command
from e1_trl.errors import UserError, user_errors
from experiments.table1.ratings import TOO_FEW, Contest, Standings, problem_parts

API = "https://codeforces.com/api"
DELAY = 2.0  # seconds between two requests, the API's own rule
TRIES = 5  # of one request, each after twice the delay of the one before
TIMEOUT = 120.0  # seconds for one answer: the largest standings have 15 MB
BUSY = (429, 500, 502, 503, 504)  # these pass, as does its word on requests that come too fast
LIMIT = "limit exceeded"


class RefusalError(ValueError):
    """There is no such contest to be had: Codeforces' own words, or why it does not count."""


def result(method: str, contest: int) -> Any:
    """Ask Codeforces about a contest, after a delay. The contest is the only parameter: whoever does not manage
    it is refused standings with any other.

    Raises:
        RefusalError: it refuses.
        ValueError: it has not answered, `TRIES` times.
    """
    url, fault = f"{API}/{method}", ""
    for attempt in range(TRIES):
        sleep(DELAY * 2**attempt)
        try:
            response = httpx.get(url, params={"contestId": contest}, timeout=TIMEOUT, follow_redirects=True)
        except httpx.HTTPError as error:
            fault = repr(error)
            continue
        fault = f"HTTP {response.status_code}"
        try:
            answer = response.json()
        except ValueError:  # a page for people, such as one that says to wait
            continue
        if answer.get("status") == "OK":
            return answer["result"]
        fault = answer.get("comment", fault)
        if response.status_code not in BUSY and LIMIT not in fault:
            raise RefusalError(fault)
    raise UserError(f"{url} has not answered about contest {contest}, {TRIES} times: {fault}")


def fetch(file: Path, problems: Path, population: Path | None) -> None:
    """Ask for the contests of these problems that the file does not have, and write it after each.

    Raises:
        UserError: one line about what is wrong; what was fetched before is in the file.
    """
    with user_errors(f"{problems} must hold JSON lines with problem_id or id", OSError, ValueError):
        rows = [json.loads(line) for line in problems.read_text().split("\n") if line.strip()]
    named = [row.get("problem_id") or row.get("id") if isinstance(row, dict) else row for row in rows]
    wanted = dict.fromkeys(problem_parts(str(name))[0] for name in named)
    standings = Standings.read(file) if file.exists() else Standings({}, {})
    if population is not None:
        with user_errors(
            f"{population} must hold a JSON object, people by rating", OSError, ValueError, AttributeError
        ):
            people = {int(rating): int(count) for rating, count in json.loads(population.read_text()).items()}
        standings = Standings(people, standings.contests)
    if not sum(standings.population.values()):
        raise UserError(f'{file} needs the ratings of all people; name them as --population, as {{"1500": 61}}')
    standings.write(file)
    for number in (each for each in wanted if each not in standings.contests):
        try:
            changes = result("contest.ratingChanges", number)  # the smaller, refused if nobody was rated
            contest = Contest.of(result("contest.standings", number), changes)
            if contest is None:
                raise RefusalError(f"it has no more than {TOO_FEW} rated participants, or one is named twice")
        except RefusalError as refusal:
            print(f"contest {number} is left out: {refusal}", file=sys.stderr)
            continue
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise UserError(f"{API} on contest {number}: an answer of another shape ({error!r})") from error
        standings.contests[number] = contest
        standings.write(file)
        print(f"contest {number}", flush=True)
    print(f"{file} has {len(standings.contests)} contests")


def main(argv: list[str] | None = None) -> None:
    """Fetch contests."""
    parser = argparse.ArgumentParser(prog="experiments.table1.elo", description="Fetch contests from Codeforces.")
    parser.add_argument("file", type=Path, help="where they are written, beside those that it has")
    parser.add_argument("--problems", type=Path, required=True, help="JSON lines with problem_id or id, as 1971A")
    parser.add_argument("--population", type=Path, help="JSON object: people by rating; unset: the file's")
    arguments = parser.parse_args(argv)
    fetch(arguments.file, arguments.problems, arguments.population)


if __name__ == "__main__":
    run_command("experiments.table1.elo", main)
