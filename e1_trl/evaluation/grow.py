"""Grows the trees of a plan on an engine, and reads the completions off them.

Every finished segment goes to the store at once, so a killed run loses what was in flight and what was just finished.
"""

import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from tqdm import tqdm

from e1_trl.engines.engine import Engine
from e1_trl.evaluation.methods import METHODS, Cell
from e1_trl.evaluation.plan import Identity, Plan
from e1_trl.evaluation.prepare import Prepared
from e1_trl.evaluation.store import Store
from e1_trl.problems.prompts import compose, shown
from e1_trl.rollout import Completion, Request, Segment, ThinkingEnd
from e1_trl.tree import Branch, Leg, Tree

Results = dict[Identity, dict[Cell, Completion]]
Saved = Mapping[Identity, Sequence[Leg]]
Grown = tuple[Tree[Cell], Branch]


def completed(plan: Plan, saved: Saved) -> Results:
    """The completions of all trees that what is saved completes."""
    trees = (plan.tree(problem, sample, saved.get((problem.index, sample), ())) for problem, sample in plan.trees())
    return {(tree.problem, tree.sample_index): tree.completions for tree in trees if tree.finished}


def grow(plan: Plan, store: Store, saved: Saved, engine: Engine, done: Results) -> None:
    """Grow all trees that are not yet in `done`, on an engine, and add their completions to it.

    Raises:
        EngineError: the engine failed; what was finished is stored.
        StoreError: a segment could not be written.
    """
    missing = [(problem, sample) for problem, sample in plan.trees() if (problem.index, sample) not in done]
    progress = tqdm(
        total=sum(len(plan.cells(problem, sample)) for problem, sample in plan.trees()),
        initial=sum(map(len, done.values())),
        unit="answer",
        desc="sampling",
    )
    started, tokens = time.monotonic(), 0

    def first_requests() -> Iterator[tuple[Grown, Request]]:
        for problem, sample in missing:
            tree = plan.tree(problem, sample, saved.get((problem.index, sample), ()))
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
        if tree.finished:
            done[tree.problem, tree.sample_index] = tree.completions
        return tree.requests()

    with progress:
        engine.serve(first_requests(), follow)
    store.flush()


def tabulate(prepared: Prepared, plan: Plan, results: Results) -> pd.DataFrame:
    """The table of answers (`report.samples`), not yet graded: one row each, by cell, problem and sample."""
    decode = prepared.tokenizer.decode
    identity = {
        "model": prepared.model_name,
        "benchmark": prepared.benchmark,
        "grader": prepared.grader_name,
        "seed": prepared.arguments.seed,
        "conditions": prepared.conditions.as_text(),
    }
    rows = []
    for asked in plan.asked:
        cell = asked.cell
        for problem, sample in plan.trees():
            completion = results[problem.index, sample].get(cell)
            if completion is None:
                continue
            after_words = METHODS[cell.method].unboxed and completion.thinking_end is ThinkingEnd.FORCED
            rows.append(
                {
                    **identity,
                    "commit": asked.commit,
                    "asked_problems": asked.problems,
                    "method": cell.method,
                    "thinking_budget": cell.budget.thinking,
                    "solution_budget": cell.budget.solution,
                    "problem": problem.index,
                    "problem_id": problem.problem_id,
                    "sample": sample,
                    "prompt": shown(compose(problem.prompt, cell.request)),
                    "answers": problem.answers,
                    "text": decode(completion.token_ids.tolist()),
                    "solution": decode(completion.graded_ids, skip_special_tokens=True),
                    "free_text": decode(completion.solution_ids, skip_special_tokens=True) if after_words else None,
                    "token_ids": np.asarray(completion.token_ids, dtype=np.int32),
                    "thinking_end": completion.thinking_end.value,
                    "truncated": completion.truncated,
                    "thinking_tokens": completion.thinking_tokens,
                    "forced_tokens": completion.forced_tokens,
                    "solution_tokens": completion.solution_tokens,
                }
            )
    return pd.DataFrame(rows).astype({"thinking_budget": "Int64", "solution_budget": "Int64"})
