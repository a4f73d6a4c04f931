"""Grows the trees of a plan on an engine.

What has been sampled is stored at one go, finished or in flight, so that a kill loses the last moments of all sequences
alike, and the next run goes on where each one was. To keep what had finished alone would favour what is short: a long
thought is in flight when a kill comes, and would be drawn again.
"""

import time
from collections.abc import Iterator

from tqdm import tqdm

from e1_trl.engines.engine import Engine, InFlight
from e1_trl.evaluation.methods import Cell
from e1_trl.evaluation.sampling_plan import Problem, SamplingPlan
from e1_trl.evaluation.store import Store
from e1_trl.rollout import Request, Segment
from e1_trl.tree import Branch, StoredSegment, Tree

SAVING = 0.01  # the share of the time that goes into storing, at most
Grown = tuple[Tree[Cell], Branch]


def trees(plan: SamplingPlan, store: Store) -> Iterator[tuple[Problem, Tree[Cell]]]:
    """Every tree as far as it is stored, one after the other: all at once may be more than the memory holds."""
    for problem, sample in plan.places():
        yield problem, plan.tree(problem, sample, store.legs(problem.index, sample))


def is_sampled(plan: SamplingPlan, store: Store) -> bool:
    """Whether what is stored completes every tree."""
    return all(tree.finished for _, tree in trees(plan, store))


def sample_plan(plan: SamplingPlan, store: Store, engine: Engine, saving: float = SAVING) -> None:
    """Sample what is missing of every tree.

    Args:
        plan: the trees.
        store: keeps what is sampled.
        engine: samples.
        saving: the share of the time that may go into storing: a save that took `t` is followed by the next one after
            `t / saving`.

    Raises:
        EngineError: the engine failed; what was saved stands.
        StoreError: what was sampled could not be written.
    """
    store.bind()
    progress = tqdm(total=plan.answers, unit="answer", desc="sampling")
    started, tokens = time.monotonic(), 0
    ended: list[StoredSegment] = []  # since the last save
    saved, took = started, 0.0  # when that was, and how long

    def first_requests() -> Iterator[tuple[Grown, Request]]:
        for _, tree in trees(plan, store):
            progress.update(len(tree.completions))
            yield from tree.requests()

    def follow(key: Grown, segment: Segment) -> list[tuple[Grown, Request]]:
        nonlocal tokens
        tree, branch = key
        before = len(tree.completions)
        ended.append(tree.receive(branch, segment))
        tokens += len(segment.token_ids)
        progress.set_postfix_str(f"{tokens / (time.monotonic() - started):.0f} tokens/s", refresh=False)
        progress.update(len(tree.completions) - before)
        return tree.requests()

    def save(in_flight: InFlight[Grown]) -> None:
        nonlocal saved, took
        began = time.monotonic()
        if (began - saved) * saving < took:
            return
        store.add([*ended, *(tree.stored(branch, segment) for (tree, branch), segment in in_flight())])
        ended.clear()
        saved = time.monotonic()
        took = saved - began

    with progress:
        engine.serve(first_requests(), follow, save)
        store.add(ended)
