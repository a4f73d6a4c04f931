"""What a row of a dataset says of the programs that answer its problem: tests, and solutions that are known.

Knows nothing about how programs are run.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from e1_trl.answers.programs import livecodebench
from e1_trl.answers.programs.formats import read_suite
from e1_trl.answers.programs.suite import Rule

CHECKER = "generated_checker"
SOLUTIONS = "solutions"  # DeepCoder's column
LONGEST = 200  # characters of a message


def read_answer(row: Mapping[str, Any], column: str, tests: int) -> str:
    """The tests of a row as one text: a suite of at most so many tests (0: all), those with the longest inputs.

    The function to call is named by the tests, by the column `entry_point`, or by `func_name` in `metadata`. A row as
    LiveCodeBench publishes it has its tests in two columns, of which either may be named. A checker in the column
    `generated_checker`, as open-r1/codeforces has it, says what is right.

    Raises:
        ValueError: one line about what is wrong with the tests.
    """
    given = livecodebench.tests_of(row) if column in livecodebench.TESTS else row[column]
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError) as error:
        raise ValueError(f"tests that are no JSON: {str(error)[:LONGEST]}") from error
    try:
        suite = read_suite(value, _rule(value), _called(row), row.get(CHECKER))
    except ValueError as error:
        raise ValueError(str(error)[:LONGEST]) from error  # it quotes tests, which are megabytes
    return replace(suite, cases=suite.chosen(tests)).as_text()


def _rule(tests: Any) -> Rule:
    """LiveCodeBench compares exactly; in the other sets, a number may be rounded otherwise."""
    is_livecodebench = isinstance(tests, list) and any(isinstance(test, dict) and "testtype" in test for test in tests)
    return Rule.EXACT if is_livecodebench else Rule.TOLERANT


def _called(row: Mapping[str, Any]) -> str | None:
    """The name of the function that the columns beside the tests give."""
    if isinstance(row.get("entry_point"), str) and row["entry_point"]:
        return row["entry_point"]
    metadata = row.get("metadata")
    try:
        metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    except ValueError:
        return None
    name = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else None


def in_block(program: str) -> str:
    """A program as an answer holds it; one that stands in a block already is left as it is."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", program)), default=0))
    return program if re.search(r"^\s*```", program, re.MULTILINE) else f"{fence}python\n{program}\n{fence}"


def references(row: Mapping[str, Any], column: str) -> list[str]:
    """The solutions that a row brings, as text, with or without a fence; none if there is no such column."""
    found = row.get(column)
    if isinstance(found, str):
        try:
            decoded = json.loads(found)  # some sets have a list as text
        except ValueError:
            decoded = None
        found = decoded if isinstance(decoded, list) else [found]
    return [solution for solution in found or [] if isinstance(solution, str) and solution.strip()]
