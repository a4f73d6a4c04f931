"""`e1 card`: put measured results into the card of a trained model, and upload the card.

The card gets the accuracy at every budget, as a table and a picture for each evaluation; `budget.json` gets the same
for programs. Results of other weights than the folder's are refused, and so is a repository with other weights.
"""

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from e1_trl.arguments import Natural
from e1_trl.command_line import CommandParser
from e1_trl.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

# What makes another model of one; other arguments of an engine change its speed.
CHANGING = ["logit_bias", "quantization", "kv_cache_dtype", "hf_overrides", "logits_processors", "load_format"]
CHANGING += ["hf_config_path", "quantization_config", "model_class_overrides"]


def make_parser() -> CommandParser:
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
    problems = "Most problems shown on the page, with answers. Default: 200, or none if they are local files."
    add("--page_problems", hint=Natural, help=problems)
    return made


def main(argv: Sequence[str]) -> None:
    arguments = make_parser().parse_args(argv)
    # These take seconds to import, which `--help` should not wait for.
    from e1_trl.checkpoints import hub, model_card
    from e1_trl.checkpoints.budget_file import FILE, BudgetInfo, Point
    from e1_trl.report import document, page
    from e1_trl.report.rows import REFERENCE

    folder = arguments.checkpoint
    name = arguments.name or arguments.push or str(folder)
    trained = BudgetInfo.read(folder / FILE)
    model_card.BaseModel.read(folder)  # both raise before anything is written
    measured = check(folder, arguments.results, name)
    if arguments.push:
        hub.check_weights(folder, arguments.push, arguments.revision)
    curve: list[Point] = []
    written = []
    for benchmark, (result, answers) in measured.items():
        report = document.Report.of(answers)
        most = arguments.page_problems
        if most is None:
            most = 0 if report.conditions[0].conditions.local else page.PROBLEMS
        written.append((benchmark, report, page.make(report, answers, [(name, result)], most)))
        # The budgets as in the training, and none; all rows where an evaluation has neither.
        rows = [row for row in report.rows if row.method in (REFERENCE, "unconstrained")] or report.rows
        curve += [Point(**{each.name: getattr(row, each.name) for each in fields(Point)}) for row in rows]
    if measured:
        replace(trained, curve=tuple(curve)).write(folder)
        model_card.remove_results(folder)
    for benchmark, report, html in written:
        file = folder / f"{model_card.RESULTS}{benchmark}.html"
        document.write(report, file.parent, file.stem)
        page.write(html, file)
    model_card.write(folder, name, arguments.revision)
    print(f"wrote {folder / model_card.README}")
    if arguments.push:
        print(f"uploaded it: {hub.push(folder, arguments.push, arguments.revision, card_only=True)}")


def check(folder: Path, results: Sequence[Path], name: str) -> "dict[str, tuple[Path, pd.DataFrame]]":
    """Read evaluations of the model in a folder; return each folder with its answers, by benchmark, under a name.

    Raises a `UserError` if an evaluation is of other or changed weights, or two are on one benchmark.
    """
    from e1_trl.checkpoints.checkpoint import Checkpoint
    from e1_trl.report import samples

    own = Checkpoint.find(str(folder), None).fingerprint()
    found: dict[str, tuple[Path, pd.DataFrame]] = {}
    for result in results:
        answers = samples.read(result, samples.FIGURES)
        run = json.loads((result / samples.FACTS).read_text())
        if run["model"] != own or run["thinking_from"] is not None:
            raise UserError(
                f"{result} is not an evaluation of the weights in {folder}: it is of {run['model']}, and they are "
                f"{own}; evaluate that folder itself"
            )
        if changed := [name for name in CHANGING if (run["engine"] | run).get(name)]:
            raise UserError(f"{result} was sampled with {', '.join(changed)}, not from the model as it is")
        benchmark = str(answers["benchmark"].iloc[0])
        if benchmark in found:
            raise UserError(f"{result} is a second evaluation on {benchmark}; name one of them")
        found[benchmark] = (result, answers.assign(model=name))
    return found
