"""Graders with real boxes, for tests: they skip where this machine gives none."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from e1_trl.answers.grade import Outcome
from e1_trl.answers.programs.grader import ProgramGrader
from e1_trl.answers.programs.rows import read_suite
from e1_trl.answers.programs.sandbox.command import Isolation
from e1_trl.answers.programs.sandbox.isolation import choose
from e1_trl.answers.programs.sandbox.process import Limits
from e1_trl.answers.programs.suite import Rule, Suite, Suites
from e1_trl.errors import UserError

LIMITS = Limits(cpu=5.0, wall=60.0, memory=2**29, output=2**20)


def isolation() -> Isolation:
    """Return the isolation that this machine allows, or skip the test."""
    try:
        return choose()
    except UserError as error:
        if str(error).count("does not start") < len(Isolation):  # one starts, and leaks or does not work
            raise
        pytest.skip(str(error))


def opened(limits: Limits = LIMITS) -> Iterator[ProgramGrader]:
    """Yield a grader of programs, for fixtures."""
    isolation()
    with ProgramGrader(limits, workers=2) as grader:
        yield grader


boxed = contextlib.contextmanager(opened)


def fenced(source: str) -> str:
    """Return a solution with this program."""
    return f"So the program is\n```python\n{source}\n```\n"


def named(suite: Suite) -> list[str]:
    """Store a suite; returns the references for a grader of programs."""
    return [Suites().add(suite)]


def outcome(
    grader: ProgramGrader, source: str, tests: Any, rule: Rule = Rule.EXACT, call: str | None = None
) -> Outcome:
    """Grade one program by tests in a shape of `read_suite`."""
    (grade,) = grader.grade([fenced(source)], [named(read_suite(tests, rule, call))])
    return grade.outcome
