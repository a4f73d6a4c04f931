"""Trains every system on one miniature from one base to as many generated tokens, and writes the table of all.

A row is in docs/results/systems.json as soon as it is measured; only rows that are missing are run. A row of one's own:

    python -m experiments.systems my_recipe.yaml
"""

import argparse
import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from transformers import AutoTokenizer

from e1_trl.atomic import write_atomically
from e1_trl.errors import UserError, run_command
from e1_trl.recipes import fields_of
from e1_trl.training.budgets import Schedule
from experiments.first_zero.make_base import make_data
from experiments.pretraining import SEED
from experiments.systems.document import ROWS, publish, read
from experiments.systems.measure import (
    ANSWER_TOKENS,
    AT_RATE,
    BANNED,
    BASE,
    CUT,
    FIRST,
    FORCED_CLOSE,
    NOT_ASKED,
    RATED,
    RATES,
    SOLUTION,
    THINKING,
    System,
    measured,
)

RECIPES, RUNS = Path(__file__).parent, Path("runs/systems")
BASE_RECIPE = RECIPES.parent / "first_zero" / "recipe.yaml"
EVALUATION = RECIPES.parent / "first_zero" / "evaluation.yaml"
SEEDS = (FIRST, 43, 44)
THRICE = ("e1_72", "e1_18", "e1_144", "e1", "grpo_cut")  # and the four that are best besides, on the validation split
# Compared over problems and seeds, so that their rows keep every answer.
PAIRED = ("e1_72", "e1_18", "e1_144", "e1", "e1_random", "e1_random_rows")
# What a recipe must have as the base has it: what is compared is compared on that.
SHARED = (
    *("model_name_or_path", "dataset_name", "instruction", "max_generated_tokens", "max_steps", "learning_rate"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations", "num_iterations", "seed"),
)


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


def check(recipe: Path) -> None:
    """Refuse a recipe whose row could not be compared.

    Raises:
        UserError: one line about what is wrong.
    """
    own, base = fields_of(recipe), fields_of(BASE_RECIPE)
    if other := [name for name in SHARED if own.get(name) != base.get(name)]:
        raise UserError(
            f"{recipe}: {other[0]} is {own.get(other[0])!r}, and {base.get(other[0])!r} in the rows that it would "
            "stand beside; remove it, and have base: first_zero"
        )
    if (RECIPES / recipe.name).exists() and not recipe.samefile(RECIPES / recipe.name):
        raise UserError(f"{recipe}: {recipe.stem} is a system of the table; give the file another name")
    words = own.get("target_prompt", " .")
    if words != f" {words.strip()}":
        raise UserError(f"{recipe}: target_prompt is {words!r}; it must begin with one space, and not end with one")


def asked(recipe: Path, model: Path, folder: Path, *split: str) -> list[Path]:
    """Evaluate with prompts that ask for each budget; none where the recipe tells no length.

    A length is one of the whole response, so the tokens of an answer are added; it is the longest that was trained on
    at most.
    """
    fields, folders = fields_of(recipe), []
    if "target_prompt" not in fields:
        return []
    longest = Schedule.parse("target", fields["target"]).largest
    for budget in THINKING:
        said = fields["target_prompt"].strip().replace("{target}", str(min(budget + ANSWER_TOKENS, longest)))
        options = ("--instruction", said, "--budgets", f"{budget}+{SOLUTION}", "--methods", FORCED_CLOSE, CUT)
        folders.append(evaluate(model, folder / f"asked-{'-'.join(split[1:])}{budget}", *options, *split))
    return folders


def run(recipe: Path, seed: int, rate: str | None = None) -> list[System]:
    """Train a recipe and measure what it has made: a row, or two where prompts can ask for a length.

    Args:
        recipe: its file.
        seed: of the training.
        rate: learning rate in place of the recipe's.

    Raises:
        CalledProcessError: a command failed, and has said why.
        UserError: the training ended before it had generated as much as the others.
    """
    name = named(recipe, rate)
    folder = RUNS / f"{name.replace(' ', '-')}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)  # what a run that was interrupted has left
    model = folder / "model"
    learning_rate = () if rate is None else ("--learning_rate", rate)
    e1("train", "--config", recipe, "--output_dir", model, "--seed", seed, *learning_rate)
    test, split = evaluate(model, folder / "test"), ("--dataset_split", "validation")
    validation = evaluate(model, folder / "validation", *split, "--methods", FORCED_CLOSE)
    own, chosen = asked(recipe, model, folder), asked(recipe, model, folder, *split)
    rows = [measured(name + NOT_ASKED * bool(own), seed, model, test, validation)]
    if rows[0].generated_tokens < (least := fields_of(recipe)["max_generated_tokens"]):
        raise UserError(f"{recipe}: the training ended after {rows[0].generated_tokens} tokens, before {least}")
    if own:
        rows = [measured(name, seed, model, test, validation, own, chosen), *rows]
    known = subprocess.run(["git", "ls-files", "--error-unmatch", recipe], capture_output=True).returncode == 0
    return rows if known else [replace(row, commit=f"{row.commit}, not in it") for row in rows]


def run_base(name: str) -> list[System]:
    """Measure what all begin with, as it is or with "Wait" banned, which opens each of its rechecks."""
    folder = RUNS / name.replace(", ", "-").replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    wait = AutoTokenizer.from_pretrained(BASE).convert_tokens_to_ids("Wait")
    banned = ("--logit_bias", json.dumps({wait: -100})) if name == BANNED else ()
    split = ("--dataset_split", "validation", "--methods", FORCED_CLOSE)
    test = evaluate(BASE, folder / "test", *banned)
    return [measured(name, SEED, BASE, test, evaluate(BASE, folder / "validation", *split, *banned))]


def named(recipe: Path, rate: str | None) -> str:
    """Name a row after its recipe, and after its learning rate where that is not the base recipe's."""
    return recipe.stem if rate is None else f"{recipe.stem}{AT_RATE}{rate}"


def add(rows: Sequence[System]) -> None:
    """Add rows to the file, in place of those of the same system and seed, and make the documents again."""
    added = [row.as_json() for row in rows]
    names = {(row.system, row.seed) for row in rows}
    kept = [row for row in read() if (row["system"], row["seed"]) not in names]
    text = "[\n" + ",\n".join(map(json.dumps, [*kept, *added])) + "\n]\n"
    write_atomically(ROWS, lambda path: path.write_text(text))
    publish()


def best_besides() -> list[str]:
    """The four systems that are best on the validation split, from the first seed, besides those that are fixed."""
    means = {row["system"]: row["validation_mean_accuracy"] for row in read() if row["seed"] == FIRST}
    ranked = sorted(means, key=lambda name: -means[name])
    return [name for name in ranked if (RECIPES / f"{name}.yaml").exists() and name not in THRICE][:4]


def is_there(name: str, seed: int) -> bool:
    """Return whether a system has its row from a seed, with its answers if they are compared."""
    rows = [row for row in read() if (row["system"], row["seed"]) == (name, seed)]
    return any("right" in row or name not in PAIRED for row in rows)


def complete(recipes: Sequence[Path], seeds: Sequence[int], rate: str | None = None) -> list[str]:
    """Run the rows that are missing; returns what failed, and why."""
    failed = []
    for recipe in recipes:
        for seed in seeds:
            row = f"{named(recipe, rate)}, seed {seed}"
            if is_there(named(recipe, rate), seed):
                print(f"==> {row}: is there", flush=True)
                continue
            print(f"==> {row}", flush=True)
            try:
                add(run(recipe, seed, rate))
            except (subprocess.CalledProcessError, UserError) as error:
                failed.append(f"{row}: {error}")
    return failed


def main() -> None:
    """Run the rows that are missing, or those of the recipes that are named.

    Raises:
        UserError: a recipe cannot be compared, some rows failed, or another process is at it.
    """
    parser = argparse.ArgumentParser(prog="experiments.systems", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recipes", nargs="*", type=Path, help="unset: every one of this folder, some from three seeds")
    parser.add_argument("--seeds", nargs="+", type=int, default=[FIRST], help=f"of the recipes; unset: {FIRST}")
    arguments = parser.parse_args()
    recipes, all_of_them = arguments.recipes, sorted(RECIPES.glob("*.yaml"))
    for recipe in recipes:
        check(recipe)
    RUNS.mkdir(parents=True, exist_ok=True)
    with open(RUNS / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"another process writes into {RUNS}; wait for it") from error
        make_data(Path("runs/first_zero"), SEED)
        for name in ("base", BANNED):
            if not is_there(name, SEED):
                add(run_base(name))
        failed = complete(recipes or all_of_them, arguments.seeds)
        if not recipes and all(is_there(recipe.stem, FIRST) for recipe in all_of_them):
            failed += complete([RECIPES / f"{name}.yaml" for name in (*THRICE, *best_besides())], SEEDS)
            for rate in RATES:
                failed += complete([RECIPES / f"{name}.yaml" for name in RATED], [FIRST], rate)
    if failed:
        raise UserError("; ".join(failed))


if __name__ == "__main__":
    run_command("experiments.systems", main)
