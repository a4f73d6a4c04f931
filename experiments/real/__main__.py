"""Makes both bases, measures them with and without training, trains every system, and writes the rows of all.

A row is in docs/results/real.json as soon as it is measured, and only what is missing is run: killed at any moment, the
same command goes on where it was, trainings from their last checkpoint.

    python -m experiments.real
"""

import argparse
import json
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from e1_trl.atomic import write_atomically
from e1_trl.checkout import check_committed
from e1_trl.errors import run_command
from e1_trl.report import samples
from experiments.pretraining import SEED
from experiments.real.make_base import BASE, EVALUATION, TAUGHT, make_data, make_model, merge, train
from experiments.real.measure import BANNED, E1, FREE, measured, sentence_starts
from experiments.real.problems import SAME_STORY, read_split
from experiments.systems.__main__ import e1

RUNS, ROWS = Path("runs/real"), Path("docs/results/real.json")
BASE_SEEDS = {1: SEED, 2: SEED + 100}
SYSTEMS = dict.fromkeys((E1, "grpo_cut", "grpo_free", "random"), BASE)  # recipes, and the model that each trains
SYSTEMS |= {f"{TAUGHT}_{name}": TAUGHT for name in (E1, "cut", "free", "random")}
# Base, and seed of the trainings: what every claim needs comes first.
PLAN = ((1, 42), (2, 42), (1, 43), (2, 43))
CANDIDATES = 20  # most frequent first tokens of sentences that are banned one after the other, on the validation split


def read() -> dict[str, Any]:
    """The results that are there; at first only the split, which every run makes alike."""
    if ROWS.exists():
        return json.loads(ROWS.read_text())
    parts = read_split(SEED)
    sizes = {name: len(getattr(parts, name)) for name in ("test", "validation", "train", "worked")}
    rest = {name: getattr(parts, name) for name in ("left_out", "stories", "nearest")}
    return {"split": {**sizes, "bound": SAME_STORY, **rest}, "candidates": [], "rows": []}


def append(name: str, *found: Any) -> None:
    """Add to one of the lists, a line each."""
    check_committed(ROWS)
    results = read()
    results[name] += found
    write_atomically(ROWS, json.dumps(results).replace("}, {", "},\n{") + "\n")


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
    source = folder / SYSTEMS.get(system, TAUGHT if system == TAUGHT else BASE)
    trained = train(system, source, folder / f"{system}-{seed}", seed) if system in SYSTEMS else None
    model = source if trained is None else folder / f"{system}-{seed}-merged"
    if trained is not None and not model.exists():  # vLLM answers several times faster on CPUs without an adapter
        merge([trained], model, source)
    asked = evaluate(model, folder / f"test-{system.replace(' ', '-')}-{seed}", *words)
    append("rows", *measured(asked, base, system, seed, results["split"]["stories"], trained))


def ban_a_token(base: int) -> None:
    """Find the best of the `CANDIDATES` tokens to ban, on the validation split, and measure it on the test."""
    folder, split = RUNS / str(base), ("--dataset_split", "validation")
    plain = samples.read(evaluate(folder / BASE, folder / "validation", *split, "--methods", FREE))
    tokenizer = AutoTokenizer.from_pretrained(folder / BASE)
    thoughts = (ids[:count] for ids, count in zip(plain["token_ids"], plain["thinking_tokens"], strict=True))
    for token, count in sentence_starts(thoughts, tokenizer).most_common(CANDIDATES):
        tried = {"base": base, "token": int(token), "text": tokenizer.decode([token]), "count": count}
        if any(each.items() >= tried.items() for each in read()["candidates"]):
            continue
        own = ("--methods", "separate", "--logit_bias", json.dumps({int(token): -100}))
        right = samples.read(evaluate(folder / BASE, folder / f"validation-{token}", *split, *own))["outcome"]
        append("candidates", {**tried, "accuracy": round(float((right == "correct").mean()), 4)})
    best = max((each for each in read()["candidates"] if each["base"] == base), key=lambda each: each["accuracy"])
    named = f"{BASE}, {best['text'].strip()}{BANNED}"
    add(base, named, BASE_SEEDS[base], "--logit_bias", json.dumps({best["token"]: -100}))


def main() -> None:
    """Run what is missing: for each base what needs no training, then the trainings."""
    argparse.ArgumentParser(prog="experiments.real", description=(__doc__ or "").partition("\n")[0]).parse_args()
    make_data(RUNS)
    for base, seed in BASE_SEEDS.items():
        make_model(RUNS / str(base), seed)
        for system in (TAUGHT, BASE):
            add(base, system, seed)
        ban_a_token(base)
    for base, seed in PLAN:
        for recipe in SYSTEMS:
            add(base, recipe, seed)


if __name__ == "__main__":
    run_command("experiments.real", main)
