"""A call may hang, hog or die; what comes back is one result for each task. The rest is in `test_mathematics.py`."""

import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from e1_trl.answers.grade import Outcome
from e1_trl.answers.mathematics import workers as module
from e1_trl.answers.mathematics.workers import GRACE, MEMORY_LIMIT, Workers, WorkersError


def _nothing() -> None:
    pass


def _act(what: str, number: int = 0) -> int:
    match what:
        case "hang":
            9**9**9**9  # nothing that Python's own signal handlers could interrupt
        case "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hog":
            bytearray(MEMORY_LIMIT + 2**26)
        case "recurse":
            return _act("recurse")
        case "fail":
            raise KeyError("of the function's own")
        case "pid":
            return os.getpid()
    return number


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers[int]]:
    """For calls that must end, however busy the machine is."""
    patient = Workers(_act, _nothing, time_limit=60, workers=2)
    yield patient
    patient.close()


@pytest.mark.slow
def test_waiting_in_the_queue_does_not_count() -> None:
    one_worker = Workers(_act, _nothing, time_limit=3, workers=1)
    results = one_worker.run([("hang", 1), ("hang", 2), *(("echo", number) for number in range(20))])
    one_worker.close()
    assert results == [Outcome.TIMED_OUT] * 2 + list(range(20))


@pytest.mark.slow
def test_a_call_ends_by_itself_where_its_parent_was_killed() -> None:
    lines = ("import os, test_workers as t", "workers = t.Workers(t._act, t._nothing, 0.5, 1)")
    lines += ("print(*workers.run([('pid',)]), flush=True)", "workers.begin(('hang',))", "t.time.sleep(0.3)")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    code = "\n".join((*lines, "os.kill(os.getpid(), 9)"))
    ran = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    worker = psutil.Process(int(ran.stdout))
    worker.wait(timeout=30 + GRACE)


@pytest.mark.parametrize("what", ["die", "hog", "recurse"])
def test_a_call_that_crashes_costs_one_result(workers: Workers[int], what: str) -> None:
    assert workers.run([("echo", 1), (what,), ("echo", 2)]) == [1, Outcome.CRASHED, 2]
    assert workers.run([("echo", 3)]) == [3]


def test_an_error_of_the_function_is_raised(workers: Workers[int]) -> None:
    with pytest.raises(KeyError, match="own"):
        workers.run([("fail",)])


def test_what_has_begun_is_run_once_and_found_by_the_next_run_alone() -> None:
    one_worker = Workers(_act, _nothing, time_limit=60, workers=1)
    for number in (1, 2, 1):
        one_worker.begin(("echo", number))
    begun = dict(one_worker._begun)
    assert one_worker.run([("echo", number) for number in (1, 3)]) == [1, 3]
    assert list(begun) == [("echo", 1), ("echo", 2)] and all(future.done() for future in begun.values())
    assert not one_worker._begun
    one_worker.close()


def test_what_had_begun_in_a_pool_that_broke_is_run_again() -> None:
    one_worker = Workers(_act, _nothing, time_limit=60, workers=1)
    (pid,) = one_worker.run([("pid",)])
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    one_worker.begin(("echo", 1))
    assert one_worker.run([("echo", 1), ("echo", 2)]) == [1, 2]
    one_worker.close()


def _take_memory_and_time() -> None:
    _kept.append(mmap.mmap(-1, 2 * MEMORY_LIMIT))
    time.sleep(2)


_kept: list[mmap.mmap] = []


def test_processes_that_cannot_start_are_an_error_and_not_a_wait_for_ever() -> None:
    for _ in range(6):  # what pebble forgets while its pool breaks is a matter of chance
        broken = Workers(_act, os.abort, time_limit=5.0, workers=2)
        with pytest.raises(WorkersError):
            broken.run([("count", number) for number in range(8)])
        broken.close()


def test_the_initializer_counts_neither_as_time_nor_as_memory() -> None:
    prepared = Workers(_act, _take_memory_and_time, time_limit=1.5, workers=1)
    assert prepared.run([("echo", 1)]) == [1]
    prepared.close()


def test_workers_do_not_run_the_main_module_and_end_with_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "print('main ran', flush=True)\n"
        "import math, time\n"
        "from e1_trl.answers.mathematics.workers import Workers\n"
        "if __name__ == '__main__':\n"
        "    print(Workers(math.sqrt, time.tzset, 60, 1).run([(4,)]), flush=True)\n"  # never closed
    )
    environment = os.environ | {"PYTHONPATH": str(Path(module.__file__).parents[3])}
    ran = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.returncode) == ("main ran\n[2.0]\n", 0), ran.stderr
