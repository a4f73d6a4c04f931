"""Trains every system on one miniature from one base to as many generated tokens, and writes the table of all.

A row is in docs/results/systems.json as soon as it is measured; only rows that are missing are run. A row of one's own:

    python -m experiments.systems my_recipe.yaml
"""

import argparse
import fcntl
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e1_trl.atomic import write_atomically
from e1_trl.recipes import fields_of
from experiments.first_zero.make_base import make_data
from experiments.pretraining import SEED
from experiments.systems.document import ROWS, publish, read
from experiments.systems.measure import BASE, NOT_ASKED, SOLUTION, THINKING, measured

RECIPES, RUNS = Path(__file__).parent, Path("runs/systems")
EVALUATION = Path("experiments/first_zero/evaluation.yaml")
FIRST, SEEDS = 42, (42, 43, 44)
THRICE = ("e1", "grpo_cut")  # and the four that are best besides, on the validation split


def e1(*words: object) -> None:
    """Run a command of the package.

    Raises:
        CalledProcessError: it failed, and has said why.
    """
    subprocess.run([sys.executable, "-m", "e1_trl.cli", *map(str, words)], check=True)


def evaluate(model: Path, folder: Path, *words: object) -> Path:
    """Ask a model what the evaluation's file says, but for `words`; returns the folder."""
    e1("eval", "--config", EVALUATION, "--model", model, "--output", folder, *words)
    return folder


def asked(model: Path, folder: Path, words: str | None, *split: str) -> list[Path]:
    """Evaluate under a forced close with prompts that ask for each budget; none where the recipe tells no length."""
    folders = []
    for budget in THINKING if words else ():
        said = str(words).replace("{target}", str(budget)).strip()
        options = ("--instruction", said, "--budgets", f"{budget}+{SOLUTION}", "--methods", "separate", *split)
        folders.append(evaluate(model, folder / f"asked-{'-'.join(split[1:])}{budget}", *options))
    return folders


def run(recipe: Path, seed: int) -> list[dict[str, Any]]:
    """Train a recipe and measure what it has made: a row, or two where prompts can ask for a length."""
    name, folder = recipe.stem, RUNS / f"{recipe.stem}-{seed}"
    model, words = folder / "model", fields_of(recipe).get("target_prompt")
    if not (model / "trainer_state.json").exists():  # what is trained stays, where an evaluation was interrupted
        e1("train", "--config", recipe, "--output_dir", model, "--seed", seed)
    test = evaluate(model, folder / "test")
    split = ("--dataset_split", "validation")
    validation = evaluate(model, folder / "validation", *split, "--methods", "separate")
    rows = [measured(name + NOT_ASKED * bool(words), seed, model, test, validation)]
    if words:
        own, chosen = asked(model, folder, words), asked(model, folder, words, *split)
        rows = [measured(name, seed, model, test, validation, own, chosen), *rows]
    return [row.as_json() for row in rows]


def run_base() -> list[dict[str, Any]]:
    """Measure what all begin with."""
    test = evaluate(BASE, RUNS / "base" / "test")
    validation = evaluate(BASE, RUNS / "base" / "validation", "--dataset_split", "validation", "--methods", "separate")
    return [measured("base", SEED, BASE, test, validation).as_json()]


def add(rows: Sequence[dict[str, Any]]) -> None:
    """Add rows to the file, and make the documents anew; one process at a time."""
    with open(RUNS / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = "[\n" + ",\n".join(map(json.dumps, [*read(), *rows])) + "\n]\n"
        write_atomically(ROWS, lambda path: path.write_text(text))
        publish()


def best_besides() -> list[str]:
    """The four systems of largest area on the validation split, from the first seed, besides those that are fixed."""
    areas = {row["system"]: row["validation_area"] for row in read() if row["seed"] == FIRST}
    ranked = sorted(areas, key=lambda name: -areas[name])
    return [name for name in ranked if (RECIPES / f"{name}.yaml").exists() and name not in THRICE][:4]


def missing(recipe: Path, seed: int) -> None:
    """Run a row that is not there yet."""
    if not any((row["system"], row["seed"]) == (recipe.stem, seed) for row in read()):
        print(f"==> {recipe.stem}, seed {seed}", flush=True)
        add(run(recipe, seed))


def main() -> None:
    """Run the rows that are missing, or those of the recipes that are named."""
    parser = argparse.ArgumentParser(prog="experiments.systems", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recipes", nargs="*", type=Path, help="unset: every one of this folder, six from three seeds")
    parser.add_argument("--seeds", nargs="+", type=int, default=[FIRST], help=f"of the recipes; unset: {FIRST}")
    arguments = parser.parse_args()
    RUNS.mkdir(parents=True, exist_ok=True)
    make_data(Path("runs/first_zero"), SEED)
    if not any(row["system"] == "base" for row in read()):
        add(run_base())
    for recipe in arguments.recipes or sorted(RECIPES.glob("*.yaml")):
        for seed in arguments.seeds:
            missing(recipe, seed)
    if not arguments.recipes:
        for name in (*THRICE, *best_besides()):
            for seed in SEEDS:
                missing(RECIPES / f"{name}.yaml", seed)


if __name__ == "__main__":
    main()
