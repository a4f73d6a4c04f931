"""What the user sees of finished evaluations: rows of statistics, a table, report.md, results.json, and pictures.

    python -m e1_trl.evaluation.report runs/evaluations/base runs/evaluations/e1 --output runs/compare

Everything is computed from the `samples.parquet` of the folders, which holds every answer with its grade; `--regrade`
grades them anew first. Knows nothing of models or engines.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from e1_trl.budget import Budget
from e1_trl.evaluation import statistics
from e1_trl.evaluation.store import StoreError, write_atomically, write_table
from e1_trl.grading import Grader, Outcome, boxed_answer
from e1_trl.report import markdown, replace_section

matplotlib.use("Agg")
from matplotlib import pyplot as plt

REFERENCE = "separate"  # the method that others are compared with
GRADED_AT_A_TIME = 1000
HEADER = ("model", "method", "budget", "accuracy", "95% interval", "tokens", "thinking", "solution", "forced")
LINE_STYLES, MARKERS = ("-", "--", ":", "-."), "os^D"
OUTCOMES = ("censored", "unparseable", "wrong")


@dataclass(frozen=True)
class Row:
    """One method at one budget, of one model on one benchmark. Budgets and means in tokens; `None` is unlimited.

    `accuracy` is avg@k and `maj_at_k` is at k = `samples`; `pass_at_k` holds k = 1, 2, 4, … and `samples`. Of all
    answers, `accuracy`, `wrong`, `unparseable` and `censored` (never came to one) are shares that add up
    to 1.
    """

    model: str
    method: str
    benchmark: str
    thinking_budget: int | None
    solution_budget: int | None
    problems: int
    samples: int
    accuracy: float
    ci_low: float
    ci_high: float
    pass_at_k: dict[str, float]
    maj_at_k: float
    mean_tokens: float
    mean_thinking_tokens: float
    mean_solution_tokens: float
    closed_ratio: float
    forced_ratio: float
    eos_ratio: float
    truncated_ratio: float
    accuracy_forced: float | None
    accuracy_closed: float | None
    censored: float
    unparseable: float
    wrong: float
    seed: int
    commit: str

    @property
    def budget(self) -> Budget:
        return Budget(self.thinking_budget, self.solution_budget)


@dataclass(frozen=True)
class Difference:
    """Accuracy of a row minus that of a reference row on the same problems and samples, with its paired interval."""

    model: str
    method: str
    minus_model: str
    minus_method: str
    benchmark: str
    thinking_budget: int | None
    solution_budget: int | None
    difference: float
    ci_low: float
    ci_high: float


@dataclass(frozen=True)
class Curve:
    """One method of one model over all its budgets: area under the curve, and the fit of accuracy to log2 tokens."""

    model: str
    method: str
    benchmark: str
    area: float
    ci_low: float
    ci_high: float
    fit: statistics.Fit | None


def grade(samples: pd.DataFrame, time_limit: float, workers: int) -> pd.DataFrame:
    """Samples with the columns `outcome`, `correct` and `boxed` (the answer given) filled in or replaced."""
    outcomes: list[str] = []
    with Grader(time_limit, workers) as grader, tqdm(total=len(samples), desc="grading", unit="answer") as progress:
        for start in range(0, len(samples), GRADED_AT_A_TIME):
            part = samples.iloc[start : start + GRADED_AT_A_TIME]
            grades = grader.grade(part["solution"].tolist(), [list(answers) for answers in part["answers"]])
            outcomes += [grade.outcome.value for grade in grades]
            progress.update(len(part))
    return samples.assign(
        outcome=outcomes,
        correct=[outcome == Outcome.CORRECT for outcome in outcomes],
        boxed=[boxed_answer(solution) for solution in samples["solution"]],
    )


def write_samples(samples: pd.DataFrame, folder: Path) -> None:
    write_table(pa.Table.from_pandas(samples, preserve_index=False), folder / "samples.parquet")


def read_samples(folder: Path) -> pd.DataFrame:
    """The samples of a finished evaluation, one row per answer.

    Raises:
        StoreError: there are none, or they cannot be read.
    """
    file = folder / "samples.parquet"
    try:
        return pq.read_table(file, page_checksum_verification=True).to_pandas()
    except FileNotFoundError as error:
        raise StoreError(f"no {file}: the evaluation has not finished; run it again to go on") from error
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"cannot read {file} ({str(error).splitlines()[0]}); delete it and evaluate again, nothing is resampled"
        ) from error


def extend(samples: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Samples preceded by those that the folder has of other methods and budgets.

    Raises:
        StoreError: what the folder has cannot be read.
    """
    if not (folder / "samples.parquet").exists():
        return samples
    before = read_samples(folder)
    # By method and budget: the model is the same, whatever it is called this time.
    new = {tuple(map(str, cell)) for cell in samples[CELL[2:]].drop_duplicates().itertuples(index=False)}
    kept = [tuple(map(str, cell)) not in new for cell in before[CELL[2:]].itertuples(index=False)]
    return pd.concat([before[kept], samples], ignore_index=True) if any(kept) else samples


def _optional(budget: Any) -> int | None:
    return None if pd.isna(budget) else int(budget)


CELL = ["model", "benchmark", "method", "thinking_budget", "solution_budget"]
ASKED = ["problem", "sample", "answers"]


def _text(answer: Any) -> str | None:
    # Pandas stores a text that is missing as NaN.
    return None if pd.isna(answer) else str(answer)


def _matrix(cell: pd.DataFrame, column: str) -> NDArray[Any]:
    """A column as problems × samples."""
    return cell.sort_values(["problem", "sample"])[column].to_numpy().reshape(cell["problem"].nunique(), -1)


def cells_of(samples: pd.DataFrame) -> list[pd.DataFrame]:
    """The samples of each row of the table, in the order in which they were asked for."""
    return [cell for _, cell in samples.groupby(CELL, sort=False, dropna=False)]


def _ks(samples: int) -> list[int]:
    return [*(2**i for i in range((samples - 1).bit_length())), samples]


def summarize(cell: pd.DataFrame) -> Row:
    """The statistics of one method at one budget."""
    first = cell.iloc[0]
    correct = _matrix(cell, "correct").astype(float)
    estimate = statistics.accuracy(correct)
    end, forced = cell["thinking_end"], cell["thinking_end"] == "forced"
    closed = end == "closed"
    unreadable = ~cell["correct"] & (cell["outcome"] != Outcome.WRONG)
    cut = unreadable & (cell["outcome"] == Outcome.UNBOXED) & (cell["truncated"] | (end == "eos"))
    return Row(
        model=first["model"],
        method=first["method"],
        benchmark=first["benchmark"],
        thinking_budget=_optional(first["thinking_budget"]),
        solution_budget=_optional(first["solution_budget"]),
        problems=correct.shape[0],
        samples=correct.shape[1],
        accuracy=estimate.mean,
        ci_low=estimate.low,
        ci_high=estimate.high,
        pass_at_k={str(k): statistics.pass_at_k(correct, k) for k in _ks(correct.shape[1])},
        maj_at_k=statistics.maj_at_k(correct, [[_text(answer) for answer in row] for row in _matrix(cell, "boxed")]),
        mean_tokens=float((cell["thinking_tokens"] + cell["solution_tokens"]).mean()),
        mean_thinking_tokens=float(cell["thinking_tokens"].mean()),
        mean_solution_tokens=float(cell["solution_tokens"].mean()),
        closed_ratio=float(closed.mean()),
        forced_ratio=float(forced.mean()),
        eos_ratio=float((end == "eos").mean()),
        truncated_ratio=float(cell["truncated"].mean()),
        accuracy_forced=float(cell["correct"][forced].mean()) if forced.any() else None,
        accuracy_closed=float(cell["correct"][closed].mean()) if closed.any() else None,
        censored=float(cut.mean()),
        unparseable=float((unreadable & ~cut).mean()),
        wrong=float((cell["outcome"] == Outcome.WRONG).mean()),
        seed=int(first["seed"]),
        commit=first["commit"],
    )


def _asked(cell: pd.DataFrame) -> list[Any]:
    """What the answers of a cell are answers to: problem, sample and accepted answers."""
    ordered = cell.sort_values(["problem", "sample"])
    return [(problem, i, *answers) for problem, i, answers in zip(*(ordered[name] for name in ASKED), strict=True)]


def differences(cells: Sequence[pd.DataFrame]) -> list[Difference]:
    """Methods against separate budgeting at the same budget, and every model against the first at the same cell.

    Only between cells that answer the same problems as often.
    """
    found = []
    by_key = {tuple(map(str, cell.iloc[0][CELL])): cell for cell in cells}
    models = list(dict.fromkeys(cell.iloc[0]["model"] for cell in cells))
    for cell in cells:
        first = cell.iloc[0]
        for model, method in ((first["model"], REFERENCE), (models[0], first["method"])):
            key = tuple(
                map(str, [model, first["benchmark"], method, first["thinking_budget"], first["solution_budget"]])
            )
            other = by_key.get(key)
            if other is None or other is cell or cell["problem"].nunique() < 2 or _asked(other) != _asked(cell):
                continue
            paired = _matrix(cell, "correct").astype(float) - _matrix(other, "correct").astype(float)
            estimate = statistics.mean(paired)
            found.append(
                Difference(
                    *(first["model"], first["method"], model, method, first["benchmark"]),
                    *(_optional(first["thinking_budget"]), _optional(first["solution_budget"])),
                    *(estimate.mean, estimate.low, estimate.high),
                )
            )
    return found


def curves(cells: Sequence[pd.DataFrame], rows: Sequence[Row]) -> list[Curve]:
    """Every method of every model that has three limited budgets or more."""
    found = []
    limited = [
        (row, _matrix(cell, "correct").astype(float))
        for row, cell in zip(rows, cells, strict=True)
        if row.thinking_budget is not None and row.solution_budget is not None
    ]
    limited.sort(key=lambda pair: (*_line(pair[0]), (pair[0].budget.completion_tokens(0) or 0)))
    for (model, method, benchmark), group in groupby(limited, key=lambda pair: _line(pair[0])):
        pairs = list(group)
        budgets = [row.budget.completion_tokens(0) or 0 for row, _ in pairs]
        if len(set(budgets)) < 3 or len({matrix.shape for _, matrix in pairs}) > 1 or pairs[0][0].problems < 2:
            continue
        area = statistics.area(np.stack([matrix for _, matrix in pairs]), budgets)
        fit = statistics.log_fit([row.mean_tokens for row, _ in pairs], [row.accuracy for row, _ in pairs])
        found.append(Curve(model, method, benchmark, area.mean, area.low, area.high, fit))
    return found


def _line(row: Row) -> tuple[str, str, str]:
    return row.model, row.method, row.benchmark


def cells_as_text(row: Row) -> tuple[str, ...]:
    """A row of the table."""
    return (
        *(row.model, row.method, str(row.budget), f"{row.accuracy:.1%}", f"{row.ci_low:.1%} – {row.ci_high:.1%}"),
        *(f"{row.mean_tokens:.1f}", f"{row.mean_thinking_tokens:.1f}", f"{row.mean_solution_tokens:.1f}"),
        f"{row.forced_ratio:.0%}",
    )


def _size(rows: Sequence[Row]) -> str:
    problems, samples = ({getattr(row, name) for row in rows} for name in ("problems", "samples"))
    return f"{_several(problems)} problems, {_several(samples)} samples each"


def _several(numbers: set[int]) -> str:
    return " or ".join(map(str, sorted(numbers)))


def table(rows: Sequence[Row]) -> Table:
    """The rows as a table for the terminal."""
    result = Table(*HEADER, title=f"{rows[0].benchmark}: {_size(rows)}")
    for row in rows:
        result.add_row(*cells_as_text(row))
    return result


def show(rows: Sequence[Row], folder: Path) -> None:
    """Print the table, at full width where it goes into a file."""
    Console(width=None if sys.stdout.isatty() else 140).print(table(rows))
    print(f"wrote report.md, results.json and pictures to {folder}")


def read_rows(files: Sequence[Path]) -> list[Row]:
    """The rows of several `results.json`."""
    return [Row(**row) for file in files for row in json.loads(file.read_text())["rows"]]


def plot_accuracy(rows: Sequence[Row], file: Path) -> None:
    """Accuracy against the tokens really used (paper: figures 1 and 4): a color per method, a line style per model."""
    figure, axis = plt.subplots(figsize=(7.5, 5), layout="constrained")
    models, methods = (list(dict.fromkeys(getattr(row, name) for row in rows)) for name in ("model", "method"))
    for model, method, benchmark in dict.fromkeys(map(_line, rows)):
        line = [row for row in rows if _line(row) == (model, method, benchmark)]
        line.sort(key=lambda row: row.mean_tokens)
        tokens = [row.mean_tokens for row in line]
        color, style = f"C{methods.index(method)}", LINE_STYLES[models.index(model) % len(LINE_STYLES)]
        marker = MARKERS[models.index(model) % len(MARKERS)]
        label = f"{model}, {method}"
        axis.plot(tokens, [row.accuracy for row in line], f"{marker}{style}", color=color, label=label, ms=5)
        low, high = [row.ci_low for row in line], [row.ci_high for row in line]
        if len(line) == 1:
            axis.vlines(tokens, low, high, color=color, alpha=0.4)
        else:
            axis.fill_between(tokens, low, high, color=color, alpha=0.12)
    axis.set(xlabel="mean tokens used", ylabel="accuracy")
    axis.set_xscale("log", base=2, subs=[1.5])
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter("{x:g}")
    axis.set_ylim(bottom=0)
    axis.legend(fontsize="x-small")
    figure.savefig(file, dpi=150, format="png")
    plt.close(figure)


def plot_allocation(rows: Sequence[Row], file: Path) -> None:
    """How separate budgeting spends its tokens on thinking and solution, per budget (paper: figure 7)."""
    models = list(dict.fromkeys(row.model for row in rows))
    figure, axes = plt.subplots(1, len(models), figsize=(4 * len(models), 3.5), sharey=True, layout="constrained")
    for axis, model in zip(np.atleast_1d(axes), models, strict=True):
        own = [row for row in rows if row.model == model]
        names = [str(row.budget) for row in own]
        thinking = [row.mean_thinking_tokens for row in own]
        axis.bar(names, thinking, label="thinking")
        axis.bar(names, [row.mean_solution_tokens for row in own], bottom=thinking, label="solution")
        axis.set(title=model, xlabel="budget")
        axis.tick_params(axis="x", rotation=45)
    np.atleast_1d(axes)[0].set_ylabel("mean tokens")
    np.atleast_1d(axes)[0].legend()
    figure.savefig(file, dpi=150, format="png")
    plt.close(figure)


def _signed(difference: Difference) -> tuple[str, ...]:
    budget = Budget(difference.thinking_budget, difference.solution_budget)
    return (
        f"{difference.model}, {difference.method}",
        f"{difference.minus_model}, {difference.minus_method}",
        str(budget),
        f"{100 * difference.difference:+.1f}",
        f"{100 * difference.ci_low:+.1f} – {100 * difference.ci_high:+.1f}",
    )


def _fit_as_text(fit: statistics.Fit | None) -> tuple[str, str, str]:
    if fit is None:
        return "", "", ""
    return f"{100 * fit.per_doubling:+.1f}", f"{100 * fit.standard_error:.1f}", f"{fit.r_squared:.2f}"


def as_markdown(rows: Sequence[Row], compared: Sequence[Difference], lines: Sequence[Curve]) -> str:
    """The report: all tables, and the pictures beside it."""
    first = rows[0]
    parts = [
        f"# {', '.join(dict.fromkeys(row.model for row in rows))} on {first.benchmark}\n",
        f"{_size(rows)}. Accuracy is the mean over all of them (avg@k); intervals are 95%. "
        "Budgets are thinking+solution, lengths are means, all in tokens.\n",
        markdown(HEADER, map(cells_as_text, rows)),
        "![Accuracy against mean tokens](accuracy.png)\n",
    ]
    if any(row.method == REFERENCE for row in rows):
        parts.append("![Tokens of thinking and solution per budget](allocation.png)\n")
    parts += [
        "## What became of the answers\n",
        "Censored: never came to an answer, being cut off or ending while thinking. Unparseable: gave none that can be "
        "read.\n",
        markdown(
            ("model", "method", "budget", "right", *OUTCOMES, "truncated", "right if forced", "right if closed"),
            (
                (
                    *(row.model, row.method, str(row.budget), f"{row.accuracy:.1%}"),
                    *(f"{getattr(row, outcome):.1%}" for outcome in OUTCOMES),
                    f"{row.truncated_ratio:.1%}",
                    "" if row.accuracy_forced is None else f"{row.accuracy_forced:.1%}",
                    "" if row.accuracy_closed is None else f"{row.accuracy_closed:.1%}",
                )
                for row in rows
            ),
        ),
    ]
    if any(row.samples > 1 for row in rows):
        ks = sorted({k for row in rows for k in row.pass_at_k if k != "1"}, key=int)
        header = ("model", "method", "budget", "k", *(f"pass@{k}" for k in ks), "maj@k")
        parts.append("## Several samples\n")
        parts.append(
            markdown(
                header,
                (
                    (
                        *(row.model, row.method, str(row.budget), str(row.samples)),
                        *(f"{row.pass_at_k[k]:.1%}" if k in row.pass_at_k else "" for k in ks),
                        f"{row.maj_at_k:.1%}",
                    )
                    for row in rows
                ),
            )
        )
    if compared:
        parts.append("## Paired differences of accuracy, in points\n")
        parts.append(markdown(("of", "minus", "budget", "difference", "95% interval"), map(_signed, compared)))
    if lines:
        parts.append("## Over all budgets\n")
        parts.append(
            "Area: the mean accuracy over the logarithm of the budget. Per doubling: points of accuracy gained with "
            "each doubling of the tokens used, by least squares.\n"
        )
        parts.append(
            markdown(
                ("model", "method", "area", "95% interval", "per doubling", "standard error", "R²"),
                (
                    (
                        *(line.model, line.method, f"{line.area:.1%}", f"{line.ci_low:.1%} – {line.ci_high:.1%}"),
                        *_fit_as_text(line.fit),
                    )
                    for line in lines
                ),
            )
        )
    return "\n".join(parts)


def write(samples: pd.DataFrame, output: Path) -> list[Row]:
    """Write report.md, results.json, accuracy.png and allocation.png of graded samples, and return the rows.

    Raises:
        ValueError: the samples are of several benchmarks.
    """
    if len(benchmarks := samples["benchmark"].unique()) > 1:
        raise ValueError(f"a report is on one benchmark, and these are of {', '.join(benchmarks)}")
    cells = cells_of(samples)
    rows = [summarize(cell) for cell in tqdm(cells, desc="statistics", unit="row", delay=5)]
    compared, lines = differences(cells), curves(cells, rows)
    output.mkdir(parents=True, exist_ok=True)
    results = {
        "rows": [asdict(row) for row in rows],
        "differences": [asdict(difference) for difference in compared],
        "curves": [asdict(line) for line in lines],
    }
    text = json.dumps(results, indent=1, allow_nan=False) + "\n"
    write_atomically(output / "results.json", lambda path: path.write_text(text))
    write_atomically(output / "accuracy.png", lambda path: plot_accuracy(rows, path))
    allocated = [row for row in rows if row.method == REFERENCE]
    if allocated:
        write_atomically(output / "allocation.png", lambda path: plot_allocation(allocated, path))
    report = as_markdown(rows, compared, lines)
    write_atomically(output / "report.md", lambda path: path.write_text(report))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Report on finished evaluations, together if there are several.")
    parser.add_argument("folders", type=Path, nargs="+", help="folders that e1_trl.evaluation wrote")
    parser.add_argument("--output", type=Path, help="folder for the report; unset: the first of the folders")
    parser.add_argument("--regrade", action="store_true", help="grade all answers anew, without sampling anything")
    parser.add_argument("--grading_time_limit", type=float, default=5.0, help="seconds after which grading is killed")
    parser.add_argument("--grading_workers", type=int, default=1, help="processes that grade")
    parser.add_argument("--document", type=Path, help="Markdown file whose section SECTION becomes the table")
    parser.add_argument("--section", default="results", help="name of that section")
    arguments = parser.parse_args()
    try:
        parts = []
        for folder in arguments.folders:
            samples = read_samples(folder)
            if arguments.regrade:
                samples = grade(samples, arguments.grading_time_limit, arguments.grading_workers)
                write_samples(samples, folder)
            parts.append(samples)
        rows = write(pd.concat(parts, ignore_index=True), arguments.output or arguments.folders[0])
        if arguments.document is not None:
            replace_section(arguments.document, arguments.section, markdown(HEADER, map(cells_as_text, rows)))
    except (StoreError, ValueError, OSError) as error:
        sys.exit(f"e1_trl.evaluation.report: {error}")
    show(rows, arguments.output or arguments.folders[0])


if __name__ == "__main__":
    main()
