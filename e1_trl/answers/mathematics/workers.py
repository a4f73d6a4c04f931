"""Runs a function in processes that can be killed, each call within limits on time and memory.

A call that never ends, or that takes all memory or the whole stack, costs only its own result: its process is killed
and replaced. This is no sandbox: the function may open files and sockets like its parent.
"""

import contextlib
import math
import os
import resource
import signal
import sys
from collections.abc import Callable, Collection, Hashable, Sequence
from concurrent.futures import TimeoutError, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from e1_trl.answers.grade import Outcome
from e1_trl.errors import UserError

if TYPE_CHECKING:
    from multiprocessing.popen_forkserver import Popen

LOOKED_AFTER_EVERY = 1.0  # seconds
ENDED = "worker processes cannot be started, or die while idle; is memory used up?"
GRACE = 5  # seconds after its time limit, after which a call ends by itself
MEMORY_LIMIT = 2**30  # bytes that a worker may take beyond what it holds at its start

Task = tuple[Hashable, ...]
Result = TypeVar("Result")


class WorkersError(UserError, RuntimeError):
    """Grading processes do not start, or are killed from outside, for example when memory runs out."""


class Workers(Generic[Result]):
    """Calls `function` in `workers` processes, each call within `time_limit` seconds.

    `function` and `initializer` are module-level functions. The initializer runs once in each process; its time and
    memory count for no call. The processes start at the first `run`; `close` and the end of the program end them.
    Pickling copies the settings, not the processes.
    """

    def __init__(
        self, function: Callable[..., Result], initializer: Callable[[], None], time_limit: float, workers: int
    ):
        self.function = function
        self.initializer = initializer
        self.time_limit = time_limit
        self.workers = workers
        self._pool: ProcessPool | None = None
        self._begun: dict[Task, ProcessFuture[Result | Outcome]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_pool": None, "_begun": {}}

    def close(self) -> None:
        """End the processes. A later `run` starts new ones."""
        if self._pool is not None:
            self._pool.stop()
            self._pool.join()
            self._pool = None
        self._begun = {}

    def begin(self, task: Task) -> None:
        """Start a task, whose result the next `run` takes; that one also retries it if it could not be started."""
        with contextlib.suppress(WorkersError):
            self._begin(task)

    def _begin(self, task: Task) -> None:
        if self._pool is None:
            # Starts workers without forking the parent, with its CUDA state, or importing everything in each of them.
            context = ForkServerContext()
            context.Process = _Process  # type: ignore[misc]
            context.set_forkserver_preload([self.function.__module__])  # imported once, not by every worker
            self._pool = ProcessPool(self.workers, initializer=_start, initargs=[self.initializer], context=context)
        if task not in self._begun:
            try:
                # Pebble counts the timeout from the moment a worker takes the task.
                call = (self.time_limit, self.function, *task)
                self._begun[task] = self._pool.schedule(_call, args=call, timeout=self.time_limit)
            except RuntimeError as error:  # the pool is broken
                raise WorkersError(ENDED) from error

    def run(self, tasks: Sequence[Task]) -> list[Result | Outcome]:
        """Return the result of `function(*task)` for each task, or the outcome that it timed out or crashed.

        Equal tasks run once, so a repeated one costs its time limit once. Tasks begun since the last call do not run
        again. Exceptions of the function propagate.
        """
        unique = dict.fromkeys(tasks)
        try:
            results = self._run_once(unique)
        except WorkersError:
            # Pebble gives up the pool when a worker dies outside a task, for example when the kernel kills an idle one
            # for memory. A second time in a row is no accident.
            self.close()
            results = self._run_once(unique)
        return [results[task] for task in tasks]

    def _run_once(self, tasks: Collection[Task]) -> dict[Task, Result | Outcome]:
        for task in tasks:
            self._begin(task)
        begun = self._begun
        self._begun = {}
        results: dict[Task, Result | Outcome] = {}
        for task in tasks:
            future = begun[task]
            # Pebble forgets tasks that are scheduled while a pool breaks.
            while not wait([future], LOOKED_AFTER_EVERY).done:
                if self._pool is None or not self._pool.active:
                    raise WorkersError(ENDED)
            try:
                results[task] = future.result()
            except TimeoutError:
                results[task] = Outcome.TIMED_OUT
            except ProcessExpired:
                results[task] = Outcome.CRASHED
            except BrokenProcessPool as error:
                raise WorkersError(ENDED) from error
        return results


def _start(initializer: Callable[[], None]) -> None:
    # Pebble's handler waits for the interpreter, which a power of huge integers never yields.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    initializer()
    with open("/proc/self/statm") as statm:
        address_space = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (address_space + MEMORY_LIMIT,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _call(time_limit: float, function: Callable[..., Result], *task: Hashable) -> Result | Outcome:
    # The parent kills a call that takes too long, unless it has been killed itself, or its clock was set back.
    signal.alarm(math.ceil(time_limit) + GRACE)
    try:
        return function(*task)
    except (MemoryError, RecursionError):
        return Outcome.CRASHED
    finally:
        signal.alarm(0)


class _Process(ForkServerProcess):
    """A process that does not import the parent's main module, as multiprocessing has every new process do.

    Ours imports torch and TRL, which would cost every worker many seconds and hundreds of megabytes.
    """

    @staticmethod
    def _Popen(process: BaseProcess) -> "Popen":  # noqa: N802 (multiprocessing's name)
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            return ForkServerProcess._Popen(process)
        finally:
            sys.modules["__main__"] = main
