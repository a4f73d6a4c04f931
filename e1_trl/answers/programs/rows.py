"""What a row of a dataset says of the programs that answer its problem: tests, and solutions that are known.

Knows nothing about how programs are run.
"""

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Any

from e1_trl.answers.programs import livecodebench
from e1_trl.answers.programs.formats import read_suite
from e1_trl.answers.programs.suite import Rule, Suite
from e1_trl.errors import UserError

SOLUTIONS = "solutions"  # DeepCoder's column
CHECKER = "generated_checker"  # open-r1/codeforces's column
LONGEST = 200  # characters of a message


def read_answer(row: Mapping[str, Any], column: str, count: int) -> Suite:
    """The tests of a row: a suite of at most so many tests (0: all), those with the longest inputs.

    The function to call is named by the tests, by the column `entry_point`, or by `func_name` in `metadata`. A row as
    LiveCodeBench publishes it has its tests in two columns, of which either may be named.

    Raises:
        UserError: one line about what is wrong with the tests; or several outputs are right, and the column
            `generated_checker` has the program that says which, as in open-r1/codeforces.
    """
    if row.get(CHECKER):
        raise UserError(f"{CHECKER} says which of several outputs are right, and e1_trl runs no checker")
    tests = livecodebench.tests_of(row) if column in livecodebench.TESTS else row[column]
    try:
        tests = json.loads(tests) if isinstance(tests, str) else tests
    except (ValueError, RecursionError) as error:
        raise UserError(f"tests that are no JSON: {str(error)[:LONGEST]}") from error
    # LiveCodeBench compares exactly; in the other sets, a number may be rounded otherwise.
    exact = isinstance(tests, list) and any(isinstance(test, dict) and "testtype" in test for test in tests)
    try:
        suite = read_suite(tests, Rule.EXACT if exact else Rule.TOLERANT, _called(row))
    except ValueError as error:
        raise UserError(str(error)[:LONGEST]) from error  # it quotes tests, which are megabytes
    return suite.chosen(count)


def _called(row: Mapping[str, Any]) -> str | None:
    """The name of the function that the columns beside the tests give."""
    metadata = row.get("metadata")
    with contextlib.suppress(ValueError, RecursionError):
        metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    name = row.get("entry_point") or (metadata.get("func_name") if isinstance(metadata, Mapping) else None)
    return name if isinstance(name, str) else None


def in_block(program: str) -> str:
    """A program as an answer holds it; one that stands in a block already is left as it is."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", program)), default=0))
    return program if re.search(r"^\s*```", program, re.MULTILINE) else f"{fence}python\n{program}\n{fence}"


def references(row: Mapping[str, Any], column: str) -> list[str]:
    """The solutions that a row brings, as text, with or without a fence; none if there is no such column."""
    found = row.get(column)
    if isinstance(found, str):
        decoded = None
        with contextlib.suppress(ValueError):
            decoded = json.loads(found)  # some sets have a list as text
        found = decoded if isinstance(decoded, list) else [found]
    return [solution for solution in found or [] if isinstance(solution, str) and solution.strip()]
