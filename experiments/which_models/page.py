"""Show the measured templates as the table of docs/models.md."""

from collections.abc import Sequence
from typing import Any

from e1_trl.report.markdown import table
from experiments.which_models.measure import BUDGETS, Row, Shares

HEADER = ("template", "arguments", "thinking", "marker", "opener", *(f"at {each}" for each in BUDGETS.values()), "set")


def show(rows: Sequence[Row]) -> str:
    """Format the rows as a Markdown table, with versions of a template in one row where they do the same."""
    alike: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        read = (row.template.partition("_v")[0], row.arguments, row.state, row.marker, row.opener, row.advice)
        alike.setdefault(read, []).append(row)
    return table(HEADER, (_cells(same) for same in alike.values()))


def _cells(same: Sequence[Row]) -> tuple[str, ...]:
    row = same[0]
    return (
        row.template.partition("_v")[0] + f" ({len(same)} versions)" * (len(same) > 1),
        ", ".join(row.arguments),
        row.state if row.answers else f"{row.state}, not asked",
        f"`{row.marker}`",
        f"`{row.opener.strip()}`",
        *(_at([each.answers[name] for each in same if each.answers], name) for name in BUDGETS),
        "" if row.advice is None else f"`{row.advice.removeprefix('set chat_template_kwargs: ')}`",
    )


def _at(found: Sequence[Shares], budget: str) -> str:
    if not found:
        return "-"
    end = "prompt" if found[0].prompt else "closed" if budget == "loose" else "forced"
    return ", ".join(f"{name} {_span([getattr(each, name) for each in found])}" for name in (end, "right"))


def _span(values: Sequence[float]) -> str:
    least, most = (f"{100 * value:.0f}" for value in (min(values), max(values)))
    return f"{least}%" if least == most else f"{least}-{most}%"
