"""Programs that were started are ended with all that they have started."""

import signal
import sys

import psutil

from e1_trl.plan.smoke.training import kill_tree


def test_killing_a_program_ends_its_children_in_sessions_of_their_own() -> None:
    child = "import time; time.sleep(60)"
    parent = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
        "print('up', flush=True)\ntime.sleep(60)"
    )
    process = psutil.Popen([sys.executable, "-c", parent], stdout=-1, start_new_session=True)
    with process.stdout:
        assert process.stdout.readline() == b"up\n"
    (worker,) = process.children()
    kill_tree(process.pid)
    assert not worker.is_running() and process.wait() == -signal.SIGKILL
