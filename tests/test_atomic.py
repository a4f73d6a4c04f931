"""A file is there whole, or as it was before."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from e1_trl.atomic import StoreError, claim, write_atomically
from e1_trl.errors import UserError

# Claims a folder; a process that it has forked outlives it.
TRAINING = """
import os, sys, time
from pathlib import Path
from e1_trl.atomic import claim

claim(Path(sys.argv[1]))
if os.fork() == 0:
    time.sleep(60)
print("claimed", flush=True)
sys.stdin.read()
"""


def test_a_file_that_cannot_be_written_stays_as_it_was_and_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    write_atomically(file, "old")

    def fail(error: Exception) -> None:
        def write(path: Path) -> None:
            path.write_text("half")
            raise error

        write_atomically(file, write)

    with pytest.raises(StoreError, match=r"cannot write .*results\.json: No space left; .* run again to resume"):
        fail(OSError(28, "No space left"))
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("results.json", "old")]


def test_a_file_is_on_disk_before_it_takes_its_place_and_its_place_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a node that crashes leaves an empty file in the place of the old one."""
    file = tmp_path / "run.json"
    steps: list[tuple[str, bool]] = []
    sync = os.fsync

    def synced(descriptor: int) -> None:
        steps.append((os.readlink(f"/proc/self/fd/{descriptor}"), file.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", synced)
    write_atomically(file, "new")
    assert steps == [(str(tmp_path / f".run.json.{os.getpid()}"), False), (str(tmp_path), True)]


def test_no_two_trainings_write_into_a_folder_and_one_resumes_what_a_killed_one_left(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TRAINING, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0) as training:
        try:
            assert training.stdout is not None and training.stdout.readline() == b"claimed\n"
            with pytest.raises(UserError, match=r"another training writes into .*run; wait for it, or name another"):
                claim(tmp_path / "run")
            training.kill()
            training.wait()
            claim(tmp_path / "run")
        finally:
            os.killpg(training.pid, signal.SIGKILL)
