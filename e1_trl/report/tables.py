"""Tables of a report: numbers of `rows`, `differences` and `stopping` as text in cells."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from e1_trl.report.differences import Difference
from e1_trl.report.markdown import table
from e1_trl.report.rows import Line, Row
from e1_trl.report.stopping import Stopping

UNANSWERED = "Unanswered: the thinking ended without an answer (eos), or a budget ran out before it. "
OF_MATHEMATICS = (
    "Unevaluated: arithmetic is left to do. Unparseable: no answer can be read. "
    + UNANSWERED
    + "Unboxed: read without a box, after a forced text such as s1's; rows of boxes only do not count these as right. "
    "Worked in the box: arithmetic in front of an equals sign (`6*8=48`), which may be right."
)
OF_PROGRAMS = (
    "A program is right if it passes all tests; otherwise the first test that fails decides. "
    + UNANSWERED
    + "No program: a finished answer without one. Ungraded: the grader failed, which counts as not right."
)
NO_MAJORITY = "Programs have no majority: two that are right need not be the same text."
OVER_ALL_BUDGETS = (
    "Area: the mean accuracy over the logarithm of the budget. In a grid, each solution budget is a line. "
    "Per doubling: points of accuracy gained with each doubling of the tokens used, by least squares, if three or more "
    "budgets used different numbers of tokens, the largest at least twice the smallest."
)
STOPPING = (
    "Shares are of the thoughts that were answered at all of these separate budgets. First right: right at this budget "
    "and at no smaller one; tokens beyond: how much longer those thoughts get at the largest budget. Wrong again: "
    "wrong after being right at the budget before, which is partly chance. Escape: forced solutions that are truncated "
    "or close the thinking again, less the share of such solutions after a natural close. The solution at each budget "
    "is another sample: first right, and the oracle below, are the best of several, and grow with the number of "
    "budgets as pass@k does with samples, even without any thinking in between."
)
RULES = (
    "Rules that stop each thought individually: an oracle where it is first right; agreement of k where the model "
    "closes the thinking, or an answer equals the k before it. The tokens of all solutions that a rule looks at count. "
    "Differences are to the largest budget, paired, in points."
)


@dataclass(frozen=True)
class Table:
    """A table under its title, with a text that explains its columns."""

    title: str
    text: str
    header: list[str]
    rows: list[list[str]]

    @property
    def markdown(self) -> str:
        """The table without title and text."""
        return table(self.header, self.rows)


Column = tuple[str, Callable[[Any], str]]  # header, and the cell of a record
NAMED: list[Column] = [
    ("model", lambda row: row.model),
    ("method", lambda row: row.method),
    ("budget", lambda row: str(row.budget)),
]


def _table(title: str, text: str, records: Sequence[Any], columns: Sequence[Column]) -> Table:
    return Table(title, text, [name for name, _ in columns], [[cell(each) for _, cell in columns] for each in records])


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def _tokens(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _interval(of: Any, text: Callable[[float], str] = _share) -> str:
    return f"{text(of.ci_low)} – {text(of.ci_high)}"


def accuracies(rows: Sequence[Row]) -> Table:
    columns: list[Column] = [
        *NAMED[:2],
        ("budget", lambda row: f"{row.budget}{f', {row.response_limit} at most' if row.response_limit else ''}"),
        ("accuracy", lambda row: _share(row.accuracy)),
        ("95% interval", _interval),
        ("tokens", lambda row: _tokens(row.mean_tokens)),
        ("thinking", lambda row: _tokens(row.mean_thinking_tokens)),
        ("solution", lambda row: _tokens(row.mean_solution_tokens)),
        ("forced tokens", lambda row: _tokens(row.mean_forced_tokens)),
        ("forced", lambda row: f"{row.forced_ratio:.0%}"),
        ("eos", lambda row: f"{row.eos_ratio:.0%}"),
        ("truncated", lambda row: f"{row.truncated_ratio:.0%}"),
    ]
    if any(row.prompt_ratio for row in rows):
        columns.append(("closed by the prompt", lambda row: f"{row.prompt_ratio:.0%}"))
    if any(row.none_ratio for row in rows):
        columns.append(("without thinking", lambda row: f"{row.none_ratio:.0%}"))
    if any(row.left_out for row in rows):
        columns.append(("left out", lambda row: str(row.left_out)))
    return _table("Accuracy", "", rows, columns)


def outcomes(rows: Sequence[Row]) -> Table:
    def shares(row: Row) -> dict[str, float | None]:
        own = {"unevaluated": row.unevaluated, "unparseable": row.unparseable}
        return {
            "right": row.accuracy,
            "wrong": row.wrong,
            **({name.replace("_", " "): share for name, share in row.faults.items()} or own),
            "unanswered": row.unanswered,
            **({} if row.faults else {"unboxed": row.unboxed, "worked in the box": row.worked_in_box}),
            "right if forced": row.accuracy_forced,
            "right if closed": row.accuracy_closed,
        }

    columns = [(name, lambda row, name=name: _share(shares(row)[name])) for name in shares(rows[0])]
    return _table("Outcomes", OF_PROGRAMS if rows[0].faults else OF_MATHEMATICS, rows, [*NAMED, *columns])


def several_samples(rows: Sequence[Row]) -> Table:
    """Tabulate pass@k and maj@k; of programs there is no maj@k."""
    ks = sorted({k for row in rows for k in row.pass_at_k if k != "1"}, key=int)
    pass_at = [(f"pass@{k}", lambda row, k=k: _share(row.pass_at_k.get(k))) for k in ks]
    columns = [*NAMED, ("k", lambda row: str(row.samples)), *pass_at]
    if all(row.maj_at_k is not None for row in rows):
        columns.append(("maj@k", lambda row: _share(row.maj_at_k)))
    return _table("Several samples", NO_MAJORITY if rows[0].faults else "", rows, columns)


def paired(found: Sequence[Difference], title: str = "", text: str = "") -> Table:
    columns: list[Column] = [
        ("of", lambda each: f"{each.model}, {each.method}"),
        ("minus", lambda each: f"{each.minus_model}, {each.minus_method}"),
        ("budget", lambda each: str(each.budget)),
        ("tokens", lambda each: _tokens(each.mean_tokens)),
        ("minus", lambda each: _tokens(each.minus_mean_tokens)),
        ("difference", lambda each: _points(each.difference)),
        ("95% interval", lambda each: _interval(each, _points)),
    ]
    if any(each.unlike for each in found):
        columns.append(("not alike", lambda each: ", ".join(each.unlike).replace("_", " ")))
    return _table(title, text, found, columns)


def areas(found: Sequence[Line]) -> Table:
    columns: list[Column] = [
        *NAMED[:2],
        ("area", lambda line: _share(line.area)),
        ("95% interval", _interval),
        ("per doubling", lambda line: _points(line.fit.per_doubling) if line.fit else ""),
        ("95% interval", lambda line: _interval(line.fit, _points) if line.fit else ""),
        ("R²", lambda line: f"{line.fit.r_squared:.2f}" if line.fit else ""),
    ]
    if any(line.unlike for line in found):
        columns.append(("not alike", lambda line: ", ".join(line.unlike)))
    if len({line.totals for line in found}) > 1:
        columns.insert(2, ("total budgets", lambda line: " to ".join(map(str, line.totals))))
    if len({(line.model, line.method) for line in found}) < len(found):
        columns.insert(2, ("solution budget", lambda line: str(line.solution_budget or "")))
    return _table("Over all budgets", OVER_ALL_BUDGETS, found, columns)


def needs(found: Sequence[Stopping]) -> Table:
    header = ["model", "thoughts", "budget", "first right", "tokens beyond", "wrong again", "escape"]
    rows = [
        [each.model, str(each.thoughts), budget, _share(right), _tokens(beyond), _share(wrong), _share(escape)]
        for each in found
        for budget, right, beyond, wrong, escape in zip(
            *(each.budgets, each.first_right, each.tokens_beyond, each.wrong_again, each.escape_ratio), strict=True
        )
    ]
    return Table("When a thought could have stopped", STOPPING, header, rows)


def rules(found: Sequence[Stopping]) -> Table:
    columns: list[Column] = [
        ("model", lambda pair: pair[0].model),
        ("budgets", lambda pair: f"{pair[0].budgets[0]} to {pair[0].budgets[-1]}"),
        ("rule", lambda pair: pair[1].name),
        ("accuracy", lambda pair: _share(pair[1].accuracy)),
        ("95% interval", lambda pair: _interval(pair[1])),
        ("difference", lambda pair: _points(pair[1].over_largest.difference) if pair[1].over_largest else ""),
        ("95% interval", lambda pair: _interval(pair[1].over_largest, _points) if pair[1].over_largest else ""),
        ("tokens", lambda pair: _tokens(pair[1].mean_tokens)),
        ("thinking", lambda pair: _tokens(pair[1].mean_thinking_tokens)),
    ]
    pairs = [(each, rule) for each in found for rule in each.rules]
    return _table("Rules that stop each thought", RULES, pairs, columns)
