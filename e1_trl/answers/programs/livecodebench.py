"""LiveCodeBench: a window of its problems, and the tests in the rows of its files `test*.jsonl`.

The hidden tests are pickled, and unpickling runs whatever code the file's author put there. So nothing is unpickled:
the instructions of the pickle are read, and only those that build a single text are accepted.
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
LARGEST = 2**30  # bytes of one problem's unpacked tests; a packed file of hundreds of problems is about as large
TEXTS = {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
# Instructions around a text: the version, the frame, storing the text in the memo, and the end.
AROUND = {"PROTO", "FRAME", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "STOP"}


@dataclass(frozen=True)
class Window:
    """LiveCodeBench problems by release and contest date, `until` excluded. The default is the paper's window.

    Raises:
        UserError: the release is unknown, a day is not written as 2024-08-01, or the window is empty.
    """

    release: str = PAPERS_WINDOW[0]
    since: str = PAPERS_WINDOW[1]
    until: str = PAPERS_WINDOW[2]

    def __post_init__(self) -> None:
        if self.release not in RELEASES:
            raise UserError(f"LiveCodeBench has no release {self.release!r}; it has {', '.join(RELEASES)}")
        for day in (self.since, self.until):
            try:
                is_day = date.fromisoformat(day).isoformat() == day
            except ValueError:
                is_day = False
            if not is_day:
                raise UserError(f"expected a day such as 2024-08-01, found {day!r}")
        if self.since >= self.until:
            raise UserError(f"LiveCodeBench has no problems from {self.since} to before {self.until}")

    @property
    def files(self) -> list[str]:
        """The release's files on the Hub."""
        last = RELEASES.index(self.release) + 1
        return ["test.jsonl", *(f"test{number}.jsonl" for number in range(2, last + 1))]

    def __str__(self) -> str:
        """Return the suffix to the benchmark's name in a report: empty for the paper's window."""
        return "" if self == Window() else f"-{self.release}-{self.since}-{self.until}"


def tests_of(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tests of a row, public ones first, as `read_suite` takes them.

    Raises:
        UserError: the row is malformed.
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
        raise UserError(f"expected a text, found {type(text).__name__}")
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
    """Decode base64 and decompress."""
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
    """Return the one text that a pickle builds, without running the pickle."""
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
