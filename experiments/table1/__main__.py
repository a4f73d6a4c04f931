"""The paper's Table 1 and Figure 5: models on the code benchmarks at every budget, beside the published rows.

    python -m experiments.table1 --models agentica-org/DeepCoder-14B-Preview runs/E1-Code-14B --output runs/table1

Evaluates what is missing (stopped at any moment, the same command resumes), then writes `table1.md`, `table1.json` and
`figure5.png`. The rating on Codeforces needs `--standings`, a file that `experiments.table1.elo` writes; without it
that column is the share of problems solved in one attempt. Every other option goes to `e1 eval`.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path

from e1_trl.atomic import write_atomically
from e1_trl.command_line import run_command
from e1_trl.errors import UserError
from e1_trl.evaluation.arguments import Model
from e1_trl.provenance import Provenance
from e1_trl.report import document, pictures, samples
from e1_trl.report.rows import Row, summarize
from experiments.table1.document import NAMES, Line, Number, as_markdown
from experiments.table1.ratings import Rating, Standings, rate

BUDGETS = ("1024+1024", "2048+1024", "3072+1024", "4096+1024")
METHODS = ("separate", "unconstrained")


def measured(rows: Mapping[str, Sequence[Row]], ratings: Sequence[Rating]) -> list[Line]:
    """Return our measurements by benchmark, and the ratings on Codeforces if standings are given."""
    lines: dict[tuple[str, str], dict[str, Number]] = {}
    for benchmark, ours in rows.items():
        for row in (row for row in ours if row.method in METHODS):
            number = Number(100 * row.accuracy, 100 * row.ci_low, 100 * row.ci_high)
            lines.setdefault((row.model, str(row.budget)), {})[benchmark] = number
    for rating in (rating for rating in ratings if rating.method in METHODS):
        mean = rating.rating
        lines[rating.model, rating.budget]["codeforces"] = Number(mean.mean, mean.low, mean.high, rating.percentile)
    return [Line(model, budget, numbers, "here") for (model, budget), numbers in lines.items()]


def notes(rows: Mapping[str, Sequence[Row]], ratings: Sequence[Rating]) -> list[str]:
    """Notes below the table."""
    sizes = "; ".join(f"{NAMES[name]}: {ours[0].benchmark}, {document.size(ours)}" for name, ours in rows.items())
    said = [f"Rows from here are of {sizes}; in brackets 95% intervals, over problems."]
    if "codeforces" in rows and not ratings:
        said.append("Codeforces is the share solved in one attempt here, and a rating with its percentile elsewhere.")
    elif ratings:
        contests = " or ".join(sorted({str(rating.contests) for rating in ratings}))
        said.append(f"Codeforces is a rating, with its 95% interval over {contests} contests and its percentile.")
    if left_out := sorted({name for rating in ratings for name in rating.left_out}):
        said.append(f"The standings lack these contests and problems, which do not count: {', '.join(left_out)}.")
    if unasked := {name for rating in ratings for name in rating.unasked}:
        said.append(f"Problems of these contests that were not asked ({len(unasked)}) count as not solved.")
    return said


def parse(argv: list[str] | None = None) -> tuple[argparse.Namespace, list[str]]:
    """Our own options, and those of `e1 eval`."""
    parser = argparse.ArgumentParser(prog="experiments.table1", description=__doc__, allow_abbrev=False)
    parser.add_argument("--models", nargs="+", required=True, help="checkpoint folders or Hub ids, as MODEL[@REVISION]")
    parser.add_argument("--output", type=Path, required=True, help="folder for evaluations, table and picture")
    parser.add_argument("--benchmarks", nargs="+", default=list(NAMES), choices=NAMES, help="columns; unset: all")
    parser.add_argument("--budgets", nargs="+", default=list(BUDGETS), help="unset: the paper's")
    parser.add_argument(
        "--standings", type=Path, help="the contests, as `python -m experiments.table1.elo` has written them"
    )
    arguments, shared = parser.parse_known_args(argv)
    if own := {word.partition("=")[0] for word in shared} & {"--benchmark", "--methods", "--model", "--name"}:
        parser.error(f"the table decides on {', '.join(sorted(own))}")
    return arguments, shared


def evaluate(arguments: argparse.Namespace, shared: Sequence[str]) -> None:
    """Evaluate every model on every benchmark, as far as that is missing."""
    for benchmark, model in product(arguments.benchmarks, arguments.models):
        line = [sys.executable, "-m", "e1_trl.cli", "eval", "--model", model, "--benchmark", benchmark]
        line += ["--output", str(folder_of(arguments.output, benchmark, model))]
        line += ["--budgets", *arguments.budgets, "--methods", *METHODS, *shared]
        print(f"==> {NAMES[benchmark]}: {model}", flush=True)
        if subprocess.run(line, check=False).returncode:
            raise UserError(f"{model} on {benchmark} failed; the same command resumes")


def folder_of(output: Path, benchmark: str, model: str) -> Path:
    """Folder of a model's evaluation on a benchmark."""
    return output / benchmark / Model.parse(model).folder


def write(arguments: argparse.Namespace) -> str:
    """Write table and picture of what has been evaluated; the table.

    Raises:
        StoreError, ValueError, OSError: one line about what is missing.
    """
    standings = None if arguments.standings is None else Standings.read(arguments.standings)
    answers = {}
    for name in arguments.benchmarks:
        folders = [folder_of(arguments.output, name, model) for model in arguments.models]
        answers[name] = samples.join([samples.read(folder, samples.FIGURES) for folder in folders])
    rows = {name: [each.row for each in summarize(table)] for name, table in answers.items()}
    ratings = rate(answers["codeforces"], standings) if standings and "codeforces" in answers else []
    lines, said = measured(rows, ratings), notes(rows, ratings)
    provenance = Provenance.here(row.seed for ours in rows.values() for row in ours)
    record = {"provenance": asdict(provenance), "notes": said, "lines": [asdict(line) for line in lines]}
    text = as_markdown(lines, said, provenance)
    write_atomically(arguments.output / "table1.md", text)
    write_atomically(arguments.output / "table1.json", json.dumps(record, indent=1) + "\n")
    if "livecodebench" in rows:
        pictures.save(pictures.over_tokens(rows["livecodebench"]), arguments.output / "figure5.png")
    return text


def main(argv: list[str] | None = None) -> None:
    """Evaluate, and write the table and the picture."""
    arguments, shared = parse(argv)
    if arguments.standings is not None:
        Standings.read(arguments.standings)  # before hours of evaluation
    evaluate(arguments, shared)
    print(write(arguments))


if __name__ == "__main__":
    run_command("experiments.table1", main)
