"""Grows the trees of a plan on an engine, and reads the completions off them.

Every finished segment is in the store before the next step of the engine, so a killed run loses what was in flight.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from e1_trl.engines.engine import Engine
from e1_trl.evaluation.methods import METHODS, Cell
from e1_trl.evaluation.plan import Plan, Problem
from e1_trl.evaluation.prepare import Prepared
from e1_trl.evaluation.store import Store
from e1_trl.problems.prompts import compose, shown
from e1_trl.rollout import Completion, Request, Segment, ThinkingEnd
from e1_trl.tree import Branch, Tree

Finished = tuple[Problem, int, Mapping[Cell, Completion]]  # a problem, one of its samples, and all that it answers
Grown = tuple[Tree[Cell], Branch]
# Answers, and tokens of answers, after which a part of the table ends, so that it stays a matter of megabytes.
PART_ANSWERS, PART_TOKENS = 1000, 2**20


def _stored(plan: Plan, store: Store, problem: Problem, sample: int) -> Tree[Cell]:
    return plan.tree(problem, sample, store.legs(problem.index, sample))


def unfinished(plan: Plan, store: Store) -> list[tuple[Problem, int]]:
    """Problem and sample of the trees that what is stored does not complete."""
    return [where for where in plan.trees() if not _stored(plan, store, *where).finished]


def finished(plan: Plan, store: Store) -> Iterator[Finished]:
    """The completions of all trees, which the store completes, one after the other."""
    return ((*where, _stored(plan, store, *where).completions) for where in plan.trees())


def grow(plan: Plan, store: Store, engine: Engine, missing: Sequence[tuple[Problem, int]]) -> None:
    """Grow the missing trees on an engine, from what is stored of them.

    Raises:
        EngineError: the engine failed; what was finished is stored.
        StoreError: a segment could not be written.
    """
    store.bind()
    all_answers, missing_answers = (sum(len(plan.cells(*tree)) for tree in trees) for trees in (plan.trees(), missing))
    progress = tqdm(total=all_answers, initial=all_answers - missing_answers, unit="answer", desc="sampling")
    started, tokens = time.monotonic(), 0

    def first_requests() -> Iterator[tuple[Grown, Request]]:
        for problem, sample in missing:
            tree = _stored(plan, store, problem, sample)
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
    store.sync()


def identity(prepared: Prepared) -> dict[str, Any]:
    """What all rows of the table say."""
    return {
        "model": prepared.model_name,
        "benchmark": prepared.benchmark,
        "grader": prepared.grader_name,
        "seed": prepared.arguments.seed,
        "conditions": prepared.conditions.as_text(),
    }


def tabulate(prepared: Prepared, plan: Plan, results: Iterable[Finished]) -> Iterator[pd.DataFrame]:
    """The table of answers (`report.samples`), not yet graded, in parts: one row each, by problem, sample and cell."""
    decode = prepared.tokenizer.decode
    alike = identity(prepared)
    rows: list[dict[str, Any]] = []
    tokens = 0
    for problem, sample, completions in results:
        for asked in plan.asked:
            cell = asked.cell
            if (completion := completions.get(cell)) is None:
                continue
            tokens += len(completion.token_ids)
            after_words = METHODS[cell.method].unboxed and completion.thinking_end is ThinkingEnd.FORCED
            rows.append(
                {
                    **alike,
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
        if len(rows) >= PART_ANSWERS or tokens >= PART_TOKENS:
            yield _frame(rows)
            rows, tokens = [], 0
    if rows:
        yield _frame(rows)


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows).astype({"thinking_budget": "Int64", "solution_budget": "Int64"})
