"""What grading says about a solution: the outcome, and the answer that was read.

Knows no mathematics and no programs: a grader for one kind of problem stands in a file of its own.
"""

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
    """How the grading of one solution ended."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNEVALUATED = "unevaluated"  # equal to an accepted answer, but left to be computed
    UNPARSEABLE = "unparseable"  # there is an answer, but nobody can read it, nor is it literally an accepted one
    UNBOXED = "unboxed"  # no answer: no box, or the last one never closes
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"  # the worker died, or ran out of memory or stack; a program ended with an error
    # Of programs only.
    OUT_OF_MEMORY = "out_of_memory"
    TOO_MUCH_OUTPUT = "too_much_output"
    NO_PROGRAM = "no_program"  # no block of Python, or the last one never closes
    NOT_CALLABLE = "not_callable"  # the function that was asked for is not there
    UNGRADED = "ungraded"  # the grader failed, not the program: neither right nor wrong


# How the grading of a program ends, besides right and wrong.
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
    answer: str | None  # as text, what was read; None if there was nothing to read
    unboxed: bool = False  # the answer was read outside of a box
    value: str | None = field(default=None, compare=False)  # the answer's, however it is spelled; None: its text

    @property
    def correct(self) -> bool:
        return self.outcome is Outcome.CORRECT


@dataclass(frozen=True)
class Trial:
    """A solution that is graded to try a problem's accepted answers.

    Attributes:
        name: what a dry run calls it.
        solution: as a model would write it.
        right: whether it must be graded correct, or must not.
    """

    name: str
    solution: str
    right: bool


LIBRARIES = ("math-verify", "latex2sympy2_extended", "sympy", "antlr4-python3-runtime", "numpy", "sortedcontainers")


@cache
def grader_version(name: str, *settings: Hashable) -> str:
    """A text that changes with whatever may change a grade: settings, the code in this folder, Python, libraries."""
    installed = sorted((item.name, item.version) for item in distributions() if item.name in LIBRARIES)
    hashed = hashlib.sha256(repr((name, settings, sys.version, installed)).encode())
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        hashed.update(file.read_bytes())
    return f"{name}, {hashed.hexdigest()[:16]}"


class Grader(Protocol):
    """Grades solutions. Used in a `with` block, or closed.

    `faults` are the outcomes, besides right and wrong, that it tells apart, and that a training logs.
    """

    faults: ClassVar[tuple[Outcome, ...]] = ()

    @property
    def version(self) -> str:
        """Where it is equal, equal solutions get equal grades."""
        ...

    def grade(
        self,
        solutions: Sequence[str],
        references: Sequence[Sequence[str]],
        free_text: Sequence[str | None] | None = None,
    ) -> list[Grade]:
        """Grade each solution against its references, of which any one is enough.

        `free_text[i]` is a text in which an answer may be read if solution i has none that is marked as its answer.
        """
        ...

    def begin(self, solution: str, references: Sequence[str]) -> None:
        """Grade a solution beside the caller, who goes on: a later `grade` of it without free text finds it graded."""
        return None  # what grades in the caller's thread inherits this

    def works_out(self, answer: str, references: Sequence[str]) -> bool:
        """Whether an answer holds work that none of its references does: a training pays for no scratch paper."""
        return False  # what asks for no computed answer inherits this

    def close(self) -> None:
        """Free what the grader holds, such as processes. A later `grade` takes it anew."""
        return None  # what holds nothing inherits this

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
