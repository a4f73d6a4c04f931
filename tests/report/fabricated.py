"""Tables of answers made up for the tests of the report."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from e1_trl.answers.grade import Outcome
from e1_trl.report.conditions import Conditions
from e1_trl.report.samples import SCHEMA, write
from e1_trl.rollout import ThinkingEnd

CONDITIONS = Conditions(
    dataset="sums: 0",
    problems=10,
    local=False,
    instruction=None,
    chat_template="1",
    chat_template_kwargs={},
    max_prompt_length=0,
    temperature=0.6,
    top_p=0.95,
    top_k=0,
    min_p=0.0,
    marker="</think>",
    forced_text="</think>",
    options={"s1_text": "", "wait_text": "", "s1_waits": 1},
    context=512,
    response=None,
    thinking_from=None,
    engine={},
    versions={},
)


def cell(
    correct: Sequence[Sequence[bool]],
    thinking_budget: int | None,
    solution_budget: int | None = 8,
    *,
    model: str = "m",
    method: str = "separate",
    thinking_tokens: int | None = None,
) -> pd.DataFrame:
    """The graded answers of one method at one budget; `correct` is problems × samples.

    Each takes `thinking_tokens` (unset: the whole thinking budget) and 4 tokens of solution, and says "right" or
    "wrong".
    """
    rows = [
        {
            "model": model,
            "benchmark": "sums",
            "grader": "mathematics",
            "seed": 7,
            "commit": "abc",
            "conditions": CONDITIONS.as_text(),
            "asked_problems": len(correct),
            "method": method,
            "thinking_budget": thinking_budget,
            "solution_budget": solution_budget,
            "problem": problem,
            "problem_id": None,
            "sample": sample,
            "answers": [str(problem)],
            "prompt": f"What is {problem}?",
            "thinking": "well",
            "close": "</think>",
            "solution": "it is",
            "free_text": None,
            "token_ids": [1, 2],
            "thinking_end": ThinkingEnd.FORCED.value,
            "truncated": False,
            "thinking_tokens": thinking_tokens or thinking_budget or 100,
            "forced_tokens": 1,
            "solution_tokens": 4,
            "closes_again": False,
            "outcome": (Outcome.CORRECT if right else Outcome.WRONG).value,
            "answer": "right" if right else "wrong",
            "value": "right" if right else "wrong",
            "unboxed": False,
            "graded_by": "def",
        }
        for problem, samples in enumerate(correct)
        for sample, right in enumerate(samples)
    ]
    table = pd.DataFrame(rows, columns=SCHEMA.names)
    return table.astype({"thinking_budget": "Int64", "solution_budget": "Int64"})


def stored(folder: Path, *tables: pd.DataFrame) -> Path:
    """Write answers as a finished evaluation into a folder, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    write(pd.concat(tables, ignore_index=True), folder)
    return folder


def right(count: int, of: int, samples: int = 1) -> list[list[bool]]:
    """Matrix of `of` problems, the first `count` of which are right."""
    return [[problem < count] * samples for problem in range(of)]
