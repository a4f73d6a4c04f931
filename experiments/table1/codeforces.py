"""Codeforces' API, as much of it as ratings take: the participants of a contest.

Knows nothing of models or of files.
"""

from dataclasses import dataclass
from time import sleep
from typing import Any

import httpx

from experiments.table1.ratings import TOO_FEW, Contest

TRIES = 5  # of one request, each after twice the delay of the one before
TIMEOUT = 120.0  # seconds for one answer: the largest standings have 15 MB
BUSY = (429, 500, 502, 503, 504)  # these pass, as does its word on being asked too fast
LIMIT = "limit exceeded"


class RefusalError(ValueError):
    """There is no such contest to be had: Codeforces' own words, or why it does not count."""


@dataclass(frozen=True)
class Codeforces:
    """The API at an address, asked no faster than once in `delay` seconds."""

    address: str
    delay: float

    def contest(self, number: int) -> Contest:
        """What ratings take of a contest.

        Raises:
            RefusalError: there is none that is rated, or it does not count.
            ValueError: Codeforces does not answer, or with something else.
        """
        changes = self.ask("contest.ratingChanges", number)  # the smaller of the two, and refused if nobody was rated
        standings = self.ask("contest.standings", number)
        try:
            found = Contest.of(standings, changes)
        except ValueError as error:
            raise ValueError(f"{self.address} on contest {number}: {error}") from error
        if found is None:
            raise RefusalError(f"it has no more than {TOO_FEW} rated participants, or one is named twice")
        return found

    def ask(self, method: str, contest: int) -> dict[str, Any]:
        """What it answers about a contest.

        The contest is the only parameter. Whoever does not manage the contest is refused standings with any other,
        showUnofficial=false too, which changes nothing: official participants are what is shown without.

        Raises:
            RefusalError: it refuses.
            ValueError: it has not answered, `TRIES` times.
        """
        url, fault = f"{self.address}/{method}", ""
        for attempt in range(TRIES):
            sleep(self.delay * 2**attempt)
            try:
                response = httpx.get(url, params={"contestId": contest}, timeout=TIMEOUT, follow_redirects=True)
            except httpx.HTTPError as error:
                fault = repr(error)
                continue
            answer = _read(response)
            if answer.get("status") == "OK":
                return answer
            fault = answer.get("comment", f"HTTP {response.status_code}")
            if answer and response.status_code not in BUSY and LIMIT not in fault:
                raise RefusalError(fault)
        raise ValueError(f"{url} has not answered about contest {contest}, {TRIES} times: {fault}")


def _read(response: httpx.Response) -> dict[str, Any]:
    """The answer, empty if it is a page for people, such as one that says to wait."""
    try:
        answer = response.json()
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
