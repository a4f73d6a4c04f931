"""Make the nano base: a language of chained sums, a tokenizer, and a model that thinks too long in it.

Everything that the nano recipe needs is made here from nothing: problems with known answers, a word-level
tokenizer with `<think>` and `</think>`, and a Qwen2 model of 0.65 M parameters, pre-trained on worked
examples. Its thinking is right but redundant, as that of R1-like models: every step is rechecked ("Wait ...")
1.6 times on average, so the natural thinking is almost three times the concise chain.

    problem    a=2;b=a-3;c=b+5;c?
    thinking   a=2;b=2-3=9;Wait b=2-3=9;c=9+5=4;        (mod 10)
    solution   c=9+5=4;\\boxed{4}                         (restates none, some or all of the steps)

    python -m experiments.nano.make_base --what data     the problems of the recipe: seconds
    python -m experiments.nano.make_base --what model    the base: about 20 minutes on two cores (`make base`)
"""

import json
import random
from dataclasses import dataclass, field
from pathlib import Path

from transformers import PreTrainedTokenizerFast
from trl import TrlParser

from experiments.pretraining import PretrainingArguments, pretrain
from experiments.pretraining import make_tokenizer as tokenizer_of

VARIABLES = "abcdefgh"
WORDS = [*"0123456789", *VARIABLES, *"=+-;?", "Wait ", "\\boxed{", "}"]
MAX_RECHECKS = 4


@dataclass(frozen=True)
class Chain:
    """A problem: variable i is variable i-1 plus a signed digit, mod 10; the value of the last one is asked."""

    start: int
    operands: tuple[tuple[str, int], ...]

    @classmethod
    def sample(cls, rng: random.Random, min_variables: int, max_variables: int) -> "Chain":
        operands = rng.randint(min_variables, max_variables) - 1
        return cls(rng.randrange(10), tuple((rng.choice("+-"), rng.randrange(10)) for _ in range(operands)))

    @property
    def steps(self) -> list[str]:
        """The concise chain, one worked step per variable."""
        value, steps = self.start, [f"a={self.start};"]
        for name, (sign, digit) in zip(VARIABLES[1:], self.operands, strict=False):
            result = (value + digit if sign == "+" else value - digit) % 10
            steps.append(f"{name}={value}{sign}{digit}={result};")
            value = result
        return steps

    @property
    def problem(self) -> str:
        parts = [f"a={self.start};"]
        for previous, name, (sign, digit) in zip(VARIABLES, VARIABLES[1:], self.operands, strict=False):
            parts.append(f"{name}={previous}{sign}{digit};")
        return "".join(parts) + f"{VARIABLES[len(self.operands)]}?"

    @property
    def answer(self) -> str:
        return self.steps[-1][-2]

    def thinking(self, rng: random.Random, recheck: float) -> str:
        """The chain with each computed step rechecked while `rng` says so (with probability `recheck`)."""
        text = self.steps[0]
        for step in self.steps[1:]:
            text += step
            for _ in range(MAX_RECHECKS):
                if rng.random() >= recheck:
                    break
                text += f"Wait {step}"
        return text

    def solution(self, rng: random.Random, restate: float) -> str:
        """The boxed answer; with probability `restate`, after a random number of the last steps."""
        restated = rng.randint(1, len(self.steps)) if rng.random() < restate else 0
        return "".join(self.steps[len(self.steps) - restated :]) + f"\\boxed{{{self.answer}}}"


def make_tokenizer() -> PreTrainedTokenizerFast:
    return tokenizer_of(WORDS, [word for word in WORDS if len(word) > 1])


@dataclass
class BaseArguments(PretrainingArguments):
    """The language's numbers, too."""

    output: Path = field(default=Path("runs/nano"), metadata={"help": "Folder that `data/` or `base/` is written to."})
    min_variables: int = field(default=4, metadata={"help": "Shortest chain."})
    max_variables: int = field(default=8, metadata={"help": "Longest chain."})
    restate: float = field(default=0.5, metadata={"help": "Share of the solutions that restate some steps."})


def make_model(arguments: BaseArguments) -> None:
    def example(rng: random.Random, growth: float) -> tuple[str, str, str]:
        """Chains grow to full length with the training."""
        longest = round(3 + growth * (arguments.max_variables - 3))
        chain = Chain.sample(rng, min(arguments.min_variables, longest), longest)
        return chain.problem, chain.thinking(rng, arguments.recheck), chain.solution(rng, arguments.restate)

    pretrain(arguments, make_tokenizer(), example)


def make_data(arguments: BaseArguments) -> None:
    """Write `train.jsonl` and `test.jsonl`: 8,192 and 1,024 different problems, none in both."""
    folder = arguments.output / "data"
    folder.mkdir(parents=True, exist_ok=True)
    rng, seen = random.Random(f"problems-{arguments.seed}"), set[str]()
    for split, size in (("test", 1024), ("train", 8192)):
        with (folder / f"{split}.jsonl").open("w") as file:
            while size:
                chain = Chain.sample(rng, arguments.min_variables, arguments.max_variables)
                if chain.problem not in seen:
                    seen.add(chain.problem)
                    file.write(json.dumps({"problem": chain.problem, "answer": chain.answer}) + "\n")
                    size -= 1


if __name__ == "__main__":
    (arguments,) = TrlParser(BaseArguments).parse_args_and_config()
    {"data": make_data, "model": make_model}[arguments.what](arguments)
