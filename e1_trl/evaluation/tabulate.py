"""The table of answers (`report.samples`) of a plan that has grown."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from e1_trl.evaluation.methods import METHODS
from e1_trl.evaluation.sample import trees
from e1_trl.evaluation.sampling_plan import SamplingPlan
from e1_trl.evaluation.store import Store
from e1_trl.problems.prompts import compose, last_question
from e1_trl.rollout import ThinkingEnd

# Answers, and tokens of answers, after which a part of the table ends, so that it stays a matter of megabytes.
PART_ANSWERS, PART_TOKENS = 1000, 2**20


def tabulate(plan: SamplingPlan, store: Store, alike: Mapping[str, Any]) -> Iterator[pd.DataFrame]:
    """All answers, not yet graded, in parts: a row each, by problem, sample and cell, with what is alike in all."""
    decode = plan.setting.decode
    rows: list[dict[str, Any]] = []
    tokens = 0
    for problem, tree in trees(plan, store):
        for goal in plan.goals:
            cell = goal.cell
            if (completion := tree.completions.get(cell)) is None:
                continue
            tokens += len(completion.token_ids)
            after_words = METHODS[cell.method].unboxed and completion.thinking_end is ThinkingEnd.FORCED
            rows.append(
                {
                    **alike,
                    "commit": goal.commit,
                    "asked_problems": goal.problems,
                    "method": cell.method,
                    "thinking_budget": cell.budget.thinking,
                    "solution_budget": cell.budget.solution,
                    "problem": problem.index,
                    "problem_id": problem.problem_id,
                    "sample": tree.sample_index,
                    "prompt": last_question(compose(problem.prompt, cell.request)),
                    "answers": problem.answers,
                    "thinking": decode(completion.parts[0]),
                    "close": decode(completion.parts[1][: completion.close_tokens]),
                    "solution": decode(completion.graded_ids, skip_special_tokens=True),
                    "free_text": decode(completion.solution_ids, skip_special_tokens=True) if after_words else None,
                    "token_ids": np.asarray(completion.token_ids, dtype=np.int32),
                    "thinking_end": completion.thinking_end.value,
                    "truncated": completion.truncated,
                    "thinking_tokens": completion.thinking_tokens,
                    "forced_tokens": completion.forced_tokens,
                    "solution_tokens": completion.solution_tokens,
                    "closes_again": plan.setting.close.marker.text in decode(completion.solution_ids),
                }
            )
        if len(rows) >= PART_ANSWERS or tokens >= PART_TOKENS:
            yield _frame(rows)
            rows, tokens = [], 0
    if rows:
        yield _frame(rows)


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows).astype({"thinking_budget": "Int64", "solution_budget": "Int64"})
