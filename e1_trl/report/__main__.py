"""Reports on finished evaluations, together if there are several: table, report.md, results.json and pictures.

    python -m e1_trl.report runs/evaluations/base runs/evaluations/e1 --output runs/compare

Everything is computed from the table of answers in each folder; `--regrade` grades the answers anew first, and samples
nothing. To publish, name the report, and the rows that a document shows:

    python -m e1_trl.report runs/nano/evaluation/{base,e1} --output docs/results --name nano \
        --document docs/nano.md --section nano --rows "base separate 64+32" "e1 separate 64+32"
"""

import argparse
import shlex
import sys
from pathlib import Path

from e1_trl.errors import run_command


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line, `sys.argv` if `argv` is None."""
    parser = argparse.ArgumentParser(
        prog="e1 report", description="Report on finished evaluations, together if there are several."
    )
    parser.add_argument("folders", type=Path, nargs="+", help="folders of finished evaluations")
    parser.add_argument("--output", type=Path, help="folder for the report; unset: the first of the folders")
    parser.add_argument("--name", help="NAME.md, NAME.json, NAME-budget.png … instead of report.md, results.json …")
    parser.add_argument("--document", type=Path, help="Markdown file whose section SECTION becomes the table of ROWS")
    parser.add_argument("--section", help="what stands between the lines <!-- SECTION --> and <!-- /SECTION -->")
    parser.add_argument("--rows", nargs="+", default=[], help='each "MODEL METHOD BUDGET"; unset: all rows')
    parser.add_argument("--regrade", action="store_true", help="grade all answers anew, without sampling anything")
    parser.add_argument("--grading_time_limit", type=float, default=5.0, help="seconds after which grading is killed")
    parser.add_argument("--grading_workers", type=int, default=1, help="processes that grade")
    parser.add_argument(
        "--page_problems", type=int, default=200, help="problems shown whole on the page, at most; 0: no page"
    )
    parser.add_argument("--training", type=Path, help="output_dir of a run, to show and write its curve")
    arguments = parser.parse_args(argv)
    if (arguments.document is None) != (arguments.section is None):
        parser.error("--document and --section go together")
    if arguments.page_problems < 0:
        parser.error("--page_problems must be 0 or more")
    return arguments


def report(arguments: argparse.Namespace, command: str) -> None:
    """Read, grade if asked to, and write; `command` is what was called.

    Raises:
        UserError: one line about what is wrong.
    """
    # Libraries of seconds: not for reading the command line.
    from e1_trl.answers.arguments import GradingArguments
    from e1_trl.answers.kinds import make_grader
    from e1_trl.report import document, page, samples
    from e1_trl.report.markdown import around_section, replace_section
    from e1_trl.report.tables import accuracies
    from e1_trl.report.training_log import TrainingLog

    if arguments.document is not None:
        around_section(arguments.document, arguments.section)  # raises before anything is written
    for folder in arguments.folders if arguments.regrade else ():
        kind = str(samples.read(folder, ["grader"])["grader"].iloc[0])
        grading = GradingArguments(grader=kind, grading_time_limit=arguments.grading_time_limit)
        with make_grader(grading, arguments.grading_workers) as grader:
            samples.regrade(folder, grader)
    tables = [samples.read(folder, samples.FIGURES) for folder in arguments.folders]
    answers = samples.join(tables)
    made = document.Report.of(answers)
    shown = document.chosen(made.rows, arguments.rows) if arguments.rows else made.rows
    output = arguments.output or arguments.folders[0]
    texts = [(str(own["model"].iloc[0]), folder) for own, folder in zip(tables, arguments.folders, strict=True)]
    log = None if arguments.training is None else TrainingLog.read(arguments.training)
    html = page.make(made, answers, texts, arguments.page_problems, command, log)
    files = document.write(made, output, arguments.name)
    files += page.write(html, output / f"{arguments.name or 'report'}.html")
    if log is not None:
        files += log.write(output, f"{arguments.name}-training" if arguments.name else "training")
    if arguments.document is not None:
        replace_section(arguments.document, arguments.section, accuracies(shown).markdown)
    document.show(made)
    print(f"wrote {', '.join(file.name for file in files)} to {output}")


def main(argv: list[str] | None = None) -> None:
    arguments = parse(argv)
    report(arguments, shlex.join(["e1", "report", *(sys.argv[1:] if argv is None else argv)]))


if __name__ == "__main__":
    run_command("e1 report", main)
