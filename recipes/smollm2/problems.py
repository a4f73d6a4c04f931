"""Word problems: which of them differ only in their numbers, and which are held out before anything else is done.

Knows nothing about equations, thoughts or models.
"""

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

# A number as digits: 7, 1,250, 0.5, .5, 1/2, 3rd.
DIGITS = r"(?:\d[\d,]*)?\.?\d+(?:/\d+)?(?:st|nd|rd|th)?"
NUMBER_WORD = re.compile(
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    "eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|half|dozen|"
    "double|triple|twice|thrice"
)
PLACEHOLDER = "#"
# What a number does to the words beside it is a difference in numbers, too.
SINGULARS = {"are": "is", "were": "was", "have": "has", "they": "it", "them": "it"}
WORD = re.compile(rf"{DIGITS}|[a-z]+")
POSSESSIVE = re.compile(r"\s*'s\b|'")


@dataclass(frozen=True)
class Problem:
    """A word problem, and its answer as the dataset writes it."""

    text: str
    answer: str


def read(files: Sequence[Path]) -> list[Problem]:
    """The different problems of JSON Lines files with the fields `problem` and `answer`, in their order.

    Raises:
        OSError: there is no such file.
        ValueError: a row is not what it should be; says where.
    """
    found = dict[str, Problem]()
    for file in files:
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            try:
                row = json.loads(line)
                text, answer = " ".join(row["problem"].split()), str(row["answer"])
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise ValueError(f"{file}, line {number}: no JSON object with `problem` and `answer`") from error
            found.setdefault(text, Problem(text, answer))
    return list(found.values())


def without_numbers(text: str) -> str:
    """A text in which any number, as digits or words, is the same placeholder.

    Case, punctuation, spaces, currency signs and the grammatical number are folded as well.
    """
    words = list[str]()
    for word in WORD.findall(POSSESSIVE.sub("", text.lower().replace("’", "'"))):
        is_word = NUMBER_WORD.fullmatch(word) is not None
        if not is_word and word.isalpha():
            words.append(_singular(word))
        elif words[-1:] == ["and"] and words[-2:-1] == [PLACEHOLDER] and is_word:
            words.pop()  # two hundred and five
        elif words[-1:] != [PLACEHOLDER]:
            words.append(PLACEHOLDER)
    return " ".join(words)


def _singular(word: str) -> str:
    return SINGULARS.get(word, word).removesuffix("s").removesuffix("e").replace("y", "i")


def hold_out(problems: Iterable[Problem], count: int, seed: int) -> tuple[list[Problem], list[Problem]]:
    """Exactly `count` problems, and the rest, such that none of one differs from one of the other in numbers alone.

    Both are in random order, which depends on the problems and the seed only, not on the problems' order.

    Raises:
        ValueError: there are too few problems, or too large groups of them.
    """
    groups = defaultdict[str, list[Problem]](list)
    for problem in sorted(problems, key=lambda problem: problem.text):
        groups[without_numbers(problem.text)].append(problem)
    rng = random.Random(seed)
    names = sorted(groups)
    rng.shuffle(names)
    held, rest = list[Problem](), list[Problem]()
    for name in names:
        (held if len(held) + len(groups[name]) <= count else rest).extend(groups[name])
    if len(held) < count:
        raise ValueError(f"of {len(held) + len(rest)} problems, {count} cannot be held out in whole groups")
    rng.shuffle(held)
    rng.shuffle(rest)
    return held, rest
