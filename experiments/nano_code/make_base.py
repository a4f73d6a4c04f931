"""Make the base of the miniature of code: problems with hidden tests, a tokenizer, and a model that plans too long.

Its plans are right but redundant: every step is rechecked ("Wait …") 1.6 times on average, as in the miniature of
mathematics. The functions are those of `experiments/nano_code/language.py`.

    python -m experiments.nano_code.make_base --what data     the problems of the recipe: seconds
    python -m experiments.nano_code.make_base --what model    the base (`make base`)
"""

import random
from itertools import islice
from pathlib import Path

from experiments.nano_code.language import Function, problems, vocabulary
from experiments.pretraining import main, make_tokenizer, pretrain, write_data

SPLITS = {"test": 512, "train": 8192}
SHORTEST, LONGEST = 3, 6  # functions, in operations
LAYERS = 4


def make_data(output: Path, seed: int) -> None:
    seen = set[str]()
    rows = {split: problems(f"{split}-{seed}", SHORTEST, LONGEST, seen) for split in SPLITS}
    write_data(output, {split: islice(rows[split], size) for split, size in SPLITS.items()})


def example(rng: random.Random, growth: float) -> tuple[str, str, str]:
    """Functions grow to full length with the training."""
    function = Function.sample(rng, 2, round(SHORTEST + growth * (LONGEST - SHORTEST)))
    return function.problem, function.thinking(rng), function.solution


def make_model(output: Path, seed: int) -> None:
    words = vocabulary()
    pretrain(output, seed, LAYERS, make_tokenizer(words, words), example)


if __name__ == "__main__":
    main("nano_code", make_data, make_model)
