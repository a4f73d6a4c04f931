"""The result of grading a solution, and the interface of graders; each type of answer has its own grader."""

import enum
import hashlib
import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import ClassVar, Protocol, Self


class Outcome(enum.StrEnum):
    """The result of grading one solution."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNEVALUATED = "unevaluated"  # equal to an accepted answer, but not computed: 10.2 + 8.6 for 18.8
    UNPARSEABLE = "unparseable"  # the answer cannot be read, and is no literal copy of an accepted one
    UNBOXED = "unboxed"  # no box, or the last one never closes
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"  # the worker died, or ran out of memory or stack; a program ended with an error
    # For programs only:
    OUT_OF_MEMORY = "out_of_memory"
    TOO_MUCH_OUTPUT = "too_much_output"
    NO_PROGRAM = "no_program"  # no Python block, or the last one never closes
    NOT_CALLABLE = "not_callable"  # the requested function is not defined
    UNGRADED = "ungraded"  # the grader failed, not the program: neither right nor wrong


PASSING = (Outcome.UNGRADED, Outcome.TIMED_OUT, Outcome.CRASHED)  # a loaded machine may have caused them
# Outcomes of programs other than correct and wrong.
PROGRAM_FAULTS = (
    Outcome.CRASHED,
    Outcome.TIMED_OUT,
    Outcome.OUT_OF_MEMORY,
    Outcome.TOO_MUCH_OUTPUT,
    Outcome.NOT_CALLABLE,
    Outcome.NO_PROGRAM,
    Outcome.UNGRADED,
)


@dataclass(frozen=True)
class Grade:
    """The verdict on one solution."""

    outcome: Outcome
    answer: str | None  # the answer as text; None if the solution has none
    unboxed: bool = False  # the answer was read outside a box
    value: str | None = field(default=None, compare=False)  # equal for equal answers; None: compare `answer`

    @property
    def correct(self) -> bool:
        return self.outcome is Outcome.CORRECT


@dataclass(frozen=True)
class Trial:
    """A solution that a dry run grades to check a problem's accepted answers."""

    name: str
    solution: str
    right: bool  # whether it must be graded correct, or must not


LIBRARIES = ("math-verify", "latex2sympy2_extended", "sympy", "antlr4-python3-runtime", "numpy", "sortedcontainers")


@cache
def grader_version(name: str, *settings: Hashable) -> str:
    """Return a text that changes with anything that may change a grade: settings, this folder, Python, libraries."""
    installed = sorted((item.name, item.version) for item in distributions() if item.name in LIBRARIES)
    hashed = hashlib.sha256(repr((name, settings, sys.version, installed)).encode())
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        hashed.update(file.read_bytes())
    return f"{name}, {hashed.hexdigest()[:16]}"


class Grader(Protocol):
    """Grades solutions. Use it in a `with` block, or call `close`.

    `faults` are the outcomes besides correct and wrong that the grader distinguishes and a training run logs.
    """

    faults: ClassVar[tuple[Outcome, ...]] = ()

    @property
    def version(self) -> str:
        """Text that two graders share only if they grade every solution alike."""
        ...

    def grade(
        self,
        solutions: Sequence[str],
        references: Sequence[Sequence[str]],
        free_text: Sequence[str | None] | None = None,
    ) -> list[Grade]:
        """Grade each solution against its `references`, the accepted answers; one match is enough.

        If solution i has no box, `free_text[i]` is searched for an answer instead.
        """
        ...

    def begin(self, solution: str, references: Sequence[str]) -> None:
        """Start grading a solution in the background, so that a later `grade` of it without free text is quick."""
        return None  # the default for graders that work in the caller's thread

    def works_out(self, answer: str, references: Sequence[str]) -> bool:
        """Return whether an answer shows its working (`6*8=48`) and no reference does: training does not reward it."""
        return False  # the default for graders that require no computed answer

    def close(self) -> None:
        """Free resources such as processes. A later `grade` acquires them again."""
        return None  # the default for graders that hold none

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
