"""Grades programs by running them on tests, in boxes that they cannot leave.

A program is the last Python block of a solution. Its inputs go into the box, and bytes come out; what is expected is
compared here.
"""

import logging
import platform
import random
import re
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

from e1_trl.answers.grade import PROGRAM_FAULTS, Grade, Grader, Outcome, grader_version
from e1_trl.answers.programs.sandbox.box import TOGETHER, Box
from e1_trl.answers.programs.sandbox.command import Isolation, SandboxError
from e1_trl.answers.programs.sandbox.isolation import choose
from e1_trl.answers.programs.sandbox.process import End, Limits
from e1_trl.answers.programs.suite import Case, Suite
from e1_trl.answers.programs.suites import Suites

logger = logging.getLogger(__name__)

PYTHON = ("python", "python3", "py", "py3")
LANGUAGE = re.compile(r"[\s{.]*([^\s{}.,:]*).*")  # the first word of what follows a fence
QUOTE = re.compile(r"^ {0,3}> ?")
TAB = 4  # columns, in Markdown
SUITES = 16  # held at least: the rollouts of a GPU of E1-Code-14B are of as many problems, and end in any order
ALL, EACH = 5, 1 / 3  # of the CPU time of one test: for all tests together, or for each if those are many
# Of the wall time of one test, likewise: for all that is no CPU time. Sleepers hold no step for longer than that.
WAITING, WAITING_EACH = 1, 1 / 60
LIMITED = (Outcome.TIMED_OUT, Outcome.TOO_MUCH_OUTPUT)  # final; memory is not, of which earlier tests may hold some
DRAW = random.SystemRandom()  # which no program can foresee, and no seed of a training steers


def program(solution: str) -> str | None:
    """The last fenced block that calls itself Python, or if there is none, the last of no language.

    None if there is neither, or a later one was begun and never closed: one of no language voids no other.
    """
    named, unnamed = None, None
    opened, language, quoted, columns, lines = "", "", False, 0, list[str]()
    for whole in re.split(r"\r\n|\r|\n", solution):
        line = QUOTE.sub("", whole) if quoted or not opened else whole
        text = line.strip()
        ticks = len(text) - len(text.lstrip("`"))
        if not opened and ticks >= 3 and "`" not in text[ticks:]:
            opened, language, quoted, lines = "`" * ticks, LANGUAGE.sub(r"\1", text[ticks:].lower()), line != whole, []
            columns = len(line.expandtabs(TAB)) - len(line.expandtabs(TAB).lstrip())
        elif opened and ticks >= len(opened) and not text.strip("`"):
            named = "\n".join(lines) if language in PYTHON else named
            unnamed = "\n".join(lines) if not language else unnamed
            opened, quoted = "", False
        elif opened:
            lines.append(_outdented(line, columns))
    if opened and (language in PYTHON or (named is None and not language)):
        return None
    return unnamed if named is None else named


def _outdented(line: str, columns: int) -> str:
    """The line without as much of its indentation as its fence has, which is what Markdown takes."""
    taken = 0
    for position, character in enumerate(line):
        if taken >= columns or character not in " \t":
            return line[position:]
        taken += TAB - taken % TAB if character == "\t" else 1
    return ""


class ProgramGrader(Grader):
    """Grades programs in `workers` boxes at a time, each test within `limits`.

    The boxes are opened at the first call of `grade`, after an isolation has been chosen if none is given; `close` ends
    them, and so do the end of a `with` block and the end of the program. Pickling copies the settings, not the boxes.
    References are names of `suites` (unset: those of this machine), of which some are held.
    """

    faults: ClassVar[tuple[Outcome, ...]] = PROGRAM_FAULTS

    def __init__(self, limits: Limits, workers: int, isolation: Isolation | None = None, suites: Suites | None = None):
        self.isolation = isolation
        self.suites = Suites() if suites is None else suites
        self.limits = limits
        self.workers = workers
        self._boxes: _Boxes | None = None
        self._begun: dict[tuple[str, str], Future[Grade]] = {}  # by program and suite

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_boxes": None, "_begun": {}}

    @property
    def version(self) -> str:
        """See `Grader`."""
        return grader_version(f"programs under Python {platform.python_version()}", self.limits)

    def close(self) -> None:
        """Close the boxes. A later `grade` opens new ones."""
        if self._boxes is not None:
            self._boxes.close()
            self._boxes = None
        self._begun = {}

    def begin(self, solution: str, references: Sequence[str]) -> None:
        """See `Grader`."""
        (name,) = references
        self._begin(program(solution), name)

    def _begin(self, source: str | None, name: str) -> None:
        if self._boxes is None:
            self._boxes = _Boxes(self.isolation or choose(), self.suites, self.workers)
        if source is not None and (source, name) not in self._begun:
            self._begun[source, name] = self._boxes.pool.submit(self._boxes.grade, source, name, self.limits)

    def grade(
        self,
        solutions: Sequence[str],
        references: Sequence[Sequence[str]],
        free_text: Sequence[str | None] | None = None,
    ) -> list[Grade]:
        """Grade the program of each solution by its suite, of which there is one, named.

        A program is right when it passes all tests, which are run in their order. For 15 of them together it may take
        five times the CPU time of one test, and wait for as long as for one. Equal programs of one suite are run once.
        `free_text` is not read: a program stands in a block, or nowhere.

        Raises:
            ValueError: a reference names no suite, or there is not one for each solution.
            SandboxError: no isolation holds on this machine.
        """
        tasks = [(program(solution), name) for solution, (name,) in zip(solutions, references, strict=True)]
        for source, name in sorted(dict.fromkeys(tasks), key=lambda task: task[1]):
            self._begin(source, name)
        begun, self._begun = self._begun, {}
        return [
            Grade(Outcome.NO_PROGRAM, None) if source is None else begun[source, name].result()
            for source, name in tasks
        ]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class _Own(threading.local):
    box: Box | None = None


class _Boxes:
    """Threads that grade, with a box for each, opened when it first does."""

    def __init__(self, isolation: Isolation, suites: Suites, workers: int):
        self.isolation = isolation
        self.pool = ThreadPoolExecutor(workers)
        self._suite = lru_cache(max(workers, SUITES))(suites.__getitem__)
        self._reading = threading.Lock()
        self._own = _Own()
        self._all: list[Box] = []
        self.closed = False

    def close(self) -> None:
        """End all, after the tests that run at this moment."""
        self.closed = True
        self.pool.shutdown(cancel_futures=True)
        for box in self._all:
            box.close()

    def grade(self, source: str, name: str, limits: Limits) -> Grade:
        """Run the tests of a suite until one fails, or the time for all of them is over.

        A process runs many, but what it says of a test that others ran before counts only where one of its own agrees:
        for the one that failed, or for one drawn at random where none did. If it does not agree that a test failed,
        each is run in one of its own. A limit on time or output is final: it is as large for every test.

        All inputs are there at once, yet a test begins only when the one before has passed: else a wrong program would
        cost all of them. To a program this tells nothing that it would not learn from being run again alone.
        """
        with self._reading:  # by one of those who wait for it
            suite = self._suite(name)
        program = _bytes(source)
        outcome, doubtful = self._tested(program, suite, suite.cases, limits, TOGETHER)
        if doubtful and outcome not in LIMITED:
            alone, _ = self._tested(program, suite, [DRAW.choice(doubtful)], limits, 1)
            if alone is Outcome.CORRECT and outcome is not Outcome.CORRECT:
                alone, _ = self._tested(program, suite, suite.cases, limits, 1)
            outcome = alone
        return Grade(outcome, source)

    def _tested(
        self, program: bytes, suite: Suite, cases: Sequence[Case], limits: Limits, together: int
    ) -> tuple[Outcome, list[Case]]:
        """How the tests end, at most so many in a process, and of which other tests in it may have had a part in that:
        of the one that failed, or of those that passed if none did."""
        cpu = max(ALL, EACH * len(cases)) * limits.cpu  # seconds left
        waiting = max(WAITING, WAITING_EACH * len(cases)) * limits.wall
        passed, broken, shared = 0, 0, list[Case]()
        while passed < len(cases):
            group = cases[passed : passed + together]
            try:
                with self._box().start(program, [_bytes(case.input) for case in group], limits, suite.call) as process:
                    for place, case in enumerate(group):
                        if process.ended:  # it cannot be made fresh again: the rest alone
                            together = 1
                            break
                        if self.closed:  # by Ctrl-C, say: nobody asks for this grade any more
                            return Outcome.UNGRADED, []
                        if cpu < 0 or waiting < 0:
                            return Outcome.TIMED_OUT, []
                        run = process.run(replace(limits, wall=min(limits.wall, limits.cpu + waiting)))
                        if run.end is not End.EXITED or not suite.accepts(case, run.stdout, run.answer):
                            outcome = Outcome.WRONG if run.end is End.EXITED else Outcome(run.end.value)
                            return outcome, [case] * bool(place)
                        cpu -= run.cpu
                        waiting -= run.wall - run.cpu
                        passed, broken, shared = passed + 1, 0, shared + [case] * bool(place)
            except SandboxError as error:
                logger.warning("%s; another one is opened", error)
                self._own.box = None
                together, broken = 1, broken + 1
                if broken == 2:  # in a row, which no program should bring about
                    return Outcome.UNGRADED, []
        return Outcome.CORRECT, shared

    def _box(self) -> Box:
        if self._own.box is None:
            self._own.box = Box(self.isolation)
            self._all.append(self._own.box)
        return self._own.box
