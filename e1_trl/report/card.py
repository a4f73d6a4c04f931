"""Puts what was measured of a trained model into its card, and uploads that.

    e1 card runs/E1-Math-1.5B --results runs/evaluations/*E1-Math-1.5B* --push ORG/E1-Math-1.5B

The card gets the accuracy at every budget, as a table and a picture for each evaluation, and `budget.json` the same for
programs. Numbers of other weights than those in the folder are refused, and so is a repository that holds others.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from e1_trl.arguments import Natural
from e1_trl.command_line import CommandParser
from e1_trl.errors import UserError, run_command

if TYPE_CHECKING:
    import pandas as pd

    from e1_trl.checkpoints.budget_file import Point
    from e1_trl.report.document import Report


def make_parser() -> CommandParser:
    """The options of `e1 card`."""
    made = CommandParser(
        "e1 card",
        "CHECKPOINT [OPTIONS]",
        "Add the measured results of a trained model to its card, and upload the card:\n\n"
        "  e1 card runs/my-model --results runs/evaluations/*my-model* --push ORG/MODEL",
    )
    add = made.add_argument
    add("checkpoint", metavar="CHECKPOINT", hint=Path, help="Folder of a model that e1_trl has trained.")
    results = "Folders of the model's finished evaluations. Default: the card keeps the results that it has."
    add("--results", metavar="FOLDER", hint=list[Path], nargs="+", default=[], help=results)
    add("--name", help="Name of the model in the card. Default: the repository, else the folder.")
    add("--push", metavar="REPOSITORY", help="Upload the card to this repository of the model on the Hub.")
    add("--revision", help="Branch of that repository. Default: main.")
    problems = "Most problems shown on the page, with answers. Default: 200, and none where they are local files."
    add("--page_problems", hint=Natural, help=problems)
    return made


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line, `sys.argv` if `argv` is None."""
    return make_parser().parse_args(argv)


def card(arguments: argparse.Namespace) -> None:
    """Check, write, and upload if asked to.

    Raises:
        UserError: one line about what is wrong.
    """
    # Libraries of seconds: not for reading the command line.
    from e1_trl.checkpoints import hub, model_card
    from e1_trl.checkpoints.budget_file import FILE, BudgetInfo
    from e1_trl.checkpoints.origin import BaseModel
    from e1_trl.report import document, page

    folder, name = arguments.checkpoint, arguments.name or arguments.push or str(arguments.checkpoint)
    trained, _ = BudgetInfo.read(folder / FILE), BaseModel.read(folder)  # which raise before anything is written
    measured = check(folder, arguments.results, name)
    if arguments.push:
        hub.check_weights(folder, arguments.push, arguments.revision)
    if measured:
        reports = {benchmark: document.Report.of(answers) for benchmark, (_, answers) in measured.items()}
        curve = tuple(point for report in reports.values() for point in points(report))
        pages = {}
        for benchmark, (result, answers) in measured.items():
            local = reports[benchmark].conditions[0].conditions.local
            most = arguments.page_problems if arguments.page_problems is not None else 0 if local else page.PROBLEMS
            pages[benchmark] = page.make(reports[benchmark], answers, [(name, result)], most)
        replace(trained, curve=curve).write(folder)
        model_card.remove_measured(folder)
        for benchmark, html in pages.items():
            file = folder / f"{model_card.RESULTS}{benchmark}.html"
            document.write(reports[benchmark], file.parent, file.stem)
            page.write(html, file)
    model_card.write(folder, name, arguments.revision)
    print(f"wrote {folder / model_card.README}")
    if arguments.push:
        print(f"uploaded it: {hub.push(folder, arguments.push, arguments.revision, card_only=True)}")


def check(folder: Path, results: Sequence[Path], name: str) -> "dict[str, tuple[Path, pd.DataFrame]]":
    """Each evaluation and its answers, by benchmark, of the model called so.

    Raises:
        UserError: an evaluation is of other weights, or two are on one benchmark.
        StoreError: one is not finished.
    """
    from e1_trl.checkpoints.checkpoint import Checkpoint
    from e1_trl.report import samples

    own = Checkpoint.find(str(folder), None).fingerprint()
    found: dict[str, tuple[Path, pd.DataFrame]] = {}
    for result in results:
        answers = samples.read(result, samples.FIGURES)
        run = json.loads((result / "run.json").read_text())
        if run["model"] != own or run["thinking_from"] is not None:
            raise UserError(
                f"{result} is not an evaluation of the weights in {folder}: it is of {run['model']}, and they are "
                f"{own}; evaluate that folder itself"
            )
        benchmark = str(answers["benchmark"].iloc[0])
        if benchmark in found:
            raise UserError(f"{result} is a second evaluation on {benchmark}; name one of them")
        found[benchmark] = (result, answers.assign(model=name))
    return found


def points(report: "Report") -> "list[Point]":
    """What is in the card: separate budgets, as the model was trained, and no budget; all there is where neither is."""
    from e1_trl.checkpoints.budget_file import Point
    from e1_trl.report.rows import REFERENCE

    rows = [row for row in report.rows if row.method in (REFERENCE, "unconstrained")] or report.rows
    return [Point(**{each.name: getattr(row, each.name) for each in fields(Point)}) for row in rows]


def main(argv: list[str] | None = None) -> None:
    """Make the card, and upload it if asked to."""
    card(parse(argv))


if __name__ == "__main__":
    run_command("e1 card", main)
