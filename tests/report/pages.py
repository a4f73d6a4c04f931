"""Evaluations with texts, and the page that `e1 report` makes of them, for the tests of the page."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from fabricated import cell, stored

from e1_trl.report.command import main
from e1_trl.rollout import ThinkingEnd

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
