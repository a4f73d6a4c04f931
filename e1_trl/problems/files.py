"""Files of problems that a reader gave up on: which line is at fault, and why.

Readers of tables settle a column's type by the first megabytes, and say neither where another value stands nor how to
mend it. Knows nothing about what a problem is.
"""

import gzip
import json
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KINDS = {bool: "true or false", int: "numbers", float: "numbers", str: "texts", dict: "objects"}


def json_fault(file: Path) -> str | None:
    """The first line that is no JSON object, else the first whose value is of another kind than the column's before it.

    `None` if there is no such line: a file that is one list of rows, as `.json` may be, or that other things ail.
    """
    misfit, columns = None, dict[str, tuple[str, int]]()
    for number, line in _lines(file):
        try:
            row = json.loads(line.decode())
        except UnicodeDecodeError as error:
            return f"line {number} is not in UTF-8 ({error.reason} at byte {error.start})"
        except json.JSONDecodeError as error:
            return None if file.suffix == ".json" else f"line {number} is no JSON: {error.msg}, character {error.colno}"
        if not isinstance(row, dict):
            return None if file.suffix == ".json" else f"line {number} is no JSON object: {reprlib.repr(row)}"
        for column, value in row.items():
            kind = _kind(value)
            if misfit is not None or kind is None:
                continue
            known, first = columns.setdefault(column, (kind, number))
            if known != kind:
                same = "lists of texts" if "lists" in known + kind else "texts"
                misfit = (
                    f"line {number}, column {column!r}: expected {known}, as in line {first}, found "
                    f"{reprlib.repr(value)}; write all of that column as {same}"
                )
    return misfit


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines with something on them, by their numbers from 1."""
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line


def _kind(value: Any) -> str | None:
    """What a value is, as readers of tables tell them apart; `None` for nothing, which goes with every kind."""
    if isinstance(value, list):
        inner = next(filter(None, map(_kind, value)), None)
        return None if inner is None else f"lists of {inner}"
    return KINDS.get(type(value))
