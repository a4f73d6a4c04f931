"""Make the base of the miniature in which every part of a thought is a decision: which of some items is the largest?

Four, six or eight items, each with a head and up to nine terms; its value is the head plus the last digit of the sum of
its terms. The head bounds the value, so which item to compute next, when to stop, and which item to name when stopped
can all be decided well or badly. Nearly all worked examples compute all items in their order and come back to many of
them, at once or later; one in eighty computes no more than it must, the items that can be largest first. A thought that
is stopped names the best item so far, or any item where none is computed. In one problem of eight a head is so large
that nothing needs to be computed. The base is concise more often than its examples: batches have examples of similar
length and count alike, so that a token of a short thought weighs many times as much.

    problem    A3a4b7B5c1d0e2C2?
    thinking   C2=2C^2B5c1d1e3=8B^8A3a4b1=4B^8   (an item: head, terms, sum so far; its value, the best item so far)
    solution   \\boxed{B}

    python -m experiments.best_of.make_base --what data     the problems: seconds
    python -m experiments.best_of.make_base --what model    the base: half an hour on two cores
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, product
from math import prod
from pathlib import Path
from string import ascii_lowercase

from experiments.pretraining import draw_problems, main, make_tokenizer, pretrain, write_data

SPLITS = {"test": 2048, "validation": 512, "train": 16384}
ITEMS = "ABCDEFGH"
COUNTS = (4, 6, 8)  # items of a problem
SCALES = (1, 2, 3)  # of a problem, times
TERMS = (0, 1, 2, 3)  # of an item: its number of terms
HEADS = 6  # 0 to 5, but for an item that no other can reach
MOST = HEADS + 18  # the largest value
EASY = 1 / 8  # share of problems with such an item
NAMES = ["".join(letters) for size in (1, 2) for letters in product(ascii_lowercase, repeat=size)]
NAMES = NAMES[: COUNTS[-1] * SCALES[-1] * TERMS[-1]]  # of terms
NUMBERS = [str(number) for number in range(MOST + 1)]
WORDS = [
    *(*NUMBERS, *ITEMS, *NAMES, "?", "Wait", "\\boxed{", "}"),
    *(f"={number}" for number in NUMBERS),
    *(f"^{number}" for number in NUMBERS),
]
ADDED = [word for word in WORDS if len(word) > 1]  # which Qwen2's pre-tokenizer would spell (`make_tokenizer`)
CONCISE = 1 / 80  # share of the thoughts that are no longer than they must be; the numbers below are of the others
CONCISE_AT_FIRST = 1 / 2  # the same while the base learns to compute, before anything is said again
BACK = 0.75  # probability that it computes an earlier item again, at most twice as often as there are items
RECHECK = (0.2, 0.45)  # probability of one more recheck of an item at once, drawn for each thought
MAX_RECHECKS = 2
STOPPED = 1 / 5  # share of the worked examples that are stopped
NO_THINKING = 1 / 4  # share of these that have not begun to think


@dataclass(frozen=True)
class Choice:
    """A problem: the heads and the terms of its items; exactly one has the largest value."""

    heads: tuple[int, ...]
    terms: tuple[tuple[int, ...], ...]

    @classmethod
    def sample(cls, rng: random.Random, counts: Sequence[int] = COUNTS, scales: Sequence[int] = SCALES) -> "Choice":
        """Draw problems until one has a single best item."""
        while True:
            count, scale = rng.choice(counts), rng.choice(scales)
            heads = [rng.randrange(HEADS) for _ in range(count)]
            terms = [tuple(rng.randrange(10) for _ in range(scale * rng.choice(TERMS))) for _ in heads]
            if rng.random() < EASY:
                heads[rng.randrange(count)] = max(heads) + 10
            choice = cls(tuple(heads), tuple(terms))
            if choice.values.count(max(choice.values)) == 1:
                return choice

    @classmethod
    def read(cls, problem: str) -> "Choice":
        """Read a problem's text."""
        items = re.findall(r"[A-Z](\d+)((?:[a-z]+\d)*)", problem)
        return cls(
            tuple(int(head) for head, _ in items), tuple(tuple(map(int, re.findall(r"\d", each))) for _, each in items)
        )

    @property
    def values(self) -> list[int]:
        return [head + sum(terms) % 10 for head, terms in zip(self.heads, self.terms, strict=True)]

    @property
    def bounds(self) -> list[int]:
        """Largest value that each item can have, judged by its head."""
        return [head + 9 * bool(terms) for head, terms in zip(self.heads, self.terms, strict=True)]

    def names(self, item: int) -> list[str]:
        """Names of an item's terms: all terms of a problem are named in alphabetical order."""
        start = sum(map(len, self.terms[:item]))
        return NAMES[start : start + len(self.terms[item])]

    @property
    def problem(self) -> str:
        items = []
        for item, head in enumerate(self.heads):
            terms = zip(self.names(item), self.terms[item], strict=True)
            items.append(f"{ITEMS[item]}{head}{''.join(f'{name}{term}' for name, term in terms)}")
        return f"{''.join(items)}?"

    @property
    def best(self) -> int:
        return self.values.index(max(self.values))

    @property
    def answer(self) -> str:
        return ITEMS[self.best]

    def step(self, item: int, done: Sequence[int]) -> list[str]:
        """Compute an item, in tokens: head, each term with the sum so far, value, and the best of what is done."""
        best = max(done, key=lambda each: (self.values[each], -done.index(each)))
        tokens, total = [ITEMS[item], str(self.heads[item])], 0
        for name, term in zip(self.names(item), self.terms[item], strict=True):
            total = (total + term) % 10
            tokens += [name, str(total)]
        return [*tokens, f"={self.values[item]}", ITEMS[best], f"^{self.values[best]}"]

    def decided(self, done: Sequence[int]) -> bool:
        """Return whether no other item can be larger than the best of these."""
        best = max((self.values[item] for item in done), default=-1)
        return all(bound <= best for item, bound in enumerate(self.bounds) if item not in done)

    def natural(self, rng: random.Random, repeats: bool = True) -> list[str]:
        """Think as the base does, or without saying anything again."""
        if rng.random() < (CONCISE if repeats else CONCISE_AT_FIRST):
            return self.concise
        again = rng.uniform(*RECHECK) if repeats else 0.0
        back = 2 * len(self.heads) if repeats else 0
        done, tokens = list[int](), list[str]()
        while len(done) < len(self.heads):
            if done and back and rng.random() < BACK:
                item = rng.choice(done)
                back -= 1
            else:
                item = len(done)
                done.append(item)
            step = self.step(item, done)
            tokens += step
            for _ in range(MAX_RECHECKS):
                if rng.random() >= again:
                    break
                tokens += ["Wait", *step]
        return tokens

    @property
    def concise(self) -> list[str]:
        """Think no more than needed: the largest bounds first, the shorter of two, and none that cannot be the best."""
        done, tokens = list[int](), list[str]()
        for item in sorted(range(len(self.heads)), key=lambda item: (-self.bounds[item], len(self.terms[item]))):
            if self.decided(done):
                break
            done.append(item)
            tokens += self.step(item, done)
        return tokens

    def named(self, thought: Sequence[str], rng: random.Random) -> str:
        """Name the best item so far, as the base does when it is stopped, or any where none is computed."""
        best = [item for item, token in pairwise(thought) if token.startswith("^")]
        return best[-1] if best else rng.choice(self.choices)

    def done(self, thought: Sequence[str]) -> set[int]:
        """Return the items whose values stand in the tokens of a thought."""
        found, item = set(), ""
        for token in thought:
            item = token if token in ITEMS else item
            if token.startswith("=") and item:
                found.add(ITEMS.index(item))
        return found & set(range(len(self.heads)))

    @property
    def choices(self) -> str:
        """The answers that a problem can have."""
        return ITEMS[: len(self.heads)]

    def left(self, thought: Sequence[str]) -> dict[str, float]:
        """Return the probability of each item to be the best after a thought, where it is not 0.

        Last digits of sums that the thought does not tell are taken to be equally likely, and ties to be impossible.
        """
        done = self.done(thought)
        known = [item in done or not terms for item, terms in enumerate(self.terms)]
        below = [  # for each item and number: the probability that its value is less
            [
                float(self.values[item] < number) if known[item] else min(max(number - head, 0), 10) / 10
                for number in range(MOST + 2)
            ]
            for item, head in enumerate(self.heads)
        ]
        chances = []
        for item in range(len(self.heads)):
            others = [below[other] for other in range(len(self.heads)) if other != item]
            chances.append(
                sum(
                    (below[item][number + 1] - below[item][number]) * prod(other[number] for other in others)
                    for number in range(MOST + 1)
                )
            )
        return {name: chance / sum(chances) for name, chance in zip(self.choices, chances, strict=True) if chance > 0}


def make_data(output: Path, seed: int) -> None:
    rows = draw_problems(seed, Choice.sample)
    write_data(output, {split: islice(rows, size) for split, size in SPLITS.items()})


def example(rng: random.Random, growth: float) -> tuple[str, str, str, bool]:
    """Make a worked example; problems grow to full size with the training, and nothing is said again before its end.

    What is said again is copied, and from copies no sum is learnt.
    """
    counts, scales = (each[: 1 + round(min(1, growth * 2) * 2)] for each in (COUNTS, SCALES))
    choice = Choice.sample(rng, counts, scales)
    thought = choice.natural(rng, repeats=growth == 1)
    stopped = rng.random() < STOPPED
    if stopped:
        thought = thought[: 0 if rng.random() < NO_THINKING else rng.randrange(1, len(thought))]
    return choice.problem, "".join(thought), f"\\boxed{{{choice.named(thought, rng)}}}", stopped


def make_model(output: Path, seed: int) -> None:
    pretrain(output, seed, 3, make_tokenizer(WORDS, ADDED), example, steps=3000, grown=2 / 3)


if __name__ == "__main__":
    main("best_of", make_data, make_model)
