"""Samples on disk: nothing finished is lost, nothing is mixed, and damage stays where it is."""

import json
import os
import platform
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT

from e1_trl.atomic import StoreError
from e1_trl.budget import Budget
from e1_trl.evaluation.manifest import Manifest
from e1_trl.evaluation.methods import Cell
from e1_trl.evaluation.plan import Asked
from e1_trl.evaluation.store import Store
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


def stored(folder: Path) -> set[tuple[int, int]]:
    store = Store(folder, MANIFEST)
    return {(leg.problem, leg.start) for legs in store.read().values() for leg in legs}


def test_what_was_written_is_read_in_order_even_twice(tmp_path: Path) -> None:
    with Store(tmp_path, MANIFEST) as store:
        store.add(leg(1, start=3))
        store.flush()
        store.add(leg(1))
        store.add(leg(1, start=3))  # as a shard that compaction left behind would
    (legs,) = Store(tmp_path, MANIFEST).read().values()
    assert [leg.start for leg in legs] == [0, 3]
    assert legs[0] == leg(1)


def test_compaction_leaves_one_shard_with_everything(tmp_path: Path) -> None:
    with Store(tmp_path, MANIFEST) as store:  # open all the time, as the parent of data-parallel engines is
        for part, rank in enumerate((0, 0, 1)):
            with Store(tmp_path, MANIFEST, rank) as engine:
                for problem in range(100):
                    engine.add(leg(100 * part + problem))
        assert len(list(tmp_path.glob("segments/*"))) >= 3
        store.compact()
    assert len(list(tmp_path.glob("segments/*"))) == 1
    assert stored(tmp_path) == {(problem, 0) for problem in range(300)}


@pytest.mark.slow
def test_what_is_finished_survives_a_kill_though_nothing_follows_it(tmp_path: Path) -> None:
    program = """
import os, signal, sys, time
from pathlib import Path
from test_store import MANIFEST, leg, stored
from e1_trl.evaluation.store import Store

store = Store(Path(sys.argv[1]), MANIFEST)
for problem in range(100):
    store.add(leg(problem))
until = time.monotonic() + 60
while len(stored(Path(sys.argv[1]))) < 100 and time.monotonic() < until:
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", program, tmp_path], env=environment, cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL
    assert stored(tmp_path) == {(problem, 0) for problem in range(100)}


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_a_damaged_shard_is_reported_and_only_its_part_is_missing(tmp_path: Path, damage: str) -> None:
    for problem in range(3):
        with Store(tmp_path, MANIFEST) as store:
            store.add(leg(problem, tokens=500))
    shard = sorted(tmp_path.glob("segments/*"))[1]
    content = bytearray(shard.read_bytes())
    if damage == "flipped":
        middle = content.index(b"PAR1") + 40
        content[middle : middle + 8] = bytes(byte ^ 0xFF for byte in content[middle : middle + 8])
    shard.write_bytes({"truncated": bytes(content[:-20]), "flipped": bytes(content), "empty": b""}[damage])

    store = Store(tmp_path, MANIFEST)
    assert set(store.read()) == {(0, 0), (2, 0)}
    assert len(store.damaged) == 1 and shard.name in store.damaged[0]
    with store:
        store.add(leg(1, tokens=500))
    assert stored(tmp_path) == {(0, 0), (1, 0), (2, 0)}


def test_a_folder_of_other_settings_is_refused_in_one_line(tmp_path: Path) -> None:
    with Store(tmp_path, MANIFEST) as store:
        store.add(leg(0))
    warmer, newer = replace(MANIFEST, sampling={"temperature": 1.0}), replace(MANIFEST, versions={"vllm": "9"})
    with (
        pytest.raises(StoreError, match=r"sampling = \{'temperature': 0.6\}, this one has \{'temperature': 1.0\}"),
        Store(tmp_path, warmer, exclusive=True),
    ):
        pass
    with pytest.raises(StoreError, match=r"versions = \{\}"), Store(tmp_path, newer, exclusive=True):
        pass


def test_settings_bind_only_what_has_been_sampled(tmp_path: Path) -> None:
    other = replace(MANIFEST, seed=1)
    with Store(tmp_path, MANIFEST, exclusive=True):
        with pytest.raises(StoreError, match="another process"), Store(tmp_path, other, exclusive=True):
            pass
        with pytest.raises(StoreError, match="seed = 0, this one has 1"), Store(tmp_path, other, rank=1):
            pass
    with Store(tmp_path, other, exclusive=True) as store:
        store.add(leg(0))
    assert json.loads((tmp_path / "run.json").read_text())["seed"] == 1


def test_a_folder_of_another_format_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path, MANIFEST) as store:
        store.add(leg(0))
    (tmp_path / "run.json").write_text(json.dumps({**MANIFEST.as_json(), "format": 2, "trl": "1"}))
    with (
        pytest.raises(StoreError, match="format = 2, this one has 3; name another folder"),
        Store(tmp_path, MANIFEST, exclusive=True),
    ):
        pass
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(StoreError, match=r"run\.json is damaged"), Store(tmp_path, MANIFEST, exclusive=True):
        pass


def test_a_full_disk_is_one_line_and_loses_nothing_written(tmp_path: Path) -> None:
    store = Store(tmp_path, MANIFEST)
    store.add(leg(0))
    store.flush()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))  # a write beyond fails, as on a full disk
    try:
        store.add(Leg(1, 0, "thinking/3/abc", 0, "", [i * i % 100_003 for i in range(10_000)], Stop.LENGTH))
        with pytest.raises(StoreError, match=r"cannot write .*run again to resume") as error:
            store.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(error.value)
    assert stored(tmp_path) == {(0, 0)}
    assert not [file for file in tmp_path.glob("segments/.*")]
    store.flush()
    assert stored(tmp_path) == {(0, 0), (1, 0)}


def test_a_folder_in_use_is_refused_to_a_second_run_but_not_to_its_own_engines(tmp_path: Path) -> None:
    with Store(tmp_path, MANIFEST, exclusive=True):
        with (
            pytest.raises(StoreError, match="another process evaluates into"),
            Store(tmp_path, MANIFEST, exclusive=True),
        ):
            pass
        with Store(tmp_path, MANIFEST, rank=1):
            pass
    with Store(tmp_path, MANIFEST, exclusive=True):
        pass


def test_the_cells_that_have_been_answered_are_remembered_in_order(tmp_path: Path) -> None:
    store = Store(tmp_path, MANIFEST)
    assert store.read_cells() == []
    asked = [
        Asked(Cell("separate", Budget(64, 32)), problems=10, samples=2, commit="abc"),
        Asked(Cell("unconstrained", Budget(None, None)), problems=20, samples=1, commit="def"),
    ]
    store.write_cells(asked)
    assert Store(tmp_path, MANIFEST).read_cells() == asked
    (tmp_path / "cells.json").write_text('[{"method": "separate"}]')
    with pytest.raises(StoreError, match=r"cells\.json is damaged .* ask for all cells again"):
        store.read_cells()


WITHOUT_LOCKS = """
import ctypes, errno, struct, sys
from pathlib import Path
from test_store import MANIFEST, leg
from e1_trl.evaluation.store import Store

# A seccomp filter: load the system call's number; flock fails with ENOSYS, everything else is allowed.
FLOCK, ERRNO, ALLOW = 73, 0x00050000 | errno.ENOSYS, 0x7FFF0000
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, FLOCK), (0x06, 0, 0, ERRNO), (0x06, 0, 0, ALLOW)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
sock_fprog = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, sock_fprog, 0, 0) == 0

with Store(Path(sys.argv[1]), MANIFEST, exclusive=True) as store:
    store.add(leg(0))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter names a system call by its x86_64 number")
@pytest.mark.slow
def test_on_a_file_system_without_locks_it_warns_and_works(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WITHOUT_LOCKS, str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "cannot be locked ([Errno 38] Function not implemented)" in done.stderr
    assert stored(tmp_path) == {(0, 0)}
