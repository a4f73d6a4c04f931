"""The paper's claims on the nano model: trains every ablation, evaluates all of it, and writes one report.

    make ablations        about two hours on two cores; what is there already is not made again

What is trained stands in ablations.yaml; the recipe itself (`make train`) is one of the runs. Every model answers the
same 512 problems at the same budgets.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import yaml
from matplotlib import pyplot as plt

from e1_trl.budget import Budget
from e1_trl.evaluation.report import (
    HEADER,
    Row,
    cells_as_text,
    cells_of,
    differences,
    plot_allocation,
    read_samples,
    summarize,
)
from e1_trl.report import commit, markdown, replace_section

HERE = Path(__file__).parent
RUNS = Path("runs/ablations")
EVALUATIONS = RUNS / "evaluations"
PROBLEMS = 512
BUDGETS = ["32+32", "64+32", "128+32", "192+32", "unlimited"]
RECIPE = {"e1": Path("runs/nano/e1"), "base": HERE / "base"}

# What is compared with what: the models of each table, the first being what the others are measured against.
COMPARED = {
    "training_budget": ["e1", "base", "budget-32", "budget-128", "budget-192"],
    "iterative": ["e1", "second-round-128"],
    "mixed_models": ["base", "base → e1", "e1 → base", "e1"],
    "token_allocation": ["base", "e1"],
    "forced_close_mask": ["e1", "close-trained"],
    "forced_text": ["e1", "transition", "base", "base, transition"],
    "training_seed": ["e1", "seed-43", "seed-44"],
}


def run(*command: object) -> None:
    print("==>", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True)


def train(name: str, overrides: dict[str, object], accelerate_config: str) -> None:
    output = RUNS / name
    if (output / "trainer_state.json").exists():
        return
    options = [part for key, value in overrides.items() for part in (f"--{key}", value)]
    run(
        *(sys.executable, "-m", "accelerate.commands.launch", "--config_file", accelerate_config),
        *("-m", "e1_trl.train", "--config", HERE.parent / "nano.yaml", "--output_dir", output, *options),
    )


def evaluate(name: str, model: Path, *options: object) -> None:
    run(
        *(sys.executable, "-m", "e1_trl.evaluation", "--model", model, "--name", name.split(" → ")[-1]),
        *("--dataset_name", "runs/nano/data", "--max_problems", PROBLEMS, "--budgets", *BUDGETS),
        *("--output", EVALUATIONS / name, "--enforce_eager", "true", *options),
    )


def evaluate_all(ablations: dict[str, dict[str, object]]) -> None:
    """Every model at every budget, and thinking and solution by two of them."""
    both = ("--methods", "separate", "unconstrained")
    models = {**RECIPE, **{name: RUNS / name for name in ablations}}
    for name, model in models.items():
        forced = ablations.get(name, {}).get("forced_text")
        evaluate(name, model, *both, *(("--forced_text", forced) if forced else ()))
    evaluate("base, transition", RECIPE["base"], *both, "--forced_text", ablations["transition"]["forced_text"])
    for thinking, solution in (("base", "e1"), ("e1", "base")):
        name = f"{thinking} → {solution}"
        evaluate(name, models[solution], "--methods", "mixed", "--thinking_from", EVALUATIONS / thinking)


def plot(rows: dict[str, list[Row]], file: Path) -> None:
    """Accuracy against the thinking budget, a panel per ablation and a line per model; dotted: unconstrained."""
    shown = [name for name in rows if name != "token_allocation"]
    figure, axes = plt.subplots(1, len(shown), figsize=(3.6 * len(shown), 3.4), sharey=True, layout="constrained")
    for axis, name in zip(axes, shown, strict=True):
        for i, model in enumerate(dict.fromkeys(row.model for row in rows[name])):
            own = [row for row in rows[name] if row.model == model]
            line = [row for row in own if row.thinking_budget is not None]
            x = [row.thinking_budget for row in line]
            axis.plot(x, [row.accuracy for row in line], "o-", color=f"C{i}", label=model, ms=4)
            low, high = [row.ci_low for row in line], [row.ci_high for row in line]
            axis.fill_between(x, low, high, color=f"C{i}", alpha=0.15)
            for row in own:
                if row.method == "unconstrained":
                    axis.axhline(row.accuracy, color=f"C{i}", linestyle=":")
        axis.set(title=name.replace("_", " "), xlabel="thinking budget (tokens)", ylim=(0, 1.03))
        axis.legend(fontsize="x-small", loc="lower right")
    axes[0].set_ylabel("accuracy")
    figure.savefig(file, dpi=130)
    plt.close(figure)


def report(output: Path, document: Path) -> None:
    """Write ablations.json and its pictures, and the tables of the document."""
    made = f"Commit {commit()}; {platform.machine()}, {os.cpu_count()} cores."
    rows: dict[str, list[Row]] = {}
    for ablation, models in COMPARED.items():
        samples = [read_samples(EVALUATIONS / name).assign(model=name) for name in models]
        cells = cells_of(pd.concat(samples, ignore_index=True))
        rows[ablation] = [summarize(cell) for cell in cells]
        table = markdown(HEADER, map(cells_as_text, rows[ablation]))
        compared = [difference for difference in differences(cells) if difference.minus_method == difference.method]
        if compared and ablation != "mixed_models":
            table += "\nPaired differences of accuracy, in points:\n\n" + markdown(
                ("of", "minus", "budget", "difference", "95% interval"),
                (
                    (
                        *(d.model, d.minus_model, str(Budget(d.thinking_budget, d.solution_budget))),
                        f"{100 * d.difference:+.1f}",
                        f"{100 * d.ci_low:+.1f} – {100 * d.ci_high:+.1f}",
                    )
                    for d in compared
                ),
            )
        replace_section(document, ablation, table)
    seeds = "Training seed 42 where not said otherwise, evaluation seed 0.\n"
    replace_section(document, "made", f"{made} {seeds}")
    content = {ablation: [asdict(row) for row in found] for ablation, found in rows.items()}
    (output / "ablations.json").write_text(json.dumps(content, indent=1) + "\n")
    plot(rows, output / "ablations.png")
    allocation = [row for row in rows["token_allocation"] if row.method == "separate"]
    plot_allocation(allocation, output / "allocation.png")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train, evaluate and report the ablations of the nano recipe.")
    parser.add_argument("--accelerate_config", default="accelerate_configs/cpu.yaml")
    parser.add_argument("--output", type=Path, default=Path("docs/results"))
    parser.add_argument("--document", type=Path, default=Path("docs/ablations.md"))
    arguments = parser.parse_args()
    ablations = yaml.safe_load((HERE / "ablations.yaml").read_text())
    for name, overrides in ablations.items():
        train(name, overrides, arguments.accelerate_config)
    evaluate_all(ablations)
    report(arguments.output, arguments.document)


if __name__ == "__main__":
    main()
