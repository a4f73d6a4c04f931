"""Runs a function in processes that can be killed: each call within a limit on its time and on its memory.

What is covered: a call that never ends, or that eats all memory or the stack, costs its own result and nothing else;
its process is killed and replaced. What is not covered: this is no sandbox. The function may open files and sockets
like its parent. Knows nothing about what the function computes.
"""

import contextlib
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
ENDED = "worker processes cannot be started, or end by themselves; is memory used up?"
MEMORY_LIMIT = 2**30  # bytes a worker may take on top of what it took at its start

Task = tuple[Hashable, ...]
Result = TypeVar("Result")


class WorkersError(UserError, RuntimeError):
    """Processes that grade do not start, or are ended from outside, as where memory runs out."""


class Workers(Generic[Result]):
    """Calls `function` in `workers` processes, each call within `time_limit` seconds.

    `function` and `initializer` are module-level functions. The initializer runs once in each process, before the
    clock of its first call: what it imports and builds counts neither as time nor as memory.

    The processes start at the first `run`; `close` ends them, and so does the end of the program. Pickling copies the
    settings, not the processes.
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
        """Have a task run; the next `run` takes its result, and sees to it that there is one."""
        with contextlib.suppress(WorkersError):
            self._begin(task)

    def _begin(self, task: Task) -> None:
        if self._pool is None:
            context = _Context()
            context.set_forkserver_preload([self.function.__module__])  # imported once, not by every worker
            self._pool = ProcessPool(self.workers, initializer=_start, initargs=[self.initializer], context=context)
        if task not in self._begun:
            try:
                # Pebble counts a task's timeout from the moment a worker takes it, not from here.
                self._begun[task] = self._pool.schedule(_call, args=(self.function, *task), timeout=self.time_limit)
            except RuntimeError as error:  # the pool is broken
                raise WorkersError(ENDED) from error

    def run(self, tasks: Sequence[Task]) -> list[Result | Outcome]:
        """The result of `function(*task)` for each task, or why there is none: it timed out or crashed.

        Equal tasks are run once per call of `run`, so one that is repeated costs its time limit once. What has begun
        since the last call is not run again.

        Raises WorkersError when processes cannot be started, and what the function raises.
        """
        unique = dict.fromkeys(tasks)
        try:
            results = self._run_once(unique)
        except WorkersError:
            # Pebble gives the pool up when a worker dies outside of a task, for example when the kernel kills an idle
            # one for memory. A second time in a row is no accident.
            self.close()
            results = self._run_once(unique)
        return [results[task] for task in tasks]

    def _run_once(self, tasks: Collection[Task]) -> dict[Task, Result | Outcome]:
        for task in tasks:
            self._begin(task)
        begun, self._begun = self._begun, {}
        results: dict[Task, Result | Outcome] = {}
        for task in tasks:
            future = begun[task]
            # Pebble forgets what is handed over while a pool breaks.
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
    # Pebble's own handler waits for the interpreter, which a power of huge integers never lets through.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    initializer()
    with open("/proc/self/statm") as statm:
        address_space = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (address_space + MEMORY_LIMIT,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _call(function: Callable[..., Result], *task: Hashable) -> Result | Outcome:
    with contextlib.suppress(MemoryError, RecursionError):
        return function(*task)
    return Outcome.CRASHED


class _Process(ForkServerProcess):
    """A process that does not run the parent's main module again.

    multiprocessing has every new process import the parent's main module. Ours imports torch and TRL, which would cost
    every worker, and every replacement of a killed one, many seconds and hundreds of megabytes.
    """

    @staticmethod
    def _Popen(process: BaseProcess) -> "Popen":  # noqa: N802 (multiprocessing's name)
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            return ForkServerProcess._Popen(process)
        finally:
            sys.modules["__main__"] = main


class _Context(ForkServerContext):
    """Neither forks the parent, with its torch and its CUDA state, nor starts each worker from nothing."""

    Process = _Process
