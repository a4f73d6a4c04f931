"""What the pictures show, read off the figures."""

from itertools import product

import pandas as pd
import pytest
from fabricated import cell, right

from e1_trl.report import pictures
from e1_trl.report.rows import Row, summarize

BUDGETS = {16: 2, 64: 5, 256: 9}


def rows(*cells: pd.DataFrame) -> list[Row]:
    return [each.row for each in summarize(pd.concat(cells))]


def models(*methods: str, of: tuple[str, ...] = ("base", "e1")) -> list[Row]:
    cells = product(of, methods, BUDGETS.items())
    limited = [cell(right(n, 10), t, model=model, method=method) for model, method, (t, n) in cells]
    return rows(*limited, *(cell(right(10, 10), None, None, model=m, method="unconstrained") for m in of))


def test_accuracy_is_drawn_over_the_thinking_budget_with_the_unconstrained_dotted() -> None:
    (axis,) = pictures.over_budget({"": models("truncation", "separate")}).axes
    assert axis.get_xscale() == "log"
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["16", "64", "256"]
    drawn = {str(line.get_label()): line for line in axis.lines if not str(line.get_label()).startswith("_")}
    assert set(drawn) == {"base", "e1", "unconstrained"}
    assert list(drawn["e1"].get_xdata()) == list(BUDGETS)
    assert list(drawn["e1"].get_ydata()) == pytest.approx([0.2, 0.5, 0.9])
    dotted = [line for line in axis.lines if line.get_linestyle() == ":" and len(line.get_xdata())]
    assert [line.get_ydata()[0] for line in dotted] == [1, 1]
    assert [line.get_color() for line in dotted] == [drawn["base"].get_color(), drawn["e1"].get_color()]
    band = axis.collections[0].get_paths()[0].vertices[:, 1]
    shown = [row for row in models("separate") if row.method == "separate"]
    assert (band.min(), band.max()) == pytest.approx((shown[0].ci_low, shown[2].ci_high))


def test_a_budget_of_nothing_or_of_anything_has_no_place_and_two_solution_budgets_have_two_lines() -> None:
    (axis,) = pictures.over_budget({"": rows(*(cell(right(1, 2), t, thinking_tokens=9) for t in (0, 16, None)))}).axes
    assert [list(line.get_xdata()) for line in axis.lines] == [[16]]
    (axis,) = pictures.over_budget({"": rows(*(cell(right(1, 2), t, s) for s in (8, 32) for t in (16, 32)))}).axes
    assert [line.get_label() for line in axis.lines] == ["m, 8 to answer", "m, 32 to answer"]
    assert [line.get_linestyle() for line in axis.lines] == ["-", "--"]
    grown = ((16, 16), (32, 32), (64, 64), (128, 64))  # no grid
    (axis,) = pictures.over_budget({"": rows(*(cell(right(1, 2), *each) for each in grown))}).axes
    assert [line.get_label() for line in axis.lines] == ["m"]
    both = rows(*(cell(right(1, 2), t, s, thinking_tokens=t) for s in (8, 32) for t in (16, 32)))
    (axis,) = pictures.over_tokens(both).axes
    drawn = [(line.get_label(), len(line.get_xdata())) for line in axis.lines]
    assert drawn == [("m, 8 to answer", 2), ("m, 32 to answer", 2)]


def test_names_are_drawn_as_they_are() -> None:
    named = rows(*(cell(right(1, 2), 16, model=name) for name in ("_a $x_{ $ b", "e1")))
    for figure in (pictures.over_budget({"$5_{": named}), pictures.over_tokens(named), pictures.allocation(named)):
        assert "_a $x_{ $ b" in pictures.as_svg(figure)
    (axis,) = pictures.over_budget({"": named}).axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == [r" _a \$x_{ \$ b", "e1"]


def test_panels_share_their_axis_and_bear_their_titles() -> None:
    mixed = models("mixed", of=("a → b",))
    first, second = pictures.over_budget({"one": models("separate"), "two": mixed}).axes
    assert (first.get_title(), second.get_title(), second.lines[0].get_label()) == ("one", "two", "a → b")
    assert first.get_ylim() == second.get_ylim()


def test_every_method_has_a_panel_with_separate_budgeting_behind_it() -> None:
    figure = pictures.over_tokens(models("truncation", "separate", "s1", "l1_exact", "no_thinking"))
    titles = ["separate", "truncation", "s1", "l1_exact", "no_thinking", "unconstrained"]
    assert [axis.get_title() for axis in figure.axes] == titles
    for axis in figure.axes:
        named = [line for line in axis.lines if line.get_label() in ("base", "e1")]
        pale = [line for line in axis.lines if line.get_alpha() is not None]
        assert len(named) == 2 and len(pale) == (0 if axis.get_title() == "separate" else 2)
        assert axis.get_ylim()[0] == 0 and axis.get_ylim()[1] > 1, "the unconstrained are all right"


def test_allocation_stacks_the_solution_on_the_thinking() -> None:
    first, second = pictures.allocation(models("separate", "s1")).axes
    assert (first.get_title(), second.get_title()) == ("base", "e1")
    thinking, solution = first.containers
    assert [bar.get_height() for bar in thinking] == list(BUDGETS)
    assert [(bar.get_y(), bar.get_height()) for bar in solution] == [(budget, 4) for budget in BUDGETS]
    (only,) = pictures.allocation([*models("s1", of=("base",)), *models("separate", of=("e1",))[::-1]]).axes
    assert only.get_title() == "e1" and [bar.get_height() for bar in only.containers[0]] == list(BUDGETS)
