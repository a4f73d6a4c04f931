"""The report on the ablations of the nano recipe, which `experiments/nano/ablations.sh` trains and evaluates.

All tables go to docs/results/ablations.md, the accuracies of all models to docs/ablations.md.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from e1_trl.atomic import write_atomically
from e1_trl.command_line import run_command
from e1_trl.provenance import Provenance
from e1_trl.report import pictures, samples, tables
from e1_trl.report.differences import between
from e1_trl.report.markdown import around_section, replace_section, table
from e1_trl.report.rows import REFERENCE, Row, summarize

RUNS = Path("runs/ablations")
RECIPE = Path("runs/nano/e1")


def against(reference: str, *models: str) -> list[tuple[str, str]]:
    """Every model minus the first."""
    return [(model, reference) for model in models]


# What each claim is about: pairs of models, the first minus the second.
COMPARISONS = {
    "training_budget": against("e1", "base", "budget-32", "budget-128", "budget-192"),
    "iterative": against("e1", "second-round-128"),
    "mixed_models": [("base → e1", "base"), ("base → e1", "e1"), ("e1 → base", "base"), ("e1 → base", "e1")],
    "token_allocation": against("base", "e1"),
    "forced_close_mask": against("e1", "close-trained"),
    "forced_text": [("transition", "e1"), ("transition", "base, transition"), ("base, transition", "base")],
    "training_seed": against("e1", "seed-43", "seed-44"),
}


def compared(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """The models of a comparison, in the order of its table."""
    return list(dict.fromkeys(model for pair in pairs for model in reversed(pair)))


def trainings(models: Sequence[str]) -> dict[str, Provenance]:
    """Return commit, date, machine and seed of each training.

    Raises:
        ValueError: a trained model does not say.
    """
    folders = {model: RECIPE if model == "e1" else RUNS / model for model in models}
    trained = {model: folder for model, folder in folders.items() if (folder / "trainer_state.json").exists()}
    return {model: Provenance.read(folder) for model, folder in trained.items()}


def listed(made: dict[str, Provenance]) -> str:
    """A Markdown list of what made which models."""
    models = {each: [name for name in made if made[name] == each] for each in made.values()}
    return "".join(f"- {', '.join(names)}: trained at {each}\n" for each, names in models.items())


def short(rows: Sequence[Row]) -> str:
    """A Markdown table of accuracies, a line per model and a column per budget."""
    budgets = list(dict.fromkeys(str(row.budget) for row in rows))
    accuracies = {(row.model, str(row.budget)): f"{row.accuracy:.1%}" for row in rows}
    return table(
        ("model", *budgets),
        ((model, *(accuracies.get((model, budget), "") for budget in budgets)) for model in pictures.models_of(rows)),
    )


def report(output: Path, prose: Path) -> None:
    """Write ablations.json, ablations.md and their pictures, and the section `accuracies` of the prose."""
    around_section(prose, "accuracies")
    models = list(dict.fromkeys(model for pairs in COMPARISONS.values() for model in compared(pairs)))
    trained = trainings(models)
    folder = RUNS / "evaluations"
    measured = {model: summarize(samples.read(folder / model, samples.FIGURES).assign(model=model)) for model in models}
    rows = {model: [each.row for each in summaries] for model, summaries in measured.items()}
    made = Provenance.here(row.seed for ours in rows.values() for row in ours)
    text = f"# The ablations of the nano recipe\n\nMade at {made}.\n\n{listed(trained)}"
    comparisons, panels = {}, {}
    for name, pairs in COMPARISONS.items():
        panels[name] = [row for model in compared(pairs) for row in rows[model]]
        differences = [
            difference
            for model, minus in pairs
            for difference in between([*measured[model], *measured[minus]], model, minus)
        ]
        comparisons[name] = {"rows": list(map(asdict, panels[name])), "differences": list(map(asdict, differences))}
        text += f"\n## {name.replace('_', ' ').capitalize()}\n\n{tables.accuracies(panels[name]).markdown}"
        text += f"\nPaired differences of accuracy, in points:\n\n{tables.paired(differences).markdown}"
    content = {
        "provenance": asdict(made),
        "trainings": {name: asdict(each) for name, each in trained.items()},
        "comparisons": comparisons,
    }
    replace_section(prose, "accuracies", short([row for ours in rows.values() for row in ours]))
    output.mkdir(parents=True, exist_ok=True)
    write_atomically(output / "ablations.json", json.dumps(content, indent=1) + "\n")
    write_atomically(output / "ablations.md", text)
    allocated = [row for row in panels.pop("token_allocation") if row.method == REFERENCE]
    over_budget = {name.replace("_", " "): ours for name, ours in panels.items()}
    pictures.save(pictures.over_budget(over_budget), output / "ablations.png")
    pictures.save(pictures.allocation(allocated), output / "allocation.png")


if __name__ == "__main__":
    run_command("experiments.nano.ablations", lambda: report(Path("docs/results"), Path("docs/ablations.md")))
