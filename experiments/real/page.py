"""The tables and pictures of docs/real.md, from the rows that are there.

python -m experiments.real.page
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from e1_trl.report.markdown import replace_section, table
from e1_trl.report.pictures import save
from experiments.real.measure import (
    BANNED,
    BASE,
    BUDGETS,
    E1,
    Rows,
    banned_gate,
    by_story,
    gate,
    minus,
    points,
)
from experiments.results import FOLDER, Results

DOCUMENT = Path("docs/real.md")
TABLE, METHODS = FOLDER / "real.png", FOLDER / "real-methods.png"
BASES = (1, 2)
PAIRS = (("separate", "s1"), ("s1", "truncation"), ("separate", "truncation"), ("separate", "no_thinking"))
BUDGETED = ("separate", "s1", "truncation")
THIRDS = 3  # of the test problems, by their distance to the nearest trained one
NOTHING = "Not measured yet.\n"


def gates(rows: Rows) -> str:
    """The conditions on each base, and what was found."""
    lines = [
        (line.name, str(base), line.found, line.wanted, "yes" if line.holds else "**no**")
        for base in measured_bases(rows)
        for line in (*gate(rows, base), *banned_gate(rows, base))
    ]
    return table(("condition", "base", "found", "wanted", "holds"), lines) if lines else NOTHING


def measured_bases(rows: Rows) -> list[int]:
    """The bases that have rows."""
    return [base for base in BASES if BASE in rows.systems(base)]


def systems(rows: Rows) -> str:
    """Accuracy of each system at each budget and without one, its tokens, and E1's lead on it."""
    lines = []
    for base in measured_bases(rows):
        for system in rows.systems(base):
            seeds = len(rows.of(base, system, "unconstrained", None))
            at = [f"{rows.values(base, system, budgets=[budget]).mean():.1%}" for budget in BUDGETS]
            free = rows.of(base, system, "unconstrained", None)
            tokens = f"{np.mean([row['mean_tokens'] for row in free]):.0f}"
            alone = f"{np.mean([row['accuracy'] for row in free]):.1%}"
            lead = ("", "") if system == E1 or E1 not in rows.systems(base) else leads(rows, base, system)
            lines.append((str(base), system, str(seeds), *at, alone, tokens, *lead))
    header = ("base", "system", "seeds", *BUDGETS, "no budget", "tokens", "E1 leads at budgets by", "without one by")
    return table(header, lines) if lines else NOTHING


def leads(rows: Rows, base: int, system: str) -> tuple[str, str]:
    """Points by which E1 is ahead in mean accuracy over the budgets, and without a budget."""
    free = [rows.values(base, name, "unconstrained", [None]) for name in (E1, system)]
    return points(minus(rows.values(base, E1), rows.values(base, system))), points(minus(*free))


def methods(rows: Rows) -> str:
    """Differences between methods at each budget, on the bases and on E1."""
    lines = []
    for one, other in PAIRS:
        for system, base in ((name, base) for name in (BASE, E1) for base in measured_bases(rows)):
            if system in rows.systems(base):
                pairs = zip(asked(one), asked(other), strict=True)
                both = (minus(*(rows.values(base, system, *each) for each in pair)) for pair in pairs)
                lines.append((f"{one} minus {other}", system, str(base), *map(points, both)))
    return table(("methods", "model", "base", *BUDGETS), lines) if lines else NOTHING


def asked(method: str) -> Iterator[tuple[str, list[str]]]:
    """A method at each budget; without thinking only the solution's part counts."""
    for budget in BUDGETS:
        solution = budget.partition("+")[2]
        yield method, [f"0+{solution}" if method == "no_thinking" else budget]


def nearness(rows: Rows, nearest: Sequence[float]) -> str:
    """Accuracy without a budget by the similarity of the nearest trained problem, in parts of equal size."""
    lines = []
    for part in np.array_split(np.argsort(nearest, kind="stable"), THIRDS):
        similar = np.asarray(nearest)[part]
        for base in measured_bases(rows):
            for system in (name for name in (BASE, E1) if name in rows.systems(base)):
                right = rows.problems(base, system, "unconstrained", [None])[:, part]
                kept = np.unique(np.asarray(rows.stories)[part], return_inverse=True)[1]
                low, high = minus(by_story(right, kept)).interval
                cells = f"{right.mean():.1%}", f"{low:.1%} to {high:.1%}"
                lines.append((f"{similar.min():.2f} to {similar.max():.2f}", system, str(base), *cells))
    header = ("similarity of the nearest trained problem", "model", "base", "right", "95% interval")
    return table(header, lines) if lines else NOTHING


def panels(rows: Rows, draw: Callable[[int], Iterator[tuple[str, str, str]]]) -> Figure:
    """Accuracy over the budget, a panel for each base, of the systems and methods that `draw` yields with a label."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots(1, len(BASES), sharey=True)
    thinking = [int(budget.partition("+")[0]) for budget in BUDGETS]
    for axis, base in zip(axes, BASES, strict=True):
        for system, method, label in draw(base):
            line = [100 * rows.values(base, system, method, [budget]).mean() for budget in BUDGETS]
            axis.plot(thinking, line, "o-", markersize=3, label=label)
        axis.set_xscale("log", base=2)
        axis.set_xticks(thinking, BUDGETS)
        axis.set(title=f"base {base}", xlabel="thinking + solution budget (tokens)", ylabel="right, %")
        if axis.lines:
            axis.legend(fontsize="x-small")
    return figure


def main() -> None:
    results = Results()["real"]
    rows = Rows(results["rows"], results["split"]["stories"])
    sections = {
        "gate": gates(rows),
        "systems": systems(rows),
        "methods": methods(rows),
        "nearness": nearness(rows, results["split"]["nearest"]),
    }
    for name, text in sections.items():
        replace_section(DOCUMENT, f"real-{name}", text)
    if measured_bases(rows):
        save(panels(rows, lambda base: ((name, "separate", name) for name in rows.systems(base))), TABLE)
        both = [(system, method) for system in (BASE, E1) for method in BUDGETED]
        shown = lambda base: ((*each, ", ".join(each)) for each in both if each[0] in rows.systems(base))  # noqa: E731
        save(panels(rows, shown), METHODS)


if __name__ == "__main__":
    main()
