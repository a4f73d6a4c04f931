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

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from experiments.pretraining import draw_problems, main, make_tokenizer, pretrain, rechecked, write_data

SPLITS = {"test": 1024, "train": 8192}
SHORTEST, LONGEST = 4, 8  # chains, in variables
RESTATE = 0.5  # share of the solutions that restate some steps
LAYERS = 3
VARIABLES = "abcdefgh"
WORDS = [*"0123456789", *VARIABLES, *"=+-;?", "Wait ", "\\boxed{", "}"]


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

    def thinking(self, rng: random.Random) -> str:
        """The chain, with computed steps rechecked."""
        return self.steps[0] + rechecked(self.steps[1:], rng)

    def solution(self, rng: random.Random) -> str:
        """The boxed answer, half of the time after a random number of the last steps."""
        restated = rng.randint(1, len(self.steps)) if rng.random() < RESTATE else 0
        return "".join(self.steps[len(self.steps) - restated :]) + f"\\boxed{{{self.answer}}}"


def problems(seed: int) -> Iterator[dict[str, str]]:
    """Draw different problems with their answers."""
    return draw_problems(seed, lambda rng: Chain.sample(rng, SHORTEST, LONGEST))


def make_data(output: Path, seed: int) -> None:
    rows = problems(seed)
    write_data(output, {split: islice(rows, size) for split, size in SPLITS.items()})


def example(rng: random.Random, growth: float) -> tuple[str, str, str]:
    """Chains grow to full length with the training."""
    longest = round(3 + growth * (LONGEST - 3))
    chain = Chain.sample(rng, min(SHORTEST, longest), longest)
    return chain.problem, chain.thinking(rng), chain.solution(rng)


def make_model(output: Path, seed: int) -> None:
    tokenizer = make_tokenizer(WORDS, [word for word in WORDS if len(word) > 1])
    pretrain(output, seed, LAYERS, tokenizer, example)


if __name__ == "__main__":
    main("nano", make_data, make_model)
