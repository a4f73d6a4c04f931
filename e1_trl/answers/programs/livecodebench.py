"""LiveCodeBench: which of its problems, and the tests of its rows, as its files `test*.jsonl` have them.

The hidden tests stand there as a pickle, and unpickling what somebody published runs what he pleases. So nothing is
unpickled: the instructions of the pickle are read, and only those that make one text are known.
"""

import base64
import json
import pickletools
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from e1_trl.errors import UserError

TESTS = ("public_test_cases", "private_test_cases")  # columns
RELEASES = tuple(f"v{number}" for number in range(1, 7))
PAPERS_WINDOW = ("v5", "2024-08-01", "2025-02-01")  # release, first day, and the day after the last
LARGEST = 2**30  # bytes of the unpacked tests of one problem; a file of hundreds of problems is about as large, packed
TEXTS = {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
# What stands around a text: the version, the frame, the place where the text is remembered, and the end.
AROUND = {"PROTO", "FRAME", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "STOP"}


@dataclass(frozen=True)
class Window:
    """Which of LiveCodeBench's problems: a release, and the days of the contests, without the last. Here the paper's.

    Raises:
        UserError: there is no such release, a day is not written as 2024-08-01, or there is none between them.
    """

    release: str = PAPERS_WINDOW[0]
    since: str = PAPERS_WINDOW[1]
    until: str = PAPERS_WINDOW[2]

    def __post_init__(self) -> None:
        if self.release not in RELEASES:
            raise UserError(f"LiveCodeBench has no release {self.release!r}; it has {', '.join(RELEASES)}")
        for day in (self.since, self.until):
            if date.fromisoformat(day).isoformat() != day:
                raise UserError(f"{day!r} is no day as 2024-08-01 is")
        if self.since >= self.until:
            raise UserError(f"LiveCodeBench's problems from {self.since} to before {self.until} are none")

    @property
    def files(self) -> list[str]:
        """Those on the Hub that the release consists of."""
        last = RELEASES.index(self.release) + 1
        return ["test.jsonl", *(f"test{number}.jsonl" for number in range(2, last + 1))]

    def __str__(self) -> str:
        """What a report adds to the benchmark's name: nothing for the paper's window."""
        return "" if self == Window() else f"-{self.release}-{self.since}-{self.until}"


def tests_of(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tests of a row, public ones first, as `read_suite` wants them.

    Raises:
        UserError: one line about what is wrong with the row.
    """
    tests: list[dict[str, Any]] = []
    for column in TESTS:
        if column not in row:
            raise UserError(f"a row of LiveCodeBench has no {column!r}; it has {', '.join(map(repr, row))}")
        try:
            tests += _listed(row[column])
        except ValueError as error:
            raise UserError(f"{column}: {error}") from error
    return tests


def _listed(text: Any) -> list[dict[str, Any]]:
    if not isinstance(text, str):
        raise UserError(f"a text is wanted, not {type(text).__name__}")
    if not text.lstrip().startswith("["):
        text = _unpickled(_unpacked(text))
    try:
        tests = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"this is no JSON ({error})") from error
    if not isinstance(tests, list) or not all(isinstance(test, dict) for test in tests):
        raise UserError("this is no list of tests")
    return tests


def _unpacked(text: str) -> bytes:
    """What was compressed and written in base64."""
    inflater = zlib.decompressobj()
    try:
        pickled = inflater.decompress(base64.b64decode(text, validate=True), LARGEST + 1)
    except (ValueError, zlib.error) as error:
        raise UserError(f"neither a list in JSON nor compressed and in base64 ({error})") from error
    if len(pickled) > LARGEST:
        raise UserError(f"over {LARGEST} bytes when unpacked")
    if not inflater.eof:
        raise UserError("cut off")
    return pickled


def _unpickled(pickled: bytes) -> str:
    """The one text that a pickle makes, which is read and never run."""
    texts: list[str] = []
    try:
        for instruction, argument, _ in pickletools.genops(pickled):
            if instruction.name in TEXTS:
                texts.append(str(argument))
            elif instruction.name not in AROUND:
                raise UserError(f"it holds the instruction {instruction.name}")
    except ValueError as error:
        said = " ".join(str(error).split())[:100]
        raise UserError(f"a pickle of something else than one text ({said})") from error
    if len(texts) != 1:
        raise UserError(f"a pickle of {len(texts)} texts, not of one")
    return texts[0]
