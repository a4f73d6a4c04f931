"""`e1 validate`: finds the problems of a recipe whose known solutions all fail their tests under our grader.

    e1 validate --config E1-Code-14B

Writes them to the file that the recipe's `exclude` names, one a line as JSON: `id`, `outcome`, `problem`. Lines there
without an outcome, and those about problems of other sets, are kept. Published sets of programs were filtered with
other comparisons, so some of their problems cannot be solved under ours. Needs no GPU and no model.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from e1_trl.answers.grade import Grader, Outcome
from e1_trl.answers.kinds import PROGRAMS, grading_workers, make_grader
from e1_trl.answers.programs.rows import SOLUTIONS, in_block, references
from e1_trl.arguments import Count, option
from e1_trl.atomic import make_folder, write_atomically
from e1_trl.command_line import CommandParser, run_command
from e1_trl.errors import UserError
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.selection import named_in
from e1_trl.recipes import resource, shipped

if TYPE_CHECKING:
    from datasets import Dataset
    from trl import DatasetMixtureConfig

    from e1_trl.training.recipe_as_run import E1ScriptArguments

BATCH = 1024  # problems


@dataclass
class ValidateArguments:
    """Arguments of the command that are not fields of the recipe."""

    GROUP: ClassVar[str] = "known solutions"

    solution_column: str = option(SOLUTIONS, "Column that holds known solutions, as a text or a list.")
    tried: Count = option(3, "Largest number of solutions that are run before a problem counts as failing.")


def make_parser() -> CommandParser:
    made = CommandParser(
        "e1 validate",
        "--config RECIPE [OPTIONS]",
        "Run a dataset's own programs on its tests, and write the problems whose programs fail, for the field\n"
        "`exclude` of a recipe. Needs no GPU and no model:\n\n"
        "  e1 validate --config E1-Code-14B",
    )
    recipe = f"Recipe of programs: a file, or one of {', '.join(shipped('recipes'))}."
    made.add_argument("--config", metavar="RECIPE", required=True, help=recipe)
    made.add_record(ValidateArguments)
    group = "data of the recipe, which options override"
    made.add_argument("--dataset_name", metavar="DATA", group=group, help="Dataset: Hub id, file or folder.")
    made.add_argument("--dataset_config", group=group, help="Configuration of the dataset on the Hub.")
    made.add_argument("--dataset_train_split", group=group, help="Split of the dataset (default: train).")
    made.add_record(ProblemArguments)
    return made


def outcomes_of(problems: "Dataset", solution_column: str, tried: int, grader: Grader) -> list[Outcome | None]:
    """Return the outcome of the first `tried` solutions of each problem: correct if one is, `None` if there is none.

    Otherwise it is ungraded if the grader failed on one, so that the problem is kept, else that of the last solution.
    """
    from tqdm import tqdm

    ended: list[Outcome | None] = []
    for batch in tqdm(problems.iter(BATCH), "Trying known solutions", -(-len(problems) // BATCH), unit="batch"):
        rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
        known = [references(row, solution_column)[:tried] for row in rows]
        outcomes: list[Outcome | None] = [None] * len(rows)
        for turn in range(tried):
            left = [i for i, each in enumerate(known) if len(each) > turn and outcomes[i] is not Outcome.CORRECT]
            if not left:
                break
            grades = grader.grade([in_block(known[i][turn]) for i in left], [rows[i]["answers"] for i in left])
            for i, grade in zip(left, grades, strict=True):
                if outcomes[i] is not Outcome.UNGRADED or grade.correct:
                    outcomes[i] = grade.outcome
        ended += outcomes
    return ended


def validate(script_args: "E1ScriptArguments", mixture: "DatasetMixtureConfig", arguments: ValidateArguments) -> None:
    """Try every problem, write those that fail next to lines of others, and print the number of each outcome."""
    from e1_trl.training.data import read_split

    column = arguments.solution_column
    if script_args.answer_type is not PROGRAMS:
        raise UserError(f"the recipe's grader is {script_args.grader!r}; only programs come with solutions to run")
    if not script_args.exclude:
        raise UserError("the recipe's `exclude` names a file to write, and is not set; pass --exclude FILE")
    file = Path(script_args.exclude)
    earlier = (
        [line for line in file.read_text().split("\n") if line.strip()] if file.exists() and named_in(file) else []
    )
    script_args.exclude = None
    mixture.test_split_size = None  # all problems are tried, whatever the seed holds out
    with make_grader(script_args, grading_workers()) as grader:
        problems = read_split(script_args, mixture, 0, True, script_args.dataset_train_split)
        if column not in (columns := problems.column_names):
            raise UserError(f"solution_column is {column!r}; it must be one of {', '.join(columns)}")
        outcomes = outcomes_of(problems, column, arguments.tried, grader)
    lines = [
        json.dumps({"id": key, "outcome": outcome, "problem": problem.strip()[:80]}) + "\n"
        for key, problem, outcome in zip(problems["key"], problems["problem"], outcomes, strict=True)
        if outcome not in (None, Outcome.CORRECT, Outcome.UNGRADED)
    ]
    tried = set(problems["key"])
    read = ((line, json.loads(line)) for line in earlier)
    kept = [f"{line}\n" for line, entry in read if "outcome" not in entry or str(entry["id"]) not in tried]
    make_folder(file.parent)
    write_atomically(file, "".join([*kept, *lines]))
    counts = Counter("no solution" if outcome is None else str(outcome) for outcome in outcomes)
    others = f", and kept {len(kept)} other lines" * bool(kept)
    print(f"{len(lines)} of {len(problems)} problems fail; wrote {file}{others}")
    print(", ".join(f"{name} {count}" for name, count in counts.most_common()))


def main(argv: Sequence[str] | None = None) -> None:
    """Validate the recipe that `argv` (default: the command line) names."""
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    parsed, _ = make_parser().parse_known_args(words)
    # Imported late: they take seconds.
    from trl import DatasetMixtureConfig

    from e1_trl.training.recipe_as_run import E1ScriptArguments, parse_recipe

    records = (E1ScriptArguments, DatasetMixtureConfig, ValidateArguments)
    words += ["--config", str(resource("recipes", parsed.config))]  # the last one counts
    # `whole=False` ignores the fields about model and training.
    script_args, mixture, arguments = parse_recipe(words, records, whole=False, prog="e1 validate")
    validate(script_args, mixture, arguments)


if __name__ == "__main__":
    run_command("e1 validate", main)
