"""Policies of budgets beside E1 from the same base, into docs/smollm2.md: accuracy over all budgets, and without one.

Called by publish.sh with the evaluations of base, E1 and POLICY. All differences are paired by problem.
"""

import sys
from pathlib import Path

import numpy as np

from e1_trl.report import samples
from e1_trl.report.markdown import replace_section, table
from e1_trl.report.statistics import Values
from experiments.smollm2.publish import BASE, DOCUMENT, OURS
from experiments.systems.measure import area

BUDGETS = (12, 24, 48, 96)  # of evaluation.yaml
HEADER = ("model", "less", "area, points", "95% interval", "no budget, points", "95% interval")


def right(folder: Path, method: str, budgets: tuple[int, ...] = ()) -> Values:
    """What is right: budgets × problems; without budgets, one row."""
    answers = samples.read(folder)
    answers = answers[answers["method"] == method].sort_values("problem", kind="stable")
    parts = [answers[answers["thinking_budget"] == budget] for budget in budgets] or [answers]
    return np.stack([np.asarray(part["outcome"] == "correct") for part in parts]).astype(float)


def row(model: Path, other: Path) -> tuple[str, ...]:
    """One model less another."""
    differences = (
        right(model, "separate", BUDGETS) - right(other, "separate", BUDGETS),
        right(model, "unconstrained") - right(other, "unconstrained"),
    )
    cells = []
    for points, low, high in (area(100 * each) for each in differences):
        cells += [f"{points:+.1f}", f"{low:+.1f} to {high:+.1f}"]
    return OURS + model.name, OURS + other.name, *cells


def main() -> None:
    base, *trained = map(Path, sys.argv[1:])
    if OURS + base.name != BASE:
        raise SystemExit(f"{base} comes first, but the base must")
    lines = [row(model, base) for model in trained]
    ours = [model for model in trained if model.name.startswith("e1")]
    lines += [row(model, e1) for model in trained if model not in ours for e1 in ours]
    replace_section(DOCUMENT, "smollm2-policies", table(HEADER, lines))


if __name__ == "__main__":
    main()
