"""Published results of others: the rows below ours in Table 1, and the expected results of a recipe.

    python -m experiments.table1.document

draws the published numbers anew: into docs/results/table1.md and docs/results/expected.md.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e1_trl.atomic import write_atomically
from e1_trl.command_line import run_command
from e1_trl.provenance import Provenance
from e1_trl.report.markdown import replace_section, table

ROOT = Path(__file__).parents[2]
PUBLISHED = Path(__file__).parent / "published.yaml"
NAMES = {
    "livecodebench": "LiveCodeBench",
    "codeforces": "Codeforces",
    "humanevalplus": "HumanEval+",
    "aime2024": "AIME 2024",
}
EXPECTED = {"aime2024": "AIME 2024", "math500": "MATH500", "livecodebench": "LiveCodeBench"}
BUDGETS = ("512+1024", "1024+1024", "2048+1024", "3072+1024", "4096+1024", "unlimited", "not named")


@dataclass(frozen=True)
class Number:
    """In percent, or a rating; with its 95% interval where it is ours."""

    value: float
    low: float | None = None
    high: float | None = None
    percentile: float | None = None

    def __str__(self) -> str:
        digits = 1 if self.percentile is None else 0
        text = f"{self.value:.{digits}f}"
        if self.low is not None:
            text += f" ({self.low:.{digits}f}–{self.high:.{digits}f})"
        return text + ("" if self.percentile is None else f", {self.percentile:.1f}th")


@dataclass(frozen=True)
class Line:
    """A model at a budget: a number for each benchmark that it has one for."""

    model: str
    budget: str
    cells: Mapping[str, Number]
    source: str


def published() -> list[Line]:
    """Published rows of Table 1, and published results on programs."""
    lines = []
    for entry in yaml.safe_load(PUBLISHED.read_text())["table1"]:
        cells = {name: Number(entry[name]) for name in NAMES if name in entry}
        if "percentile" in entry:
            cells["codeforces"] = Number(entry["codeforces"], percentile=entry["percentile"])
        lines.append(Line(entry["model"], entry["budget"], cells, entry["source"]))
    return lines


def as_markdown(lines: Iterable[Line], notes: Sequence[str], provenance: Provenance) -> str:
    """Our lines of the table with the published ones below them, with their origin and what has to be said of it."""
    header = ("model", "thinking+solution", *NAMES.values(), "source")
    cells = (
        (line.model, line.budget, *(str(line.cells.get(name, "")) for name in NAMES), line.source)
        for line in (*lines, *published())
    )
    return "\n\n".join(["# The paper's Table 1", *notes, f"Made at {provenance}.", table(header, cells)])


def read(file: Path) -> tuple[list[Line], list[str], Provenance]:
    """Our lines, what has to be said of them, and where they come from, from the JSON beside the table."""
    content = json.loads(file.read_text())
    lines = [
        Line(**{**line, "cells": {name: Number(**cell) for name, cell in line["cells"].items()}})
        for line in content["lines"]
    ]
    made = content["provenance"]
    return lines, content["notes"], Provenance(**{**made, "seeds": tuple(made["seeds"])})


def expected() -> str:
    """Markdown table of expected results of each recipe at each budget: percent right, tokens in brackets."""
    entries: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for entry in (entry for section in yaml.safe_load(PUBLISHED.read_text()).values() for entry in section):
        for benchmark in (name for name in EXPECTED if name in entry and "recipe" in entry):
            entries.setdefault((entry["recipe"], benchmark, entry["model"]), {})[entry["budget"]] = entry
    rows = []
    for (recipe, benchmark, model), by_budget in sorted(entries.items(), key=lambda item: item[0][:2]):
        numbers = [_percent(by_budget.get(budget), benchmark) for budget in BUDGETS]
        sources = dict.fromkeys(entry["source"] for entry in by_budget.values())
        rows.append((recipe, EXPECTED[benchmark], model, *numbers, "; ".join(sources)))
    return table(("recipe", "benchmark", "model", *BUDGETS, "source"), rows)


def _percent(entry: Mapping[str, Any] | None, benchmark: str) -> str:
    if entry is None:
        return ""
    tokens = entry.get("tokens", {}).get(benchmark)
    text = f"{entry[benchmark]:.1f}" + (f" ({tokens:,})" if tokens else "")
    return f"{text}, pass@16 {entry['pass16']}" if "pass16" in entry else text


def main() -> None:
    """Draw the published numbers again."""
    results = ROOT / "docs" / "results"
    text = as_markdown(*read(results / "table1.json"))
    write_atomically(results / "table1.md", text)
    replace_section(results / "expected.md", "expected", expected())


if __name__ == "__main__":
    run_command("experiments.table1.document", main)
