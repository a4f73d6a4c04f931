"""Samples on disk: nothing finished is lost, nothing is mixed, and damage stays where it is."""

import errno
import fcntl
import json
import resource
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import segments

from e1_trl.answers.grade import Grade, Outcome
from e1_trl.atomic import StoreError
from e1_trl.budget import Budget
from e1_trl.evaluation.methods import Cell
from e1_trl.evaluation.sampling_plan import Goal
from e1_trl.evaluation.store import FILE, SYNC_PAGES, Store
from e1_trl.rollout import Stop
from e1_trl.tree import StoredSegment

SETTINGS = {"model": "m", "sampling": {"temperature": 0.6}, "seed": 0, "versions": {}}


def leg(problem: int, start: int = 0, tokens: int = 3) -> StoredSegment:
    return StoredSegment(problem, 0, "thinking/3/abc", start, "", list(range(tokens)), Stop.LENGTH)


def write(folder: Path, *legs: StoredSegment) -> None:
    with Store.open(folder, SETTINGS) as store:
        store.add(legs)


def refused(match: str, folder: Path, settings: Mapping[str, object] = SETTINGS) -> None:
    """The folder does not open, as one line says."""
    with pytest.raises(StoreError, match=match) as error, Store.open(folder, settings):
        pass
    assert "\n" not in str(error.value)


def test_what_was_written_is_read_in_order_even_twice(tmp_path: Path) -> None:
    with Store.open(tmp_path, SETTINGS) as store:
        store.add([leg(1, start=3)])
        store.add([leg(1)])
        store.add([leg(1, start=3)])
    with Store.open(tmp_path, SETTINGS) as store:
        assert store.count() == 2 and store.segments(0, 0) == []
        legs = store.segments(1, 0)
    assert [replace(each, token_ids=list(each.token_ids)) for each in legs] == [leg(1), leg(1, start=3)]
    assert all(each.token_ids.itemsize == 4 for each in legs)  # type: ignore[attr-defined]


def test_a_crash_of_the_node_loses_only_the_last_of_what_was_finished(tmp_path: Path) -> None:
    """Of what SQLite has not synced nothing may be left: its write-ahead log, that is."""
    ours, crashed = tmp_path / "ours", tmp_path / "crashed"
    crashed.mkdir()
    with Store.open(ours, SETTINGS) as store:
        for problem in range(3 * SYNC_PAGES):
            store.add([leg(problem, tokens=1000)])  # a page each
        shutil.copy(ours / FILE, crashed / FILE)
    assert len(segments(ours)) == 3 * SYNC_PAGES
    assert len(segments(crashed)) >= 2 * SYNC_PAGES


@pytest.mark.parametrize("damage", ["truncated", "other"])
def test_a_damaged_database_is_one_line_that_says_what_to_do(tmp_path: Path, damage: str) -> None:
    write(tmp_path, *(leg(problem, tokens=500) for problem in range(100)))
    file = tmp_path / FILE
    file.write_bytes({"truncated": file.read_bytes()[:-50_000], "other": b"no database" * 1000}[damage])
    said = r"^cannot use .*segments\.sqlite: .*\.recover.* sampled again$"
    with pytest.raises(StoreError, match=said), Store.open(tmp_path, SETTINGS) as store:
        for problem in range(100):
            store.segments(problem, 0)


def test_settings_bind_from_when_sampling_begins_whatever_becomes_of_the_segments(tmp_path: Path) -> None:
    other = {**SETTINGS, "seed": 1}
    with Store.open(tmp_path, SETTINGS):
        pass  # whose engine did not start, say
    with Store.open(tmp_path, other) as store:
        store.bind()
        store.add([leg(0)])
    before = (tmp_path / "run.json").read_bytes()
    for file in tmp_path.glob(f"{FILE}*"):  # by somebody who saves disk
        file.unlink()
    refused("seed = 1, this one has 0; name another folder", tmp_path)
    warmer = {**other, "sampling": {"temperature": 1.0}}
    refused(r"sampling = \{'temperature': 0.6\}, this one has \{'temperature': 1.0\}", tmp_path, warmer)
    refused(r"versions = \{\}, this one has \{'vllm': '9'\}", tmp_path, {**other, "versions": {"vllm": "9"}})
    assert (tmp_path / "run.json").read_bytes() == before
    with Store.open(tmp_path, other) as store:
        assert store.goals() == [] and store.count() == 0  # what is sampled again is of the commit that does it


def test_samples_without_their_settings_are_not_taken_for_those_of_others(tmp_path: Path) -> None:
    write(tmp_path, leg(0))
    with pytest.raises(StoreError, match=r"lost run\.json"), Store.open(tmp_path, {**SETTINGS, "seed": 1}) as store:
        store.bind()


def test_a_folder_of_another_format_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / ".in_use").touch()
    (tmp_path / "run.json").write_text(json.dumps({**SETTINGS, "format": 3, "trl": "1"}))
    before = sorted(tmp_path.iterdir())
    refused("format = 3, this one has 4; name another folder", tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk_is_one_line_and_loses_nothing_written(tmp_path: Path) -> None:
    write(tmp_path, leg(0))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    large = leg(1, tokens=100_000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # beyond, a write fails as on a full disk
    try:
        with pytest.raises(StoreError, match=r"cannot use .*segments\.sqlite: .*run again to resume") as error:
            write(tmp_path, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(error.value)
    assert {place[0] for place in segments(tmp_path)} == {0}
    write(tmp_path, large)
    assert {place[0] for place in segments(tmp_path)} == {0, 1}


def test_a_folder_in_use_is_refused_to_a_second_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(tmp_path, SETTINGS):
        refused("another process evaluates into", tmp_path)
    with Store.open(tmp_path, SETTINGS):
        pass

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    refused(r"file system without locks \(No locks available\); name a folder on another", tmp_path)


def test_the_goals_that_have_been_reached_are_remembered_in_order(tmp_path: Path) -> None:
    goals = [
        Goal(Cell("separate", Budget(64, 32)), problems=10, samples=2, commit="abc"),
        Goal(Cell("unconstrained", Budget(None, None)), problems=20, samples=1, commit="def"),
        Goal(Cell("truncation", Budget(None, 32)), problems=20, samples=1, commit="def"),
    ]
    with Store.open(tmp_path, SETTINGS) as store:
        assert store.goals() == []
        store.reach(goals[:1])
        store.reach(goals)
    with Store.open(tmp_path, SETTINGS) as store:
        assert store.goals() == goals


def test_grades_are_remembered_but_for_those_that_a_busy_machine_may_give(tmp_path: Path) -> None:
    given = {"a": Grade(Outcome.CORRECT, "4", unboxed=True), "b": Grade(Outcome.UNBOXED, None)}
    with Store.open(tmp_path, SETTINGS) as store:
        passing = (Outcome.UNGRADED, Outcome.TIMED_OUT, Outcome.CRASHED)
        store.keep({**given, **{outcome: Grade(outcome, "x") for outcome in passing}})
    with Store.open(tmp_path, SETTINGS) as store:
        assert store.grades(["a", "b", "d", *passing]) == given
