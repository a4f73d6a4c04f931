"""Child processes: their environment, time limit, stacks, and end."""

import contextlib
import ctypes
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

import psutil

# The name and message of an error in a log, but for the launcher's own error, which says nothing.
ERROR = re.compile(r"(?:\b(?!CalledProcess)\w+Error|e1_trl\.train): \S.{0,199}")
OFTEN = 0.5  # seconds between two polls of a process
STACKS = 1.0  # seconds for a process to print its stacks
LONGEST_END = 60.0  # seconds for the kernel to end a process


def alone() -> dict[str, str]:
    """Return this process's environment without the variables of its group of processes."""
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
    """Run a command in a session of its own, which Ctrl-C does not reach, and leave none of its processes running.

    All of them append their output to the log; after `limit` seconds the Python processes print their threads' stacks
    into it. `is_enough` is called twice a second; if it returns True, the command is killed with signal 9.

    Returns:
        One line about a failure, with the last error of the log; None if the status was 0 or `is_enough` returned True.
    """
    # Neither this process nor those that it aborts leave core dumps of tens of GB.
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
    """Abort a process and its descendants; those with PYTHONFAULTHANDLER print their stacks."""
    family = [leader]
    with contextlib.suppress(psutil.NoSuchProcess):
        family += leader.children(recursive=True)
    # All are stopped first: they would react to the end of another one, and print into its stacks.
    for process in family:
        _send(process, signal.SIGSTOP)
    for process in reversed(family):
        # To the main thread: if another thread took the signal, the main one would go on, as its child has ended.
        ctypes.CDLL(None).tgkill(process.pid, process.pid, signal.SIGABRT)
        _send(process, signal.SIGCONT)
        time.sleep(STACKS)


def _send(process: psutil.Process, sent: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(sent)


def kill_tree(leader: int) -> None:
    """Kill a session's first process, its group and its descendants with signal 9.

    Descendants may be outside of the group, as `accelerate launch` puts the processes of a training into sessions of
    their own; those whose parents have ended are found by the group alone. All descendants have ended when this
    returns; the caller waits for the first process.
    """
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(leader).children(recursive=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    for process in family:
        _send(process, signal.SIGKILL)
    psutil.wait_procs(family, timeout=LONGEST_END)


def end_children(patience: float = 30.0) -> None:
    """End all descendants of this process by SIGTERM; those left after `patience` seconds, by signal 9."""
    family = psutil.Process().children(recursive=True)
    for process in family:
        _send(process, signal.SIGTERM)
    for process in psutil.wait_procs(family, timeout=patience)[1]:
        _send(process, signal.SIGKILL)


def handle_ends(handler: Callable[[int, FrameType | None], object]) -> None:
    """Handle the signals of a scheduler or a lost connection, except those that nohup ignores."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, handler)


def forget_killed() -> None:
    """Remove the shared memory of killed runs.

    vLLM's CPU build uses one name for all externally launched groups, so what is left would stop the next run.
    """
    for left_over in Path("/dev/shm").glob("-tp:0-*-cpushm_*"):
        with contextlib.suppress(PermissionError):  # of another user
            left_over.unlink(missing_ok=True)
