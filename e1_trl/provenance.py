"""Provenance of published numbers: version of this project, date, machine and seeds."""

import json
import os
import platform
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path

from e1_trl.atomic import write_atomically
from e1_trl.checkout import commit, output_of
from e1_trl.errors import UserError

FILE = "provenance.json"


@dataclass(frozen=True)
class Provenance:
    """One record in every published file.

    Attributes:
        commit: of this project (see `commit`) as the file was made; what sampled answers is named in their rows.
        date: as year-month-day, UTC.
        machine: architecture, system, cores, Python and GPUs of the machine that made the file.
        seeds: of the sampling or the training, sorted.
    """

    commit: str
    date: str
    machine: str
    seeds: tuple[int, ...]

    @classmethod
    def here(cls, seeds: Iterable[int]) -> "Provenance":
        """Made at this moment on this machine."""
        return cls(
            commit=commit(),
            date=datetime.now(UTC).date().isoformat(),
            machine=machine(),
            seeds=tuple(sorted(set(seeds))),
        )

    @classmethod
    def read(cls, folder: Path) -> "Provenance":
        """Read the record that `write` left in a folder.

        Raises:
            UserError: the folder has no record.
        """
        file = folder / FILE
        if not file.exists():
            raise UserError(f"there is no {file}, which a training writes: what made {folder} is not known")
        record = json.loads(file.read_text())
        return cls(
            commit=record["commit"], date=record["date"], machine=record["machine"], seeds=tuple(record["seeds"])
        )

    def write(self, folder: Path) -> None:
        """Leave the record beside what it is about, so that whoever publishes that can name its origin."""
        text = json.dumps(asdict(self), indent=1) + "\n"
        write_atomically(folder / FILE, lambda path: path.write_text(text))

    def __str__(self) -> str:
        seeds = f"; seed {', '.join(map(str, self.seeds))}" if self.seeds else ""
        return f"{self.commit}; {self.date}; {self.machine}{seeds}"


def machine() -> str:
    """Architecture, system, cores, Python and GPUs with their driver: "x86_64, Linux, 2 cores, Python 3.11.7"."""
    query = "--query-gpu=name,memory.total,driver_version"
    gpus = output_of("nvidia-smi", query, "--format=csv,noheader").splitlines()
    named = [f"{count} × {name}" for name, count in Counter(gpus).items()]
    python = f"Python {platform.python_version()}"  # verdicts on programs depend on it
    return ", ".join([platform.machine(), platform.system(), f"{os.cpu_count()} cores", python, *named])


def installed_versions(names: Collection[str]) -> dict[str, str]:
    """The versions of these packages, as far as they are installed; of two on the path, of the one that is imported."""
    return {each.name: each.version for each in [*distributions()][::-1] if each.name in names}  # the first is last
