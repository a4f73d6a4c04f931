"""Trains every system on a miniature from one base to as many generated tokens, and writes the tables of all.

A row is in docs/results/systems.json as soon as it is measured; only rows that are missing are run. The recipes are
written for the miniature first_zero; on best_of they are run with the fields that its own recipe has in their place. A
row of one's own:

    python -m experiments.systems my_recipe.yaml --miniature best_of
"""

import argparse
import fcntl
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from transformers import AutoTokenizer

from e1_trl.atomic import write_atomically
from e1_trl.command_line import run_command
from e1_trl.errors import UserError
from e1_trl.recipes import fields_of, read_mapping
from e1_trl.training.budgets import Schedule
from experiments.pretraining import SEED
from experiments.systems.averages import measure_average
from experiments.systems.commands import checkpoint_at, e1, evaluate
from experiments.systems.document import ROWS, publish, read
from experiments.systems.measure import (
    ANSWER_TOKENS,
    AT_RATE,
    AVERAGED,
    BANNED,
    CUT,
    FIRST,
    FORCED_CLOSE,
    NOT_ASKED,
    RATED,
    RATES,
    SHARES,
    SOLUTION,
    THINKING,
    Row,
    measured,
)
from experiments.systems.miniatures import FIRST_ZERO, MINIATURES, Miniature

RECIPES, RUNS = Path(__file__).parent, Path("runs/systems")
SEEDS = (FIRST, 43, 44)
THRICE = ("e1_72", "e1_18", "e1_144", "e1", "grpo_cut")  # and the four that are best besides, on the validation split
# What a recipe must have as the base has it: what is compared is compared on that.
SHARED = (
    *("model_name_or_path", "dataset_name", "instruction", "max_generated_tokens", "learning_rate"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "num_iterations", "seed"),
)


def in_place(recipe: Path, miniature: Miniature) -> dict[str, object]:
    """The fields of a miniature's own recipe that a system's recipe takes in the place of first_zero's."""
    usual, own = fields_of(FIRST_ZERO.recipe), read_mapping(recipe)
    fields = fields_of(miniature.recipe)
    return {name: value for name, value in fields.items() if name not in own and usual.get(name) != value}


def check(recipe: Path) -> None:
    """Refuse a recipe whose row could not be compared.

    Raises:
        UserError: one line about what is wrong.
    """
    own, base = fields_of(recipe), fields_of(FIRST_ZERO.recipe)
    if other := [name for name in SHARED if own.get(name) != base.get(name)]:
        raise UserError(
            f"{recipe}: {other[0]} is {own.get(other[0])!r}, and {base.get(other[0])!r} in the rows that it would "
            "stand beside; remove it, and have base: first_zero"
        )
    published = {file.stem: file for file in RECIPES.rglob("*.yaml")}
    if recipe.stem in published and not recipe.samefile(published[recipe.stem]):
        raise UserError(f"{recipe}: {recipe.stem} is a system of the table; give the file another name")
    words = own.get("target_prompt", " .")
    if words != f" {words.strip()}":
        raise UserError(f"{recipe}: target_prompt is {words!r}; it must begin with one space, and not end with one")


def asked(miniature: Miniature, recipe: Path, model: Path, folder: Path, *split: str) -> list[Path]:
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
        where = folder / f"asked-{'-'.join(split[1:])}{budget}"
        folders.append(evaluate(miniature, model, where, *options, *split))
    return folders


def run(miniature: Miniature, recipe: Path, seed: int, rate: str | None = None, averages: bool = False) -> list[Row]:
    """Train a recipe and measure what it has made: a row, or two where prompts can ask for a length.

    Args:
        miniature: the base and its problems.
        recipe: its file.
        seed: of the training.
        rate: learning rate in place of the recipe's.
        averages: also make a row of the mean of its weights.

    Raises:
        CalledProcessError: a command failed, and has said why.
        UserError: the training ended before it had generated as much as the others.
    """
    name = named(recipe, rate)
    folder = RUNS / miniature.name / f"{name.replace(' ', '-')}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)  # what a run that was interrupted has left
    model = folder / "model"
    fields = in_place(recipe, miniature) | ({} if rate is None else {"learning_rate": rate})
    fields |= {"output_dir": model, "seed": seed, "save_strategy": "steps", "save_steps": 2, "save_only_model": "true"}
    e1("train", "--config", recipe, *(word for name, value in fields.items() for word in (f"--{name}", value)))
    split, forced = ("--dataset_split", "validation"), ("--methods", FORCED_CLOSE)
    test = evaluate(miniature, model, folder / "test")
    validation = evaluate(miniature, model, folder / "validation", *split, *forced)
    earlier = {
        share: evaluate(miniature, checkpoint_at(model, share, miniature.rollouts), folder / f"at-{share}", *forced)
        for share in SHARES
    }
    own, chosen = asked(miniature, recipe, model, folder), asked(miniature, recipe, model, folder, *split)
    label = name + NOT_ASKED * bool(own)
    rows = [measured(miniature, label, seed, model, test, validation, earlier=earlier)]
    generated = rows[0]["generated_tokens"]
    if generated < (least := fields_of(miniature.recipe)["max_generated_tokens"]):
        raise UserError(f"{recipe}: the training ended after {generated} tokens, before {least}")
    if own:
        rows = [measured(miniature, name, seed, model, test, validation, own, chosen), *rows]
    if averages:
        rows.append(measure_average(miniature, name, seed, model, folder / "mean"))
    for checkpoint in model.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    known = subprocess.run(["git", "ls-files", "--error-unmatch", recipe], capture_output=True).returncode == 0
    return rows if known else [{**row, "commit": f"{row['commit']}, not in it"} for row in rows]


def run_base(miniature: Miniature, name: str) -> Row:
    """Measure what all begin with, as it is or with "Wait" banned, which opens each of its rechecks."""
    folder = RUNS / miniature.name / name.replace(", ", "-").replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    base = miniature.base
    wait = AutoTokenizer.from_pretrained(base).convert_tokens_to_ids("Wait")
    banned = ("--logit_bias", json.dumps({wait: -100})) if name == BANNED else ()
    split = ("--dataset_split", "validation", "--methods", FORCED_CLOSE)
    test = evaluate(miniature, base, folder / "test", *banned)
    validation = evaluate(miniature, base, folder / "validation", *split, *banned)
    return measured(miniature, name, SEED, base, test, validation)


def other_rate(recipe: Path, miniature: Miniature, rate: str | None) -> str | None:
    """Return a learning rate unless a recipe has it on this miniature anyway, so that a row has one name."""
    if rate is None:
        return None
    own = fields_of(recipe) | in_place(recipe, miniature)
    return None if float(rate) == own["learning_rate"] else rate


def named(recipe: Path, rate: str | None) -> str:
    """Name a row after its recipe, and after its learning rate where that is another than the recipe's."""
    return recipe.stem if rate is None else f"{recipe.stem}{AT_RATE}{float(rate):g}"  # 5e-5 is 5e-05


def add(rows: Sequence[Row]) -> None:
    """Add rows to the file, in place of those of the same system and seed, and make the documents again."""
    names = {(row["miniature"], row["system"], row["seed"]) for row in rows}
    kept = [row for row in read() if (row["miniature"], row["system"], row["seed"]) not in names]
    text = "[\n" + ",\n".join(map(json.dumps, [*kept, *rows])) + "\n]\n"
    write_atomically(ROWS, text)
    publish()


def best_besides(miniature: str) -> list[str]:
    """The four systems that are best on the validation split, from the first seed, besides those that are fixed."""
    means = {row["system"]: row["validation_mean_accuracy"] for row in read(miniature) if row["seed"] == FIRST}
    ranked = sorted(means, key=lambda name: -means[name])
    return [name for name in ranked if (RECIPES / f"{name}.yaml").exists() and name not in THRICE][:4]


def is_there(miniature: str, name: str, seed: int) -> bool:
    """Return whether a system has its row from a seed."""
    return any((row["system"], row["seed"]) == (name, seed) for row in read(miniature))


def complete(
    miniature: Miniature,
    recipes: Sequence[Path],
    seeds: Sequence[int],
    rate: str | None = None,
    averages: bool = False,
) -> list[str]:
    """Run the rows that are missing; returns what failed, and why."""
    failed = []
    for recipe in recipes:
        other = other_rate(recipe, miniature, rate)
        for seed in seeds:
            row = f"{miniature.name}: {named(recipe, other)}, seed {seed}"
            ends = ["", AVERAGED] if averages else [""]
            there = [is_there(miniature.name, named(recipe, other) + end, seed) for end in ends]
            if all(there):
                print(f"==> {row}: is there", flush=True)
                continue
            if there[0]:
                failed.append(f"{row}: its row is there without the mean of its weights; name another seed for both")
                continue
            print(f"==> {row}", flush=True)
            try:
                add(run(miniature, recipe, seed, other, averages))
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
    parser.add_argument("--miniature", choices=MINIATURES, default=FIRST_ZERO.name)
    parser.add_argument("--seeds", nargs="+", type=int, default=[FIRST], help=f"of the recipes; unset: {FIRST}")
    parser.add_argument("--rate", help="learning rate of the recipes in place of their own, after which rows are named")
    parser.add_argument("--averages", action="store_true", help="also make rows of the mean of each training's weights")
    arguments = parser.parse_args()
    miniature = MINIATURES[arguments.miniature]
    recipes, all_of_them = arguments.recipes, miniature.systems
    for recipe in recipes:
        check(recipe)
    RUNS.mkdir(parents=True, exist_ok=True)
    with open(RUNS / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"another process writes into {RUNS}; wait for it") from error
        for each in MINIATURES.values():  # the documents have references from the problems of all
            each.make_data(each.data, SEED)
        for name in ("base", BANNED):
            if not is_there(miniature.name, name, SEED):
                add([run_base(miniature, name)])
        failed = complete(miniature, recipes or all_of_them, arguments.seeds, arguments.rate, arguments.averages)
        if not recipes and all(is_there(miniature.name, recipe.stem, FIRST) for recipe in all_of_them):
            again = (*THRICE, *best_besides(miniature.name))
            failed += complete(miniature, [RECIPES / f"{name}.yaml" for name in again], SEEDS)
            for rate in RATES:
                failed += complete(miniature, [RECIPES / f"{name}.yaml" for name in RATED], [FIRST], rate)
    if failed:
        raise UserError("; ".join(failed))


if __name__ == "__main__":
    run_command("experiments.systems", main)
