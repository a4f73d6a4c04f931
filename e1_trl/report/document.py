"""A report as files and on the terminal: tables, `report.md`, `results.json` and pictures.

Says what `rows` computed, and computes nothing.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markdown import Markdown

from e1_trl.atomic import write_atomically
from e1_trl.provenance import Provenance
from e1_trl.report import conditions, pictures
from e1_trl.report.conditions import Shared
from e1_trl.report.differences import Alike, Difference, differences
from e1_trl.report.markdown import table
from e1_trl.report.rows import REFERENCE, Line, Row, lines, summarize

WIDTH = 140  # of the table where it goes into a file
PICTURES = {
    "budget": "Accuracy over the thinking budget",
    "tokens": "Accuracy over the mean tokens used, per method",
    "allocation": "Tokens of thinking and solution per budget",
}
INTRODUCTION = (
    "Accuracy is the mean over all of them (avg@k); intervals are 95% and over problems. Budgets are "
    'thinking+solution, tokens are means of what was sampled (with the "Wait" that s1 puts in); those forced after the '
    "thinking are counted apart. Forced and cut off are shares of the answers.\n"
)
LEFT_OUT = (
    "**Problems were left out**, because their prompts are longer than max_prompt_length: no accuracy counts them.\n"
)
OF_MATHEMATICS = (
    "Unevaluated: arithmetic where a number is asked for. Unparseable: no answer that can be read. Censored: cut off "
    "or ended before an answer. Unboxed: read without a box, after the text that s1 forces; rows of boxes only do not "
    "count these as right.\n"
)
OF_PROGRAMS = (
    "A program is right that passes all tests; of others, the first test that fails decides. Censored: cut off or "
    "ended before there was a program. No program: none stood there all the same. Ungraded: the grader failed, which "
    "counts as not right.\n"
)
NO_MAJORITY = "There is no majority of programs: two that are right need not be the same.\n"
AT_THE_SAME_BUDGET = (
    "Paired differences of accuracy, in points. The same budget is not the same number of tokens: both are given.\n"
)
AT_THE_SAME_TOKENS = (
    "Paired differences of accuracy, in points, to separate budgeting where it would use as many tokens: on the line "
    "through its rows, over the logarithm of the tokens. Rows beyond that line are left out.\n"
)
OVER_ALL_BUDGETS = (
    "Area: the mean accuracy over the logarithm of the budget. Per doubling: points of accuracy gained with each "
    "doubling of the tokens used, by least squares, where three budgets or more used different numbers, from one to "
    "its double at least.\n"
)


@dataclass(frozen=True)
class Report:
    """All that is said of some evaluations on one benchmark; `results.json` is this record."""

    provenance: Provenance
    conditions: list[Shared]
    rows: list[Row]
    differences: list[Difference]
    lines: list[Line]

    @classmethod
    def of(cls, answers: pd.DataFrame) -> "Report":
        """The report on a table of graded answers."""
        measured = summarize(answers)
        return cls(
            provenance=Provenance.here(each.row.seed for each in measured),
            conditions=conditions.shared(answers),
            rows=[each.row for each in measured],
            differences=differences(measured),
            lines=lines(measured),
        )


def write(report: Report, folder: Path, name: str | None = None) -> list[Path]:
    """Write a report into a folder and return its files: report.md, results.json, budget.png, tokens.png and
    allocation.png; with a name NAME.md, NAME.json, NAME-budget.png and so on.

    Raises:
        StoreError: they cannot be written, as on a full disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"tokens": pictures.over_tokens(report.rows)}
    if any(row.method == REFERENCE for row in report.rows):
        budget, allocation = pictures.over_budget({"": report.rows}), pictures.allocation(report.rows)
        figures = {"budget": budget, **figures, "allocation": allocation}
    images = {picture: f"{f'{name}-' if name else ''}{picture}.png" for picture in figures}
    texts = {
        f"{name or 'report'}.md": as_markdown(report, images),
        f"{name or 'results'}.json": json.dumps(asdict(report), indent=1, allow_nan=False) + "\n",
    }
    for file, text in texts.items():
        write_atomically(folder / file, partial(Path.write_text, data=text))
    for picture, figure in figures.items():
        pictures.save(figure, folder / images[picture])
    return [folder / file for file in (*texts, *images.values())]


def show(rows: Sequence[Row]) -> None:
    """Print the table of rows, at full width where it goes into a file."""
    text = f"**{rows[0].benchmark}**: {size(rows)}\n\n{accuracies(rows)}"
    Console(width=None if sys.stdout.isatty() else WIDTH).print(Markdown(text))


def size(rows: Sequence[Row]) -> str:
    """How many problems and samples the rows are of."""
    problems, samples = sorted({row.problems for row in rows}), sorted({row.samples for row in rows})
    plural = "" if samples == [1] else "s"
    return f"{' or '.join(map(str, problems))} problems, {' or '.join(map(str, samples))} sample{plural} each"


def chosen(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """The rows that are named, each as "MODEL METHOD BUDGET", in the order of the names.

    Raises:
        ValueError: a row does not exist.
    """
    by_name = {f"{row.model} {row.method} {row.budget}": row for row in rows}
    try:
        return [by_name[name] for name in names]
    except KeyError as error:
        raise ValueError(f"there is no row {error}; there are {', '.join(map(repr, by_name))}") from error


def as_markdown(report: Report, images: dict[str, str]) -> str:
    """The report: all tables, and the pictures by the names of their files."""
    rows, programs = report.rows, bool(report.rows[0].faults)
    commits, graders = (dict.fromkeys(getattr(row, name) for row in rows) for name in ("commit", "graded_by"))
    methods = [each for each in report.differences if each.model == each.minus_model]
    at_budget, at_tokens = ([each for each in methods if each.alike is alike] for alike in Alike)
    models = [each for each in report.differences if each.model != each.minus_model]
    parts = [
        f"# {', '.join(pictures.models_of(rows))} on {rows[0].benchmark}\n",
        f"{size(rows)}. {INTRODUCTION}",
        *([LEFT_OUT] if any(row.left_out for row in rows) else []),
        f"Made at {report.provenance}. Sampled at {' and '.join(commits)}; graded by {' and '.join(graders)}.\n",
        conditions.as_markdown(report.conditions),
        accuracies(rows),
        *(f"![{PICTURES[picture]}]({image})\n" for picture, image in images.items()),
        "## Outcomes\n",
        OF_PROGRAMS if programs else OF_MATHEMATICS,
        outcomes(rows),
    ]
    if any(row.samples > 1 for row in rows):
        parts += ["## Several samples\n", *([NO_MAJORITY] if programs else []), several_samples(rows)]
    for title, explanation, found in (
        ("Methods against separate budgeting, at the same budget", AT_THE_SAME_BUDGET, at_budget),
        ("Methods against separate budgeting, at the same tokens used", AT_THE_SAME_TOKENS, at_tokens),
        ("Models against each other", AT_THE_SAME_BUDGET, models),
    ):
        if found:
            parts += [f"## {title}\n", explanation, paired(found)]
    if report.lines:
        parts += ["## Over all budgets\n", OVER_ALL_BUDGETS, areas(report.lines)]
    return "\n".join(parts)


Column = tuple[str, Callable[[Any], str]]  # its header, and what it says of a row, a difference or a line
NAMED: list[Column] = [
    ("model", lambda row: row.model),
    ("method", lambda row: row.method),
    ("budget", lambda row: str(row.budget)),
]


def _table(records: Sequence[Any], columns: Sequence[Column]) -> str:
    return table([header for header, _ in columns], ([text(each) for _, text in columns] for each in records))


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def _interval(of: Any, text: Callable[[float], str] = _share) -> str:
    return f"{text(of.ci_low)} – {text(of.ci_high)}"


def accuracies(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    columns: list[Column] = [
        *NAMED[:2],
        ("budget", lambda row: f"{row.budget}{f', {row.response_limit} at most' if row.response_limit else ''}"),
        ("accuracy", lambda row: _share(row.accuracy)),
        ("95% interval", _interval),
        ("tokens", lambda row: f"{row.mean_tokens:.1f}"),
        ("thinking", lambda row: f"{row.mean_thinking_tokens:.1f}"),
        ("solution", lambda row: f"{row.mean_solution_tokens:.1f}"),
        ("forced tokens", lambda row: f"{row.mean_forced_tokens:.1f}"),
        ("forced", lambda row: f"{row.forced_ratio:.0%}"),
        ("cut off", lambda row: f"{row.truncated_ratio:.0%}"),
    ]
    if any(row.left_out for row in rows):
        columns.append(("left out", lambda row: str(row.left_out)))
    return _table(rows, columns)


def outcomes(rows: Sequence[Row]) -> str:
    """What became of the answers, as a Markdown table."""

    def shares(row: Row) -> dict[str, float | None]:
        own = {"unevaluated": row.unevaluated, "unparseable": row.unparseable}
        return {
            "right": row.accuracy,
            "wrong": row.wrong,
            **({name.replace("_", " "): share for name, share in row.faults.items()} or own),
            "censored": row.censored,
            "truncated": row.truncated_ratio,
            **({} if row.faults else {"unboxed": row.unboxed}),
            "right if forced": row.accuracy_forced,
            "right if closed": row.accuracy_closed,
        }

    columns = [(name, lambda row, name=name: _share(shares(row)[name])) for name in shares(rows[0])]
    return _table(rows, [*NAMED, *columns])


def several_samples(rows: Sequence[Row]) -> str:
    """pass@k and maj@k as a Markdown table; of programs there is no maj@k."""
    ks = sorted({k for row in rows for k in row.pass_at_k if k != "1"}, key=int)

    def pass_at(k: str) -> Column:
        return f"pass@{k}", lambda row: _share(row.pass_at_k.get(k))

    columns = [*NAMED, ("k", lambda row: str(row.samples)), *map(pass_at, ks)]
    if all(row.maj_at_k is not None for row in rows):
        columns.append(("maj@k", lambda row: _share(row.maj_at_k)))
    return _table(rows, columns)


def paired(found: Sequence[Difference]) -> str:
    """Differences of accuracy as a Markdown table, with what else is not alike where anything is."""
    columns: list[Column] = [
        ("of", lambda each: f"{each.model}, {each.method}"),
        ("minus", lambda each: f"{each.minus_model}, {each.minus_method}"),
        ("budget", lambda each: str(each.budget)),
        ("tokens", lambda each: f"{each.mean_tokens:.1f}"),
        ("minus", lambda each: f"{each.minus_mean_tokens:.1f}"),
        ("difference", lambda each: _points(each.difference)),
        ("95% interval", lambda each: _interval(each, _points)),
    ]
    if any(each.unlike for each in found):
        columns.append(("not alike", lambda each: ", ".join(each.unlike).replace("_", " ")))
    return _table(found, columns)


def areas(found: Sequence[Line]) -> str:
    """Areas and fits as a Markdown table."""
    columns: list[Column] = [
        *NAMED[:2],
        ("area", lambda line: _share(line.area)),
        ("95% interval", _interval),
        ("per doubling", lambda line: _points(line.fit.per_doubling) if line.fit else ""),
        ("95% interval", lambda line: _interval(line.fit, _points) if line.fit else ""),
        ("R²", lambda line: f"{line.fit.r_squared:.2f}" if line.fit else ""),
    ]
    return _table(found, columns)
