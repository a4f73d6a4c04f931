"""Plots of report rows: accuracy over the thinking budget and over tokens used, and where the tokens go.

Shaded bands and bars are 95% intervals.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from e1_trl.atomic import write_atomically
from e1_trl.report.rows import MIXED, REFERENCE, Row, by_solution

UNCONSTRAINED = "unconstrained"
ALONE = (6.0, 4.0)  # inches
PANEL = (3.6, 3.4)
PANELS_A_LINE = 4
MARKERS = "os^Dv"
STYLES = ("-", "--", "-.")


def save(figure: Figure, file: Path) -> None:
    """Write a figure as PNG; raise a `StoreError` if that fails."""
    write_atomically(file, lambda path: figure.savefig(path, dpi=150, format="png"))


def as_svg(figure: Figure) -> str:
    """Render a figure as inline SVG with selectable text; equal figures give equal bytes."""
    file = StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "e1", "font.family": "sans-serif"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()[file.getvalue().index("<svg") :]


def plain(name: str) -> str:
    """Write a name so that Matplotlib draws it as it is: `$` begins no formula, and a leading `_` hides no line."""
    return (" " * name.startswith("_") + name).replace("$", r"\$")


def models_of(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.model for row in rows))


def over_budget(panels: Mapping[str, Sequence[Row]]) -> Figure:
    """Plot the accuracy of the method `separate` over the thinking budget; a dotted line shows unconstrained accuracy.

    Each group of rows has a panel under its title, and in it a line per model and solution budget. Budgets of 0 and
    unlimited ones have no place on the axis.
    """
    size = ALONE if len(panels) == 1 else (PANEL[0] * len(panels), PANEL[1])
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (title, rows) in zip(axes, panels.items(), strict=True):
        bounded = [row for row in rows if row.thinking_budget and row.method in (REFERENCE, MIXED)]
        for i, model in enumerate(models_of(rows)):
            _draw([row for row in bounded if row.model == model], axis, i, lambda row: row.thinking_budget or 0)
            for row in rows:
                if row.model == model and row.method == UNCONSTRAINED:
                    axis.axhline(row.accuracy, color=f"C{i}", linestyle=":")
        if any(row.method == UNCONSTRAINED for row in rows):
            axis.plot([], [], ":", color="gray", label=UNCONSTRAINED)
        ticks = sorted({row.thinking_budget or 0 for row in bounded})
        axis.set_xscale("log", base=2)
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
        axis.set(title=plain(title), xlabel="thinking budget (tokens)")
        axis.legend(fontsize="x-small")
    axes[0].set_ylabel("accuracy")
    axes[0].set_ylim(bottom=0)  # panels share the axis; last, as this fixes its upper end
    return figure


def over_tokens(rows: Sequence[Row]) -> Figure:
    """Draw accuracy over mean tokens used, a panel per method, a color per model (paper: figures 1 and 4).

    Each panel repeats `separate` as a pale line. Several solution budgets are a line each.
    """
    methods = sorted(dict.fromkeys(row.method for row in rows), key=lambda method: method != REFERENCE)
    columns = min(PANELS_A_LINE, len(methods))
    lines = -(-len(methods) // columns)
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * lines + 0.4), layout="constrained")
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flatten()
    for axis in axes[len(methods) :]:
        axis.remove()
    for axis, method in zip(axes, methods, strict=False):
        for i, model in enumerate(models_of(rows)):
            for shown in dict.fromkeys((method, REFERENCE)):
                own = [row for row in rows if (row.model, row.method) == (model, shown)]
                _draw(own, axis, i, lambda row: row.mean_tokens, pale=shown != method)
        axis.set_title(plain(method))
        axis.set_xscale("log", base=2, subs=[1.5])
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("{x:g}")
        axis.tick_params(axis="x", which="both", labelsize="x-small", labelbottom=True)
        axis.legend(fontsize="x-small")
    axes[0].set_ylim(bottom=0)
    figure.supxlabel("mean tokens used")
    figure.supylabel("accuracy")
    return figure


def _draw(rows: Sequence[Row], axis: Axes, model: int, x_of: Callable[[Row], float], pale: bool = False) -> None:
    """Draw a model's line for each of its solution budgets, with intervals; pale lines have no intervals or labels."""
    parts = by_solution(rows, lambda row: row) if rows else {}
    color = f"C{model}"
    for i, (solution, part) in enumerate(parts.items()):
        line = sorted(part, key=x_of)
        x = [x_of(row) for row in line]
        accuracies = [row.accuracy for row in line]
        interval = ([row.ci_low for row in line], [row.ci_high for row in line])
        if pale:
            axis.plot(x, accuracies, "-", color=color, alpha=0.25, zorder=1)
        else:
            name = line[0].model if len(parts) == 1 else f"{line[0].model}, {solution or 'unlimited'} to answer"
            style = f"{MARKERS[model % len(MARKERS)]}{STYLES[i % len(STYLES)]}"
            axis.plot(x, accuracies, style, color=color, label=plain(name), markersize=4)
            if len(line) == 1:
                axis.vlines(x, *interval, color=color, alpha=0.4)
            else:
                axis.fill_between(x, *interval, color=color, alpha=0.15)


def allocation(rows: Sequence[Row]) -> Figure:
    """Plot mean thinking and solution tokens of `separate` at each budget (paper: figure 7); not of models without."""

    def size(row: Row) -> list[float]:
        return [math.inf if part is None else part for part in (row.thinking_budget, row.solution_budget)]

    rows = sorted((row for row in rows if row.method == REFERENCE), key=size)
    models = models_of(rows)
    figure = Figure(figsize=(PANEL[0] * len(models), PANEL[1]), layout="constrained")
    axes = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    for axis, model in zip(axes, models, strict=True):
        own = [row for row in rows if row.model == model]
        names = [str(row.budget) for row in own]
        thinking = [row.mean_thinking_tokens for row in own]
        axis.bar(names, thinking, label="thinking")
        axis.bar(names, [row.mean_solution_tokens for row in own], bottom=thinking, label="solution")
        axis.set(title=plain(model), xlabel="budget")
        axis.tick_params(axis="x", rotation=45)
    axes[0].set_ylabel("mean tokens")
    axes[0].legend()
    return figure
