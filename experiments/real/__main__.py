"""Makes both bases, measures them with and without training, trains every system, and writes the rows of all.

A row is in docs/results/real.json as soon as it is measured, and only what is missing is run: killed at any moment, the
same command goes on where it was, trainings from their last checkpoint.

    python -m experiments.real                     everything, in the order in which it is needed
    python -m experiments.real --bases 1           the first base only
    python -m experiments.real --gate              print the gate from the rows that are there
"""

import argparse
import fcntl
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from e1_trl.atomic import write_atomically
from e1_trl.checkout import check_committed
from e1_trl.errors import UserError, run_command
from e1_trl.report import samples
from experiments.pretraining import SEED
from experiments.real.make_base import EVALUATION, last_checkpoint, make_data, make_model
from experiments.real.measure import BANNED, BASE, E1, FOLDER, Rows, banned_gate, gate, measured, sentence_starts
from experiments.real.problems import read_split
from experiments.systems.__main__ import e1

RUNS, ROWS = Path("runs/real"), Path("docs/results/real.json")
BASE_SEEDS = {1: SEED, 2: SEED + 100}
BEST = "random"  # the recipe here of the policy that leads the table of docs/systems.md
CONTROLS = (E1, "grpo_cut", "grpo_free")
# Base, seed of the training, and recipes: what every claim needs comes first.
PLAN = (
    (1, 42, tuple(dict.fromkeys((*CONTROLS, "random", BEST)))),
    (2, 42, (*CONTROLS, BEST)),
    (1, 43, tuple(dict.fromkeys((*CONTROLS, "random", BEST)))),
)
CANDIDATES = 20  # most frequent first tokens of sentences that are banned one after the other, on the validation split


def read() -> dict[str, Any]:
    """The results that are there; at first only the split, which every run makes alike."""
    if ROWS.exists():
        return json.loads(ROWS.read_text())
    parts = read_split(SEED)
    sizes = {"test": len(parts.test), "validation": len(parts.validation), "train": len(parts.train)}
    sizes |= {"worked": len(parts.worked), "left_out": parts.left_out}
    return {"split": {**sizes, "stories": parts.stories, "nearest": parts.nearest}, "candidates": [], "rows": []}


def write(results: Mapping[str, Any]) -> None:
    """Write the results, a row or value a line."""
    check_committed(ROWS)
    lists = {name: "[\n" + ",\n".join(map(json.dumps, results[name])) + "\n]" for name in ("candidates", "rows")}
    parts = {"split": json.dumps(results["split"]), **lists}
    text = "{\n" + ",\n".join(f'"{name}": {part}' for name, part in parts.items()) + "\n}\n"
    write_atomically(ROWS, lambda path: path.write_text(text))


def rows() -> Rows:
    """The rows that are there."""
    results = read()
    return Rows(results["rows"], results["split"]["stories"])


def evaluate(model: Path, folder: Path, *words: object) -> Path:
    """Ask a model what the evaluation's file says, but for `words`; returns the folder. Killed, it goes on."""
    e1("eval", "--config", EVALUATION, "--model", model, "--output", folder, "--page_problems", 0, *words)
    return folder


def add(base: int, system: str, seed: int, model: Path, trained: bool, *words: object) -> None:
    """Evaluate a model on the test split and write its rows, unless they are there."""
    if any((row["base"], row["system"], row["seed"]) == (base, system, seed) for row in rows().rows):
        print(f"==> base {base}: {system}, seed {seed}: is there", flush=True)
        return
    folder = evaluate(model, RUNS / str(base) / f"evaluation-of-{system}-{seed}".replace(" ", "-"), *words)
    results = read()
    found = measured(folder, base, system, seed, results["split"]["stories"], model if trained else None)
    write({**results, "rows": [*results["rows"], *found]})


def train(base: int, recipe: str, seed: int) -> Path:
    """Train a recipe from a base, from the last whole checkpoint if there is one; returns the model's folder."""
    model = RUNS / str(base) / f"{recipe}-{seed}"
    if model.exists():
        return model
    partly = model.with_name(f"{model.name}.training")
    go_on = ("--resume_from_checkpoint", "true") if last_checkpoint(partly) else ()
    if not go_on:
        shutil.rmtree(partly, ignore_errors=True)
    own = ("--model_name_or_path", RUNS / str(base) / "base", "--output_dir", partly, "--seed", seed)
    e1("train", "--config", FOLDER / f"{recipe}.yaml", *own, *go_on)
    for checkpoint in partly.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    return partly.rename(model)


def ban_a_token(base: int, model: Path) -> None:
    """Find the best of the `CANDIDATES` tokens to ban, on the validation split, and measure it on the test."""
    split = ("--dataset_split", "validation")
    plain = samples.read(evaluate(model, RUNS / str(base) / "validation", *split))
    tokenizer = AutoTokenizer.from_pretrained(model)
    own = plain[plain["method"] == "unconstrained"]
    starts = sentence_starts(
        (ids[:tokens] for ids, tokens in zip(own["token_ids"], own["thinking_tokens"], strict=True)), tokenizer
    )
    for token, count in starts.most_common(CANDIDATES):
        results = read()
        if any((each["base"], each["token"]) == (base, int(token)) for each in results["candidates"]):
            continue
        bias = json.dumps({int(token): -100})
        folder = RUNS / str(base) / f"validation-without-{token}"
        table = samples.read(evaluate(model, folder, *split, "--methods", "separate", "--logit_bias", bias))
        share = round(float((table["outcome"] == "correct").mean()), 4)
        tried = {"base": base, "token": int(token), "text": tokenizer.decode([token]), "count": count, "accuracy": share}
        write({**results, "candidates": [*results["candidates"], tried]})
    best = max((each for each in read()["candidates"] if each["base"] == base), key=lambda each: each["accuracy"])
    bias = json.dumps({best["token"]: -100})
    add(base, f"{BASE}, {best['text'].strip()}{BANNED}", BASE_SEEDS[base], model, False, "--logit_bias", bias)


def print_gate(base: int) -> bool:
    """Print the conditions on a base; returns whether those hold that need no training."""
    found = rows()
    if not found.of(base, BASE, "unconstrained", None):
        return False
    lines = gate(found, base)
    for line in (*lines, *banned_gate(found, base)):
        print(f"    base {base}: {line.name}: {line.found}; wanted {line.wanted}: {'yes' if line.holds else 'NO'}")
    return all(line.holds for line in lines)


def run(bases: list[int], despite_gate: bool) -> None:
    """Run what is missing.

    Raises:
        CalledProcessError: a command failed, and has said why.
        UserError: a base does not pass the gate.
    """
    if not (RUNS / "data").exists():
        make_data(RUNS)
    for base, seed, recipes in PLAN:
        if base not in bases:
            continue
        folder = RUNS / str(base)
        make_model(folder, BASE_SEEDS[base])
        add(base, BASE, BASE_SEEDS[base], folder / "base", False)
        ban_a_token(base, folder / "base")
        if not print_gate(base) and not despite_gate:
            raise UserError(f"base {base} does not pass the gate; change how it is made, or go on with --despite-gate")
        for recipe in recipes:
            add(base, recipe, seed, train(base, recipe, seed), True)
            print_gate(base)


def main() -> None:
    """Read the command line, and run what is missing or print the gate.

    Raises:
        UserError: a base does not pass the gate, or another process is at it.
    """
    parser = argparse.ArgumentParser(prog="experiments.real", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bases", nargs="+", type=int, choices=BASE_SEEDS, default=[*BASE_SEEDS])
    parser.add_argument("--gate", action="store_true", help="only print the gate, from the rows that are there")
    parser.add_argument("--despite-gate", action="store_true", help="train on a base that does not pass it, too")
    arguments = parser.parse_args()
    if arguments.gate:
        for base in arguments.bases:
            print_gate(base)
        return
    RUNS.mkdir(parents=True, exist_ok=True)
    with open(RUNS / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"another process writes into {RUNS}; wait for it") from error
        run(arguments.bases, arguments.despite_gate)


if __name__ == "__main__":
    run_command("experiments.real", main)
