"""Policies of budgets beside E1 from the same base, into docs/smollm2.md: how often right, and what stands in the box.

Called by publish.sh with the evaluations of the base, of E1, and of POLICY. All differences are paired by problem.
"""

import sys
from pathlib import Path

import pandas as pd

from e1_trl.report import samples
from e1_trl.report.markdown import replace_section, table
from e1_trl.report.statistics import Values, area, difference
from experiments.smollm2.publish import DOCUMENT

DIFFERENCES = ("model", "less", "area, points", "95% interval", "no budget, points", "95% interval")
EQUATION = r"\\boxed\{[^}]*="


def right(answers: pd.DataFrame, method: str) -> Values:
    """What is right with one answer each: budgets × problems × 1."""
    own = answers[answers["method"] == method].sort_values(["thinking_budget", "problem"])
    return (own["outcome"] == "correct").to_numpy(float).reshape(-1, own["problem"].nunique(), 1)


def less(answers: pd.DataFrame, others: pd.DataFrame) -> list[str]:
    """Points of area and of accuracy without a budget that one model has more than another, each with its interval."""
    separate = answers[answers["method"] == "separate"]
    budgets = sorted(set((separate["thinking_budget"] + separate["solution_budget"]).astype(int)))
    over, free = (right(answers, method) - right(others, method) for method in ("separate", "unconstrained"))
    cells = []
    for found in (difference(area(over, budgets)), difference(free[0])):
        cells += [f"{100 * found.mean:+.1f}", f"{100 * found.low:+.1f} to {100 * found.high:+.1f}"]
    return cells


def equations(answers: pd.DataFrame) -> dict[str, str]:
    """The share of solutions that compute in the box, by budget."""
    own = answers[answers["method"].isin(["no_thinking", "separate", "unconstrained"])]
    computes = own["solution"].str.contains(EQUATION).groupby(own["thinking_budget"], dropna=False).mean()
    return {"none" if pd.isna(budget) else f"{budget:.0f}": f"{share:.1%}" for budget, share in computes.items()}


def main() -> None:
    answers = {Path(folder).name: samples.read(Path(folder)) for folder in sys.argv[1:]}
    base, *trained = answers
    ours = [name for name in trained if name.startswith("e1")]
    pairs = [(name, base) for name in trained] + [(name, e1) for name in trained if name not in ours for e1 in ours]
    boxes = {name: equations(each) for name, each in answers.items()}
    parts = (
        table(DIFFERENCES, [(*pair, *less(*map(answers.__getitem__, pair))) for pair in pairs]),
        "Solutions that compute in the box, by thinking budget:\n",
        table(("model", *boxes[base]), [(name, *shares.values()) for name, shares in boxes.items()]),
    )
    replace_section(DOCUMENT, "smollm2-policies", "\n".join(parts))


if __name__ == "__main__":
    main()
