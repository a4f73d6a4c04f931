"""Grades programs by running them on tests, in boxes that they cannot leave.

A program is the last Python block of a solution. Only its inputs enter the box; outputs are compared out here.
"""

import logging
import platform
import random
import re
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar

from e1_trl.answers.grade import PROGRAM_FAULTS, Grade, Grader, Outcome, grader_version
from e1_trl.answers.programs.sandbox.box import TOGETHER, Box
from e1_trl.answers.programs.sandbox.command import Isolation, SandboxError
from e1_trl.answers.programs.sandbox.isolation import choose
from e1_trl.answers.programs.sandbox.process import End, Limits
from e1_trl.answers.programs.suite import Case, Suite, Suites

logger = logging.getLogger(__name__)

PYTHON = ("python", "python3", "py", "py3")
FENCE = re.compile(r"([^`]*)(`{3,})([^`]*)")
LANGUAGE = re.compile(r"[\s{.]*([^\s{}.,:]*).*")  # the first word after a fence
QUOTE = re.compile(r"^ {0,3}> ?")
LIST_MARK = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])\s+(?=```)")
TAB = 4  # columns, in Markdown
SUITES = 16  # cached at least: one GPU of E1-Code-14B rolls out as many problems, which end in any order
SLOWED = 4  # times that a busy machine may slow a program down
# Wall time beyond that for all tests together, in multiples of one test's limit: the larger of a constant and a share
# per test. Sleeping programs delay no step for longer.
WAITING = 1
WAITING_EACH = 1 / 60
LIMITED = (Outcome.TIMED_OUT, Outcome.TOO_MUCH_OUTPUT)  # final; memory is not, since earlier tests may hold some of it
ENCODING = ("utf-8", "surrogatepass")
DRAW = random.SystemRandom()  # neither a program nor a training seed can predict it


@dataclass
class _Block:
    """A fenced block of Markdown that is open."""

    ticks: int
    language: str
    quoted: bool
    columns: int  # of the fence's indentation
    behind_text: bool  # whether text stands before the fence in its line
    lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> bool:
        """Add a line; return whether it closes the block instead, by a fence that may have text behind or before it.

        With text it closes none inside a long string, as in a program that prints Markdown; text before it is kept.
        """
        text = _outdented(line, self.columns)
        before, fence, behind = text.partition("`" * self.ticks)
        is_first = not before.strip()
        is_last = not behind.strip().strip("`")
        closes = fence and (is_first or (is_last and self.language in PYTHON and not {*"`#"} & {*before}))
        if closes and ((is_first and is_last) or not _opens_string([*self.lines, before])):
            self.lines += [] if is_first else [before]
            return True
        self.lines.append(text)
        return False


def program(solution: str) -> str | None:
    """Return the last fenced block marked as Python or, without one, the last block without a language.

    None if there is neither, or a later one never closes; an unclosed block without a language does not void a Python
    block. Fences may share their line with text, as for other graders, and a fence with Python begins a block anew.
    """
    named: str | None = None
    unnamed: str | None = None
    block: _Block | None = None
    for whole in re.split(r"\r\n|\r|\n", solution):
        line = QUOTE.sub("", whole) if block is None or block.quoted else whole
        if block is None:
            line = LIST_MARK.sub(lambda mark: " " * len(mark[0]), line)
        fence = FENCE.fullmatch(line.strip())
        is_python = fence is not None and fence[3].strip().lower() in PYTHON
        if block is not None:
            if not block.add(line):
                continue
            if block.language in PYTHON:
                named = "\n".join(block.lines)
            elif not block.language:
                unnamed = "\n".join(block.lines)
            block = None
            if not is_python:
                continue
        if fence and (is_python or not fence[1]):
            expanded = line.expandtabs(TAB)
            columns = len(expanded) - len(expanded.lstrip())
            language = LANGUAGE.sub(r"\1", fence[3].lower())
            block = _Block(len(fence[2]), language, bool(QUOTE.match(whole)), columns, bool(fence[1]))
    if block and named is not None and (block.behind_text or not block.language):
        return named
    if block and (block.language in PYTHON or not block.language):
        return None
    return unnamed if named is None else named


def _opens_string(lines: Sequence[str]) -> bool:
    """Return whether one of the long strings in these lines has no end."""
    text = "\n".join(lines)
    return any(text.count(quotes) % 2 for quotes in ("'''", '"""'))


def _outdented(line: str, columns: int) -> str:
    """Remove up to this many columns of indentation, as Markdown does inside an indented fence."""
    taken = 0
    for position, character in enumerate(line):
        if taken >= columns or character not in " \t":
            return line[position:]
        taken += TAB - taken % TAB if character == "\t" else 1
    return ""


class ProgramGrader(Grader):
    """Grades programs in up to `workers` boxes in parallel, each test within `limits`.

    Boxes open at the first `grade`, in the strongest isolation if none is given; `close`, the end of a `with` block and
    the end of the program close them. Pickling copies the settings, not the boxes. References are names of `Suites`.
    """

    faults: ClassVar[tuple[Outcome, ...]] = PROGRAM_FAULTS

    def __init__(self, limits: Limits, workers: int, isolation: Isolation | None = None):
        self.isolation = isolation
        self.limits = limits
        self.workers = workers
        self._boxes: _Boxes | None = None
        self._begun: dict[tuple[str, str], Future[Grade]] = {}  # by program and suite

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_boxes": None, "_begun": {}}

    @property
    def version(self) -> str:
        return grader_version(f"programs under Python {platform.python_version()}", self.limits)

    def close(self) -> None:
        if self._boxes is not None:
            self._boxes.close()
            self._boxes = None
        self._begun = {}

    def begin(self, solution: str, references: Sequence[str]) -> None:
        (name,) = references
        self._begin(program(solution), name)

    def _begin(self, source: str | None, name: str) -> None:
        if self._boxes is None:
            self._boxes = _Boxes(self.isolation or choose(), self.workers)
        if source is not None and (source, name) not in self._begun:
            self._begun[source, name] = self._boxes.pool.submit(self._boxes.grade, source, name, self.limits)

    def grade(
        self,
        solutions: Sequence[str],
        references: Sequence[Sequence[str]],
        free_text: Sequence[str | None] | None = None,
    ) -> list[Grade]:
        """Grade each solution's program by its suite, the only reference; equal programs for one suite run once.

        `free_text` is ignored: a program must be in a block.
        """
        tasks = [(program(solution), name) for solution, (name,) in zip(solutions, references, strict=True)]
        for source, name in sorted(dict.fromkeys(tasks), key=lambda task: task[1]):
            self._begin(source, name)
        begun = self._begun
        self._begun = {}
        return [
            Grade(Outcome.NO_PROGRAM, None) if source is None else begun[source, name].result()
            for source, name in tasks
        ]


class _Boxes:
    """A pool of grading threads, each with a box that opens at its first program."""

    def __init__(self, isolation: Isolation, workers: int):
        self.isolation = isolation
        self.pool = ThreadPoolExecutor(workers)
        self._suite = lru_cache(max(workers, SUITES))(Suites().__getitem__)
        self._reading = threading.Lock()
        self._own = threading.local()
        self._all: list[Box] = []
        self.closed = False

    def close(self) -> None:
        """Close all boxes after the tests that are running."""
        self.closed = True
        self.pool.shutdown(cancel_futures=True)
        for box in self._all:
            box.close()

    def grade(self, source: str, name: str, limits: Limits) -> Grade:
        """Run the tests of a suite until one fails or the time for all of them is over.

        One process runs many tests, so earlier ones may influence later ones. The verdict on a test that ran after
        others counts only if a process of its own confirms it: for the test that failed or, if none did, for one drawn
        at random. If it does not confirm a failure, every test runs in its own process. Exceeding a limit on time or
        output is final, since every test has the full limit.

        A test begins only after the previous one passed, so that a wrong program does not cost the time of all tests.
        """
        with self._reading:  # so that one of several waiting threads reads the suite
            suite = self._suite(name)
        program = source.encode(*ENCODING)
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
        """Run tests with at most `together` of them per process; the first in which it was killed, once more alone.

        Returns the outcome, and the tests that earlier ones in their process may have influenced: the one that failed
        or, if none did, those that passed.
        """
        waiting = max(WAITING, WAITING_EACH * len(cases)) * limits.wall  # seconds left
        shared = list[Case]()
        passed = 0
        broken = 0  # boxes in a row
        pardoned = False  # once, as a program may kill itself by chance
        while passed < len(cases):
            group = cases[passed : passed + together]
            try:
                inputs = [case.input.encode(*ENCODING) for case in group]
                with self._box().start(program, inputs, limits, suite.call) as process:
                    for place, case in enumerate(group):
                        if process.ended:  # it could not be reset: the rest run alone
                            together = 1
                            break
                        if self.closed:  # by Ctrl-C, for example: nobody waits for this grade
                            return Outcome.UNGRADED, []
                        if waiting < 0:
                            return Outcome.TIMED_OUT, []
                        after_others = [case] if place else []
                        run = process.run(replace(limits, wall=min(limits.wall, SLOWED * limits.cpu + waiting)))
                        waiting -= max(0.0, run.wall - SLOWED * run.cpu)
                        if run.end is End.KILLED and not pardoned:  # maybe since other programs took the memory
                            pardoned = True
                            together = 1
                            break
                        if run.end is not End.EXITED:
                            outcome = Outcome.CRASHED if run.end is End.KILLED else Outcome(run.end.value)
                            return outcome, after_others
                        if not suite.accepts(case, run.stdout, run.answer):
                            return Outcome.WRONG, after_others
                        shared += after_others
                        passed += 1
                        broken = 0
            except SandboxError as error:
                logger.warning("%s; opening another one", error)
                self._own.box = None
                together = 1
                broken += 1
                if broken == 2:  # which no program should be able to cause
                    return Outcome.UNGRADED, []
        return Outcome.CORRECT, shared

    def _box(self) -> Box:
        box: Box | None = getattr(self._own, "box", None)
        if box is None:
            box = Box(self.isolation)
            self._own.box = box
            self._all.append(box)
        return box
