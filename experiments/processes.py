"""Ends programs that were started in a session of their own."""

import contextlib
import os
import signal

import psutil

LONGEST = 60.0  # seconds that the kernel may take


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
    psutil.wait_procs(family, timeout=LONGEST)
