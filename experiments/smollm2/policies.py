"""Policies of budgets beside E1 from the same base, into docs/smollm2.md: how often right, and what stands in the box.

Called by publish.sh, after the report, with the evaluations of the base, of E1, and of POLICY. All differences are
paired by problem; those without a budget are the report's.
"""

import sys
from pathlib import Path

import pandas as pd

from e1_trl.report import samples
from e1_trl.report.markdown import replace_section, table
from e1_trl.report.statistics import Values
from experiments.results import Difference, Results
from experiments.smollm2.publish import DOCUMENT, OURS
from experiments.systems.measure import mean_over_budgets

DIFFERENCES = ("model", "less", "mean over budgets, points", "95% interval", "no budget, points", "95% interval")
REPORT = "smollm2-random"  # in docs/results
EQUATION = r"\\boxed\{[^}]*="


def right(answers: pd.DataFrame) -> Values:
    """Right answers under separate budgets, one each: budgets × problems."""
    own = answers[answers["method"] == "separate"].sort_values(["thinking_budget", "problem"])
    return (own["outcome"] == "correct").to_numpy(float).reshape(-1, own["problem"].nunique())


def less(answers: pd.DataFrame, others: pd.DataFrame) -> Difference:
    """Points of mean accuracy over the budgets that one model has more than another."""
    return Difference(*mean_over_budgets(100 * (right(answers) - right(others))))


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
    report = Results().report(REPORT)
    lines = []
    for model, other in pairs:
        both = less(answers[model], answers[other]), report.less(OURS + model, OURS + other)
        lines.append((model, other, *(cell for each in both for cell in (f"{each.points:+.1f}", each.interval("+")))))
    parts = (
        table(DIFFERENCES, lines),
        "Solutions that compute in the box, by thinking budget:\n",
        table(("model", *boxes[base]), [(name, *shares.values()) for name, shares in boxes.items()]),
    )
    replace_section(DOCUMENT, "smollm2-policies", "\n".join(parts))


if __name__ == "__main__":
    main()
