"""Word problems: which are the same but for names and numbers, and which are held out before anything else is done.

Knows nothing about equations, thoughts or models.
"""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse.csgraph import connected_components

from e1_trl.errors import UserError

NUMBER_WORD = re.compile(
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    "eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|half|dozen|"
    "double|triple|twice|thrice|st|nd|rd|th"
)
PRONOUN = re.compile("i|me|my|we|us|our|you|your|he|him|his|she|hers?|it|its|they|them|theirs?|who|whom|whose")
# What a number does to the words beside it is a difference in numbers, too.
SINGULARS = {"are": "is", "were": "was", "have": "has"}
WORD = re.compile(r"[A-Za-z]+")
POSSESSIVE = re.compile(r"\s*['’]s\b|['’]")
OVERLAP = 0.8  # of the words of two problems together, the share that both have: as many make them one template


@dataclass(frozen=True)
class Problem:
    """A word problem, and its answer as the dataset writes it."""

    text: str
    answer: str

    def as_row(self) -> dict[str, str]:
        return {"problem": self.text, "answer": self.answer}


def read(files: Sequence[Path]) -> list[Problem]:
    """The different problems of JSON Lines files with the fields `problem` and `answer`, in their order.

    Raises:
        OSError: there is no such file.
        ValueError: a row is not what it should be; says where.
    """
    found = dict[str, Problem]()
    for file in files:
        if not file.is_file():
            raise UserError(f"no file {file}: docs/smollm2.md says how to make it, and E1_TRL_DATA names its folder")
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            try:
                row = json.loads(line)
                text, answer = " ".join(row["problem"].split()), str(row["answer"])
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise UserError(f"{file}, line {number}: no JSON object with `problem` and `answer`") from error
            found.setdefault(text, Problem(text, answer))
    return list(found.values())


def content_words(texts: Sequence[str]) -> list[set[str]]:
    """The words of each text without names, pronouns and numbers; case and the grammatical number are folded.

    A name is a word with a capital that none of the texts has without one.
    """
    words = [WORD.findall(POSSESSIVE.sub("", text)) for text in texts]
    common = {word for each in words for word in each if word.islower()}
    lower = [[word.lower() for word in each if word.lower() in common] for each in words]
    return [{_singular(word) for word in each if not _is_number_or_pronoun(word)} for each in lower]


def _is_number_or_pronoun(word: str) -> bool:
    return (NUMBER_WORD.fullmatch(word) or PRONOUN.fullmatch(word)) is not None


def _singular(word: str) -> str:
    return SINGULARS.get(word, word).removesuffix("s").removesuffix("e").replace("y", "i")


def overlaps(problems: Sequence[Problem]) -> np.ndarray:
    """Overlap (Jaccard) of the content words of every two problems, as a square matrix."""
    words = content_words([problem.text for problem in problems])
    column = {word: place for place, word in enumerate(sorted(set().union(*words)))}
    has = np.zeros((len(problems), len(column)))
    for row, each in enumerate(words):
        has[row, [column[word] for word in each]] = 1
    shared, sizes = has @ has.T, has.sum(1)
    return shared / np.maximum(sizes[:, None] + sizes - shared, 1)


def clusters(problems: Sequence[Problem]) -> list[list[Problem]]:
    """The problems grouped by template: two whose content words overlap (Jaccard) by `OVERLAP` are in one group.

    So are two that a chain of such pairs connects. Problems and groups are in the order of the problems' texts.
    """
    problems = sorted(problems, key=lambda problem: problem.text)
    count, group_of = connected_components(overlaps(problems) >= OVERLAP, directed=False)
    groups: list[list[Problem]] = [[] for _ in range(count)]
    for problem, group in zip(problems, group_of, strict=True):
        groups[group].append(problem)
    return groups


def hold_out(problems: Sequence[Problem], count: int, seed: int) -> tuple[list[Problem], list[Problem]]:
    """Exactly `count` problems, and the rest, such that no template (`clusters`) is on both sides.

    Both are in random order, which depends on the problems and the seed only, not on the problems' order.

    Raises:
        ValueError: there are too few problems, or too large groups of them.
    """
    groups = clusters(problems)
    rng = random.Random(seed)
    rng.shuffle(groups)
    held, rest = list[Problem](), list[Problem]()
    for group in groups:
        (held if len(held) + len(group) <= count else rest).extend(group)
    if len(held) < count:
        raise UserError(f"of {len(held) + len(rest)} problems, {count} cannot be held out in whole groups")
    rng.shuffle(held)
    rng.shuffle(rest)
    return held, rest
