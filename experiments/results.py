"""Published results: the JSON files of docs/results, and their rows by what these say of themselves."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "results"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """A paired difference of accuracies with its 95% interval, in points.

    Written plainly it is `3.5 (1.9 to 5.1)`, with the format `+` it is `+3.5 (+1.9 to +5.1)`.
    """

    points: float
    low: float
    high: float

    def __neg__(self) -> "Difference":
        return Difference(-self.points, -self.high, -self.low)

    def __format__(self, sign: str) -> str:
        return f"{self.points:{sign}.1f} ({self.interval(sign)})"

    def interval(self, sign: str = "") -> str:
        """`1.9 to 5.1`."""
        return f"{self.low:{sign}.1f} to {self.high:{sign}.1f}"


def only(rows: Iterable[Row], **fields: Any) -> Row:
    """The one row that has these fields.

    Raises:
        LookupError: none or several have.
    """
    found = [row for row in rows if all(row[name] == value for name, value in fields.items())]
    if len(found) != 1:
        raise LookupError(f"expected one row with {fields}, found {len(found)}")
    return found[0]


@dataclass(frozen=True)
class Report:
    """Rows and paired differences as `e1 report` writes them."""

    rows: list[Row]
    differences: list[Row]

    def row(self, model: str, thinking: int | None = None, method: str = "separate") -> Row:
        """A model at a thinking budget; without one, its unconstrained answers."""
        method = "unconstrained" if thinking is None else method
        return only(self.rows, model=model, method=method, thinking_budget=thinking)

    def accuracy(self, model: str, thinking: int | None = None, method: str = "separate") -> float:
        """Share of right answers, from 0 to 1."""
        return float(self.row(model, thinking, method)["accuracy"])

    def less(
        self,
        model: str,
        minus: str,
        thinking: int | None = None,
        method: str = "separate",
        minus_method: str | None = None,
        alike: str = "budget",
    ) -> Difference:
        """Points that one model or method is ahead of another at the same budget, or at as many tokens used."""
        method = "unconstrained" if thinking is None else method
        fields = {"model": model, "minus_model": minus, "method": method, "minus_method": minus_method or method}
        found = only(self.differences, **fields, thinking_budget=thinking, alike=alike)
        return Difference(*(100 * found[name] for name in ("difference", "ci_low", "ci_high")))


class Results(dict[str, Any]):
    """Content of the files of a folder, by their names without an ending; each is read once."""

    def __init__(self, folder: Path = FOLDER):
        self.folder = folder

    def __missing__(self, name: str) -> Any:
        self[name] = json.loads((self.folder / f"{name}.json").read_text())
        return self[name]

    def report(self, name: str, comparison: str | None = None) -> Report:
        """A report, or one comparison of the ablations."""
        content = self[name] if comparison is None else self[name]["comparisons"][comparison]
        return Report(content["rows"], content["differences"])
