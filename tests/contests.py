"""Contests made up for the tests of ratings, and a stub of Codeforces' API on this machine that tells of them."""

import json
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from experiments.table1.ratings import Contest

Participant = tuple[str, float, float, int]  # handle, points, penalty, rating before the contest

POINTS = {"A": 500.0, "B": 1000.0, "C": 1500.0}
NO_POINTS = {"A": None, "B1": None, "B2": None}
FIRST, SECOND, THIRD, NEVER = ([i == success for i in range(8)] for success in (0, 1, 2, 8))


def quarters(*results: tuple[float, float], rating: int = 1000) -> list[Participant]:
    """Hundred participants with each result, all of one rating."""
    return [(f"u{part}-{i}", *result, rating) for part, result in enumerate(results) for i in range(100)]


def answers(
    number: int, problems: Mapping[str, float | None], people: Sequence[Participant]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What Codeforces answers to contest.standings and contest.ratingChanges."""
    asked = [
        {"contestId": number, "index": index, "name": "x"} | ({} if points is None else {"points": points})
        for index, points in problems.items()
    ]
    rows = [row(handle, points, penalty) for handle, points, penalty, _ in people]
    changes = [{"handle": handle, "oldRating": rating, "newRating": 0} for handle, _, _, rating in people]
    standings = {"contest": {"id": number}, "problems": asked, "rows": rows}
    return {"status": "OK", "result": standings}, {"status": "OK", "result": changes}


def row(handle: str, points: float, penalty: float, kind: str = "CONTESTANT") -> dict[str, Any]:
    party = {"members": [{"handle": handle}, {"handle": "u0-0"}], "participantType": kind}
    return {"party": party, "points": points, "penalty": penalty, "problemResults": []}


def made(number: int, problems: Mapping[str, float | None], people: Sequence[Participant]) -> Contest:
    contest = Contest.of(*answers(number, problems, people))
    assert contest is not None
    return contest


# 400 participants, all of 1000: over them m has the expected rank 1 + 400 / (1 + 10^((m - 1000) / 400)).
WITH_POINTS = made(1, POINTS, quarters((1500, 0), (1400, 0), (500, 0), (0, 0)))
WITHOUT = made(2, NO_POINTS, quarters((2, 15), (2, 20), (2, 30), (1, 5)))


class Stub(ThreadingHTTPServer):
    """Codeforces, as far as two methods go; `faults` are what it answers first, `requests` what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.contests: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
        self.faults: dict[tuple[str, int], list[tuple[int, str]]] = {}
        self.requests: list[tuple[str, int]] = []
        self.times: list[float] = []

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/api"


class Handler(BaseHTTPRequestHandler):
    server: Stub

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query, method = dict(parse_qsl(url.query)), url.path.removeprefix("/api/")
        number = int(query.pop("contestId"))
        self.server.requests.append((method, number))
        self.server.times.append(monotonic())
        if query:
            self.refuse(
                "contestId: Non-gym contest standings for non-admin users are available only via anonymous GET "
                "requests with no extra parameters"
            )
        elif faults := self.server.faults.get((method, number)):
            self.answer(*faults.pop(0))
        elif number not in self.server.contests:
            self.refuse(f"contestId: Contest with id {number} not found")
        else:
            both = self.server.contests[number]
            self.answer(200, json.dumps(both[("contest.standings", "contest.ratingChanges").index(method)]))

    def refuse(self, comment: str) -> None:
        self.answer(400, json.dumps({"status": "FAILED", "comment": comment}))

    def answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""
