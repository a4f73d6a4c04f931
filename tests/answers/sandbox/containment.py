"""Runs every hostile program in boxes of both isolations, several at a time.

python tests/answers/sandbox/containment.py      prints the user, the cases, those not contained, and what survived
"""

import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import escaping
import exhausting
import psutil
from hostile import TIMED_OUT, Hostile, faults, planted

from e1_trl.answers.programs.sandbox import isolation
from e1_trl.answers.programs.sandbox.box import Box
from e1_trl.answers.programs.sandbox.command import Isolation, SandboxError
from e1_trl.answers.programs.sandbox.inside.restrictions import demand, libc

PROGRAMS = [*exhausting.PROGRAMS, *escaping.PROGRAMS]
PR_SET_CHILD_SUBREAPER = 36
GONE = 5.0  # seconds within which the processes of a closed box are gone


def running() -> int:
    """Count the descendants of this process, its orphans included."""
    return sum(map(runs, psutil.Process().children(recursive=True)))


def runs(process: psutil.Process) -> bool:
    """Return whether a process still runs."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def surviving(expected: int) -> int:
    """Return how many processes beyond the expected number still run after a while."""
    deadline = time.monotonic() + GONE
    while running() > expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return running() - expected


def refused(kind: Isolation) -> str | None:
    """Return the reason why this machine cannot start such a box, or None.

    Raises:
        SandboxError: the box starts, but leaks or does not work, which is no reason to skip it.
    """
    try:
        isolation.attack(kind)
    except SandboxError as error:
        if "does not start" not in str(error):
            raise
        return str(error)
    return None


def contain(boxes: int) -> dict[str, Any]:
    """Run them all, with this many boxes of each isolation in parallel.

    Returns the user, the isolations, the number of programs run, what went wrong by isolation and program, and how many
    processes were left: of programs in idle boxes, and of all after the boxes are closed.

    Raises:
        SandboxError: a box leaks, or broke.
    """
    isolations = [kind for kind in Isolation if refused(kind) is None]
    demand(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))  # what a box leaves comes to this process
    before = running()
    escaped: dict[str, list[str]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="e1_trl_")))
        secret = stack.enter_context(planted(folder))
        free: dict[Isolation, SimpleQueue[Box]] = {kind: SimpleQueue() for kind in isolations}
        for kind in isolations * boxes:
            free[kind].put(stack.enter_context(Box(kind)))
        idle = running()

        def run(case: tuple[Hostile, Isolation]) -> None:
            hostile, kind = case
            box = free[kind].get()
            if found := faults(box, hostile, secret):
                escaped[f"{kind} {hostile.name}"] = found
            free[kind].put(box)

        # Those that run until they are killed first, so that the end is not spent waiting for one.
        endless_first = sorted(PROGRAMS, key=lambda hostile: TIMED_OUT not in hostile.ends)
        cases = [(hostile, kind) for hostile in endless_first for kind in isolations]
        with ThreadPoolExecutor(max(1, boxes * len(isolations))) as pool:
            list(pool.map(run, cases))
        survivors = surviving(idle)
    found = {"user": os.getuid(), "isolations": isolations, "cases": len(cases), "escaped": escaped}
    return found | {"survivors": survivors + surviving(before)}


if __name__ == "__main__":
    print(json.dumps(contain(int(sys.argv[1]))))
