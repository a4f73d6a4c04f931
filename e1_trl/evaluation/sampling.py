"""Grows the trees of an evaluation on an engine, and reads the answers off them.

    problem → prompt → tree ⇄ engine → answers

Every finished segment goes into the store before anything else is asked for, so a killed run loses what was in flight.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from e1_trl.engine import Answer as Follow
from e1_trl.engine import Requests
from e1_trl.evaluation.methods import METHODS, MIXED, Answer, Cell, Setting, mixed
from e1_trl.evaluation.store import Store
from e1_trl.evaluation.tree import Branch, Leg, Part, Tree
from e1_trl.rollout import Request, Segment

Serve = Callable[[Requests[tuple[Tree, Branch]], Follow[tuple[Tree, Branch]]], None]
Identity = tuple[int, int]  # problem and sample


@dataclass(frozen=True)
class Problem:
    """A problem with its prompts, as token ids, by what was added to it (`request_for_length`)."""

    index: int
    content: str
    answers: list[str]
    prompts: Mapping[str, list[int]]


@dataclass(frozen=True)
class Plan:
    """Everything that is to be sampled: `samples` trees per problem, with every cell in each.

    Attributes:
        thinking: for the method `mixed`, the other model's thinking.
        request: what a cell adds to the problem.
    """

    problems: Sequence[Problem]
    samples: int
    cells: Sequence[Cell]
    setting: Setting
    independent: bool
    thinking: Mapping[Identity, Part]
    request: Callable[[Cell], str]

    def identities(self) -> list[tuple[Problem, int]]:
        return [(problem, sample) for problem in self.problems for sample in range(self.samples)]

    def tree(self, problem: Problem, sample: int, saved: Sequence[Leg]) -> Tree:
        """A tree with its methods run as far as what is saved of it reaches."""
        marker, decode = self.setting.marker, self.setting.decode
        tree = Tree(problem.index, sample, marker, decode, saved, self.independent)
        for cell in self.cells:
            method = mixed(self.thinking[problem.index, sample]) if cell.method == MIXED else METHODS[cell.method]
            prompt = problem.prompts[self.request(cell)]
            tree.start(cell, method(tree, prompt, cell.budget, self.setting))
        return tree


Results = dict[Identity, dict[Cell, Answer]]


def read_off(plan: Plan, saved: Mapping[Identity, Sequence[Leg]]) -> Results:
    """The answers of all trees that what is saved completes."""
    trees = (plan.tree(problem, i, saved.get((problem.index, i), ())) for problem, i in plan.identities())
    return {(tree.problem, tree.sample): _answers(tree) for tree in trees if tree.finished}


def _answers(tree: Tree) -> dict[Cell, Answer]:
    return {
        cell: answer for cell, answer in tree.results.items() if isinstance(cell, Cell) and isinstance(answer, Answer)
    }


def sample(plan: Plan, store: Store, saved: Mapping[Identity, Sequence[Leg]], serve: Serve, done: Results) -> None:
    """Grow all trees that are not yet in `done`, on an engine, and add their answers to it."""
    missing = [(problem, i) for problem, i in plan.identities() if (problem.index, i) not in done]
    progress = tqdm(
        total=len(plan.identities()) * len(plan.cells),
        initial=len(done) * len(plan.cells),
        unit="answer",
        desc="sampling",
    )
    started, tokens = time.monotonic(), 0

    def grow() -> Iterator[tuple[tuple[Tree, Branch], Request]]:
        for problem, i in missing:
            tree = plan.tree(problem, i, saved.get((problem.index, i), ()))
            progress.update(len(tree.results))
            yield from tree.requests()

    def follow(key: tuple[Tree, Branch], segment: Segment) -> list[tuple[tuple[Tree, Branch], Request]]:
        nonlocal tokens
        tree, branch = key
        before = len(tree.results)
        store.add(tree.receive(branch, segment))
        tokens += len(segment.token_ids)
        progress.set_postfix_str(f"{tokens / (time.monotonic() - started):.0f} tokens/s", refresh=False)
        progress.update(len(tree.results) - before)
        if tree.finished:
            done[tree.problem, tree.sample] = _answers(tree)
        return tree.requests()

    with progress:
        serve(grow(), follow)
    store.flush()


def tabulate(plan: Plan, results: Results, columns: Mapping[str, Any]) -> pd.DataFrame:
    """One row per answer, in the order of cells, problems and samples; `columns` are the same in all rows."""
    rows = []
    for cell in plan.cells:
        for problem, i in plan.identities():
            answer = results[problem.index, i][cell]
            rows.append(
                {
                    **columns,
                    "method": cell.method,
                    "thinking_budget": cell.budget.thinking,
                    "solution_budget": cell.budget.solution,
                    "problem": problem.index,
                    "sample": i,
                    "prompt": f"{problem.content} {plan.request(cell)}".strip(),
                    "answers": problem.answers,
                    "text": plan.setting.decode(answer.token_ids.tolist()),
                    "solution": plan.setting.decode(answer.after_thinking),
                    "token_ids": np.asarray(answer.token_ids, dtype=np.int32),
                    "thinking_end": None if answer.thinking_end is None else answer.thinking_end.value,
                    "truncated": answer.truncated,
                    "thinking_tokens": answer.thinking_tokens,
                    "forced_tokens": answer.forced_tokens,
                    "solution_tokens": answer.solution_tokens,
                }
            )
    table = pd.DataFrame(rows)
    return table.astype({"thinking_budget": "Int64", "solution_budget": "Int64"})
