"""What the pictures show, read off the figures."""

from pathlib import Path

import pandas as pd
import pytest
from fabricated import cell, right
from matplotlib.image import imread

from e1_trl.report import pictures
from e1_trl.report.rows import Row, summarize

BUDGETS = {16: 2, 64: 5, 256: 9}


def rows(*methods: str, models: tuple[str, ...] = ("base", "e1")) -> list[Row]:
    parts = [
        *(
            cell(right(n, 10), t, model=m, method=method)
            for m in models
            for method in methods
            for t, n in BUDGETS.items()
        ),
        *(cell(right(10, 10), None, None, model=m, method="unconstrained") for m in models),
    ]
    return [each.row for each in summarize(pd.concat(parts))]


def test_accuracy_is_drawn_over_the_thinking_budget_with_the_unconstrained_dotted() -> None:
    (axis,) = pictures.over_budget(rows("truncation", "separate")).axes
    assert axis.get_xscale() == "log"
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["16", "64", "256"]
    drawn = {str(line.get_label()): line for line in axis.lines if not str(line.get_label()).startswith("_")}
    assert set(drawn) == {"base", "e1", "unconstrained"}
    assert list(drawn["e1"].get_xdata()) == list(BUDGETS)
    assert list(drawn["e1"].get_ydata()) == pytest.approx([0.2, 0.5, 0.9])
    dotted = [line for line in axis.lines if line.get_linestyle() == ":" and len(line.get_xdata())]
    assert [line.get_ydata()[0] for line in dotted] == [1, 1]
    assert [line.get_color() for line in dotted] == [drawn["base"].get_color(), drawn["e1"].get_color()]
    low, high = (extreme(axis.collections[0].get_paths()[0].vertices[:, 1]) for extreme in (min, max))
    shown = [row for row in rows("separate") if row.method == "separate"]
    assert (low, high) == pytest.approx((shown[0].ci_low, shown[2].ci_high))


def test_a_budget_of_nothing_or_of_anything_is_not_on_the_axis() -> None:
    parts = [cell(right(1, 2), budget, thinking_tokens=9) for budget in (0, 16, None)]
    (axis,) = pictures.over_budget([each.row for each in summarize(pd.concat(parts))]).axes
    assert [list(line.get_xdata()) for line in axis.lines] == [[16]]


def test_two_solution_budgets_are_two_lines() -> None:
    parts = [cell(right(1, 2), t, s) for s in (8, 32) for t in (16, 32)]
    (axis,) = pictures.over_budget([each.row for each in summarize(pd.concat(parts))]).axes
    assert [line.get_label() for line in axis.lines] == ["m, 8 to answer", "m, 32 to answer"]


def test_every_method_has_a_panel_with_separate_budgeting_behind_it() -> None:
    methods = ("truncation", "separate", "s1", "l1_exact", "no_thinking")
    figure = pictures.over_tokens(rows(*methods))
    assert [axis.get_title() for axis in figure.axes] == [
        "separate",
        "truncation",
        "s1",
        "l1_exact",
        "no_thinking",
        "unconstrained",
    ]
    for axis in figure.axes:
        named = [line for line in axis.lines if line.get_label() in ("base", "e1")]
        pale = [line for line in axis.lines if line.get_alpha() is not None]
        assert len(named) == 2 and len(pale) == (0 if axis.get_title() == "separate" else 2)
        assert axis.get_legend() is not None and len(axis.get_legend().get_texts()) == 2
        assert axis.get_ylim()[0] == 0 and axis.get_ylim()[1] > 1, "the unconstrained are all right"


def test_allocation_stacks_the_solution_on_the_thinking() -> None:
    first, second = pictures.allocation(rows("separate", "s1")).axes
    assert (first.get_title(), second.get_title()) == ("base", "e1")
    thinking, solution = first.containers
    assert [bar.get_height() for bar in thinking] == list(BUDGETS)
    assert [(bar.get_y(), bar.get_height()) for bar in solution] == [(budget, 4) for budget in BUDGETS]


def test_panels_share_their_axis_and_bear_their_titles() -> None:
    figure = pictures.panels_over_budget({"one": rows("separate"), "two": rows("mixed", models=("a → b",))})
    assert [axis.get_title() for axis in figure.axes] == ["one", "two"]
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert figure.axes[1].lines[0].get_label() == "a → b"


def test_a_figure_is_saved_as_it_is(tmp_path: Path) -> None:
    pictures.save(pictures.over_budget(rows("separate")), tmp_path / "budget.png")
    assert [file.name for file in tmp_path.iterdir()] == ["budget.png"]
    height, width, _ = imread(tmp_path / "budget.png").shape
    assert (width, height) == (900, 600)
