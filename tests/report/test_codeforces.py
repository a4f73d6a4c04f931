"""Fetching contests, from a server that answers as Codeforces does."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from contests import NO_POINTS, POINTS, Stub, answers, quarters

from experiments.table1.elo import TRIES, main, parse
from experiments.table1.ratings import Contest, Standings


@pytest.fixture
def codeforces() -> Iterator[Stub]:
    stub = Stub()
    people = quarters((3, 0), (2, 0), (1, 0))
    stub.contests = {
        5: answers(5, NO_POINTS, people[:200]),
        1971: answers(1971, POINTS, people[:201]),
        1972: answers(1972, NO_POINTS, people),
    }
    threading.Thread(target=stub.serve_forever, daemon=True).start()
    yield stub
    stub.shutdown()
    stub.server_close()


@pytest.fixture
def population(tmp_path: Path) -> Path:
    file = tmp_path / "ratings.json"
    file.write_text(json.dumps({"500": 1, "900": 2, "1000": 1}))
    return file


def fetched(stub: Stub, file: Path, *more: object, delay: float = 0) -> None:
    main([str(file), "--api", stub.api, "--delay", str(delay), *map(str, more)])


def of(*contests: int) -> list[tuple[str, int]]:
    return [(method, number) for number in contests for method in ("contest.ratingChanges", "contest.standings")]


def test_what_the_file_has_is_not_fetched_again(
    codeforces: Stub, population: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "made" / "standings.json"
    fetched(codeforces, file, "--contests", 1971, 5, 7, 1971, "--population", population)
    printed = capsys.readouterr()
    assert codeforces.requests == [*of(1971, 5), ("contest.ratingChanges", 7)]
    assert "contest 5 is left out: it has no more than 200 rated participants" in printed.err
    assert "contest 7 is left out: contestId: Contest with id 7 not found" in printed.err
    assert "1971" not in printed.err and "has 1 contests" in printed.out
    first = Standings.read(file)
    assert set(first.contests) == {1971} and first.source == codeforces.api
    assert first.contests[1971] == Contest.of(*codeforces.contests[1971])

    codeforces.requests.clear()
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"problem_id": "1971B1"}\n{"id": "1972/A"}\n{"problem_id": "1972B", "id": "x"}\n')
    fetched(codeforces, file, "--problems", problems)
    assert codeforces.requests == of(1972)
    found = Standings.read(file)
    assert set(found.contests) == {1971, 1972} and found.population == first.population == {500: 1, 900: 2, 1000: 1}
    population.write_text('{"1500": 4}')
    fetched(codeforces, file, "--problems", problems, "--population", population)
    assert codeforces.requests == of(1972)
    again = Standings.read(file)
    assert again.contests == found.contests and again.population == {1500: 4}


def test_a_failing_request_is_made_again_and_a_refused_one_is_not(
    codeforces: Stub, population: Path, tmp_path: Path
) -> None:
    limit, down = (json.dumps({"status": "FAILED", "comment": text}) for text in ("Call limit exceeded", "down"))
    codeforces.faults = {
        ("contest.ratingChanges", 1971): [(503, "<html>wait</html>"), (400, limit)],
        ("contest.standings", 1971): [(200, "<html>checking your browser</html>"), (503, down)],
    }
    fetched(codeforces, tmp_path / "a.json", "--contests", 1971, 8, "--population", population)
    changes, standings, unknown = ("contest.ratingChanges", 1971), ("contest.standings", 1971), 8
    assert codeforces.requests == [changes] * 3 + [standings] * 3 + [("contest.ratingChanges", unknown)]
    assert set(Standings.read(tmp_path / "a.json").contests) == {1971}


def test_requests_keep_their_distance(codeforces: Stub, population: Path, tmp_path: Path) -> None:
    fetched(codeforces, tmp_path / "a.json", "--contests", 1971, 1972, "--population", population, delay=0.1)
    assert len(codeforces.times) == 4 and min(np.diff(codeforces.times)) > 0.1
    assert parse(["x", "--contests", "1"]).delay == 2


def test_stopped_in_the_middle_it_resumes_there(codeforces: Stub, population: Path, tmp_path: Path) -> None:
    file = tmp_path / "standings.json"
    codeforces.faults = {("contest.standings", 1972): [(503, "")] * TRIES}
    with pytest.raises(
        SystemExit, match=r"^experiments.table1.elo: .*has not answered about contest 1972, 5 times: HTTP 503$"
    ):
        fetched(codeforces, file, "--contests", 1971, 1972, "--population", population)
    assert set(Standings.read(file).contests) == {1971}
    codeforces.requests.clear()
    fetched(codeforces, file, "--contests", 1971, 1972)
    assert codeforces.requests == of(1972) and set(Standings.read(file).contests) == {1971, 1972}


def test_what_keeps_it_from_fetching_is_said_in_a_line(codeforces: Stub, population: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "standings.json", tmp_path / "other"
    with pytest.raises(SystemExit, match=r"^experiments.table1.elo: .*is a new file, and needs .* --population$"):
        fetched(codeforces, file, "--contests", 1971)
    for text in ("[1, 2]", '{"a": 1}', "", '{"1500": 0}'):
        other.write_text(text)
        with pytest.raises(
            SystemExit, match=r"^experiments.table1.elo: .*other (is no object of counts|counts nobody).*$"
        ):
            fetched(codeforces, file, "--contests", 1971, "--population", other)
    other.write_text('{"id": "1971A"}\n{"name": "1971B"}\n')
    with pytest.raises(
        SystemExit, match=r"^experiments.table1.elo: .*other, row 2: .*a row has problem_id or id, as 1971A$"
    ):
        fetched(codeforces, file, "--problems", other, "--population", population)
    assert not file.exists() and not codeforces.requests
    Standings("https://example.org", {1: 1}).write(file)
    with pytest.raises(
        SystemExit, match=r"^experiments.table1.elo: .* is from https://example.org, not from http://127.*$"
    ):
        fetched(codeforces, file, "--contests", 1971)
    codeforces.contests[1971][0]["result"] = []
    with pytest.raises(
        SystemExit, match=r"^experiments.table1.elo: .* on contest 1971: an answer of another shape .*$"
    ):
        fetched(codeforces, tmp_path / "new.json", "--contests", 1971, "--population", population)
