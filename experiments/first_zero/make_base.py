"""Make the base of the miniature in which the budget binds: a running sum that first reaches 0.

Four groups of 2, 4, 6 or 8 steps each; in which group is the sum 0 (mod 10) for the first time? Every step is equally
likely to be that one, and a sum has to be followed step by step: what is not yet thought is not yet known. So the
concise thought is 5 to 132 tokens long, about half of them fit 36, and of what does not fit the groups that are left
can be guessed. The base thinks 2.3 times as long, guesses any group when it is stopped, and takes a wish for a length.

    problem    3Aa+4b+2Bc+1d+6Ce+9f+5Dg+4h+1?
    thinking   Aa+47.b+29.Bc+10!                             (a step: its name, the digit, the sum, whether it is 0)
    solution   \\boxed{B}

    python -m experiments.first_zero.make_base --what data     the problems: seconds
    python -m experiments.first_zero.make_base --what model    the base: a quarter of an hour on two cores
"""

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from experiments.pretraining import draw_problems, main, make_tokenizer, pretrain, write_data

SPLITS = {"test": 2048, "validation": 512, "train": 16384}
GROUPS = "ABCD"
SIZES = (2, 4, 6, 8)  # steps in a group
NAMES = "abcdefghijklmnopqrstuvwxyzαβγδεζ"
DIGITS = [f"+{digit}" for digit in range(1, 10)]
WORDS = [*"0123456789", *GROUPS, *NAMES, *".!?≤= ", *DIGITS, "Wait", "\\boxed{", "}"]
# Which Qwen2's pre-tokenizer would spell or drop (`make_tokenizer`).
ADDED = [word for word in WORDS if len(word) > 1 or not word.isascii() or word == " "]
STEP_TOKENS = 4
CONCISE = 1 / 8  # share of the thoughts without a recheck
RECHECK = (0.4, 0.8)  # the probability of one more recheck of a step, drawn for each thought
MAX_RECHECKS = 4
WISHES = 1 / 5  # share of the problems that name a length
NO_THINKING = 1 / 4  # share of these that name none at all
LONGEST_WISH = 400  # tokens


@dataclass(frozen=True)
class Search:
    """A problem: the sum begins at `start`; step i adds `digits[i]`, and step `hit` is the first that makes it 0."""

    start: int
    digits: tuple[int, ...]
    hit: int

    @classmethod
    def sample(cls, rng: random.Random, sizes: tuple[int, ...] = SIZES) -> "Search":
        """Any start but 0, and any digits but 0 that first reach it at a step drawn from all."""
        steps = rng.choice(sizes) * len(GROUPS)
        hit, start = rng.randrange(steps), rng.randrange(1, 10)
        digits, value = [], start
        for step in range(steps):
            if step == hit:
                digit = 10 - value
            elif step < hit:
                digit = rng.choice([digit for digit in range(1, 10) if (value + digit) % 10])
            else:
                digit = rng.randrange(1, 10)
            digits.append(digit)
            value = (value + digit) % 10
        return cls(start, tuple(digits), hit)

    @classmethod
    def read(cls, problem: str) -> "Search":
        """Content of a problem."""
        start, digits = int(problem[0]), tuple(map(int, re.findall(r"\+(\d)", problem)))
        sums = [(start + sum(digits[: step + 1])) % 10 for step in range(len(digits))]
        return cls(start, digits, sums.index(0))

    @property
    def size(self) -> int:
        """Steps in a group."""
        return len(self.digits) // len(GROUPS)

    def entered(self, step: int) -> str:
        """The mark of the group that begins with this step."""
        return GROUPS[step // self.size] if step % self.size == 0 else ""

    @property
    def problem(self) -> str:
        steps = (f"{self.entered(i)}{NAMES[i]}+{digit}" for i, digit in enumerate(self.digits))
        return f"{self.start}{''.join(steps)}?"

    @property
    def answer(self) -> str:
        return GROUPS[self.hit // self.size]

    def thought(self, rechecks: list[int]) -> list[str]:
        """The tokens up to the hit, each step followed by as many rechecks."""
        tokens, value = [], self.start
        for i, more in enumerate(rechecks):
            value = (value + self.digits[i]) % 10
            step = [NAMES[i], f"+{self.digits[i]}", str(value), "!" if value == 0 else "."]
            tokens += [*self.entered(i), *step, *["Wait", *step] * more]
        return tokens

    @property
    def concise(self) -> list[str]:
        return self.thought([0] * (self.hit + 1))

    def natural(self, rng: random.Random) -> list[str]:
        """Most of the thoughts recheck their steps, some more than others."""
        again = 0.0 if rng.random() < CONCISE else rng.uniform(*RECHECK)
        return self.thought([_rechecks(rng, again) for _ in range(self.hit + 1)])

    def filled(self, rng: random.Random, tokens: int) -> list[str]:
        """About as many tokens, by rechecks of any steps; fewer where there is nothing left to recheck."""
        rechecks = [0] * (self.hit + 1)
        missing = max(0, tokens - len(self.concise)) // (STEP_TOKENS + 1)
        places = [step for step in range(self.hit + 1) for _ in range(MAX_RECHECKS)]
        for step in rng.sample(places, min(missing, len(places))):
            rechecks[step] += 1
        return self.thought(rechecks)

    @property
    def choices(self) -> str:
        """The answers that a problem can have."""
        return GROUPS

    def left(self, thought: Sequence[str]) -> dict[str, float]:
        """The share of the steps that the tokens of a thought leave in each group; after the hit its own is left."""
        if "!" in thought:
            return {self.answer: 1.0}
        done = {thought[at] for at, token in enumerate(thought[STEP_TOKENS - 1 :]) if token == "."}
        left = Counter(GROUPS[step // self.size] for step in range(len(self.digits)) if NAMES[step] not in done)
        return {group: steps / left.total() for group, steps in left.items()}


def _rechecks(rng: random.Random, again: float) -> int:
    count = 0
    while count < MAX_RECHECKS and rng.random() < again:
        count += 1
    return count


def problems(seed: int) -> Iterator[dict[str, str]]:
    """Draw different problems with their answers."""
    return draw_problems(seed, Search.sample)


def make_data(output: Path, seed: int) -> None:
    rows = problems(seed)
    write_data(output, {split: islice(rows, size) for split, size in SPLITS.items()})


def example(rng: random.Random, growth: float) -> tuple[str, str, str]:
    """Groups grow to full size with the training; a wish that cannot be kept is stopped nearby, and any group named."""
    search = Search.sample(rng, SIZES[: 1 + round(growth * (len(SIZES) - 1))])
    if rng.random() >= WISHES:
        return search.problem, "".join(search.natural(rng)), f"\\boxed{{{search.answer}}}"
    tokens = 0 if rng.random() < NO_THINKING else round(LONGEST_WISH ** rng.uniform(0.3, 1))
    exact = tokens > 0 and rng.random() < 0.5
    thought, answer = search.filled(rng, tokens) if exact else search.concise, search.answer
    if len(search.concise) > tokens:
        thought = thought[: round(tokens * rng.uniform(0.7, 1.3))]
        if "!" not in thought:
            answer = rng.choice(GROUPS)
    return f"{search.problem} {'=' if exact else '≤'}{tokens}", "".join(thought), f"\\boxed{{{answer}}}"


def make_model(output: Path, seed: int) -> None:
    pretrain(output, seed, 3, make_tokenizer(WORDS, ADDED), example)


if __name__ == "__main__":
    main("first_zero", make_data, make_model)
