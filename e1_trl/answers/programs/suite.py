"""What a program is tested with, and when its output is right. Pure; what is expected never leaves this process."""

import enum
import json
import math
import re
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from e1_trl.errors import UserError

NUMERAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
TOLERANCE = 1e-6  # absolute below 1, relative above
ROOT_TOLERANCE = 1e-4  # of the polynomial's value, as evalplus/eval/__init__.py has it
LARGEST = 1e308  # beyond it an integer is no float
FEW = 200  # items of a set or dictionary that are compared each with each, in which 1 equals 1.0 and True
DIGITS = 4300  # of an integer that is read as one: reading takes time quadratic in them


class Rule(enum.StrEnum):
    """When an output that is not the expected one letter by letter is right, too."""

    EXACT = "exact"  # LiveCodeBench's: space around lines does not count, and lines of numbers are compared by value
    TOLERANT = "tolerant"  # and numbers may differ by `TOLERANCE` where a non-integer is expected
    ROOT = "root"  # any root of the polynomial that is the argument, to `ROOT_TOLERANCE`


@dataclass(frozen=True)
class Case:
    """One test: stdin and stdout, or the arguments of a call as JSON and the values that are accepted, each as JSON."""

    input: str
    expected: tuple[str, ...]


@dataclass(frozen=True)
class Suite:
    """All tests of one problem.

    Attributes:
        cases: at least one.
        call: the function, or the method of a class Solution, that is called; None for programs on stdin.
        rule: when an output is right.

    Raises:
        UserError: there are no cases, or one accepts nothing: that would pass whatever is written.
    """

    cases: tuple[Case, ...]
    call: str | None = None
    rule: Rule = Rule.EXACT

    def __post_init__(self) -> None:
        if not self.cases:
            raise UserError("there are no tests")
        for number, case in enumerate(self.cases):
            if not case.expected:
                raise UserError(f"test {number} expects nothing")

    def chosen(self, count: int) -> "Suite":
        """With at most `count` cases (0: all), those with the longest inputs, the shortest of them first: it fails
        fastest.

        If all of these expect the same, the shortest of them makes room for the longest case that expects something
        else: the longest inputs of a question of yes or no often all expect no, which a constant passes.
        """
        ordered = sorted(self.cases, key=lambda case: len(case.input), reverse=True)
        count = count or len(ordered)
        longest, rest = ordered[:count], ordered[count:]
        if len({case.expected for case in longest}) == 1 and count > 1:
            other = next((case for case in rest if case.expected != longest[0].expected), None)
            longest = longest if other is None else [*longest[:-1], other]
        return replace(self, cases=tuple(reversed(longest)))

    def accepts(self, case: Case, stdout: bytes, answer: bytes) -> bool:
        """Whether what came out is right by the rule: what was returned if a function was called, else what was
        written."""
        if self.call is None:
            written = stdout.decode("utf-8", errors="replace")
            return any(same_text(written, expected, self.rule) for expected in case.expected)
        try:
            returned = _value(answer)
            if self.rule is Rule.ROOT:
                return _is_root(returned, *json.loads(case.input)["positional"])
            return any(same_value(returned, _value(expected), self.rule) for expected in case.expected)
        except (ValueError, RecursionError, OverflowError):  # nothing was returned, or nothing that can be read
            return False


@dataclass(frozen=True)
class Digits:
    """An integer that is too long to be read: JSON writes it in one way, so that its digits compare it."""

    text: str


def _value(text: str | bytes) -> Any:
    return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) <= DIGITS else Digits(digits))


def _is_root(x: Any, coefficients: list[float]) -> bool:
    """Whether the polynomial with these coefficients, the constant first, is zero there."""
    if not isinstance(x, int | float):
        return False
    return abs(sum(factor * math.pow(x, power) for power, factor in enumerate(coefficients))) <= ROOT_TOLERANCE


def same_text(written: str, expected: str, rule: Rule) -> bool:
    """Whether two outputs are the same, line by line."""
    lines = zip_longest(*([line.strip() for line in text.strip().split("\n")] for text in (written, expected)))
    return all(
        ours == theirs or (ours is not None and theirs is not None and _same_line(ours, theirs, rule))
        for ours, theirs in lines
    )


def _same_line(written: str, expected: str, rule: Rule) -> bool:
    ours, theirs = written.split(), expected.split()
    if len(ours) != len(theirs):
        return False
    if rule is Rule.EXACT:
        return all(NUMERAL.fullmatch(token) for token in (*ours, *theirs)) and all(
            Decimal(a) == Decimal(b) for a, b in zip(ours, theirs, strict=True)
        )
    return all(a == b or _close(a, b) for a, b in zip(ours, theirs, strict=True))


def _close(written: str, expected: str) -> bool:
    """Whether a token may stand for another: of the same value, or near it where no integer is expected."""
    if not NUMERAL.fullmatch(written) or not NUMERAL.fullmatch(expected):
        return False
    if Decimal(written) == Decimal(expected):
        return True
    return not INTEGER.fullmatch(expected) and _near(float(written), float(expected))


def _near(value: float, expected: float) -> bool:
    finite = math.isfinite(value) and math.isfinite(expected)
    return finite and abs(value - expected) <= TOLERANCE * max(1.0, abs(expected))


def same_value(returned: Any, expected: Any, rule: Rule) -> bool:
    """Whether two values are the same, as Python compares them, tuples being lists. They are plain JSON, in which a
    dictionary is `{"dict": [[key, value], …]}` and a set `{"set": […]}`."""
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
    """Whether two lists hold the same, in whatever order."""
    if not isinstance(returned, list) or not isinstance(expected, list) or len(returned) != len(expected):
        return False
    ours, theirs = (sorted(json.dumps(item, default=asdict) for item in items) for items in (returned, expected))
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
