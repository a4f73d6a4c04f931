"""Samples on disk: nothing finished is lost, nothing is mixed, and damage stays where it is."""

import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, segments

from e1_trl.answers.grade import Grade, Outcome
from e1_trl.atomic import StoreError
from e1_trl.budget import Budget
from e1_trl.evaluation.manifest import Manifest
from e1_trl.evaluation.methods import Cell
from e1_trl.evaluation.plan import Asked
from e1_trl.evaluation.store import FILE, SYNC_SECONDS, Store
from e1_trl.rollout import Stop
from e1_trl.tree import Leg

MANIFEST = Manifest(
    model="m",
    dataset="d",
    vocabulary="v",
    chat_template="c",
    chat_template_kwargs={},
    instruction=None,
    max_prompt_length=64,
    marker=[1],
    forced_text=[1],
    s1=[[1], [2]],
    s1_waits=1,
    context=256,
    sampling={"temperature": 0.6},
    seed=0,
    independent=False,
    engine={},
    versions={},
    thinking_from=None,
)


def leg(problem: int, start: int = 0, tokens: int = 3) -> Leg:
    return Leg(problem, 0, "thinking/3/abc", start, "", list(range(tokens)), Stop.LENGTH)


def stored(folder: Path) -> set[tuple[object, object]]:
    return {(problem, start) for problem, _, _, start, _ in segments(folder)}


def test_what_was_written_is_read_in_order_even_twice(tmp_path: Path) -> None:
    with Store.open(tmp_path, MANIFEST) as store:
        store.add(leg(1, start=3))
        store.add(leg(1))
        store.add(leg(1, start=3))
    with Store.open(tmp_path, MANIFEST) as store:
        assert store.count() == 2 and store.legs(0, 0) == []
        legs = store.legs(1, 0)
    assert [replace(each, token_ids=list(each.token_ids)) for each in legs] == [leg(1), leg(1, start=3)]
    assert all(each.token_ids.itemsize == 4 for each in legs)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_several_processes_write_at_a_time(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from test_store import MANIFEST, leg
from e1_trl.evaluation.store import Store

with Store.open(Path(sys.argv[1]), MANIFEST) as store:
    for problem in range(int(sys.argv[2]), 600, 3):
        store.add(leg(problem))
"""
    with Store.open(tmp_path, MANIFEST, exclusive=True):  # all the time, as the parent of data-parallel engines has
        engines = [subprocess.Popen([*python(program), tmp_path, str(i)], env=environment()) for i in range(3)]
        assert [engine.wait() for engine in engines] == [0, 0, 0]
    assert stored(tmp_path) == {(problem, 0) for problem in range(600)}


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def environment() -> dict[str, str]:
    """In which programs find the tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}


@pytest.mark.slow
def test_what_is_added_survives_a_kill_though_nothing_follows_it(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from test_store import MANIFEST, leg
from e1_trl.evaluation.store import Store

with Store.open(Path(sys.argv[1]), MANIFEST) as store:
    for problem in range(100):
        store.add(leg(problem))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([*python(program), tmp_path], env=environment())
    assert killed.returncode == -signal.SIGKILL
    assert stored(tmp_path) == {(problem, 0) for problem in range(100)}


def test_a_crash_of_the_node_loses_at_most_a_second_of_what_was_finished(tmp_path: Path) -> None:
    """Of what SQLite has not synced nothing may be left: its write-ahead log, that is."""
    ours, crashed = tmp_path / "ours", tmp_path / "crashed"
    crashed.mkdir()
    with Store.open(ours, MANIFEST) as store:
        for problem in range(10):
            store.add(leg(problem))
        time.sleep(SYNC_SECONDS)
        store.add(leg(10))
        store.add(leg(11))
        shutil.copy(ours / FILE, crashed / FILE)
    assert stored(crashed) == {(problem, 0) for problem in range(11)}
    assert stored(ours) == {(problem, 0) for problem in range(12)}


def test_a_damaged_segment_is_reported_and_only_it_is_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Store.open(tmp_path, MANIFEST) as store:
        for problem in range(3):
            store.add(Leg(problem, 0, "thinking/3/abc", 0, "", [problem + 7] * 500, Stop.LENGTH))
    file = tmp_path / FILE
    content = file.read_bytes()
    ids, others = ((8).to_bytes(4, sys.byteorder) * 100, (80).to_bytes(4, sys.byteorder) * 100)
    assert ids in content
    file.write_bytes(content.replace(ids, others, 1))
    with Store.open(tmp_path, MANIFEST) as store:
        assert [len(store.legs(problem, 0)) for problem in range(3)] == [1, 0, 1]
        assert caplog.messages == ["a segment of problem 1, sample 0 is damaged, and sampled again"]
        store.add(leg(1))
    with Store.open(tmp_path, MANIFEST) as store:
        assert [len(store.legs(problem, 0)) for problem in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("damage", ["truncated", "other"])
def test_a_damaged_database_is_one_line_that_says_what_to_do(tmp_path: Path, damage: str) -> None:
    with Store.open(tmp_path, MANIFEST) as store:
        for problem in range(100):
            store.add(leg(problem, tokens=500))
    file = tmp_path / FILE
    file.write_bytes({"truncated": file.read_bytes()[:-50_000], "other": b"no database" * 1000}[damage])
    with (
        pytest.raises(StoreError, match=r"segments\.sqlite is damaged .*\.recover.* sampled again$") as error,
        Store.open(tmp_path, MANIFEST) as store,
    ):
        for problem in range(100):
            store.legs(problem, 0)
    assert "\n" not in str(error.value)


def test_a_folder_of_other_settings_is_refused_in_one_line(tmp_path: Path) -> None:
    with Store.open(tmp_path, MANIFEST) as store:
        store.bind()
    warmer, newer = replace(MANIFEST, sampling={"temperature": 1.0}), replace(MANIFEST, versions={"vllm": "9"})
    with (
        pytest.raises(StoreError, match=r"sampling = \{'temperature': 0.6\}, this one has \{'temperature': 1.0\}"),
        Store.open(tmp_path, warmer, exclusive=True),
    ):
        pass
    with pytest.raises(StoreError, match=r"versions = \{\}"), Store.open(tmp_path, newer):
        pass


def test_settings_bind_from_when_sampling_begins_whatever_becomes_of_the_segments(tmp_path: Path) -> None:
    other = replace(MANIFEST, seed=1)
    with Store.open(tmp_path, MANIFEST, exclusive=True):
        pass  # whose engine did not start, say
    with Store.open(tmp_path, other, exclusive=True) as store:
        store.bind()
        store.add(leg(0))
    before = (tmp_path / "run.json").read_bytes()
    for file in tmp_path.glob(f"{FILE}*"):  # by somebody who saves disk
        file.unlink()
    with (
        pytest.raises(StoreError, match="seed = 1, this one has 0; name another folder"),
        Store.open(tmp_path, MANIFEST, exclusive=True),
    ):
        pass
    assert (tmp_path / "run.json").read_bytes() == before and Manifest.read(tmp_path) == other
    with Store.open(tmp_path, other, exclusive=True) as store:
        assert store.read_cells() == [] and store.count() == 0  # what is sampled again is of the commit that does it


def test_a_folder_of_another_format_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "segments").mkdir()  # as the format before this one had it
    (tmp_path / "run.json").write_text(json.dumps({**MANIFEST.as_json(), "format": 3, "trl": "1"}))
    before = sorted(tmp_path.iterdir())
    with (
        pytest.raises(StoreError, match="format = 3, this one has 4; name another folder"),
        Store.open(tmp_path, MANIFEST),
    ):
        pass
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("torn", ["", "{", "7"])
def test_torn_settings_are_one_line_that_says_what_to_do(tmp_path: Path, torn: str) -> None:
    with Store.open(tmp_path, MANIFEST) as store:
        store.bind()
        store.add(leg(0))
    (tmp_path / "run.json").write_text(torn)
    with pytest.raises(StoreError, match=r"run\.json is damaged .*; name another folder, or delete it if"):
        Store.open(tmp_path, MANIFEST).__enter__()
    with pytest.raises(StoreError, match=r"run\.json, which says how the samples were drawn, cannot be read"):
        Manifest.read(tmp_path)
    (tmp_path / "run.json").unlink()
    with Store.open(tmp_path, MANIFEST) as store:
        store.bind()
        assert store.count() == 1 and Manifest.read(tmp_path) == MANIFEST


def test_a_full_disk_is_one_line_and_loses_nothing_written(tmp_path: Path) -> None:
    with Store.open(tmp_path, MANIFEST) as store:
        store.add(leg(0))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    large = Leg(1, 0, "thinking/3/abc", 0, "", [i * i % 100_003 for i in range(100_000)], Stop.LENGTH)
    try:
        with (
            pytest.raises(StoreError, match=r"cannot use .*segments\.sqlite: .*run again to resume") as error,
            Store.open(tmp_path, MANIFEST) as store,
        ):
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # beyond, a write fails as on a full disk
            store.add(large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(error.value)
    with Store.open(tmp_path, MANIFEST) as store:
        assert store.count() == 1
        store.add(large)
    assert stored(tmp_path) == {(0, 0), (1, 0)}


def test_a_folder_in_use_is_refused_to_a_second_run_but_not_to_its_own_engines(tmp_path: Path) -> None:
    with Store.open(tmp_path, MANIFEST, exclusive=True):
        with (
            pytest.raises(StoreError, match="another process evaluates into"),
            Store.open(tmp_path, MANIFEST, exclusive=True),
        ):
            pass
        with Store.open(tmp_path, MANIFEST):
            pass
    with Store.open(tmp_path, MANIFEST, exclusive=True):
        pass


def test_the_cells_that_have_been_answered_are_remembered_in_order(tmp_path: Path) -> None:
    asked = [
        Asked(Cell("separate", Budget(64, 32)), problems=10, samples=2, commit="abc"),
        Asked(Cell("unconstrained", Budget(None, None)), problems=20, samples=1, commit="def"),
        Asked(Cell("truncation", Budget(None, 32)), problems=20, samples=1, commit="def"),
    ]
    with Store.open(tmp_path, MANIFEST) as store:
        assert store.read_cells() == []
        store.write_cells(asked[:1])
        store.write_cells(asked)
    with Store.open(tmp_path, MANIFEST) as store:
        assert store.read_cells() == asked
        store._database.execute("UPDATE cells SET method = 'engine_native' WHERE method = 'truncation'")
        with pytest.raises(StoreError, match=r"answers of an unknown method 'engine_native'; .*; name another folder"):
            store.read_cells()


def test_grades_are_remembered_but_for_those_that_a_busy_machine_may_give(tmp_path: Path) -> None:
    given = {"a": Grade(Outcome.CORRECT, "4", unboxed=True), "b": Grade(Outcome.UNBOXED, None)}
    with Store.open(tmp_path, MANIFEST) as store:
        passing = (Outcome.UNGRADED, Outcome.TIMED_OUT, Outcome.CRASHED)
        store.keep({**given, **{outcome: Grade(outcome, "x") for outcome in passing}})
    with Store.open(tmp_path, MANIFEST) as store:
        assert store.grades(["a", "b", "d", *passing]) == given


WITHOUT_LOCKS = """
import ctypes, errno, struct, sys
from pathlib import Path
from test_store import MANIFEST
from e1_trl.atomic import StoreError
from e1_trl.evaluation.store import Store

# A seccomp filter: load the system call's number; flock fails with ENOSYS, everything else is allowed.
FLOCK, ERRNO, ALLOW = 73, 0x00050000 | errno.ENOSYS, 0x7FFF0000
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, FLOCK), (0x06, 0, 0, ERRNO), (0x06, 0, 0, ALLOW)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
sock_fprog = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, sock_fprog, 0, 0) == 0

try:
    with Store.open(Path(sys.argv[1]), MANIFEST, exclusive=True):
        pass
except StoreError as error:
    sys.exit(str(error))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter names a system call by its x86_64 number")
@pytest.mark.slow
def test_a_file_system_without_locks_is_refused_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run([*python(WITHOUT_LOCKS), tmp_path], env=environment(), capture_output=True, text=True)
    assert done.returncode == 1
    expected = "lies on a file system without locks (Function not implemented); name a folder on another one"
    assert done.stderr == f"{tmp_path} {expected}\n"
