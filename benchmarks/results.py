"""docs/results/bench.json and the sections of docs/benchmark.md that show it.

A command writes its rows as soon as it has them, and leaves out what is there already. Rows are kept as long as the
sources and the machine are those that they were measured with.
"""

import argparse
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.rows import Row, read
from benchmarks.tables import sections
from e1_trl.atomic import write_atomically
from e1_trl.report.markdown import around_section, replace_section
from e1_trl.report.provenance import ROOT, Provenance

FILE = Path("docs/results/bench.json")
MEASURED = (
    "accelerate_configs/*",
    "benchmarks/*.py",
    "constraints.txt",
    "e1_trl/**/*.py",
    "experiments/miniature.sh",
    "experiments/nano/recipe.yaml",
    "experiments/nano/*.py",
    "experiments/nano/base/*",
    "tests/answers/sandbox/*.py",
)


def sources() -> str:
    """A hash of all files that a measurement can depend on."""
    total = hashlib.sha256()
    for file in sorted(file for pattern in MEASURED for file in ROOT.glob(pattern)):
        total.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return total.hexdigest()[:16]


@dataclass(frozen=True)
class Results:
    """What has been measured with these sources on this machine.

    Attributes:
        provenance: of the first measurement; the commit is that of the sources.
        sources: their hash.
        rows: all of one distribution, or none.
    """

    provenance: Provenance
    sources: str
    rows: tuple[Row, ...]

    @classmethod
    def read(cls, file: Path = FILE) -> "Results":
        """The published results as far as they are of now; without rows if they are of other sources."""
        now = cls(Provenance.here([0]), sources(), ())
        record = json.loads(file.read_text()) if file.exists() else {}
        if record.get("sources") != now.sources or record["provenance"]["machine"] != now.provenance.machine:
            return now
        made = {**record["provenance"], "seeds": tuple(record["provenance"]["seeds"])}
        return cls(Provenance(**made), now.sources, tuple(map(read, record["rows"])))

    def has(self, distribution: str) -> bool:
        """Whether there are rows of it."""
        return any(row.distribution == distribution for row in self.rows)

    def merged(self, rows: Sequence[Row]) -> "Results":
        """With these rows in the place of those of their distributions."""
        distributions = {row.distribution for row in rows}
        return replace(self, rows=(*(row for row in self.rows if row.distribution not in distributions), *rows))

    def publish(self, file: Path, document: Path | None) -> None:
        """Write the file, and the sections of the document.

        Raises:
            StoreError, ValueError: they cannot be written, or the document lacks a section.
        """
        text = json.dumps(asdict(self), indent=1) + "\n"
        write_atomically(file, lambda path: path.write_text(text))
        if document is not None:
            for name, section in sections(self.rows).items():
                replace_section(document, name, section)


def arguments(description: str) -> argparse.Namespace:
    """The command line of every benchmark that writes these results: `output` and `document`.

    Raises:
        ValueError: the document lacks a section.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--output", type=Path, default=FILE, help="JSON file")
    parser.add_argument("--document", type=Path, help="Markdown file whose sections are replaced")
    parsed = parser.parse_args()
    if parsed.document is not None:
        for name in sections(()):
            around_section(parsed.document, name)
    return parsed
