r"""`e1 report`: report on finished evaluations together. To publish, name the report and the rows of a document:

    e1 report runs/nano/evaluation/{base,e1} --output docs/results --name nano \
        --document docs/nano.md --section nano --rows "base separate 64+32" "e1 separate 64+32"
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from e1_trl.arguments import Natural
from e1_trl.command_line import CommandParser
from e1_trl.errors import UserError


def make_parser() -> CommandParser:
    made = CommandParser(
        "e1 report",
        "FOLDER [FOLDER …] [OPTIONS]",
        "Report on finished evaluations, together if there are several: a table, results.json, pictures and a page.\n"
        "Nothing is sampled:\n\n"
        "  e1 report runs/evaluations/base runs/evaluations/e1 --output runs/compare",
    )
    add = made.add_argument
    add("folders", metavar="FOLDER", hint=list[Path], nargs="+", help="Folders of finished evaluations.")
    add("--output", hint=Path, help="Folder for the report. Default: the first of the folders.")
    add("--training", hint=Path, help="Output folder of a training, to show and write its curve as well.")
    add("--page_problems", hint=Natural, default=200, help="Most problems shown on the page; 0 makes no page.")
    add("--regrade", action="store_true", help="Grade all answers again, within the evaluation's time limit.")
    group = "publishing"
    add("--name", group=group, help="Write NAME.md, NAME.json, NAME-budget.png … in place of report.md, results.json …")
    add("--document", hint=Path, group=group, help="Markdown file that gets the table of ROWS in its section SECTION.")
    add("--section", group=group, help="Name of the lines <!-- SECTION --> and <!-- /SECTION --> in DOCUMENT.")
    rows = 'Rows of that table, each as "MODEL METHOD BUDGET". Default: all rows.'
    add("--rows", hint=list[str], nargs="+", default=[], group=group, help=rows)
    return made


def main(argv: Sequence[str]) -> None:
    arguments = make_parser().parse_args(argv)
    if (arguments.document is None) != (arguments.section is None):
        raise UserError("--document and --section go together")
    # These take seconds to import, which `--help` should not wait for.
    from e1_trl.report import document, page, samples
    from e1_trl.report.markdown import around_section, replace_section
    from e1_trl.report.tables import accuracies
    from e1_trl.report.training_log import TrainingLog

    if arguments.document is not None:
        around_section(arguments.document, arguments.section)  # raises before anything is written
    if arguments.regrade:
        regrade(arguments.folders)
    tables = [samples.read(folder, samples.FIGURES) for folder in arguments.folders]
    names = [str(own["model"].iloc[0]) for own in tables]
    check_weights(dict(zip(arguments.folders, names, strict=True)))
    answers = samples.join(tables)
    made = document.Report.of(answers)
    shown = document.choose(made.rows, arguments.rows) if arguments.rows else made.rows
    output = arguments.output or arguments.folders[0]
    texts = list(zip(names, arguments.folders, strict=True))
    log = None if arguments.training is None else TrainingLog.read(arguments.training)
    command = shlex.join(["e1", "report", *argv])
    html = page.make(made, answers, texts, arguments.page_problems, command, log)
    files = document.write(made, output, arguments.name)
    files += page.write(html, output / f"{arguments.name or 'report'}.html")
    if log is not None:
        files += log.write(output, f"{arguments.name}-training" if arguments.name else "training")
    if arguments.document is not None:
        replace_section(arguments.document, arguments.section, accuracies(shown).markdown)
    document.show(made)
    print(f"wrote {', '.join(file.name for file in files)} to {output}")


def check_weights(names: Mapping[Path, str]) -> None:
    """Raise a `UserError` if the evaluations in two folders name different weights, or models of servers, alike."""
    from e1_trl.report.samples import FACTS

    known: dict[tuple[str, str], tuple[str, Path]] = {}
    for folder, name in names.items():
        if (file := folder / FACTS).exists():
            served, _, weights = str(json.loads(file.read_text()).get("model")).rpartition(", ")
            for what, own in (("weights", weights), ("names at a server", served)):
                others, first = known.setdefault((name, what), (own, folder)) if own else (own, folder)
                if own != others:
                    raise UserError(
                        f"{first} and {folder} have different {what}, and both call their model {name!r}; evaluate "
                        "one with another --name, or leave it out"
                    )


def regrade(folders: Sequence[Path]) -> None:
    from e1_trl.answers.arguments import GradingArguments
    from e1_trl.answers.kinds import grading_workers, make_grader
    from e1_trl.atomic import locked
    from e1_trl.report import samples
    from e1_trl.report.conditions import Conditions

    for folder in folders:
        first = samples.read(folder, ["grader", "conditions"]).iloc[0]
        limit = Conditions.from_text(first["conditions"]).grading_time_limit or GradingArguments.grading_time_limit
        grading = GradingArguments(grader=first["grader"], grading_time_limit=limit)
        with locked(folder), make_grader(grading, grading_workers()) as grader:
            samples.regrade(folder, grader)
