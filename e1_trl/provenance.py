"""Provenance of published numbers: the version of this project, the day, the machine and the seeds."""

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
    # The project's when the file was made (see `commit`); rows name the commit that sampled their answers.
    commit: str
    date: str  # YYYY-MM-DD, UTC
    machine: str  # that made the file (see `machine`)
    seeds: tuple[int, ...]  # of the sampling or the training, sorted

    @classmethod
    def here(cls, seeds: Iterable[int]) -> "Provenance":
        return cls(commit(), datetime.now(UTC).date().isoformat(), machine(), tuple(sorted(set(seeds))))

    @classmethod
    def read(cls, folder: Path) -> "Provenance":
        file = folder / FILE
        if not file.exists():
            raise UserError(f"there is no {file}, which a training writes, so the origin of {folder} is unknown")
        record = json.loads(file.read_text())
        return cls(**{**record, "seeds": tuple(record["seeds"])})

    def write(self, folder: Path) -> None:
        write_atomically(folder / FILE, json.dumps(asdict(self), indent=1) + "\n")

    def __str__(self) -> str:
        seeds = f"; seed {', '.join(map(str, self.seeds))}" if self.seeds else ""
        return f"{self.commit}; {self.date}; {self.machine}{seeds}"


def machine() -> str:
    """Describe architecture, system, cores, Python and GPUs with driver: "x86_64, Linux, 2 cores, Python 3.11.7"."""
    query = "--query-gpu=name,memory.total,driver_version"
    gpus = Counter(output_of("nvidia-smi", query, "--format=csv,noheader").splitlines())
    python = f"Python {platform.python_version()}"  # verdicts on programs depend on it
    parts = [platform.machine(), platform.system(), f"{os.cpu_count()} cores", python]
    return ", ".join([*parts, *(f"{count} × {name}" for name, count in gpus.items())])


def installed_versions(names: Collection[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed; of two copies, that of the first on the path."""
    return {each.name: each.version for each in [*distributions()][::-1] if each.name in names}
