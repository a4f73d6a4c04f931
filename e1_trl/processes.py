"""Processes that are started beside this one: their environment, their stacks, and their end."""

import contextlib
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

# A line that names an error, and what it says; the launcher's own says nothing.
ERROR = re.compile(r"(?:\b(?!CalledProcess)\w+Error|e1_trl\.train): \S.{0,199}")
OFTEN = 0.5  # seconds between two looks at a process
STACKS = 3  # seconds that processes have to print their stacks
LONGEST_END = 60.0  # seconds that the kernel may take to end a process


def alone() -> dict[str, str]:
    """Return this process's environment without what belongs to a group of processes that it may be in."""
    group = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    return {name: value for name, value in os.environ.items() if name not in group}


def run(
    line: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    limit: float,
    folder: Path | None = None,
    is_enough: Callable[[], bool] = lambda: False,
) -> str | None:
    """Run a command in a session of its own, which Ctrl-C does not reach; none of its processes is left at the end.

    Args:
        line: the command.
        log: a file, to the end of which all of its processes print.
        environment: of its processes.
        limit: seconds that it may take; then its Python processes print the stacks of their threads.
        folder: that it works in; None: this process's.
        is_enough: asked twice a second, whether to kill the command with signal 9.

    Returns:
        What is wrong with how it ended, in a line with the last error of the log; None if its status was 0, or it was
        killed because that is enough.
    """
    # Neither this process nor those that it aborts leave a core dump, which has tens of GB.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with log.open("a") as printed:
        process = psutil.Popen(
            line,
            cwd=folder,
            env={**environment, "PYTHONFAULTHANDLER": "1"},
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        fault = _watch(process, limit, is_enough)
    finally:
        kill_tree(process.pid)
        process.wait()
    if fault is None:
        return None
    return ": ".join([fault, *ERROR.findall(log.read_text(errors="replace"))[-1:]])


def _watch(process: psutil.Popen, limit: float, is_enough: Callable[[], bool]) -> str | None:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.TimeoutExpired):
            status = process.wait(OFTEN)
            return f"it ended with status {status}" if status else None
        if is_enough():
            return None
    print_stacks(process)
    return f"it took longer than {limit:g} s"


def print_stacks(leader: psutil.Process) -> None:
    """Have a process and its descendants print their stacks, where PYTHONFAULTHANDLER is set, by aborting them."""
    family = [leader]
    with contextlib.suppress(psutil.NoSuchProcess):
        family += leader.children(recursive=True)
    # The others are stopped meanwhile: they would go on, or end, as one of them ends, and print into its lines.
    for process in family:
        _send(process, signal.SIGSTOP)
    for process in reversed(family):
        _send(process, signal.SIGABRT)
        _send(process, signal.SIGCONT)
        deadline = time.monotonic() + STACKS
        while not _has_ended(process) and time.monotonic() < deadline:
            time.sleep(0.02)


def _has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, which a parent that is stopped cannot learn."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _send(process: psutil.Process, sent: signal.Signals) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(sent)


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
