"""Tests of one program, the rules by which an output is right, and the store of such suites."""

import enum
import gzip
import hashlib
import json
import math
import re
import uuid
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from e1_trl.errors import UserError

NUMERAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
PADDED = re.compile(r"[+-]?0\d+", re.ASCII)
TOLERANCE = 1e-6  # absolute below 1, relative above
ROOT_TOLERANCE = 1e-4  # for the polynomial's value, as in evalplus/eval/__init__.py
LARGEST = 1e308  # larger integers cannot be converted to float
FEW = 200  # largest set or dictionary whose items are compared pairwise, so that 1 equals 1.0 and True
NOTHING = ("", "null", "[null]")  # outputs and results of a program that does nothing
DIGITS = 4300  # of the longest integer that is parsed as one, which takes quadratic time
PREFIX = "suite:"
NO_CHECKER = {"checker": None}  # kept so that digests equal the names in existing tables of answers


class Rule(enum.StrEnum):
    """The rule by which an output that differs from the expected one is still right."""

    EXACT = "exact"  # LiveCodeBench's: ignores space around lines, compares lines of numbers by value
    TOLERANT = "tolerant"  # also numbers within `TOLERANCE` where a non-integer is expected; ignores blank lines
    ROOT = "root"  # any root of the polynomial in the argument, within `ROOT_TOLERANCE`


@dataclass(frozen=True)
class Case:
    """One test: stdin and stdout, or the arguments of a call as JSON and the accepted return values, each as JSON."""

    input: str
    expected: tuple[str, ...]


@dataclass(frozen=True)
class Suite:
    """All tests of one problem; a UserError without any, or if a program that does nothing would pass."""

    cases: tuple[Case, ...]  # at least one
    call: str | None = None  # the function, or the method of a class Solution, to call; None for programs on stdin
    rule: Rule = Rule.EXACT

    def __post_init__(self) -> None:
        if not self.cases:
            raise UserError("there are no tests")
        if all(expected.strip() in NOTHING for case in self.cases for expected in case.expected):
            raise UserError("no test expects anything")

    def chosen(self, count: int) -> "Suite":
        """Return a suite of the `count` cases (0: all) with the longest inputs, shortest first to fail fast.

        If all of these expect the same, the shortest is replaced by the longest case that expects something else:
        the longest inputs of a yes-or-no question often all expect "no", so that a constant would pass.
        """
        ordered = sorted(self.cases, key=lambda case: len(case.input), reverse=True)
        count = count or len(ordered)
        longest = ordered[:count]
        if len({case.expected for case in longest}) == 1 and count > 1:
            others = (case for case in ordered[count:] if case.expected != longest[0].expected)
            longest[-1] = next(others, longest[-1])
        return replace(self, cases=tuple(reversed(longest)))

    def accepts(self, case: Case, stdout: bytes, answer: bytes) -> bool:
        """Return whether the output is right: the returned value if a function was called, otherwise stdout."""
        if self.call is None:
            written = stdout.decode("utf-8", errors="replace")
            return any(same_text(written, expected, self.rule) for expected in case.expected)
        try:
            returned = _value(answer)
            if self.rule is Rule.ROOT:
                return _is_root(returned, *json.loads(case.input)["positional"])
            return any(same_value(returned, _value(expected), self.rule) for expected in case.expected)
        except (ValueError, RecursionError, OverflowError):  # nothing, or nothing readable, was returned
            return False


class Suites:
    """Store of this machine's suites by name, as JSON in the folder `e1_suites` in the cache of `datasets`.

    The tests of one program may take many megabytes, so datasets and tables of answers hold only a suite's name, which
    is a digest of its content; the suite itself is a file, written once and never changed.
    """

    def __init__(self) -> None:
        from datasets import config

        self.folder = Path(config.HF_DATASETS_CACHE) / "e1_suites"

    def add(self, suite: Suite) -> str:
        """Store a suite; returns its name."""
        written = json.dumps({**asdict(suite), **NO_CHECKER}, separators=(",", ":")).encode()
        name = PREFIX + hashlib.sha256(written).hexdigest()[:16]
        if name not in self:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary = self.folder / f".{uuid.uuid4().hex}"
            temporary.write_bytes(gzip.compress(written, compresslevel=1))
            temporary.replace(self._file(name))
        return name

    def __contains__(self, name: str) -> bool:
        return name.startswith(PREFIX) and self._file(name).exists()

    def __getitem__(self, name: str) -> Suite:
        if name not in self:
            raise UserError(
                f"{name[:40]!r} names no tests in {self.folder}; run the same `e1 eval` or `e1 train` again: it reads "
                "them from the dataset, and repeats no finished samples"
            )
        record = json.loads(gzip.decompress(self._file(name).read_bytes()))
        cases = tuple(Case(case["input"], tuple(case["expected"])) for case in record["cases"])
        return Suite(cases, record["call"], Rule(record["rule"]))

    def _file(self, name: str) -> Path:
        return self.folder / f"{name.removeprefix(PREFIX)}.json.gz"


def _value(text: str | bytes) -> Any:
    return json.loads(text, parse_int=lambda digits: (int if len(digits) <= DIGITS else Decimal)(digits))


def _is_root(x: Any, coefficients: list[float]) -> bool:
    """Return whether the polynomial with these coefficients, the constant first, is zero at x."""
    if not isinstance(x, int | float):
        return False
    return abs(sum(factor * math.pow(x, power) for power, factor in enumerate(coefficients))) <= ROOT_TOLERANCE


def same_text(written: str, expected: str, rule: Rule) -> bool:
    """Return whether two outputs are the same, line by line; only `EXACT` counts blank lines."""
    ours = written.strip().split("\n")
    theirs = expected.strip().split("\n")
    if rule is not Rule.EXACT:  # outputs for empty lists come with and without their line
        ours = [line for line in ours if line.strip()]
        theirs = [line for line in theirs if line.strip()]
    return len(ours) == len(theirs) and all(
        a.strip() == b.strip() or _same_line(a, b, rule) for a, b in zip(ours, theirs, strict=True)
    )


def _same_line(written: str, expected: str, rule: Rule) -> bool:
    ours = written.split()
    theirs = expected.split()
    if len(ours) != len(theirs):
        return False
    pairs = list(zip(ours, theirs, strict=True))
    if rule is Rule.EXACT:
        return all(_are_close(a, b, exactly=True) for a, b in pairs)
    # Contests accept "yes" and "no" in any case.
    return all(a == b or a.casefold() == b.casefold() in ("yes", "no") or _are_close(a, b) for a, b in pairs)


def _are_close(written: str, expected: str, exactly: bool = False) -> bool:
    """Return whether two numerals have the same value or, unless `exactly`, nearly where no integer is expected."""
    if not NUMERAL.fullmatch(written) or not NUMERAL.fullmatch(expected):
        return False
    integers = INTEGER.fullmatch(written) and INTEGER.fullmatch(expected)
    if not exactly and integers and (PADDED.fullmatch(written) or PADDED.fullmatch(expected)):
        return written == expected  # leading zeros are a part of the answer, as in rows of a grid
    if Decimal(written) == Decimal(expected):
        return True
    return not exactly and not INTEGER.fullmatch(expected) and _near(float(written), float(expected))


def _near(value: float, expected: float) -> bool:
    finite = math.isfinite(value) and math.isfinite(expected)
    return finite and abs(value - expected) <= TOLERANCE * max(1.0, abs(expected))


def same_value(returned: Any, expected: Any, rule: Rule) -> bool:
    """Return whether two values are equal, as Python compares them with tuples taken for lists.

    They are plain JSON, in which a dictionary is `{"dict": [[key, value], …]}` and a set `{"set": […]}`.
    """
    if isinstance(expected, list) and isinstance(returned, list):
        return len(returned) == len(expected) and all(
            same_value(ours, theirs, rule) for ours, theirs in zip(returned, expected, strict=True)
        )
    if isinstance(expected, dict) and isinstance(returned, dict):
        return returned.keys() == expected.keys() and all(
            _same_items(returned[kind], expected[kind], rule) for kind in expected
        )
    if isinstance(returned, list | dict) or isinstance(expected, list | dict):
        return False
    if rule is Rule.TOLERANT and isinstance(expected, float) and isinstance(returned, int | float):
        return returned == expected or (abs(returned) < LARGEST and _near(float(returned), expected))
    return bool(returned == expected)


def _same_items(returned: Any, expected: Any, rule: Rule) -> bool:
    """Return whether two lists hold the same items in any order."""
    if not isinstance(returned, list) or not isinstance(expected, list) or len(returned) != len(expected):
        return False
    ours, theirs = (sorted(json.dumps(item, default=repr) for item in items) for items in (returned, expected))
    if ours == theirs:
        return True
    if len(returned) > FEW:
        return False
    rest = list(returned)
    for item in expected:
        found = next((i for i, other in enumerate(rest) if same_value(other, item, rule)), None)
        if found is None:
            return False
        del rest[found]
    return True
