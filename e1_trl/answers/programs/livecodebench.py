"""LiveCodeBench: a window of its problems, and the tests in the rows of its files `test*.jsonl`.

The hidden tests are pickled, and unpickling runs whatever code the file's author put there. So nothing is unpickled:
the instructions of the pickle are read, and only those that build a single text are accepted.
"""

import base64
import json
import pickletools
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from e1_trl.errors import UserError

TESTS = ("public_test_cases", "private_test_cases")  # columns
RELEASES = tuple(f"v{number}" for number in range(1, 7))
PAPERS_WINDOW = ("v5", "2024-08-01", "2025-02-01")  # release, first day, and the day after the last
TEXTS = {"UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
# Instructions around a text: the version, the frame, storing the text in the memo, and the end.
AROUND = {"PROTO", "FRAME", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "STOP"}


@dataclass(frozen=True)
class Window:
    """LiveCodeBench problems by release and contest date, `until` excluded. The default is the paper's window."""

    release: str = PAPERS_WINDOW[0]
    since: str = PAPERS_WINDOW[1]
    until: str = PAPERS_WINDOW[2]

    def __post_init__(self) -> None:
        if self.release not in RELEASES:
            raise UserError(f"LiveCodeBench has no release {self.release!r}; it has {', '.join(RELEASES)}")
        for day in (self.since, self.until):
            if not re.fullmatch(r"\d{4}-\d\d-\d\d", day):  # days are compared as texts
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
    """Return the tests of a row, public ones first, as `read_suite` takes them."""
    tests: list[dict[str, Any]] = []
    for column in TESTS:
        if column not in row:
            raise UserError(f"a row of LiveCodeBench has no {column!r}; it has {', '.join(map(repr, row))}")
        text = row[column]
        try:
            if not text.lstrip().startswith("["):
                text = _unpickled(zlib.decompress(base64.b64decode(text, validate=True)))
            tests += json.loads(text)
        except (ValueError, AttributeError, RecursionError, zlib.error) as error:
            said = " ".join(str(error).split())[:100]
            raise UserError(f"{column}: neither a list in JSON nor a compressed pickle of one ({said})") from error
    return tests


def _unpickled(pickled: bytes) -> str:
    """Return the one text that a pickle builds, without running the pickle."""
    found = [(instruction.name, argument) for instruction, argument, _ in pickletools.genops(pickled)]
    texts = [(name, argument) for name, argument in found if name not in AROUND]
    if len(texts) != 1 or texts[0][0] not in TEXTS:
        raise ValueError("a pickle of something else than one text")
    return str(texts[0][1])
