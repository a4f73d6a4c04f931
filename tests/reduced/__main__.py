"""Every GPU recipe at reduced size: runs those that have changed and publishes the results.

    make recipes
    python -m tests.reduced [RECIPE …]

docs/recipes.md explains the runs. A published row is made again only if its recipe, its Accelerate configuration or a
substitution has changed.
"""

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from e1_trl.atomic import write_atomically
from e1_trl.command_line import run_command
from e1_trl.errors import UserError
from e1_trl.plan.architecture import KNOWN
from e1_trl.provenance import Provenance
from e1_trl.report.markdown import around_section, replace_section, table
from tests.reduced.case import ROOT, Case, cases
from tests.reduced.found import Found
from tests.reduced.run import run
from tests.reduced.stand_ins import FAMILIES

RESULTS = ROOT / "docs" / "results" / "recipes.json"
DOCUMENT = RESULTS.with_suffix(".md")
RUNS = Path("runs/reduced")
LIBRARIES = ("accelerate", "deepspeed", "torch", "transformers", "trl", "vllm")
Row = dict[str, Any]  # the record of a case that ran to its end, as `make_row` makes it


def make_row(case: Case, found: Found, made: Provenance) -> Row:
    """Return the record of a case that has run."""
    distributions = packages_distributions()
    return {
        "case": asdict(case),
        "hashes": case.hashes,
        "overrides": case.overrides,
        "found": asdict(found),
        "versions": {name: version(distributions[name][0]) for name in LIBRARIES},
        "provenance": asdict(replace(made, seeds=(case.fields["seed"],))),
        "words": FAMILIES[KNOWN[case.fields["model_name_or_path"]]["model_type"]].about,
    }


def read() -> dict[Case, Row]:
    """Read the published rows by their cases."""
    return {Case(**row["case"]): row for row in json.loads(RESULTS.read_text())["rows"]}


def missing(rows: Mapping[Case, Row], wanted: list[Case]) -> list[Case]:
    """Return the cases without a row, and those that would not be run now as they were for their row."""
    made = {case: (row["hashes"], row["overrides"]) for case, row in rows.items()}
    return [case for case in wanted if made.get(case) != (case.hashes, case.overrides)]


def publish(rows: Mapping[Case, Row]) -> None:
    """Write the rows of existing cases, in their order, and the table of the document."""
    kept = {case: rows[case] for case in cases([]) if case in rows}
    content = json.dumps({"rows": [*kept.values()]}, indent=1) + "\n"
    write_atomically(RESULTS, content)
    replace_section(DOCUMENT, "rows", outcome(kept))


def outcome(rows: Mapping[Case, Row]) -> str:
    """Format the rows as a Markdown table."""
    numbers = ("loss", "gradient", "gap, nats", "moved", "validated", "graded", "vLLM", "seconds")
    header = ("recipe", "Accelerate", *numbers, "tokenizer", "made at")
    return f"{table(header, map(_cells, rows.values()))}\n"


def _cells(row: Row) -> tuple[str, ...]:
    found = Found(**row["found"])
    graded = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in found.outcomes.items())
    return (
        row["case"]["recipe"],
        row["case"]["accelerate_config"],
        ", ".join(f"{loss:.3g}" for loss in found.loss),
        ", ".join(f"{norm:.2g}" for norm in found.grad_norm),
        f"{found.gap:.1g}",
        ", ".join(f"{moved:.1e}" for moved in found.moved),
        ", ".join(map(str, found.validated)) or "off",
        graded if found.isolation is None else f"{graded} ({found.isolation})",
        f"{found.sampled:.0f} tokens",
        f"{found.seconds:.0f}",
        row["words"],
        f"{row['provenance']['commit']}, {row['provenance']['date']}",
    )


def main() -> None:
    """Run the missing cases, and publish each row as soon as it is made."""
    failed = []
    made = Provenance.here([])  # before hours in which the checkout may change
    around_section(DOCUMENT, "rows")
    wanted = cases(sys.argv[1:])
    rows = read()
    for case in missing(rows, wanted):
        print(f"==> {case}", flush=True)
        folder = RUNS / f"{case.recipe}-{case.accelerate_config}"
        try:
            found = run(case, folder, folder.with_name(f"{folder.name}.log"))
        except UserError as error:
            print(f"    failed: {error}", flush=True)
            failed.append(str(case))
            continue
        shutil.rmtree(folder)  # gigabytes
        rows[case] = make_row(case, found, made)
        publish(rows)
    publish(rows)
    if failed:
        raise UserError(f"failed: {'; '.join(failed)}")


if __name__ == "__main__":
    run_command("tests.reduced", main)
