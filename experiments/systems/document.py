"""The table of all systems as documents: docs/results/systems.md with a picture, and docs/systems.md's leaderboard."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from e1_trl.atomic import write_atomically
from e1_trl.report.markdown import replace_section, table
from e1_trl.report.pictures import save
from experiments.systems.measure import THINKING, references

ROWS = Path("docs/results/systems.json")
TABLES, PICTURE, DOCUMENT = ROWS.with_suffix(".md"), ROWS.with_suffix(".png"), Path("docs/systems.md")
PROBLEMS = Path("runs/first_zero/data/test.jsonl")
LEADERS = 5  # lines of the picture besides base and references

Row = dict[str, Any]


def read() -> list[Row]:
    """The rows that are there."""
    rows: list[Row] = json.loads(ROWS.read_text()) if ROWS.exists() else []
    return rows


def by_system(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each system, by their seeds; the largest mean area first."""
    systems: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        systems.setdefault(row["system"], []).append(row)
    return sorted(systems.values(), key=lambda own: -mean(own, "area"))


def mean(rows: Sequence[Row], name: str) -> float:
    """Of a number over seeds."""
    return fmean(row[name] for row in rows)


def leaderboard(rows: Sequence[Row]) -> str:
    """Rank, system, area, and what the answers cost without a budget; of several seeds their mean and span."""
    lines = []
    for rank, own in enumerate(by_system(rows), 1):
        low, high = min(row["area"] for row in own), max(row["area"] for row in own)
        interval = f"{own[0]['area_low']:.1%} to {own[0]['area_high']:.1%}"
        lines.append(
            (
                str(rank),
                own[0]["system"],
                f"{mean(own, 'area'):.1%}",
                f"{low:.1%} to {high:.1%}, {len(own)} seeds" if len(own) > 1 else interval,
                f"{mean(own, 'unconstrained_accuracy'):.1%}",
                f"{mean(own, 'unconstrained_tokens'):.0f}",
                ", ".join(dict.fromkeys(row["commit"] for row in own)),
            )
        )
    header = ("", "system", "area", "95% interval, or span of seeds", "no budget", "tokens", "commit")
    recipes = {file.stem for file in Path(__file__).parent.glob("*.yaml")}
    finished = len(recipes & {row["system"] for row in rows})
    return f"{table(header, lines)}\n{finished} of {len(recipes)} recipes have their row.\n"


def accuracies(rows: Sequence[Row]) -> str:
    """Accuracy at each budget, with a forced close and cut at the same total."""
    header = ("system", "none", *(f"{budget}" for budget in THINKING), *(f"{budget}, cut" for budget in THINKING))
    lines = []
    for own in by_system(rows):
        forced = [fmean(row["budgets"][at]["accuracy"] for row in own) for at in range(len(THINKING))]
        cut = [fmean(row["budgets"][at]["accuracy_cut"] for row in own) for at in range(len(THINKING))]
        shares = [mean(own, "no_thinking_accuracy"), *forced, *cut]
        lines.append((own[0]["system"], *(f"{share:.1%}" for share in shares)))
    return table(header, lines)


def lengths(rows: Sequence[Row], at: int) -> str:
    """What is used at one budget, how much of right and of wrong answers, and what follows a forced close."""
    header = ("system", "thinking", "solution", "right", "wrong", "forced", "names an open group", "goes on thinking")
    lines = []
    for own in by_system(rows):
        tokens = [
            _known(own, at, name)
            for name in ("mean_thinking_tokens", "mean_solution_tokens", "tokens_right", "tokens_wrong")
        ]
        shares = [_known(own, at, name) for name in ("forced_ratio", "open_ratio", "escape_ratio")]
        cells = [*("" if each is None else f"{each:.1f}" for each in tokens)]
        lines.append((own[0]["system"], *cells, *("" if each is None else f"{each:.1%}" for each in shares)))
    return table(header, lines)


def trainings(rows: Sequence[Row]) -> str:
    """What each training took."""
    header = ("system", "seed", "generated tokens", "steps", "seconds", "validation area", "commit", "date", "machine")
    ordered = sorted(rows, key=lambda row: (row["system"], row["seed"]))
    return table(
        header,
        (
            (
                row["system"],
                str(row["seed"]),
                f"{row['generated_tokens']:,}",
                str(row["steps"]),
                f"{row['train_seconds']:.0f}",
                f"{row['validation_area']:.1%}",
                row["commit"],
                row["date"],
                row["machine"],
            )
            for row in ordered
        ),
    )


def picture(rows: Sequence[Row], reference: dict[str, list[float]]) -> Figure:
    """Accuracy over the budget: the leaders, E1, plain GRPO and the base, beside what concise thoughts would reach."""
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axis = figure.subplots()
    ranked = [own for own in by_system(rows) if own[0]["system"] not in ("base", "e1", "grpo_cut")][:LEADERS]
    named = [own for own in by_system(rows) if own[0]["system"] in ("base", "e1", "grpo_cut")]
    for own in [*ranked, *named]:
        line = [fmean(row["budgets"][at]["accuracy"] for row in own) for at in range(len(THINKING))]
        axis.plot(THINKING, line, "o-", markersize=3, label=own[0]["system"])
    for name, line in reference.items():
        axis.plot(THINKING, line, ":", color="gray" if name == "random guess" else "black", label=f"concise, {name}")
    axis.set_xscale("log", base=2)
    axis.set_xticks(THINKING, [str(budget) for budget in THINKING])
    axis.set(xlabel="thinking budget (tokens)", ylabel="accuracy", ylim=(0.2, 1))
    axis.legend(fontsize="x-small")
    return figure


def publish() -> None:
    """Write all documents from the rows that are there."""
    rows = read()
    reference = references([json.loads(line)["problem"] for line in PROBLEMS.read_text().splitlines()])
    best = table(
        ("the shortest right thought, where it does not fit", "area", *map(str, THINKING)),
        ((name, *(f"{share:.1%}" for share in (fmean(line), *line))) for name, line in reference.items()),
    )
    parts = [
        "# Every system on the miniature in which the budget binds",
        "Made by `make systems` from [systems.json](systems.json); what it means is in [systems](../systems.md).",
        "## Area",
        leaderboard(rows),
        best,
        f"![curves]({PICTURE.name})",
        "## Accuracy at each thinking budget, with a forced close and 8 tokens to answer, and cut at the same total",
        accuracies(rows),
        *(
            f"## Tokens at {budget}+8\n\n{lengths(rows, at)}"
            for at, budget in enumerate(THINKING)
            if budget in (18, 36, 144)
        ),
        "## Trainings",
        trainings(rows),
    ]
    write_atomically(TABLES, lambda path: path.write_text("\n\n".join(part.rstrip("\n") for part in parts) + "\n"))
    save(picture(rows, reference), PICTURE)
    replace_section(DOCUMENT, "leaderboard", leaderboard(rows))


def _known(rows: Sequence[Row], at: int, name: str) -> float | None:
    """The mean of a number at a budget over the seeds that have it."""
    values = [row["budgets"][at][name] for row in rows if row["budgets"][at][name] is not None]
    return fmean(values) if values else None
