"""Samples on disk: nothing finished is lost, nothing is mixed, and damage stays where it is."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from e1_trl.evaluation.store import Store, StoreError
from e1_trl.evaluation.tree import Leg
from e1_trl.rollout import Stop

MANIFEST = {"model": "m", "sampling": {"temperature": 0.6}}


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


def test_what_is_finished_survives_a_kill_though_nothing_follows_it(tmp_path: Path) -> None:
    program = """
import os, signal, sys, time
from pathlib import Path
from test_store import MANIFEST, leg
from e1_trl.evaluation.store import Store

store = Store(Path(sys.argv[1]), MANIFEST)
for problem in range(100):
    store.add(leg(problem))
time.sleep(1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
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
    Store(tmp_path, MANIFEST)
    with pytest.raises(StoreError, match=r"sampling = \{'temperature': 0.6\}, this one has \{'temperature': 1.0\}"):
        Store(tmp_path, {**MANIFEST, "sampling": {"temperature": 1.0}})
    with pytest.raises(StoreError, match="versions = None"):
        Store(tmp_path, {**MANIFEST, "versions": {"vllm": "9"}})


def test_a_folder_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({**MANIFEST, "format": 0}))
    with pytest.raises(StoreError, match="format = 0, this one has 2"):
        Store(tmp_path, MANIFEST)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(StoreError, match=r"run\.json is damaged"):
        Store(tmp_path, MANIFEST)


def test_a_full_disk_is_one_line_and_loses_nothing_written(tmp_path: Path) -> None:
    store = Store(tmp_path, MANIFEST)
    store.add(leg(0))
    store.flush()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))  # a write beyond fails, as on a full disk
    try:
        store.add(Leg(1, 0, "thinking/3/abc", 0, "", [i * i % 100_003 for i in range(10_000)], Stop.LENGTH))
        with pytest.raises(StoreError, match=r"cannot write .*run again to go on") as error:
            store.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(error.value)
    assert stored(tmp_path) == {(0, 0)}
    assert not [file for file in tmp_path.glob("segments/.*")]
    store.flush()
    assert stored(tmp_path) == {(0, 0), (1, 0)}


def test_two_runs_at_a_time_are_one_too_many(tmp_path: Path) -> None:
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
