"""Make the base of the miniature of code: problems with hidden tests, a tokenizer, and a model that plans too long.

Its plans are right but redundant: every step is rechecked ("Wait …") 1.6 times on average, as in the miniature of
mathematics. The functions are those of `experiments/nano_code/language.py`.

    python -m experiments.nano_code.make_base --what data     the problems of the recipe: seconds
    python -m experiments.nano_code.make_base --what model    the base (`make base`)
"""

import itertools
import json
import random
from dataclasses import dataclass, field
from pathlib import Path

from trl import TrlParser

from experiments.nano_code.language import Function, problems, vocabulary
from experiments.pretraining import PretrainingArguments, make_tokenizer, pretrain

SPLITS = {"test": 512, "train": 8192}


@dataclass
class BaseArguments(PretrainingArguments):
    """The language's numbers, too."""

    output: Path = field(default=Path("runs/nano_code"), metadata={"help": "Folder for `data/` or `base/`."})
    layers: int = field(default=4, metadata={"help": "Layers of the model."})
    fewest: int = field(default=3, metadata={"help": "Operations of the shortest function."})
    most: int = field(default=6, metadata={"help": "Operations of the longest function."})


def make_model(arguments: BaseArguments) -> None:
    def example(rng: random.Random, growth: float) -> tuple[str, str, str]:
        """Functions grow to full length with the training."""
        most = round(arguments.fewest + growth * (arguments.most - arguments.fewest))
        function = Function.sample(rng, min(2, arguments.fewest), most)
        return function.problem, function.thinking(rng, arguments.recheck), function.solution

    words = vocabulary()
    pretrain(arguments, make_tokenizer(words, words), example)


def make_data(arguments: BaseArguments) -> None:
    """Write `train.jsonl` and `test.jsonl`: different problems, none in both."""
    folder = arguments.output / "data"
    folder.mkdir(parents=True, exist_ok=True)
    seen = set[str]()
    for split, size in SPLITS.items():
        rows = itertools.islice(problems(f"{split}-{arguments.seed}", arguments.fewest, arguments.most, seen), size)
        with (folder / f"{split}.jsonl").open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    (arguments,) = TrlParser(BaseArguments).parse_args_and_config()
    {"data": make_data, "model": make_model}[arguments.what](arguments)
