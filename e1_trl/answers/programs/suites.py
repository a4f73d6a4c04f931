"""Suites by name: a dataset and a table of answers hold a suite's name, files of this machine hold its tests.

The tests of one program may be many megabytes, and would stand in every row. A name is a digest of the suite, so it
means the same everywhere; a file is written once, by whichever process or machine comes first, and never changed.
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
NO_CHECKER = {"checker": None}  # of which the names in tables of answers are digests, too


class Suites:
    """The suites in a folder by their names, as JSON; each is read when asked for.

    Args:
        folder: unset: `e1_suites` in the cache of `datasets`, beside the tables that hold the names.
    """

    def __init__(self, folder: Path | None = None):
        if folder is None:
            from datasets import config

            folder = Path(config.HF_DATASETS_CACHE) / "e1_suites"
        self.folder = folder

    def add(self, suite: Suite) -> str:
        """Keep a suite; returns its name."""
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
        """The suite of this name.

        Raises:
            UserError: there is none, or its file is damaged, or has a checker, as older versions wrote them; one line
                that says what to do.
        """
        if name not in self:
            raise UserError(
                f"{name[:40]!r} names no tests in {self.folder}; the same `e1 eval` or `e1 train` run again reads them "
                "from the dataset, and samples nothing that is there"
            )
        try:
            record = json.loads(gzip.decompress(self._file(name).read_bytes()))
            if record.get("checker") is not None:
                raise UserError("a checker says which outputs are right, and none is run")
            cases = tuple(Case(case["input"], tuple(case["expected"])) for case in record["cases"])
            return Suite(cases, record["call"], Rule(record["rule"]))
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            file = self._file(name)
            raise UserError(f"{file}, the tests of a program, cannot be used ({error}); delete it") from error

    def _file(self, name: str) -> Path:
        return self.folder / f"{name.removeprefix(PREFIX)}.json.gz"
