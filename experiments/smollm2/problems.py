"""Word problems: which are the same but for names and numbers, and which are held out before anything else is done.

Knows nothing about equations, thoughts or models.
"""

import random
from collections.abc import Sequence

import numpy as np
from scipy.sparse.csgraph import connected_components

from e1_trl.errors import UserError
from experiments.real.problems import Problem, content_words

OVERLAP = 0.8  # of the words of two problems together, the share that both have: as many make them one template


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
