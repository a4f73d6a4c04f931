"""Grows the trees of a forest on an engine.

Every finished segment is in the store before the next step of the engine, so a killed run loses what was in flight.
"""

import time
from collections.abc import Iterator

from tqdm import tqdm

from e1_trl.engines.engine import Engine
from e1_trl.evaluation.forest import Forest, Problem
from e1_trl.evaluation.methods import Cell
from e1_trl.evaluation.store import Store
from e1_trl.rollout import Request, Segment
from e1_trl.tree import Branch, Tree

Grown = tuple[Tree[Cell], Branch]


def trees(forest: Forest, store: Store) -> Iterator[tuple[Problem, Tree[Cell]]]:
    """Every tree as far as it is stored, one after the other: all at once may be more than the memory holds."""
    for problem, sample in forest.places():
        yield problem, forest.tree(problem, sample, store.legs(problem.index, sample))


def is_grown(forest: Forest, store: Store) -> bool:
    """Whether what is stored completes every tree."""
    return all(tree.finished for _, tree in trees(forest, store))


def grow(forest: Forest, store: Store, engine: Engine) -> None:
    """Sample what is missing of every tree.

    Raises:
        EngineError: the engine failed; what was finished is stored.
        StoreError: a segment could not be written.
    """
    store.bind()
    progress = tqdm(total=forest.answers, unit="answer", desc="sampling")
    started, tokens = time.monotonic(), 0

    def first_requests() -> Iterator[tuple[Grown, Request]]:
        for _, tree in trees(forest, store):
            progress.update(len(tree.completions))
            yield from tree.requests()

    def follow(key: Grown, segment: Segment) -> list[tuple[Grown, Request]]:
        nonlocal tokens
        tree, branch = key
        before = len(tree.completions)
        store.add(tree.receive(branch, segment))
        tokens += len(segment.token_ids)
        progress.set_postfix_str(f"{tokens / (time.monotonic() - started):.0f} tokens/s", refresh=False)
        progress.update(len(tree.completions) - before)
        return tree.requests()

    with progress:
        engine.serve(first_requests(), follow)
