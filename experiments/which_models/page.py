"""Show the measured templates, and the families of `experiments.families`, as the tables of docs/models.md.

python -m experiments.which_models.page     writes the table of families again
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from e1_trl.report.markdown import replace_section, table
from experiments.families.__main__ import read
from experiments.which_models.measure import BUDGETS, Row, Shares

DOCUMENT = Path(__file__).parents[2] / "docs" / "models.md"
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


def show_families(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format the families as a Markdown table."""
    header = ("family", "class", "rows", "rows with varlen", "synced as on a CPU", "synced as on a GPU")
    return table(header, [(*_names(row), *(_synced(row[way]) for way in ("cpu", "cuda"))) for row in rows])


def _names(row: Mapping[str, Any]) -> tuple[str, ...]:
    return row["family"], f"`{row['architecture']}`", row["layout"], row["layout_with_varlen"].partition(":")[0]


def _synced(found: Mapping[str, Any]) -> str:
    if found["engine"] != "starts":
        return found["engine"]
    if found["weights"] != "pass":
        return found["weights"]
    gap = found.get("logprob_gap")
    return f"{found['compared_tensors']} tensors equal" + ("" if gap is None else f", {gap:g} nats")


def main() -> None:
    """Write the table of families."""
    replace_section(DOCUMENT, "families", show_families([*read().values()]))


if __name__ == "__main__":
    main()
