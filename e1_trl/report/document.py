"""A report as files and on the terminal: tables, `report.md`, `results.json` and pictures; computes no numbers."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from rich.markdown import Markdown

from e1_trl.atomic import make_folder, write_atomically
from e1_trl.errors import UserError
from e1_trl.provenance import Provenance
from e1_trl.report import conditions, pictures, tables
from e1_trl.report.conditions import Shared
from e1_trl.report.differences import Difference, differences, not_compared
from e1_trl.report.rows import MADE_BY, REFERENCE, Line, Row, lines, summarize
from e1_trl.report.samples import answer_type
from e1_trl.report.stopping import Stopping, stopping
from e1_trl.report.tables import Table
from e1_trl.rollout import warn_of_eos

WIDTH = 140  # characters, of a table that goes into a file
PICTURES = {
    "budget": "Accuracy over the thinking budget",
    "tokens": "Accuracy over the mean tokens used, per method",
    "allocation": "Tokens of thinking and solution per budget",
}
INTRODUCTION = (
    "Accuracy is the mean over all samples (avg@k); intervals are 95% and over problems. Budgets are "
    'thinking+solution; tokens are means of what was sampled, with the "Wait" that s1 inserts, and do not count those '
    "forced after the thinking. Shares of all answers: forced, where the thinking budget ran out and the close was "
    "forced; eos, where the model stopped before it answered; truncated, where a budget ran out before the end.\n"
)
LEFT_OUT = "**Problems were left out**: their prompts are longer than max_prompt_length, and no accuracy counts them."
NOT_COMPARED = (
    "**Not compared**, since differences need equally many answers to the same problems (the same commands with equal "
    "--samples and --max_problems add what is missing)"
)
AGAIN = "a loaded machine may be why, and the same `e1 eval` grades them again"
AT_THE_SAME_BUDGET = (
    "Paired differences of accuracy, in points. The same budget is not the same number of tokens: both are given."
)
MODELS = "Models against each other"
PAIRED = {
    "Methods against separate budgeting, at the same budget": AT_THE_SAME_BUDGET,
    "Methods against separate budgeting, at the same tokens used": (
        "Paired differences of accuracy, in points, to separate budgeting with as many tokens: interpolated between "
        "its rows, over the logarithm of the tokens. Rows beyond the ends of that line are left out."
    ),
    MODELS: AT_THE_SAME_BUDGET,
}


@dataclass(frozen=True)
class Report:
    """All numbers about some evaluations on one benchmark; `results.json` is this record."""

    provenance: Provenance
    conditions: list[Shared]
    rows: list[Row]
    differences: list[Difference]
    not_compared: list[str]
    lines: list[Line]
    stopping: list[Stopping]

    @classmethod
    def of(cls, answers: pd.DataFrame) -> "Report":
        measured = summarize(answers)
        return cls(
            provenance=Provenance.here(each.row.seed for each in measured),
            conditions=conditions.shared(answers),
            rows=[each.row for each in measured],
            differences=differences(measured),
            not_compared=not_compared(measured),
            lines=lines(measured),
            stopping=stopping(answers, votes=answer_type(answers).votes),
        )


def write(report: Report, folder: Path, name: str | None = None) -> list[Path]:
    """Write report.md, results.json and pictures, or NAME.md, NAME.json and so on; return their paths."""
    make_folder(folder)
    figures = curves(report)
    images = {picture: f"{f'{name}-' if name else ''}{picture}.png" for picture in figures}
    texts = {
        f"{name or 'report'}.md": as_markdown(report, images),
        f"{name or 'results'}.json": json.dumps(asdict(report), indent=1, allow_nan=False) + "\n",
    }
    for file, text in texts.items():
        write_atomically(folder / file, text)
    for picture, figure in figures.items():
        pictures.save(figure, folder / images[picture])
    return [folder / file for file in (*texts, *images.values())]


def curves(report: Report) -> dict[str, Figure]:
    made = {"tokens": pictures.over_tokens(report.rows)}
    if separate := [row for row in report.rows if row.method == REFERENCE]:
        bounded = any(row.thinking_budget for row in separate)
        made = {"budget": pictures.over_budget({"": report.rows})} | made if bounded else made
        made["allocation"] = pictures.allocation(report.rows)
    return made


def show(report: Report) -> None:
    """Print the table of accuracies and the notes, at a fixed width if the output goes into a file."""
    rows = report.rows
    text = f"**{rows[0].benchmark}**: {size(rows)}\n\n{tables.accuracies(rows).markdown}\n" + "\n\n".join(notes(report))
    Console(width=None if sys.stdout.isatty() else WIDTH).print(Markdown(text))


def size(rows: Sequence[Row]) -> str:
    problems = " or ".join(map(str, sorted({row.problems for row in rows})))
    samples = " or ".join(map(str, sorted({row.samples for row in rows})))
    return f"{problems} problem{'s' * (problems != '1')}, {samples} sample{'s' * (samples != '1')} each"


def choose(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """Return the named rows, each as "MODEL METHOD BUDGET"; raise a `UserError` if a row does not exist."""
    by_name = {f"{row.model} {row.method} {row.budget}": row for row in rows}
    try:
        return [by_name[name] for name in names]
    except KeyError as error:
        raise UserError(f"there is no row {error}; there are {', '.join(map(repr, by_name))}") from error


def as_markdown(report: Report, images: dict[str, str]) -> str:
    """Write the report as Markdown, with all tables, and the pictures by the names of their files."""
    rows = report.rows
    first, *others = tables_of(report)
    parts = [
        f"# {title(rows)}\n",
        f"{size(rows)}. {INTRODUCTION}",
        *(f"{note}\n" for note in notes(report)),
        f"{' '.join(made(report))}\n",
        conditions.as_markdown(report.conditions),
        first.markdown,
        *(f"![{PICTURES[picture]}]({image})\n" for picture, image in images.items()),
    ]
    for each in others:
        parts += [f"## {each.title}\n", *([f"{each.text}\n"] if each.text else []), each.markdown]
    return "\n".join(parts)


def tables_of(report: Report) -> list[Table]:
    rows = report.rows
    found = [tables.accuracies(rows), tables.outcomes(rows)]
    if any(row.samples > 1 for row in rows):
        found.append(tables.several_samples(rows))
    groups: dict[str, list[Difference]] = {heading: [] for heading in PAIRED}
    for each in report.differences:
        own = each.model == each.minus_model
        groups[f"Methods against separate budgeting, at the same {each.alike}" if own else MODELS].append(each)
    found += [tables.paired(pairs, heading, PAIRED[heading]) for heading, pairs in groups.items() if pairs]
    if report.lines:
        found.append(tables.areas(report.lines))
    if report.stopping:
        found += [tables.needs(report.stopping), tables.rules(report.stopping)]
    return found


def title(rows: Sequence[Row]) -> str:
    return f"{', '.join(pictures.models_of(rows))} on {rows[0].benchmark}"


def notes(report: Report) -> list[str]:
    """Write warnings for readers of the numbers, each as a line of Markdown."""
    found = [LEFT_OUT] if any(row.left_out for row in report.rows) else []
    worst = max(report.rows, key=lambda row: row.eos_ratio)
    if warning := warn_of_eos(worst.eos_ratio, f"{worst.model}, {worst.method} {worst.budget}"):
        found.append(f"**Many thoughts end without an answer**; {warning}.")
    worst = max(report.rows, key=lambda row: row.ungraded)
    if worst.ungraded:
        said = f"of {worst.ungraded:.1%} of the answers of {worst.model}, {worst.method} {worst.budget}"
        found.append(f"**Grading failed or took too long** {said}, which count as not right; {AGAIN}.")
    if report.not_compared:
        found.append(f"{NOT_COMPARED}: {'; '.join(report.not_compared)}.")
    return found


def made(report: Report) -> tuple[str, str]:
    """Say which version made a report, and which ones sampled and graded; if models differ, which models by which."""
    said = []
    for name in MADE_BY:
        models: dict[str, dict[str, None]] = {}
        for row in report.rows:
            models.setdefault(getattr(row, name), {})[row.model] = None
        several = len(models) > 1
        said.append(" and ".join(f"{value} ({', '.join(own)})" if several else value for value, own in models.items()))
    return f"Made at {report.provenance}.", f"Sampled at {said[0]}; graded by {said[1]}."
