"""Every GPU recipe at reduced size: runs those that have changed and publishes the results.

    make recipes
    python -m tests.reduced [RECIPE …]

docs/recipes.md explains the runs. A published row is made again only if its recipe, its Accelerate configuration or a
substitution has changed.
"""

import argparse
import json
import shutil
from dataclasses import asdict, dataclass, replace
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from e1_trl.atomic import write_atomically
from e1_trl.errors import UserError, run_command
from e1_trl.plan.architecture import KNOWN
from e1_trl.provenance import Provenance
from e1_trl.report.markdown import around_section, replace_section, table
from tests.reduced.case import ROOT, UNABLE, Case, cases
from tests.reduced.found import Found
from tests.reduced.run import run
from tests.reduced.stand_ins import FAMILIES

RESULTS = ROOT / "docs" / "results" / "recipes.json"
DOCUMENT = RESULTS.with_suffix(".md")
RUNS = Path("runs/reduced")
LIBRARIES = ("accelerate", "deepspeed", "torch", "transformers", "trl", "vllm")


@dataclass(frozen=True)
class Row:
    """A case that ran to its end."""

    case: Case
    hashes: dict[str, str]  # of both files, as they were
    overrides: dict[str, Any]  # fields of the recipe that had another value
    found: Found
    versions: dict[str, str]  # of the libraries
    provenance: Provenance
    words: str = "its own"  # the tokenizer and the chat template

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Row":
        """Return the row of a record that `asdict` made."""
        made = {**record["provenance"], "seeds": tuple(record["provenance"]["seeds"])}
        parts = {"case": Case(**record["case"]), "found": Found(**record["found"]), "provenance": Provenance(**made)}
        return cls(**{**record, **parts})

    @property
    def is_fresh(self) -> bool:
        """Return whether the case would be run in the same way now."""
        return self.hashes == self.case.hashes and self.overrides == self.case.overrides


def read(results: Path) -> list[Row]:
    """Read the published rows; none if the file does not exist."""
    return [Row.from_record(record) for record in json.loads(results.read_text())["rows"]] if results.exists() else []


def missing(rows: list[Row], wanted: list[Case]) -> list[Case]:
    """Return the cases without a fresh row."""
    fresh = {row.case for row in rows if row.case in wanted and row.is_fresh}
    return [case for case in wanted if case not in fresh]


def publish(rows: list[Row]) -> None:
    """Write the rows of existing cases, in their order, and the table of the document.

    Raises:
        StoreError: they cannot be written, or the document lacks the section.
    """
    by_case = {row.case: row for row in rows}
    kept = [by_case[case] for case in cases([]) if case in by_case]
    content = json.dumps({"rows": [asdict(row) for row in kept]}, indent=1) + "\n"
    write_atomically(RESULTS, lambda file: file.write_text(content))
    replace_section(DOCUMENT, "rows", outcome(kept))


def outcome(rows: list[Row]) -> str:
    """Format the rows as a Markdown table, and below it what does not run."""
    numbers = ("loss", "gradient", "gap, nats", "moved", "validated", "graded", "vLLM", "seconds")
    header = ("recipe", "Accelerate", *numbers, "tokenizer", "made at")
    unable = (f"- `{recipe}` does not run: {error}.\n" for recipe, error in UNABLE.items())
    return f"{table(header, map(_cells, rows))}\n{''.join(unable)}"


def _cells(row: Row) -> tuple[str, ...]:
    found = row.found
    graded = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in found.outcomes.items())
    return (
        row.case.recipe,
        row.case.accelerate_config,
        ", ".join(f"{loss:.3g}" for loss in found.loss),
        ", ".join(f"{norm:.2g}" for norm in found.grad_norm),
        f"{found.gap:.1g}",
        ", ".join(f"{moved:.1e}" for moved in found.moved),
        ", ".join(map(str, found.validated)) or "off",
        graded if found.isolation is None else f"{graded} ({found.isolation})",
        f"{found.sampled:.0f} tokens",
        f"{found.seconds:.0f}",
        row.words,
        f"{row.provenance.commit}, {row.provenance.date}",
    )


def main(argv: list[str] | None = None) -> None:
    """Run the missing cases, and publish each row as soon as it is made."""
    parser = argparse.ArgumentParser(prog="python -m tests.reduced", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help="names of GPU recipes (default: all)")
    arguments = parser.parse_args(argv)
    failed = []
    distributions = packages_distributions()
    made = Provenance.here([])
    around_section(DOCUMENT, "rows")
    wanted = cases(arguments.recipes)
    rows = read(RESULTS)
    for case in (case for case in missing(rows, wanted) if case.recipe not in UNABLE or arguments.recipes):
        print(f"==> {case}", flush=True)
        folder = RUNS / f"{case.recipe}-{case.accelerate_config}"
        try:
            found = run(case, folder, folder.with_name(f"{folder.name}.log"))
        except UserError as error:
            print(f"    failed: {error}", flush=True)
            failed.append(str(case))
            continue
        shutil.rmtree(folder)  # gigabytes
        versions = {name: version(distributions[name][0]) for name in LIBRARIES}
        provenance = replace(made, seeds=(case.fields["seed"],))
        words = FAMILIES[KNOWN[case.fields["model_name_or_path"]]["model_type"]].about
        row = Row(case, case.hashes, case.overrides, found, versions, provenance, words)
        rows = [*(row for row in rows if row.case != case), row]
        publish(rows)
    publish(rows)
    if failed:
        raise UserError(f"failed: {'; '.join(failed)}")


if __name__ == "__main__":
    run_command("tests.reduced", main)
