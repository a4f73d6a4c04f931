"""A report as files and on the terminal: tables, `report.md`, `results.json` and pictures.

Says what `rows` computed, and computes nothing.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from e1_trl.atomic import write_atomically
from e1_trl.provenance import Provenance
from e1_trl.report import conditions, pictures
from e1_trl.report.conditions import Shared
from e1_trl.report.differences import Alike, Difference, differences
from e1_trl.report.markdown import table
from e1_trl.report.rows import REFERENCE, Line, Row, lines, summarize
from e1_trl.report.statistics import Fit

WIDTH = 140  # of the table where it goes into a file


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
    prefix = "" if name is None else f"{name}-"
    drawn = draw(report.rows)
    images = {title: f"{prefix}{title}.png" for title in drawn}
    document, results = (
        folder / f"{name or stem}{suffix}" for stem, suffix in (("report", ".md"), ("results", ".json"))
    )
    text = as_markdown(report, images)
    content = json.dumps(asdict(report), indent=1, allow_nan=False) + "\n"
    write_atomically(document, lambda path: path.write_text(text))
    write_atomically(results, lambda path: path.write_text(content))
    for title, figure in drawn.items():
        pictures.save(figure, folder / images[title])
    return [document, results, *(folder / image for image in images.values())]


def _named(texts: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(texts))


def draw(rows: Sequence[Row]) -> dict[str, Figure]:
    """The pictures of a report by name."""
    figures: dict[str, Callable[[Sequence[Row]], Figure]] = {"tokens": pictures.over_tokens}
    if any(row.method == REFERENCE for row in rows):
        figures = {"budget": pictures.over_budget, **figures, "allocation": pictures.allocation}
    return {name: figure(rows) for name, figure in figures.items()}


def show(rows: Sequence[Row]) -> None:
    """Print the table of rows, at full width where it goes into a file."""
    result = Table(*_cells(rows[0], rows), title=f"{rows[0].benchmark}: {size(rows)}")
    for row in rows:
        result.add_row(*_cells(row, rows).values())
    Console(width=None if sys.stdout.isatty() else WIDTH).print(result)


def size(rows: Sequence[Row]) -> str:
    """How many problems and samples the rows are of."""
    problems, samples = sorted({row.problems for row in rows}), sorted({row.samples for row in rows})
    plural = "" if samples == [1] else "s"
    return f"{' or '.join(map(str, problems))} problems, {' or '.join(map(str, samples))} sample{plural} each"


def accuracies(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    return table(list(_cells(rows[0], rows)), [list(_cells(row, rows).values()) for row in rows])


def _cells(row: Row, rows: Sequence[Row]) -> dict[str, str]:
    """A row of the table of all of them, by column."""
    return {
        "model": row.model,
        "method": row.method,
        "budget": str(row.budget) + (f", {row.response_limit} at most" if row.response_limit else ""),
        "accuracy": f"{row.accuracy:.1%}",
        "95% interval": f"{row.ci_low:.1%} – {row.ci_high:.1%}",
        "tokens": f"{row.mean_tokens:.1f}",
        "thinking": f"{row.mean_thinking_tokens:.1f}",
        "solution": f"{row.mean_solution_tokens:.1f}",
        "forced tokens": f"{row.mean_forced_tokens:.1f}",
        "forced": f"{row.forced_ratio:.0%}",
        "cut off": f"{row.truncated_ratio:.0%}",
        **({"left out": str(row.left_out)} if any(each.left_out for each in rows) else {}),
    }


def chosen(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """The rows that are named, each as "MODEL METHOD BUDGET", in the order of the names.

    Raises:
        ValueError: a row does not exist.
    """
    by_name = {f"{row.model} {row.method} {row.budget}": row for row in rows}
    for name in names:
        if name not in by_name:
            raise ValueError(f"there is no row {name!r}; there are {', '.join(map(repr, by_name))}")
    return [by_name[name] for name in names]


def as_markdown(report: Report, images: dict[str, str]) -> str:
    """The report: all tables, and the pictures by the names of their files."""
    rows = report.rows
    parts = [
        f"# {', '.join(pictures.models_of(rows))} on {rows[0].benchmark}\n",
        f"{size(rows)}. Accuracy is the mean over all of them (avg@k); intervals are 95% and over problems. "
        'Budgets are thinking+solution, tokens are means of what was sampled (with the "Wait" that s1 puts in); those '
        "forced after the thinking are counted apart. Forced and cut off are shares of the answers.\n",
        *([LEFT_OUT] if any(row.left_out for row in rows) else []),
        f"Made at {report.provenance}. Sampled at {_named(row.commit for row in rows)}; graded by "
        f"{_named(row.graded_by for row in rows)}.\n",
        conditions.as_markdown(report.conditions),
        accuracies(rows),
        *(f"![{ALTERNATIVES[title]}]({image})\n" for title, image in images.items()),
        "## Outcomes\n",
        OF_PROGRAMS if rows[0].faults else OF_MATHEMATICS,
        outcomes(rows),
    ]
    if any(row.samples > 1 for row in rows):
        parts += ["## Several samples\n", *([NO_MAJORITY] if rows[0].faults else []), several_samples(rows)]
    for heading, alike in (
        ("Methods against separate budgeting, at the same budget", Alike.BUDGET),
        ("Methods against separate budgeting, at the same tokens used", Alike.TOKENS),
    ):
        methods = [each for each in report.differences if each.model == each.minus_model and each.alike is alike]
        if methods:
            parts += [f"## {heading}\n", EXPLANATIONS[alike], paired(methods)]
    models = [each for each in report.differences if each.model != each.minus_model]
    if models:
        parts += ["## Models against each other\n", EXPLANATIONS[Alike.BUDGET], paired(models)]
    if report.lines:
        parts += [
            "## Over all budgets\n",
            "Area: the mean accuracy over the logarithm of the budget. Per doubling: points of accuracy gained with "
            "each doubling of the tokens used, by least squares, where three budgets or more used different numbers, "
            "from one to its double at least.\n",
            areas(report.lines),
        ]
    return "\n".join(parts)


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
ALTERNATIVES = {
    "budget": "Accuracy over the thinking budget",
    "tokens": "Accuracy over the mean tokens used, per method",
    "allocation": "Tokens of thinking and solution per budget",
}
EXPLANATIONS = {
    Alike.BUDGET: "Paired differences of accuracy, in points. The same budget is not the same number of tokens: both "
    "are given.\n",
    Alike.TOKENS: "Paired differences of accuracy, in points, to separate budgeting where it would use as many tokens: "
    "on the line through its rows, over the logarithm of the tokens. Rows beyond that line are left out.\n",
}


def outcomes(rows: Sequence[Row]) -> str:
    """What became of the answers, as a Markdown table."""

    def shares(row: Row) -> dict[str, float | None]:
        own = {"unevaluated": row.unevaluated, "unparseable": row.unparseable}
        faults = {name.replace("_", " "): share for name, share in row.faults.items()}
        return {
            "right": row.accuracy,
            "wrong": row.wrong,
            **(faults or own),
            "censored": row.censored,
            "truncated": row.truncated_ratio,
            **({} if faults else {"unboxed": row.unboxed}),
            "right if forced": row.accuracy_forced,
            "right if closed": row.accuracy_closed,
        }

    return table(
        ("model", "method", "budget", *shares(rows[0])),
        (
            (
                row.model,
                row.method,
                str(row.budget),
                *("" if share is None else f"{share:.1%}" for share in shares(row).values()),
            )
            for row in rows
        ),
    )


def several_samples(rows: Sequence[Row]) -> str:
    """pass@k and maj@k as a Markdown table; of programs there is no maj@k."""
    majority = all(row.maj_at_k is not None for row in rows)
    ks = sorted({k for row in rows for k in row.pass_at_k if k != "1"}, key=int)
    return table(
        ("model", "method", "budget", "k", *(f"pass@{k}" for k in ks), *(["maj@k"] if majority else [])),
        (
            (
                row.model,
                row.method,
                str(row.budget),
                str(row.samples),
                *(f"{row.pass_at_k[k]:.1%}" if k in row.pass_at_k else "" for k in ks),
                *([f"{row.maj_at_k:.1%}"] if majority else []),
            )
            for row in rows
        ),
    )


def paired(found: Sequence[Difference]) -> str:
    """Differences of accuracy as a Markdown table, with what else is not alike where anything is."""
    unlike = any(each.unlike for each in found)
    return table(
        ("of", "minus", "budget", "tokens", "minus", "difference", "95% interval", *(["not alike"] if unlike else [])),
        (
            (
                f"{each.model}, {each.method}",
                f"{each.minus_model}, {each.minus_method}",
                str(each.budget),
                f"{each.mean_tokens:.1f}",
                f"{each.minus_mean_tokens:.1f}",
                f"{100 * each.difference:+.1f}",
                f"{100 * each.ci_low:+.1f} – {100 * each.ci_high:+.1f}",
                *([", ".join(each.unlike).replace("_", " ")] if unlike else []),
            )
            for each in found
        ),
    )


def areas(found: Sequence[Line]) -> str:
    """Areas and fits as a Markdown table."""
    return table(
        ("model", "method", "area", "95% interval", "per doubling", "95% interval", "R²"),
        (
            (each.model, each.method, f"{each.area:.1%}", f"{each.ci_low:.1%} – {each.ci_high:.1%}", *_fit(each.fit))
            for each in found
        ),
    )


def _fit(fit: Fit | None) -> tuple[str, str, str]:
    if fit is None:
        return "", "", ""
    interval = f"{100 * fit.ci_low:+.1f} – {100 * fit.ci_high:+.1f}"
    return f"{100 * fit.per_doubling:+.1f}", interval, f"{fit.r_squared:.2f}"
