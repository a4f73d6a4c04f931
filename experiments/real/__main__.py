"""Makes both bases, measures them with and without training, trains every system, and writes the rows of all.

A row is in docs/results/real.json as soon as it is measured, and only what is missing is run: killed at any moment, the
same command goes on where it was, trainings from their last checkpoint.

    python -m experiments.real                     everything, in the order in which it is needed
    python -m experiments.real --bases 1           the first base only
    python -m experiments.real --gate              print the gate from the rows that are there
"""

import argparse
import json
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from e1_trl.atomic import write_atomically
from e1_trl.checkout import check_committed
from e1_trl.errors import UserError, run_command
from e1_trl.report import samples
from experiments.pretraining import SEED
from experiments.real.make_base import EVALUATION, make_model, train
from experiments.real.measure import (
    BANNED,
    BASE,
    E1,
    FREE,
    Rows,
    banned_gate,
    gate,
    measured,
    sentence_starts,
    stage_row,
)
from experiments.real.problems import SAME_STORY, read_split
from experiments.systems.__main__ import e1

RUNS, ROWS = Path("runs/real"), Path("docs/results/real.json")
BASE_SEEDS = {1: SEED, 2: SEED + 100}
SYSTEMS = (E1, "grpo_cut", "grpo_free", "random")  # recipes
LISTS = ("stages", "candidates", "rows")  # of the results
# Base, and seed of the trainings: what every claim needs comes first.
PLAN = ((1, 42), (2, 42), (1, 43))
CANDIDATES = 20  # most frequent first tokens of sentences that are banned one after the other, on the validation split


def read() -> dict[str, Any]:
    """The results that are there; at first only the split, which every run makes alike."""
    if ROWS.exists():
        return json.loads(ROWS.read_text())
    parts = read_split(SEED)
    sizes = {name: len(getattr(parts, name)) for name in ("test", "validation", "train", "worked")}
    near = {"bound": SAME_STORY, "left_out": parts.left_out, "stories": parts.stories, "nearest": parts.nearest}
    return {"split": {**sizes, **near}, "stages": [], "candidates": [], "rows": []}


def append(name: str, *found: Any) -> None:
    """Add to one of the lists, a line each."""
    check_committed(ROWS)
    results = read()
    results[name] += found
    lists = {each: "[\n" + ",\n".join(map(json.dumps, results[each])) + "\n]" for each in LISTS}
    parts = {"split": json.dumps(results["split"]), **lists}
    text = "{\n" + ",\n".join(f'"{each}": {part}' for each, part in parts.items()) + "\n}\n"
    write_atomically(ROWS, lambda path: path.write_text(text))


def add_stage(base: int, stage: str, model: Path) -> None:
    """Add the row of a stage of a base: problems held out, without a budget."""
    if (base, stage) not in {(row["base"], row["stage"]) for row in read()["stages"]}:
        answers = samples.read(evaluate(model, RUNS / str(base) / f"free-{stage}", "--methods", FREE))
        append("stages", stage_row(answers, base, stage))


def evaluate(model: Path, folder: Path, *words: object) -> Path:
    """Ask a model what the evaluation's file says, but for `words`; returns the folder. Killed, it goes on."""
    e1("eval", "--config", EVALUATION, "--model", model, "--output", folder, "--page_problems", 0, *words)
    return folder


def add(base: int, system: str, seed: int, *words: object) -> None:
    """Measure a system on the test split, trained before where it is one of `SYSTEMS`, unless its rows are there."""
    results, folder = read(), RUNS / str(base)
    if any((row["base"], row["system"], row["seed"]) == (base, system, seed) for row in results["rows"]):
        return
    print(f"==> base {base}: {system}, seed {seed}", flush=True)
    trained = train(system, folder / "base", folder / f"{system}-{seed}", seed) if system in SYSTEMS else None
    asked = evaluate(trained or folder / "base", folder / f"test-{system.replace(' ', '-')}-{seed}", *words)
    append("rows", *measured(asked, base, system, seed, results["split"]["stories"], trained))


def ban_a_token(base: int) -> None:
    """Find the best of the `CANDIDATES` tokens to ban, on the validation split, and measure it on the test."""
    model, folder = RUNS / str(base) / "base", RUNS / str(base)
    split = ("--dataset_split", "validation")
    plain = samples.read(evaluate(model, folder / "validation", *split, "--methods", FREE))
    tokenizer = AutoTokenizer.from_pretrained(model)
    thoughts = (ids[:count] for ids, count in zip(plain["token_ids"], plain["thinking_tokens"], strict=True))
    for token, count in sentence_starts(thoughts, tokenizer).most_common(CANDIDATES):
        tried = {"base": base, "token": int(token), "text": tokenizer.decode([token]), "count": count}
        if any(each.items() >= tried.items() for each in read()["candidates"]):
            continue
        own = ("--methods", "separate", "--logit_bias", json.dumps({int(token): -100}))
        right = samples.read(evaluate(model, folder / f"validation-{token}", *split, *own))["outcome"] == "correct"
        append("candidates", {**tried, "accuracy": round(float(right.mean()), 4)})
    best = max((each for each in read()["candidates"] if each["base"] == base), key=lambda each: each["accuracy"])
    named = f"{BASE}, {best['text'].strip()}{BANNED}"
    add(base, named, BASE_SEEDS[base], "--logit_bias", json.dumps({best["token"]: -100}))


def print_gate(base: int) -> bool:
    """Print the conditions on a base; returns whether those hold that need no training."""
    results = read()
    rows = Rows(results["rows"], results["split"]["stories"])
    if BASE not in rows.systems(base):
        return False
    lines = gate(rows, base)
    for name, found, wanted, holds in (*lines, *banned_gate(rows, base)):
        print(f"    base {base}: {name}: {found}; wanted {wanted}: {'yes' if holds else 'NO'}", flush=True)
    return all(holds for *_, holds in lines)


def main() -> None:
    """Run what is missing, or print the gate.

    Raises:
        CalledProcessError: a command failed, and has said why.
        UserError: a base does not pass the gate.
    """
    parser = argparse.ArgumentParser(prog="experiments.real", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bases", nargs="+", type=int, choices=BASE_SEEDS, default=[*BASE_SEEDS])
    parser.add_argument("--gate", action="store_true", help="only print the gate, from the rows that are there")
    parser.add_argument("--despite-gate", action="store_true", help="train on a base that does not pass it, too")
    arguments = parser.parse_args()
    for base in arguments.bases if not arguments.gate else ():
        for stage, model in make_model(RUNS / str(base), BASE_SEEDS[base]):
            add_stage(base, stage, model)
        add(base, BASE, BASE_SEEDS[base])
        ban_a_token(base)
    failing = [str(base) for base in arguments.bases if not print_gate(base)]
    if arguments.gate:
        return
    if failing and not arguments.despite_gate:
        which = f"{', '.join(failing)} of the bases"
        raise UserError(f"{which} do not pass the gate; change how they are made, or go on with --despite-gate")
    for base, seed in (each for each in PLAN if each[0] in arguments.bases):
        for recipe in SYSTEMS:
            add(base, recipe, seed)
    for base in arguments.bases:
        print_gate(base)


if __name__ == "__main__":
    run_command("experiments.real", main)
