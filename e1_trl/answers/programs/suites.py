"""Store of suites, the tests of programs, by name.

The tests of one program may take many megabytes, so datasets and tables of answers hold only a suite's name, which is
a digest of its content; the suite itself is a file on this machine, written once and never changed.
"""

import gzip
import hashlib
import json
import uuid
import zlib
from dataclasses import asdict
from pathlib import Path

from e1_trl.answers.programs.suite import Case, Rule, Suite
from e1_trl.errors import UserError

PREFIX = "suite:"
NO_CHECKER = {"checker": None}  # kept so that digests equal the names in existing tables of answers


class Suites:
    """The suites of this machine by name, stored as JSON in the folder `e1_suites` in the cache of `datasets`."""

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
        """Return the suite of this name.

        Raises:
            UserError: there is none, or its file is damaged; one line says what to do.
        """
        if name not in self:
            raise UserError(
                f"{name[:40]!r} names no tests in {self.folder}; run the same `e1 eval` or `e1 train` again: it reads "
                "them from the dataset, and repeats no finished samples"
            )
        try:
            record = json.loads(gzip.decompress(self._file(name).read_bytes()))
            cases = tuple(Case(case["input"], tuple(case["expected"])) for case in record["cases"])
            return Suite(cases, record["call"], Rule(record["rule"]))
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            raise UserError(f"{self._file(name)}: cannot read the tests of a program ({error}); delete it") from error

    def _file(self, name: str) -> Path:
        return self.folder / f"{name.removeprefix(PREFIX)}.json.gz"
