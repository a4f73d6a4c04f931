"""Ends what a program has started, where nothing keeps it from starting processes."""

import contextlib
import os
import signal
from pathlib import Path

from .restrictions import PR_SET_CHILD_SUBREAPER, demand, libc

CHILDREN = Path("/proc/thread-self/children")  # of a kernel with CONFIG_PROC_CHILDREN, as those of distributions are


def adopt() -> None:
    """Have the processes that programs leave become children of this one (Linux's subreaper)."""
    demand(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def end(program: int) -> None:
    """Kill the group that a program leads, all at once. It must not have been waited for: its id would be free."""
    with contextlib.suppress(ProcessLookupError):  # it leads none yet
        os.killpg(program, signal.SIGKILL)


def end_adopted() -> None:
    """Kill the children of this process, and theirs, until there are none: who left its program's group, too.

    One that forks and ends faster than it is found may take several rounds.
    """
    while True:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        children = [int(pid) for pid in CHILDREN.read_text().split()]
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)
