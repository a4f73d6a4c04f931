"""The tables and pictures of docs/real.md, from the rows that are there.

python -m experiments.real.page
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from e1_trl.report.markdown import replace_section, table
from e1_trl.report.pictures import save
from experiments.real.measure import BASE, BUDGETS, E1, FREE, Row, Rows, banned_gate, by_story, gate, minus, points
from experiments.results import FOLDER, Results

DOCUMENT, PICTURE = Path("docs/real.md"), FOLDER / "real.png"
PAIRS = (("separate", "s1"), ("s1", "truncation"), ("separate", "truncation"), ("separate", "no_thinking"))
PARTS = 3  # of the test problems, by their distance to the nearest trained one
Lines = Iterator[Sequence[str]]


def bases(rows: Rows, *systems: str) -> list[tuple[int, str]]:
    """Each base with those of the systems that have rows, or with all."""
    found = [(base, name) for base in (1, 2) for name in rows.systems(base)]
    return [each for each in found if not systems or each[1] in systems]


def gates(rows: Rows) -> Lines:
    """The conditions on each base."""
    yield "condition", "base", "found", "wanted", "holds"
    for base, _ in bases(rows, BASE):
        for name, found, wanted, holds in (*gate(rows, base), *banned_gate(rows, base)):
            yield name, str(base), found, wanted, "yes" if holds else "**no**"


def stages(rows: Sequence[Row]) -> Lines:
    """Answers of each base after each stage, without a budget."""
    yield "base", "stage", "right", "thinking", "equations", "of these right"
    for row in rows:
        right, equations = (f"{row[name]:.1%}" for name in ("right", "equations_right"))
        of, tokens = (str(row["base"]), row["stage"]), f"{row['mean_thinking_tokens']:.0f}"
        yield *of, right, tokens, f"{row['equations']:,}", equations


def systems(rows: Rows) -> Lines:
    """Accuracy of each system at each budget and without one, tokens of thinking without one, and E1's lead."""
    lead = ("E1 leads at budgets by", "without one by")
    yield "base", "system", "seeds", *BUDGETS, "no budget", "thinking", *lead
    for base, system in bases(rows):
        free = rows.of(base, system, FREE, None)
        at = (rows.values(base, system, "separate", budget) for budget in BUDGETS)
        shares = [f"{each.mean():.1%}" for each in (*at, rows.values(base, system, FREE, None))]
        leads = ["", ""]
        if system != E1 and (base, E1) in bases(rows):
            pairs = [[rows.values(base, name, *how) for name in (E1, system)] for how in ((), (FREE, None))]
            leads = [points(minus(*pair)) for pair in pairs]
        tokens = np.mean([row["mean_thinking_tokens"] for row in free])
        yield str(base), system, str(len(free)), *shares, f"{tokens:.0f}", *leads


def methods(rows: Rows) -> Lines:
    """Differences between methods at each budget, on the bases and on E1; without thinking there is one budget."""
    yield "methods", "base", "model", *BUDGETS
    for pair in PAIRS:
        for base, system in bases(rows, BASE, E1):
            cells = []
            for budget in BUDGETS:
                without = f"0+{budget.partition('+')[2]}"
                at = [(method, without if method == "no_thinking" else budget) for method in pair]
                one, other = (rows.values(base, system, *each) for each in at)
                cells.append(points(minus(one - other)))
            yield " minus ".join(pair), str(base), system, *cells


def nearness(rows: Rows, nearest: Sequence[float]) -> Lines:
    """Accuracy without a budget by the similarity of the nearest trained problem, in parts of equal size."""
    yield "similarity of the nearest trained problem", "base", "model", "right", "95% interval"
    for part in np.array_split(np.argsort(nearest, kind="stable"), PARTS):
        similar = np.asarray(nearest)[part]
        stories = np.unique(np.asarray(rows.stories)[part], return_inverse=True)[1]
        for base, system in bases(rows, BASE, E1):
            right = rows.right(base, system, FREE, None)[:, part]
            low, high = minus(by_story(right, stories)).interval
            cells = f"{right.mean():.1%}", f"{low:.1%} to {high:.1%}"
            yield f"{similar.min():.2f} to {similar.max():.2f}", str(base), system, *cells


def picture(rows: Rows) -> Figure:
    """Accuracy over the budget: above the systems with separate budgets, below the methods on the base and on E1."""
    figure = Figure(figsize=(9, 7.5), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    budgeted = dict.fromkeys(method for pair in PAIRS[:3] for method in pair)
    below = [(base, name, method) for base, name in bases(rows, BASE, E1) for method in budgeted]
    above = [(base, name, "separate") for base, name in bases(rows)]
    for row, lines in enumerate((above, below)):
        for base, system, method in lines:
            shares = [100 * rows.values(base, system, method, budget).mean() for budget in BUDGETS]
            label = f"{system}, {method}" if row else system
            axes[row, base - 1].plot(BUDGETS, shares, "o-", markersize=3, label=label)
            axes[row, base - 1].set(title=f"base {base}", xlabel="budget (tokens)", ylabel="right, %")
            axes[row, base - 1].legend(fontsize="x-small")
    return figure


def publish() -> None:
    """Write the sections and the picture."""
    results = Results()["real"]
    rows = Rows(results["rows"], results["split"]["stories"])
    near = nearness(rows, results["split"]["nearest"])
    made = {
        "stages": stages(results["stages"]),
        "gate": gates(rows),
        "systems": systems(rows),
        "methods": methods(rows),
        "nearness": near,
    }
    for name, (header, *lines) in made.items():
        replace_section(DOCUMENT, f"real-{name}", table(header, lines) if lines else "Not measured yet.\n")
    if rows.rows:
        save(picture(rows), PICTURE)


if __name__ == "__main__":
    publish()
