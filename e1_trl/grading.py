r"""Grades boxed answers with math-verify, in processes that can be killed.

What a policy writes is hostile input: `\boxed{9^{9^{9^{9}}}}` costs a computer algebra system hours, or all
memory. Every answer is therefore graded in a worker process with a limit on its time and its memory; a worker
that exceeds one is killed and replaced. Knows nothing about rewards, tokens or `</think>`: the caller hands over
the solution segment only.
"""

import enum
import logging
import os
import re
import resource
import signal
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import TimeoutError
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.process import BaseProcess
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING

import sympy
from math_verify import LatexExtractionConfig, parse, verify
from pebble import ProcessExpired, ProcessPool

if TYPE_CHECKING:
    from multiprocessing.popen_forkserver import Popen

MEMORY_LIMIT = 2**30  # bytes a worker may take on top of what its imports took; ordinary answers need a few MiB

BOX_OPENING = re.compile(r"\\(?:boxed|fbox)\s*\{")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # `\\.` swallows `\{` and `\}`, which group nothing
BETWEEN_BOXES = re.compile(r"(?:\s|[$,;{}]|\\[()\[\],;: ]|\\q?quad|\\text|and|or)*")
LONGEST_BETWEEN_BOXES = 70  # characters, as in math-verify


class Outcome(enum.StrEnum):
    """How the grading of one solution ended."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSEABLE = "unparseable"  # boxed, but no mathematics that math-verify can read, nor literally an accepted answer
    UNBOXED = "unboxed"  # no box, or the last one never closes
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"  # the worker died, or ran out of memory or stack


@dataclass(frozen=True)
class Grade:
    """The verdict on one solution."""

    correct: bool
    outcome: Outcome


def boxed_answer(text: str) -> str | None:
    r"""Content of the last `\boxed{}` or `\fbox{}` in the text, or None if there is none or it never closes.

    Boxes in a row with nothing but commas, "and", "or" and markup between them are one answer, as they are in
    math-verify: `\boxed{2}` and `\boxed{3}` gives `2,3`. Takes time linear in the text, so it is safe in the parent.
    """
    contents: list[str] = []
    next_start = len(text)
    for opening in reversed(list(BOX_OPENING.finditer(text))):
        end = _closing_brace(text, opening.end(), next_start)
        if end is None:
            break
        between = text[end + 1 : next_start]
        if contents and not (len(between) < LONGEST_BETWEEN_BOXES and BETWEEN_BOXES.fullmatch(between)):
            break
        content = text[opening.end() : end].strip()
        if not contents or contents[-1] != content:
            contents.append(content)
        next_start = opening.start()
    return ",".join(reversed(contents)) if contents else None


def _closing_brace(text: str, start: int, stop: int) -> int | None:
    """Position in [start, stop) of the brace that closes the group open at `start`."""
    depth = 1
    for brace in BRACE.finditer(text, start, stop):
        if brace[0] == "{":
            depth += 1
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                return brace.start()
    return None


class _Worker(ForkServerProcess):
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


class _Workers(ForkServerContext):
    """Neither forks the parent, with its torch and its CUDA state, nor starts each worker from nothing."""

    Process = _Worker


class Grader:
    r"""Grades solutions in `workers` processes, each solution within `time_limit` seconds.

    The processes start at the first call of `grade`; `close` ends them, and so do the end of a `with` block and the
    end of the program. Pickling copies the two settings, not the processes.
    """

    def __init__(self, time_limit: float, workers: int):
        self.time_limit = time_limit
        self.workers = workers
        self._pool: ProcessPool | None = None

    def __enter__(self) -> "Grader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[type["Grader"], tuple[float, int]]:
        return Grader, (self.time_limit, self.workers)

    def close(self) -> None:
        """End the worker processes. A later `grade` starts new ones."""
        if self._pool is not None:
            self._pool.stop()
            self._pool.join()
            self._pool = None

    def grade(self, solutions: Sequence[str], answers: Sequence[Sequence[str]]) -> list[Grade]:
        """Grade each solution against its accepted answers; it is right when it equals any of them.

        The same boxed answer to the same accepted answers is graded once per call, so one that a whole group
        repeats costs its time limit once.

        Raises ValueError when the two sequences differ in length, and RuntimeError when workers can not be
        started.
        """
        tasks = [
            (boxed_answer(solution), tuple(accepted)) for solution, accepted in zip(solutions, answers, strict=True)
        ]
        outcomes = self._run(dict.fromkeys((boxed, accepted) for boxed, accepted in tasks if boxed is not None))
        graded = [Outcome.UNBOXED if boxed is None else outcomes[boxed, accepted] for boxed, accepted in tasks]
        return [Grade(outcome is Outcome.CORRECT, outcome) for outcome in graded]

    def _run(self, tasks: Iterable[tuple[str, tuple[str, ...]]]) -> dict[tuple[str, tuple[str, ...]], Outcome]:
        try:
            return self._run_once(tasks)
        except RuntimeError:  # BrokenProcessPool, and what a broken pool answers to new tasks
            # Pebble gives the pool up when a worker dies outside of a task, for example when the kernel kills an idle
            # one for memory. A second time in a row is no accident.
            self.close()
            return self._run_once(tasks)

    def _run_once(self, tasks: Iterable[tuple[str, tuple[str, ...]]]) -> dict[tuple[str, tuple[str, ...]], Outcome]:
        if not tasks:
            return {}
        if self._pool is None:
            context = _Workers()
            context.set_forkserver_preload([__name__])  # sympy is imported once, not by every worker
            self._pool = ProcessPool(self.workers, initializer=_start_worker, context=context)
        # Pebble counts a task's timeout from the moment a worker takes it, not from here.
        futures = {task: self._pool.schedule(_grade_one, args=task, timeout=self.time_limit) for task in tasks}
        outcomes = {}
        for task, future in futures.items():
            try:
                outcomes[task] = future.result()
            except TimeoutError:
                outcomes[task] = Outcome.TIMED_OUT
            except ProcessExpired:
                outcomes[task] = Outcome.CRASHED
        return outcomes


def _start_worker() -> None:
    """What a worker does once, before the clock of its first task runs."""
    # Pebble's own handler waits for the interpreter, which a power of huge integers never lets through.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.disable()  # math-verify warns that its own time limit is off, in every worker
    _parse(r"\frac{1}{2}")  # sympy and the LaTeX grammar build tables at first use
    with open("/proc/self/statm") as statm:
        address_space = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (address_space + MEMORY_LIMIT,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _grade_one(boxed: str, accepted: tuple[str, ...]) -> Outcome:
    """Grade the content of a box. Runs in a worker."""
    try:
        prediction = _parse(boxed)
        for answer in accepted:
            # An accepted answer goes through the same parser in the same box, so an exact copy of it is always right.
            if verify(_parse(boxed_answer(answer) or answer), prediction, timeout_seconds=None):
                return Outcome.CORRECT
    except (MemoryError, RecursionError):
        return Outcome.CRASHED
    readable = any(isinstance(form, (sympy.Basic, sympy.MatrixBase)) for form in prediction)
    return Outcome.WRONG if readable else Outcome.UNPARSEABLE


def _parse(boxed: str) -> list[sympy.Basic | sympy.MatrixBase | str]:
    """What math-verify reads in a box: the expression if it could, then the normalized text."""
    # "first_match": when the box can not be read, do not go looking for anything in it that can.
    return parse(
        rf"\boxed{{{boxed}}}",
        [LatexExtractionConfig(boxed_match_priority=0)],
        extraction_mode="first_match",
        parsing_timeout=None,
    )
