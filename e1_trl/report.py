"""Draws evaluation rows: a table for the terminal, one for Markdown, and the picture of accuracy against budget.

    python -m e1_trl.report runs/nano/base.json runs/nano/e1.json --output runs/nano

Knows nothing of models or engines; all it draws comes from the rows.
"""

import argparse
import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib
from rich.console import Console
from rich.table import Table

matplotlib.use("Agg")
from matplotlib import pyplot as plt

HEADER = ("model", "thinking budget", "solution budget", "accuracy", "95% interval", "tokens", "thinking", "forced")


@dataclass(frozen=True)
class Row:
    """One model at one budget on one dataset. Budgets and means in tokens; `None` is unlimited."""

    model: str
    method: str
    thinking_budget: int | None
    solution_budget: int | None
    problems: int
    accuracy: float
    ci_low: float
    ci_high: float
    mean_tokens: float
    mean_thinking_tokens: float
    mean_solution_tokens: float
    forced_ratio: float
    seed: int
    commit: str


def commit() -> str:
    """The checked-out commit, with `-dirty` if tracked files differ from it; "unknown" outside a checkout."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    result = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    return result.stdout.strip() or "unknown"


def read_rows(files: Sequence[Path]) -> list[Row]:
    return [Row(**row) for file in files for row in json.loads(file.read_text())]


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.model,
        "unlimited" if row.thinking_budget is None else str(row.thinking_budget),
        "unlimited" if row.solution_budget is None else str(row.solution_budget),
        f"{row.accuracy:.1%}",
        f"{row.ci_low:.1%} – {row.ci_high:.1%}",
        f"{row.mean_tokens:.1f}",
        f"{row.mean_thinking_tokens:.1f}",
        f"{row.forced_ratio:.0%}",
    )


def table(rows: Sequence[Row]) -> Table:
    """The rows as a table for the terminal."""
    result = Table(*HEADER, title=f"{rows[0].problems} problems, one answer each")
    for row in rows:
        result.add_row(*_cells(row))
    return result


def markdown(header: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def plot(rows: Sequence[Row], file: Path) -> None:
    """Accuracy against the thinking budget, and against the tokens really used, one line per model."""
    figure, (by_budget, by_tokens) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for i, model in enumerate(dict.fromkeys(row.model for row in rows)):
        color = f"C{i}"
        limited = sorted(
            (row for row in rows if row.model == model and row.thinking_budget is not None),
            key=lambda row: row.thinking_budget or 0,
        )
        budgets = [row.thinking_budget or 0 for row in limited]
        by_budget.plot(budgets, [row.accuracy for row in limited], "o-", color=color, label=model)
        low, high = [row.ci_low for row in limited], [row.ci_high for row in limited]
        by_budget.fill_between(budgets, low, high, color=color, alpha=0.2)
        for row in (row for row in rows if row.model == model and row.thinking_budget is None):
            by_budget.axhline(row.accuracy, color=color, linestyle=":", label=f"{model}, unlimited")
            by_tokens.plot(row.mean_tokens, row.accuracy, "*", color=color, markersize=12)
        by_tokens.plot([row.mean_tokens for row in limited], [row.accuracy for row in limited], "o-", color=color)
        by_tokens.fill_between([row.mean_tokens for row in limited], low, high, color=color, alpha=0.2)
    by_budget.set(xlabel="thinking budget (tokens)", ylabel="accuracy", ylim=(0, 1.03))
    by_tokens.set(xlabel="mean tokens used (star: unlimited)", xscale="log")
    by_budget.legend()
    figure.savefig(file, dpi=150)
    plt.close(figure)


def replace_section(document: Path, name: str, text: str) -> None:
    """Put `text` between the lines `<!-- name -->` and `<!-- /name -->` of a document.

    Raises:
        ValueError: the document has no such lines.
    """
    content, start, end = document.read_text(), f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if start not in content or end not in content:
        raise ValueError(f"{document} has no section between {start.strip()} and {end}")
    before, rest = content.split(start, 1)
    document.write_text(f"{before}{start}{text}{end}{rest.split(end, 1)[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw evaluation rows.")
    parser.add_argument("rows", type=Path, nargs="+", help="JSON files written by e1_trl.evaluate")
    parser.add_argument("--output", type=Path, required=True, help="folder for NAME.json, NAME.md and NAME.png")
    parser.add_argument("--name", default="nano", help="name of the files")
    parser.add_argument("--document", type=Path, help="Markdown file whose section NAME becomes the table")
    arguments = parser.parse_args()
    rows = read_rows(arguments.rows)
    arguments.output.mkdir(parents=True, exist_ok=True)
    stem = arguments.output / arguments.name
    stem.with_suffix(".json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    text = markdown(HEADER, map(_cells, rows))
    stem.with_suffix(".md").write_text(text)
    plot(rows, stem.with_suffix(".png"))
    if arguments.document is not None:
        replace_section(arguments.document, arguments.name, text)
    Console().print(table(rows))
    print(f"wrote {stem}.json, .md and .png")


if __name__ == "__main__":
    main()
