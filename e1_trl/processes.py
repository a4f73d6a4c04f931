"""Processes that are started beside this one: their environment, their stacks, and their end."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

STACKS = 3  # seconds that processes have to print their stacks
LONGEST_END = 60.0  # seconds that the kernel may take to end a process


def alone() -> dict[str, str]:
    """Return this process's environment without what belongs to a group of processes that it may be in."""
    group = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    return {name: value for name, value in os.environ.items() if name not in group}


@contextlib.contextmanager
def running(
    line: Sequence[str], printed: IO[str], environment: Mapping[str, str], folder: Path | None = None
) -> Iterator[psutil.Popen]:
    """Run a command in a session of its own, which Ctrl-C does not reach; none of its processes is left at the end.

    Args:
        line: the command.
        printed: an open file, for what all of its processes print.
        environment: of its processes.
        folder: that it works in; None: this process's.
    """
    process = psutil.Popen(
        line, cwd=folder, env=environment, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        yield process
    finally:
        kill_tree(process.pid)
        process.wait()


def print_stacks(leader: psutil.Process) -> None:
    """Have a process and its descendants print their stacks, where PYTHONFAULTHANDLER is set, by aborting them."""
    family = [leader]
    with contextlib.suppress(psutil.NoSuchProcess):
        family += leader.children(recursive=True)
    for process in reversed(family):  # a launcher ends the others as soon as one has ended
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGABRT)
    psutil.wait_procs(family, timeout=STACKS)


def kill_tree(leader: int) -> None:
    """Kill -9 a session's first process, its group and its descendants, as far as they still run.

    Descendants need not be of its group: `accelerate launch` puts the processes of a training into sessions of their
    own. Those whose parents ended before are found by the group alone. Descendants have ended when this returns; the
    first process is for its parent to wait for.
    """
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(leader).children(recursive=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, timeout=LONGEST_END)


def forget_killed() -> None:
    """Remove what killed runs have left in shared memory.

    vLLM's CPU build gives every externally launched group the same name there, so that would stop the next.
    """
    for left_over in Path("/dev/shm").glob("-tp:0-*-cpushm_*"):
        left_over.unlink(missing_ok=True)
