"""Word problems: how close two stories are, and what is held out so that no story is on both sides.

Knows nothing about models. Two problems tell the same story if they share the rare words that say what happens to what;
numbers, names and pronouns do not count, nor does the question, so that SVAMP's variations of one story are one:

    Jesse has 18 square feet of carpet. If her room is 4 feet long and 20 feet wide, how much more carpet does she need?
    Jesse's room is 7 feet long. If she needs a carpet of size 14 square feet, what is the width of her room?
"""

import gzip
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import csr_array
from scipy.spatial.distance import squareform

from e1_trl.errors import UserError
from e1_trl.report.statistics import Values

LEFT_OUT = re.compile(  # numbers and pronouns
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    "eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|half|dozen|"
    "double|triple|twice|thrice|st|nd|rd|th|"
    "i|me|my|we|us|our|you|your|he|him|his|she|hers?|it|its|they|them|theirs?|who|whom|whose"
)
# What a number does to the words beside it is a difference in numbers, too.
SINGULARS = {"are": "is", "were": "was", "have": "has"}
WORD = re.compile(r"[A-Za-z]+")
POSSESSIVE = re.compile(r"\s*['’]s\b|['’]")
# Of pairs of SVAMP's variations of one story over 98% are as close, of any two problems less than 1%
# (tests/test_real.py).
SAME_STORY = 0.34
TEST, VALIDATION = 600, 120  # problems
MOST_OF_A_STORY = 8  # problems that are held out, so that no story decides
DATA = Path(os.environ.get("E1_TRL_DATA", "../shared/data")) / "math_train"
SETS = ("mawps.jsonl", "svamp.jsonl")  # whose problems are split
WORKED = "gsm8k_train.jsonl.gz"  # with people's solutions, of which none is close to what is held out


class Problem(NamedTuple):
    """A word problem, its answer as the dataset writes it, and people's solution where the dataset has one."""

    text: str
    answer: str
    solution: str = ""


class Split(NamedTuple):
    """Problems held out, and those that are trained on."""

    test: list[Problem]
    validation: list[Problem]
    train: list[Problem]
    worked: list[Problem]  # with people's solutions
    stories: list[int]  # a number for the story of each test problem
    nearest: list[float]  # similarity of the closest trained problem to each test problem
    left_out: dict[str, int]  # problems of each set in no part: one that is held out is as close as `SAME_STORY`


def read(files: Sequence[Path]) -> list[Problem]:
    """Read the different problems of JSON Lines files with the fields `problem` and `answer`, in their order."""
    found = dict[str, Problem]()
    for file in files:
        if not file.is_file():
            raise UserError(f"no file {file}: docs/real.md says how to make it, and E1_TRL_DATA names its folder")
        content = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text()
        for row in map(json.loads, content.rstrip("\n").split("\n")):
            text = " ".join(row["problem"].split())
            found.setdefault(text, Problem(text, str(row["answer"]), row.get("solution", "")))
    return list(found.values())


def content_words(texts: Sequence[str]) -> list[set[str]]:
    """Find the words of each text without names, pronouns and numbers; case and the grammatical number are folded.

    A name is a word with a capital that none of the texts has without one.
    """
    words = [WORD.findall(POSSESSIVE.sub("", text)) for text in texts]
    common = {word for each in words for word in each if word.islower()}
    kept = [[SINGULARS.get(word, word) for word in map(str.lower, each) if word in common] for each in words]
    kept = [[word for word in each if not LEFT_OUT.fullmatch(word)] for each in kept]
    return [{word.removesuffix("s").removesuffix("e").replace("y", "i") for word in each} for each in kept]


def directions(texts: Sequence[str]) -> csr_array:
    """Make a row of length one for each text, whose product with another's is the similarity of their stories, 0 to 1.

    Each content word counts with the logarithm of how rare it is among the texts: "the" and "many" with almost nothing,
    "carpet" with much.
    """
    words = content_words(texts)
    column = {word: place for place, word in enumerate(sorted(set().union(*words)))}
    rows = np.repeat(np.arange(len(texts)), [len(each) for each in words])
    columns = np.array([column[word] for each in words for word in sorted(each)], dtype=int)
    rarity = np.log(len(texts) / np.bincount(columns, minlength=len(column)))
    lengths = np.sqrt(np.bincount(rows, rarity[columns] ** 2, minlength=len(texts)))
    values = rarity[columns] / np.maximum(lengths[rows], 1e-9)
    return csr_array((values, (rows, columns)), shape=(len(texts), len(column)))


def similarity(ones: csr_array, others: csr_array) -> Values:
    """Compute the similarity of each story with each other."""
    return np.clip((ones @ others.T).toarray(), 0, 1)


def story_numbers(rows: csr_array) -> Values:
    """Number the stories: groups of problems that are on average as close as `SAME_STORY`.

    Chains do not count: were two problems of one story whenever a third is close to both, a fourth of all would be.
    """
    distance = 1 - similarity(rows, rows)
    np.fill_diagonal(distance, 0)
    return fcluster(linkage(squareform(distance, checks=False), "average"), 1 - SAME_STORY, "distance")


def draw(stories: Values, counts: Sequence[int], seed: int) -> list[Values]:
    """Draw stories until their problems, `MOST_OF_A_STORY` of each at most, are as many as each count says.

    Returns the places of the problems; others of the same stories are in no part. Raises a `UserError` if the stories
    that are left do not add up.
    """
    rng = np.random.default_rng(seed)
    members = [rng.permutation(np.flatnonzero(stories == each))[:MOST_OF_A_STORY] for each in np.unique(stories)]
    order = rng.permutation(len(members))
    parts: list[list[Values]] = [[] for _ in counts]
    for story in (members[place] for place in order):
        for part, count in zip(parts, counts, strict=True):
            if sum(map(len, part)) + len(story) <= count:
                part.append(story)
                break
    found = [rng.permutation(np.concatenate([np.array([], dtype=int), *part])) for part in parts]
    if [len(part) for part in found] != list(counts):
        raise UserError(f"of {len(stories)} problems, {' and '.join(map(str, counts))} cannot be held out")
    return found


def split(problems: Sequence[Problem], worked: Sequence[Problem], counts: Sequence[int], seed: int) -> Split:
    """Hold out whole stories, and leave out of the training what is close to any problem of them."""
    rows = directions([problem.text for problem in (*problems, *worked)])
    ours, theirs = rows[: len(problems)], rows[len(problems) :]
    stories = story_numbers(ours)
    test, validation = draw(stories, counts, seed)
    held = np.concatenate([test, validation])
    rest = np.flatnonzero(~np.isin(stories, stories[held]))
    train = rest[similarity(ours[rest], ours[held]).max(1) < SAME_STORY]
    far = np.flatnonzero(similarity(theirs, ours[held]).max(1) < SAME_STORY)
    nearest = np.maximum(similarity(ours[test], ours[train]).max(1), similarity(ours[test], theirs[far]).max(1))
    return Split(
        *([problems[place] for place in places] for places in (test, validation, train)),
        [worked[place] for place in far],
        np.unique(stories[test], return_inverse=True)[1].tolist(),
        nearest.round(4).tolist(),
        {"mawps and svamp": len(problems) - len(held) - len(train), "gsm8k": len(worked) - len(far)},
    )


def read_split(seed: int) -> Split:
    """Split the problems of the experiment."""
    return split(read([DATA / name for name in SETS]), read([DATA / WORKED]), (TEST, VALIDATION), seed)
