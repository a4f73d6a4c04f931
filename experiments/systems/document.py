"""The tables of all systems as documents: for each miniature a page of docs/results, and the tables of docs/systems.md.

python -m experiments.systems.document     makes them again from the rows that are there
"""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure

from e1_trl.atomic import write_atomically
from e1_trl.report.markdown import replace_section, table
from e1_trl.report.pictures import save
from experiments.pretraining import SEED
from experiments.systems.compare import compare_pairs, comparisons
from experiments.systems.measure import BANNED, THINKING, Row, references
from experiments.systems.miniatures import FIRST_ZERO, MINIATURES, Miniature
from experiments.systems.tables import (
    accuracies,
    at_best_rate,
    by_system,
    cheapest,
    leaderboard,
    learning_rates,
    lengths,
    noise,
    plain,
    trainings,
    trial,
)

ROWS, DOCUMENT = Path("docs/results/systems.json"), Path("docs/systems.md")
TRIAL, NOISE = (ROWS.with_name(f"{name}.jsonl") for name in ("expected_answers", "noise"))
PAGES = {name: name for name in MINIATURES} | {FIRST_ZERO.name: "systems"}  # of docs/results
LEADERS = 5  # lines of the picture besides those that are always shown
SHOWN = ("base", BANNED, "e1", "grpo_cut")


def read(miniature: str | None = None) -> list[Row]:
    """The rows that are there, of one miniature or of all."""
    rows: list[Row] = json.loads(ROWS.read_text()) if ROWS.exists() else []
    return [row for row in rows if miniature in (None, row["miniature"])]


def picture(rows: Sequence[Row], reference: dict[str, list[float]]) -> Figure:
    """Accuracy over the budget: the leaders, E1, plain GRPO and the base, beside what concise thoughts would reach."""
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axis = figure.subplots()
    leaders = [own for own in by_system(at_best_rate(rows)) if plain(own[0]["system"]) not in SHOWN][:LEADERS]
    named = [own for own in by_system(at_best_rate(rows)) if plain(own[0]["system"]) in SHOWN]
    for own in [*leaders, *named]:
        line = [fmean(row["budgets"][at]["accuracy"] for row in own) for at in range(len(THINKING))]
        axis.plot(THINKING, line, "o-", markersize=3, label=own[0]["system"])
    for name, line in reference.items():
        axis.plot(THINKING, line, ":", color="gray" if name == "random guess" else "black", label=f"concise, {name}")
    axis.set_xscale("log", base=2)
    axis.set_xticks(THINKING, [str(budget) for budget in THINKING])
    axis.set(xlabel="thinking budget (tokens)", ylabel="accuracy", ylim=(0.2, 1))
    axis.legend(fontsize="x-small")
    return figure


def ranked(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each system at its best rate, one a seed, by its plain name."""
    return {plain(own[0]["system"]): own for own in by_system(at_best_rate(rows))}


def sections(rows: Sequence[Row], miniature: Miniature) -> dict[str, str]:
    """The sections of docs/systems.md that are made of the rows of a miniature."""
    family = sum(len(compare_pairs(ranked(read(name)))) for name in MINIATURES)
    made = {
        "leaderboard": leaderboard(rows, miniature),
        "cheapest": cheapest(rows),
        "differences": comparisons(ranked(rows), family),
        "rates": learning_rates(rows, miniature),
    }
    suffix = "" if miniature is FIRST_ZERO else f"-{miniature.name}"
    return {f"{name}{suffix}": text for name, text in made.items()}


def publish() -> None:
    """Write the documents of every miniature from the rows that are there."""
    for miniature in MINIATURES.values():
        if rows := read(miniature.name):
            publish_one(miniature, rows)
    for name, file, make in (("trial", TRIAL, trial), ("noise", NOISE, noise)):
        if file.exists():
            replace_section(DOCUMENT, name, make([*map(json.loads, file.read_text().splitlines())]))


def publish_one(miniature: Miniature, rows: Sequence[Row]) -> None:
    """Write the page, the picture and the sections of one miniature."""
    page = ROWS.with_name(f"{PAGES[miniature.name]}.md")
    picture_file = page.with_suffix(".png")
    problems = (miniature.data / "data" / "test.jsonl").read_text().splitlines()
    reference = references(miniature, [json.loads(line)["problem"] for line in problems])
    best = table(
        ("the shortest right thought, where it does not fit", "mean accuracy", *map(str, THINKING)),
        ((name, *(f"{share:.1%}" for share in (fmean(line), *line))) for name, line in reference.items()),
    )
    made = sections(rows, miniature)
    board, cheap, compared, rates = made.values()
    parts = [
        f"# Every system on the miniature {miniature.name}",
        f"Made by `make systems ARGS='--miniature {miniature.name}'` from [systems.json](systems.json); what it means "
        "is in [systems](../systems.md).",
        "## Mean accuracy over the budgets",
        board,
        cheap,
        "## Differences",
        compared,
        "## Learning rates",
        rates,
        "## What the shortest thoughts would reach",
        best,
        f"![curves]({picture_file.name})",
        "## Accuracy at each thinking budget, with a forced close and 8 tokens to answer, and cut at the same total",
        accuracies(rows),
        *(
            f"## Tokens at {budget}+8\n\n{lengths(rows, at)}"
            for at, budget in enumerate(THINKING)
            if budget in (9, 18, 36, 144)
        ),
        "## Trainings",
        trainings(rows),
    ]
    text = "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"
    write_atomically(page, text)
    save(picture(rows, reference), picture_file)
    for name, section in made.items():
        replace_section(DOCUMENT, name, section)


if __name__ == "__main__":
    for each in MINIATURES.values():
        each.make_data(each.data, SEED)
    publish()
