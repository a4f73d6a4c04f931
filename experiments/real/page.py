"""The tables and pictures of docs/real.md, from the rows that are there.

python -m experiments.real.page
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from e1_trl.command_line import run_command
from e1_trl.report.markdown import replace_section, table
from e1_trl.report.pictures import save
from experiments.real.make_base import BASE, TAUGHT
from experiments.real.measure import BUDGETS, E1, FREE, TIGHT, Rows, by_story, minus, points
from experiments.results import FOLDER, Results

CUT = BUDGETS[1:3]  # whose tokens are also given as one budget: those that E1 is trained at, from either model
DOCUMENT, PICTURE = Path("docs/real.md"), FOLDER / "real.png"
PAIRS = (("separate", "s1"), ("s1", "truncation"), ("separate", "truncation"))
PARTS = 3  # of the test problems, by their distance to the nearest trained one
LEADS = ("E1 leads, mean of the budgets", "E1 leads, no budget")
Lines = Iterator[Sequence[str]]


def bases(rows: Rows, *systems: str) -> list[tuple[int, str]]:
    """Each base with those of the systems that have rows, or with all."""
    found = dict.fromkeys((row["base"], row["system"]) for row in rows.rows)
    return [each for each in sorted(found, key=itemgetter(0)) if not systems or each[1] in systems]


def gates(rows: Rows) -> Lines:
    """The conditions on each base as it is."""
    yield "condition", "base", "found", "wanted", "holds"
    for base, _ in bases(rows, BASE):
        (free,) = rows.of(base, BASE, FREE, None)
        right, closed, p10, p90 = (free[name] for name in ("accuracy", "closed_ratio", "thinking_p10", "thinking_p90"))
        within = f"{right:.1%} ({free['ci_low']:.1%} to {free['ci_high']:.1%})"
        at = [rows.values(base, BASE, "separate", budget) for budget in BUDGETS]
        rises = [minus(later, earlier) for earlier, later in pairwise(at)]
        rising = all(each.interval[0] > 0 for each in rises)
        for name, found, wanted, holds in (
            ("right without a budget", within, "25%", right >= 0.25),
            ("thoughts it closes", f"{closed:.1%}", "95%", closed >= 0.95),
            ("longest over shortest tenth", f"{p90:.0f} / {p10:.0f} tokens", "4", p90 >= 4 * p10),
            ("points gained from each budget to the next", ", ".join(map(points, rises)), "above 0", rising),
        ):
            yield name, str(base), found, wanted, "yes" if holds else "**no**"


def systems(rows: Rows) -> Lines:
    """Accuracy of each system at each budget, cut at as many tokens, and free; its thoughts, and its E1's lead."""
    without = f"0+{TIGHT.partition('+')[2]}"
    asked = [("no_thinking", without), *(("separate", budget) for budget in BUDGETS)]
    asked += [*(("truncation", budget) for budget in CUT), (FREE, None)]
    cuts = [f"cut at {sum(map(int, budget.split('+')))}" for budget in CUT]
    yield "base", "system", "seeds", without, *BUDGETS, *cuts, "no budget", "thinking", "closes again", *LEADS
    for base, system in bases(rows):
        free = rows.of(base, system, FREE, None)
        shares = [f"{rows.values(base, system, *each).mean():.1%}" for each in asked]
        leads = ["", ""]
        ours = f"{TAUGHT}_{E1}" if system.startswith(TAUGHT) else E1  # trained from the same model
        if system != ours and (base, ours) in bases(rows):
            pairs = [[rows.values(base, name, *how) for name in (ours, system)] for how in ((), (FREE, None))]
            leads = [points(minus(*pair)) for pair in pairs]
        tokens = np.mean([row["mean_thinking_tokens"] for row in free])
        again = np.mean([row["closes_again_ratio"] for row in free])
        yield str(base), system, str(len(free)), *shares, f"{tokens:.0f}", f"{again:.1%}", *leads


def methods(rows: Rows) -> Lines:
    """Differences between methods at each budget, on the bases after each stage and on E1."""
    yield "methods", "base", "model", *BUDGETS
    for pair in PAIRS:
        for base, system in bases(rows, TAUGHT, f"{TAUGHT}_{E1}", BASE, E1):
            both = ([rows.values(base, system, method, budget) for method in pair] for budget in BUDGETS)
            yield " minus ".join(pair), str(base), system, *(points(minus(one - other)) for one, other in both)


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
    """Accuracy over the budget: above with separate budgets, below by method, with E1 and GRPO with a cut."""
    figure = Figure(figsize=(9, 7.5), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    budgeted = dict.fromkeys(method for pair in PAIRS for method in pair)
    asked = [*((BASE, method) for method in budgeted), (E1, "separate"), ("grpo_cut", "truncation")]
    below = [(base, *each) for each in asked for base, _ in bases(rows, each[0])]
    above = [(base, name, "separate") for base, name in bases(rows)]
    for row, lines in enumerate((above, below)):
        for base, system, method in lines:
            shares = [100 * rows.values(base, system, method, budget).mean() for budget in BUDGETS]
            label = f"{system}, {method}" if row else system
            axes[row, base - 1].plot(BUDGETS, shares, "o-", markersize=3, label=label)
            axes[row, base - 1].set(title=f"base {base}", xlabel="budget (tokens)", ylabel="right, %")
            axes[row, base - 1].legend(fontsize="x-small")
    return figure


def sections(rows: Rows, nearest: Sequence[float]) -> dict[str, str]:
    """The sections of the document by name."""
    made = {"gate": gates(rows), "systems": systems(rows), "methods": methods(rows)}
    made["nearness"] = nearness(rows, nearest)
    return {f"real-{name}": table(next(lines), lines) for name, lines in made.items()}


def publish() -> None:
    """Write the sections and the picture."""
    results = Results()["real"]
    rows = Rows(results["rows"], results["split"]["stories"])
    for name, text in sections(rows, results["split"]["nearest"]).items():
        replace_section(DOCUMENT, name, text)
    save(picture(rows), PICTURE)


if __name__ == "__main__":
    run_command("experiments.real.page", publish)
