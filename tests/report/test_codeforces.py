"""Fetching contests, from what answers as Codeforces does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from contests import NO_POINTS, POINTS, answers, quarters

from e1_trl.errors import UserError
from experiments.table1 import elo
from experiments.table1.ratings import Contest, Standings

METHODS = ("contest.standings", "contest.ratingChanges")
PEOPLE = quarters((3, 0), (2, 0), (1, 0))


class Codeforces:
    """Its API, as far as two methods go; `faults` are what it answers first, `requests` what it was asked."""

    def __init__(self) -> None:
        self.contests: dict[int, Any] = {
            5: answers(5, NO_POINTS, PEOPLE[:200]),
            1971: answers(1971, POINTS, PEOPLE[:201]),
            1972: answers(1972, NO_POINTS, PEOPLE),
        }
        self.faults: dict[tuple[str, int], list[tuple[int, str]]] = {}
        self.requests: list[tuple[str, int]] = []
        self.delays: list[float] = []

    def get(self, url: str, params: dict[str, int], **_: object) -> httpx.Response:
        method, number = url.removeprefix("https://codeforces.com/api/"), params["contestId"]
        assert list(params) == ["contestId"], "others are refused"
        self.requests.append((method, number))
        if faults := self.faults.get((method, number)):
            status, text = faults.pop(0)
            return httpx.Response(status, text=text)
        if number not in self.contests:
            comment = f"contestId: Contest with id {number} not found"
            return httpx.Response(400, json={"status": "FAILED", "comment": comment})
        return httpx.Response(200, json={"status": "OK", "result": self.contests[number][METHODS.index(method)]})


@pytest.fixture
def codeforces(monkeypatch: pytest.MonkeyPatch) -> Codeforces:
    site = Codeforces()
    monkeypatch.setattr(elo.httpx, "get", site.get)
    monkeypatch.setattr(elo, "sleep", site.delays.append)
    return site


@pytest.fixture
def fetched(tmp_path: Path) -> Callable[..., dict[int, Contest]]:
    """Fetch the contests of problems into one file; what it has then."""

    def fetch(*problems: str, population: str | None = '{"500": 1, "900": 2}') -> dict[int, Contest]:
        (tmp_path / "problems.jsonl").write_text("".join(f"{problem}\n" for problem in problems))
        words = [str(tmp_path / "made" / "standings.json"), "--problems", str(tmp_path / "problems.jsonl")]
        if population is not None:
            (tmp_path / "ratings.json").write_text(population)
            words += ["--population", str(tmp_path / "ratings.json")]
        elo.main(words)
        return Standings.read(Path(words[0])).contests

    return fetch


def of(*contests: int) -> list[tuple[str, int]]:
    return [(method, number) for number in contests for method in ("contest.ratingChanges", "contest.standings")]


def test_what_the_file_has_is_not_fetched_again(
    codeforces: Codeforces, fetched: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    first = fetched('{"problem_id": "1971B1", "id": "\u2028"}', "", '{"id": "5/A"}', '{"id": "7A"}', '{"id": "1971C"}')
    assert codeforces.requests == [*of(1971, 5), ("contest.ratingChanges", 7)] and set(codeforces.delays) == {2.0}
    printed = capsys.readouterr()
    assert "contest 5 is left out: it has no more than 200 rated participants" in printed.err
    assert "contest 7 is left out: contestId: Contest with id 7 not found" in printed.err
    assert first == {1971: Contest.of(*codeforces.contests[1971])}
    codeforces.requests.clear()
    assert set(fetched('{"id": "1971A"}', '{"id": "1972/A"}', population=None)) == {1971, 1972}
    assert codeforces.requests == of(1972)


def test_a_failing_request_is_made_again_and_a_stopped_run_resumes_there(codeforces: Codeforces, fetched: Any) -> None:
    limit = json.dumps({"status": "FAILED", "comment": "Call limit exceeded"})
    codeforces.faults = {
        ("contest.ratingChanges", 1971): [(503, "<html>wait</html>"), (400, limit)],
        ("contest.standings", 1971): [(200, "<html>checking your browser</html>")],
        ("contest.standings", 1972): [(503, "")] * elo.TRIES,
    }
    problems = ('{"id": "1971A"}', '{"id": "1972A"}')
    with pytest.raises(UserError, match=r"^.*answered about contest 1972, 5 times: HTTP 503$"):
        fetched(*problems)
    changes, standings = of(1971)
    assert codeforces.requests[:5] == [changes] * 3 + [standings] * 2
    assert codeforces.delays[:5] == [2, 4, 8, 2, 4]
    codeforces.requests.clear()
    assert set(fetched(*problems, population=None)) == {1971, 1972} and codeforces.requests == of(1972)


@pytest.mark.parametrize(
    ("problem", "population", "message"),
    [
        ('{"id": "1971A"}', None, "needs the ratings of all people; name them as --population"),
        ('{"id": "1971A"}', '{"1500": 0}', "needs the ratings of all people"),
        ('{"id": "1971A"}', "[1, 2]", "."),
        ('{"name": "1971B"}', "{}", "'None' is no problem of Codeforces"),
    ],
)
def test_what_keeps_it_from_fetching_is_said_in_a_line(
    codeforces: Codeforces, fetched: Any, problem: str, population: str | None, message: str
) -> None:
    with pytest.raises(UserError, match=f"^.*{message}.*$"):
        fetched(problem, population=population)
    assert not codeforces.requests
