"""The paper's claims on the nano model: trains every ablation, evaluates all of it, and writes one report.

    make ablations        about two hours on two cores; what is there already is not made again

What is trained stands in ablations.yaml; the recipe itself (`make train`) is one of the runs. Every model answers the
same 512 problems at the same budgets. All tables go to docs/results/ablations.md, the accuracies of all models to
docs/ablations.md.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from e1_trl.atomic import StoreError, write_atomically
from e1_trl.provenance import Provenance
from e1_trl.report import document, pictures, samples
from e1_trl.report.differences import Difference, between
from e1_trl.report.markdown import around_section, replace_section, table
from e1_trl.report.rows import REFERENCE, Measured, Row, summarize

HERE = Path(__file__).parent
RUNS = Path("runs/ablations")
EVALUATIONS = RUNS / "evaluations"
PROBLEMS = 512
RECIPE = {"e1": Path("runs/nano/e1"), "base": HERE / "base"}
MIXED = (("base", "e1"), ("e1", "base"))  # thinking, solution

Overrides = Mapping[str, Any]  # of fields of experiments/nano/recipe.yaml


@dataclass(frozen=True)
class Comparison:
    """One claim: the models that its table shows, and the pairs of which it shows the first minus the second."""

    models: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]


def against(reference: str, *models: str) -> Comparison:
    """Every model against the first."""
    return Comparison((reference, *models), tuple((model, reference) for model in models))


COMPARISONS = {
    "training_budget": against("e1", "base", "budget-32", "budget-128", "budget-192"),
    "iterative": against("e1", "second-round-128"),
    "mixed_models": Comparison(
        models=("base", "base → e1", "e1 → base", "e1"),
        pairs=(("base → e1", "base"), ("base → e1", "e1"), ("e1 → base", "base"), ("e1 → base", "e1")),
    ),
    "token_allocation": against("base", "e1"),
    "forced_close_mask": against("e1", "close-trained"),
    "forced_text": Comparison(
        models=("e1", "transition", "base", "base, transition"),
        pairs=(("transition", "e1"), ("transition", "base, transition"), ("base, transition", "base")),
    ),
    "training_seed": against("e1", "seed-43", "seed-44"),
}


def commands(ablations: Mapping[str, Overrides], accelerate_config: str) -> list[list[str]]:
    """What is to be run, in order: the trainings that have not finished, then all evaluations.

    An evaluation samples only what its folder lacks, and refuses the folder of a model that has changed since. A model
    that is trained stays as it is when the code or the recipe's own model changes: `trainings` says what made it.
    """
    return [
        *(
            _training(name, overrides, accelerate_config)
            for name, overrides in ablations.items()
            if not _is_trained(RUNS / name)
        ),
        *_evaluations(ablations),
    ]


def _is_trained(model: Path) -> bool:
    return (model / "trainer_state.json").exists()


def trainings(ablations: Mapping[str, Overrides]) -> dict[str, Provenance]:
    """What made each model that is trained: commit, date, machine and seed.

    Raises:
        ValueError: a trained model does not say.
    """
    models = {"e1": RECIPE["e1"], **{name: RUNS / name for name in ablations}}
    return {name: Provenance.read(model) for name, model in models.items() if _is_trained(model)}


def listed(made: Mapping[str, Provenance]) -> str:
    """A Markdown list of what made which models."""
    models = {each: [name for name in made if made[name] == each] for each in made.values()}
    return "".join(f"- {', '.join(names)}: trained at {each}\n" for each, names in models.items())


def _training(name: str, overrides: Overrides, accelerate_config: str) -> list[str]:
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", accelerate_config]
    recipe = ["-m", "e1_trl.train", "--config", str(HERE / "recipe.yaml"), "--output_dir", str(RUNS / name)]
    return [*launch, *recipe, *(part for key, value in overrides.items() for part in (f"--{key}", str(value)))]


def _evaluations(ablations: Mapping[str, Overrides]) -> list[list[str]]:
    """Every model at every budget, and thinking and solution by two of them."""
    models = {**RECIPE, **{name: RUNS / name for name in ablations}}
    both = ["--methods", "separate", "unconstrained"]
    found = []
    for name, model in models.items():
        forced = ablations.get(name, {}).get("forced_text")
        found.append(_evaluation(name, name, model, [*both, *(["--forced_text", forced] if forced else [])]))
    transition = ["--forced_text", ablations["transition"]["forced_text"]]
    found.append(_evaluation("base, transition", "base, transition", models["base"], [*both, *transition]))
    for thinking, solution in MIXED:
        # The evaluation names a mixed model after both.
        options = ["--methods", "mixed", "--thinking_from", str(EVALUATIONS / thinking)]
        found.append(_evaluation(f"{thinking} → {solution}", solution, models[solution], options))
    return found


def _evaluation(folder: str, name: str, model: Path, options: Sequence[str]) -> list[str]:
    command = [sys.executable, "-m", "e1_trl.evaluation", "--config", str(HERE / "evaluation.yaml")]
    own = ["--model", str(model), "--name", name, "--output", str(EVALUATIONS / folder)]
    return [*command, *own, "--max_problems", str(PROBLEMS), *options]


@dataclass(frozen=True)
class Found:
    """What came out of one comparison."""

    rows: list[Row]
    differences: list[Difference]


def compare(measured: Mapping[str, Sequence[Measured]], comparison: Comparison) -> Found:
    """The rows and paired differences of a comparison, of the measured rows of all models by name."""
    return Found(
        rows=[each.row for model in comparison.models for each in measured[model]],
        differences=[
            found
            for model, minus in comparison.pairs
            for found in between([*measured[model], *measured[minus]], model, minus)
        ],
    )


def short(rows: Sequence[Row]) -> str:
    """A Markdown table of accuracies, a line per model and a column per budget."""
    budgets = list(dict.fromkeys(str(row.budget) for row in rows))
    accuracies = {(row.model, str(row.budget)): f"{row.accuracy:.1%}" for row in rows}
    return table(
        ("model", *budgets),
        ((model, *(accuracies.get((model, budget), "") for budget in budgets)) for model in pictures.models_of(rows)),
    )


def report(ablations: Mapping[str, Overrides], output: Path, prose: Path) -> None:
    """Write ablations.json, ablations.md and their pictures, and the section `accuracies` of the prose."""
    around_section(prose, "accuracies")
    models = dict.fromkeys(model for comparison in COMPARISONS.values() for model in comparison.models)
    measured = {
        model: summarize(samples.read(EVALUATIONS / model, samples.FIGURES).assign(model=model)) for model in models
    }
    found = {name: compare(measured, comparison) for name, comparison in COMPARISONS.items()}
    made = Provenance.here(each.row.seed for rows in measured.values() for each in rows)
    trained = trainings(ablations)
    content = {
        "provenance": asdict(made),
        "trainings": {name: asdict(each) for name, each in trained.items()},
        "comparisons": {name: asdict(each) for name, each in found.items()},
    }
    text = f"# The ablations of the nano recipe\n\nMade at {made}.\n\n{listed(trained)}"
    for name, each in found.items():
        text += f"\n## {name.replace('_', ' ').capitalize()}\n\n{document.accuracies(each.rows)}"
        text += f"\nPaired differences of accuracy, in points:\n\n{document.paired(each.differences)}"
    replace_section(prose, "accuracies", short([each.row for rows in measured.values() for each in rows]))
    output.mkdir(parents=True, exist_ok=True)
    write_atomically(output / "ablations.json", lambda path: path.write_text(json.dumps(content, indent=1) + "\n"))
    write_atomically(output / "ablations.md", lambda path: path.write_text(text))
    panels = {name.replace("_", " "): each.rows for name, each in found.items() if name != "token_allocation"}
    pictures.save(pictures.panels_over_budget(panels), output / "ablations.png")
    allocated = [row for row in found["token_allocation"].rows if row.method == REFERENCE]
    pictures.save(pictures.allocation(allocated), output / "allocation.png")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train, evaluate and report the ablations of the nano recipe.")
    parser.add_argument("--accelerate_config", default="accelerate_configs/cpu.yaml")
    parser.add_argument("--output", type=Path, default=Path("docs/results"))
    parser.add_argument("--document", type=Path, default=Path("docs/ablations.md"))
    arguments = parser.parse_args()
    ablations = yaml.safe_load((HERE / "ablations.yaml").read_text())
    try:
        print("==> trained already:", listed(trainings(ablations)), sep="\n", flush=True)
        for command in commands(ablations, arguments.accelerate_config):
            print("==>", *command, flush=True)
            subprocess.run(command, check=True)
        report(ablations, arguments.output, arguments.document)
    except (StoreError, ValueError, OSError) as error:
        sys.exit(f"ablations.py: {error}")


if __name__ == "__main__":
    main()
