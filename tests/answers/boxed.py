"""Graders with real boxes, for tests: they skip where this machine gives none."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from e1_trl.answers.grade import Outcome
from e1_trl.answers.programs.formats import read_suite
from e1_trl.answers.programs.grader import ProgramGrader
from e1_trl.answers.programs.sandbox.box import Limits
from e1_trl.answers.programs.sandbox.command import Isolation, SandboxError
from e1_trl.answers.programs.sandbox.isolation import choose
from e1_trl.answers.programs.suite import Rule, Suite
from e1_trl.answers.programs.suites import Suites

LIMITS = Limits(cpu=5.0, wall=60.0, memory=2**29, output=2**20)


def isolation() -> Isolation:
    """The isolation that this machine gives."""
    try:
        return choose()
    except SandboxError as error:
        if str(error).count("does not start") < len(Isolation):  # one starts, and leaks or does not work
            raise
        pytest.skip(str(error))


@contextlib.contextmanager
def boxed(limits: Limits = LIMITS) -> Iterator[ProgramGrader]:
    """A grader of programs."""
    isolation()
    with ProgramGrader(limits, workers=2) as grader:
        yield grader


def fenced(source: str) -> str:
    """A solution whose program this is."""
    return f"So the program is\n```python\n{source}\n```\n"


def named(suite: Suite) -> list[str]:
    """The reference of a grader of programs."""
    return [Suites().add(suite.as_text())]


def outcome(
    grader: ProgramGrader,
    source: str,
    tests: Any,
    rule: Rule = Rule.EXACT,
    call: str | None = None,
    checker: str | None = None,
) -> Outcome:
    """How the grading of one program by tests in a shape of `read_suite` ends."""
    (grade,) = grader.grade([fenced(source)], [named(read_suite(tests, rule, call, checker))])
    return grade.outcome
