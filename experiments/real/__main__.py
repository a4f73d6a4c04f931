"""Makes both bases, measures them with and without training, trains every system, and writes the rows of all.

A row is in docs/results/real.json as soon as it is measured, and only what is missing is run: killed at any moment, the
same command goes on where it was, trainings from their last checkpoint.

    python -m experiments.real
"""

import argparse
import json
from pathlib import Path
from typing import Any

from e1_trl.atomic import write_atomically
from e1_trl.checkout import check_committed
from e1_trl.command_line import run_command
from experiments.pretraining import SEED
from experiments.real.make_base import BASE, EVALUATION, TAUGHT, make_data, make_model, merge, train
from experiments.real.measure import E1, measured
from experiments.real.problems import SAME_STORY, read_split
from experiments.systems.commands import e1

RUNS, ROWS = Path("runs/real"), Path("docs/results/real.json")
BASE_SEEDS = {1: SEED, 2: SEED + 100}
SYSTEMS = dict.fromkeys((E1, "grpo_cut", "grpo_free", "random"), BASE)  # recipes, and the model that each trains
SYSTEMS |= {f"{TAUGHT}_{name}": TAUGHT for name in (E1, "cut", "free", "random")}
# Base, and seed of the trainings: what every claim needs comes first.
PLAN = ((1, 42), (2, 42), (1, 43), (2, 43))


def read() -> dict[str, Any]:
    """The results that are there; at first only the split, which every run makes alike."""
    if ROWS.exists():
        return json.loads(ROWS.read_text())
    parts = read_split(SEED)._asdict()
    sizes = {name: len(parts.pop(name)) for name in ("test", "validation", "train", "worked")}
    return {"split": {**sizes, "bound": SAME_STORY, **parts}, "rows": []}


def append(*found: Any) -> None:
    """Add rows, a line each."""
    check_committed(ROWS)
    results = read()
    results["rows"] += found
    write_atomically(ROWS, json.dumps(results).replace("}, {", "},\n{") + "\n")


def add(base: int, system: str, seed: int) -> None:
    """Measure a system on the test split, trained before where it is one of `SYSTEMS`, unless its rows are there."""
    results = read()
    if any((row["base"], row["system"], row["seed"]) == (base, system, seed) for row in results["rows"]):
        return
    print(f"==> base {base}: {system}, seed {seed}", flush=True)
    folder = RUNS / str(base)
    trained, model, asked = None, folder / system, folder / f"test-{system}-{seed}"
    if system in SYSTEMS:
        source = folder / SYSTEMS[system]
        trained = train(system, source, folder / f"{system}-{seed}", seed)
        # vLLM answers several times faster on CPUs without an adapter. Whoever removes the training removes both.
        model, asked = merge([trained], trained / "merged", source), trained / "test"
    e1("eval", "--config", EVALUATION, "--model", model, "--output", asked, "--page_problems", 0)  # killed, it goes on
    append(*measured(asked, base, system, seed, results["split"]["stories"], trained))


def main() -> None:
    """Run what is missing: for each base what needs no training, then the trainings."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    make_data(RUNS)
    for base, seed in BASE_SEEDS.items():
        make_model(RUNS / str(base), seed)
        for system in (TAUGHT, BASE):
            add(base, system, seed)
    for base, seed in PLAN:
        for recipe in SYSTEMS:
            add(base, recipe, seed)


if __name__ == "__main__":
    run_command("experiments.real", main)
