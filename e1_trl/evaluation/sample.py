"""Sample what the store lacks of a plan's trees, on an engine.

Finished and unfinished sequences are stored together, so that a kill loses the last moments of all of them alike, and
the next run goes on where each one was. Keeping only finished ones would favour short thoughts: a long one is in flight
when a kill comes, and would be drawn again.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tqdm import tqdm

from e1_trl.atomic import StoreError
from e1_trl.budget import ThinkingClose
from e1_trl.checkout import commit
from e1_trl.engines.engine import Engine, InFlight
from e1_trl.evaluation.methods import Cell
from e1_trl.evaluation.sampling_plan import Goal, Problem, SamplingPlan
from e1_trl.evaluation.store import Store
from e1_trl.rollout import Request, Segment
from e1_trl.tree import Branch, StoredSegment, Tree

SAVING = 0.01  # largest share of the time that goes into storing
Key = tuple[Tree[Cell], Branch]
StartEngine = Callable[[ThinkingClose, int], Engine]  # from the close, and how many tokens are stored


def reach(plan: SamplingPlan, store: Store, start: StartEngine) -> tuple[SamplingPlan, bool]:
    """Sample what is missing to reach the goals of a plan, in addition to those that the store has reached.

    Returns the plan with all goals that are now reached, and whether anything was missing.
    """
    before = {goal.cell: (goal.commit or "").split(", ") for goal in store.goals()}
    plan = replace(plan, goals=_join(store.goals(), plan.goals))
    missing = not is_sampled(plan, store)
    if missing:
        sample_plan(plan, store, start(plan.close, store.tokens()))
    now = commit()
    commits = [", ".join(dict.fromkeys([*before.get(goal.cell, ()), now])) for goal in plan.goals]
    goals = [replace(goal, commit=goal.commit or own) for goal, own in zip(plan.goals, commits, strict=True)]
    plan = replace(plan, goals=goals)
    store.bind()
    store.reach(plan.goals)
    return plan, missing


def _join(reached: Sequence[Goal], wanted: Sequence[Goal]) -> list[Goal]:
    """Join the goals that a folder has reached with others; of two for one cell, the larger one stays."""
    goals = {goal.cell: goal for goal in reached}
    for goal in wanted:
        old = goals.get(goal.cell, goal)
        if not old.covers(goal) and not goal.covers(old):
            raise StoreError(
                f"{goal.cell} is stored for {old.problems} problems with {old.samples} samples, and asked for "
                f"{goal.problems} with {goal.samples}; ask for at least as many of both, or name another folder"
            )
        goals[goal.cell] = old if old.covers(goal) else goal
    return list(goals.values())


def trees(plan: SamplingPlan, store: Store) -> Iterator[tuple[Problem, Tree[Cell]]]:
    """Yield every tree as far as it is stored, one at a time, since all may be more than the memory holds."""
    for problem, sample in plan.places():
        yield problem, plan.tree(problem, sample, store.segments(problem.index, sample))


def is_sampled(plan: SamplingPlan, store: Store) -> bool:
    return all(tree.finished for _, tree in trees(plan, store))


def sample_plan(plan: SamplingPlan, store: Store, engine: Engine, saving: float = SAVING) -> None:
    """Sample what is missing of every tree; after a save that took `t` seconds, the next waits for `t / saving`."""
    store.bind()
    progress = tqdm(total=plan.answers, unit="answer", desc="sampling")
    started = time.monotonic()
    tokens = 0
    ended: list[StoredSegment] = []  # since the last save
    saved = started  # when the last save ended
    took = 0.0  # seconds of the last save

    def first_requests() -> Iterator[tuple[Key, Request]]:
        for _, tree in trees(plan, store):
            progress.update(len(tree.completions))
            yield from tree.requests()

    def follow(key: Key, segment: Segment) -> list[tuple[Key, Request]]:
        nonlocal tokens
        tree, branch = key
        before = len(tree.completions)
        ended.append(tree.receive(branch, segment))
        tokens += len(segment.token_ids)
        progress.set_postfix_str(f"{tokens / (time.monotonic() - started):.0f} tokens/s", refresh=False)
        progress.update(len(tree.completions) - before)
        return tree.requests()

    def save(in_flight: InFlight[Key]) -> None:
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
