"""Tables of answers made up for the tests of the report."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from e1_trl.answers.grade import Outcome
from e1_trl.report.command import main
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


# Evaluations with texts, and the page that `e1 report` makes of them.
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">&lt;b&gt; <!--",
    "\x1b[31mred\x1b[0m \u202egnp.exe\u202c \u2066in\u2069 a\u200bb\x00 \ufeff",
    "x" * 1_000_000,
    "line\n" * 50_000,
    "日本語 🙂 \\boxed{4}",
)
BUDGETS = (8, 16, 32)
STEPS = [f"s{i}🙂 " for i in range(48)]  # what is thought: one step a token
SOLVED = {"base": (99, 30, 99, 12), "e1": (6, 12, 99, 28)}  # after how many steps each problem is


def thought(steps: int) -> str:
    return "".join(STEPS[:steps])


def evaluated(model: str, solved: Sequence[int], texts: Sequence[str] = ()) -> pd.DataFrame:
    """All answers of a model that knows each problem after some steps, closes the thinking 8 later, and never guesses.

    `texts` are the solutions to the first problems.
    """
    tables = []
    for budget in (*BUDGETS, None):
        method = "separate" if budget else "unconstrained"
        lengths = [min(budget or 48, steps + 8, 48) for steps in solved]
        forced = [budget is not None and length == budget for length in lengths]
        known = [[length >= steps] for length, steps in zip(lengths, solved, strict=True)]
        table = cell(known, budget, 8 if budget else None, model=model, method=method)
        own = [f"\\boxed{{{i}}}" if right else "so" for i, (right,) in enumerate(known)]
        tables.append(
            table.assign(
                prompt=[f"Which is {i}?" for i in range(len(solved))],
                thinking=[thought(n) + "</think>" * (not f) for n, f in zip(lengths, forced, strict=True)],
                close=["</think>" if f else "" for f in forced],
                solution=[*texts, *own[len(texts) :]],
                thinking_end=[(ThinkingEnd.FORCED if f else ThinkingEnd.CLOSED).value for f in forced],
                thinking_tokens=lengths,
                forced_tokens=[int(f) for f in forced],
                closes_again=[f and i == 2 for i, f in enumerate(forced)],
            )
        )
    waited = tables[1].assign(method="s1", thinking=thought(4) + "Wait " + thought(6))
    return pd.concat([*tables, waited], ignore_index=True)


def report(folder: Path, *options: str, texts: Sequence[str] = (), **models: Sequence[int]) -> Path:
    found = [stored(folder / model, evaluated(model, solved, texts)) for model, solved in (models or SOLVED).items()]
    main([*map(str, found), "--output", str(folder), *options])
    return folder / "report.html"
