"""Invented contests for the tests of ratings."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.table1.ratings import Contest

Participant = tuple[str, float, float, int]  # handle, points, penalty, rating before the contest

POINTS = {"A": 500.0, "B": 1000.0, "C": 1500.0}
NO_POINTS = {"A": None, "B1": None, "B2": None}
FIRST, SECOND, THIRD, NEVER = ([i == success for i in range(8)] for success in (0, 1, 2, 8))


def quarters(*results: tuple[float, float], rating: int = 1000) -> list[Participant]:
    """Return a hundred participants with each result, all of one rating."""
    return [(f"u{part}-{i}", *result, rating) for part, result in enumerate(results) for i in range(100)]


def answers(
    number: int, problems: Mapping[str, float | None], people: Sequence[Participant]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the results of contest.standings and contest.ratingChanges."""
    listed = [
        {"contestId": number, "index": index, "name": "x"} | ({} if points is None else {"points": points})
        for index, points in problems.items()
    ]
    rows = [row(handle, points, penalty) for handle, points, penalty, _ in people]
    changes = [{"handle": handle, "oldRating": rating, "newRating": 0} for handle, _, _, rating in people]
    return {"contest": {"id": number}, "problems": listed, "rows": rows}, changes


def row(handle: str, points: float, penalty: float, kind: str = "CONTESTANT") -> dict[str, Any]:
    party = {"members": [{"handle": handle}, {"handle": "u0-0"}], "participantType": kind}
    return {"party": party, "points": points, "penalty": penalty, "problemResults": []}


def made(number: int, problems: Mapping[str, float | None], people: Sequence[Participant]) -> Contest:
    contest = Contest.of(*answers(number, problems, people))
    assert contest is not None
    return contest


# 400 participants rated 1000; a rating m among them has the expected rank 1 + 400 / (1 + 10^((m - 1000) / 400)).
WITH_POINTS = made(1, POINTS, quarters((1500, 0), (1400, 0), (500, 0), (0, 0)))
WITHOUT = made(2, NO_POINTS, quarters((2, 15), (2, 20), (2, 30), (1, 5)))
