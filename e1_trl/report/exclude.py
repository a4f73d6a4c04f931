"""`e1 exclude`: which problems a model never or always solves, as a file that a recipe's `exclude` leaves out.

    e1 exclude runs/DeepScaleR/rates --budget 1024+1024 --output runs/DeepScaleR/exclude.jsonl

In GRPO an advantage is a reward less the mean of its group: where none or all of a group are right there is none, and
the group costs as much as any other. Each line of the file is JSON: `id`, `problem`, `rate`.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from e1_trl.atomic import StoreError, write_atomically
from e1_trl.budget import Budget
from e1_trl.command_line import CommandParser
from e1_trl.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ["model", "conditions", "method", "thinking_budget", "solution_budget"]
COLUMNS += ["problem", "problem_id", "prompt", "outcome"]
KEY = "[0-9a-f]{16}"  # of `problems.selection.identity`
# What a training should share with the evaluation.
SAMPLED = ["instruction", "chat_template_kwargs", "temperature", "top_p", "top_k", "min_p", "marker", "forced_text"]


def make_parser() -> CommandParser:
    """The options of `e1 exclude`."""
    made = CommandParser(
        "e1 exclude",
        "FOLDER [FOLDER …] --budget THINKING+SOLUTION --output FILE",
        "Write which training problems a model never or always solves, for the field `exclude` of a recipe:\n\n"
        "  e1 exclude runs/rates --budget 1024+1024 --output runs/exclude.jsonl",
    )
    add = made.add_argument
    folders = "Folders of finished evaluations of the training problems, which count together."
    add("folders", metavar="FOLDER", hint=list[Path], nargs="+", help=folders)
    add("--budget", metavar="THINKING+SOLUTION", required=True, help="Budget of the training in tokens, as 1024+1024.")
    add("--output", metavar="FILE", hint=Path, required=True, help="File to write, as JSON lines.")
    return made


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line, `sys.argv` if `argv` is None."""
    return make_parser().parse_args(argv)


def rates(answers: "pd.DataFrame", budget: Budget) -> "pd.DataFrame":
    """How often each problem was solved with separate budgets: its `prompt` and its `rate`, from 0 to 1, by its key.

    A rate is the share of right answers among those that were graded; a problem without any has none.

    Raises:
        UserError: one line about why the answers, with `COLUMNS`, tell no rates.
    """
    from e1_trl.answers.grade import Outcome
    from e1_trl.report import samples
    from e1_trl.report.rows import REFERENCE

    separate = answers[answers["method"] == REFERENCE]
    by_budget = separate.groupby(["thinking_budget", "solution_budget"], sort=False, dropna=False)
    own = {str(samples.budget_of(found.iloc[0])): found for _, found in by_budget}
    if str(budget) not in own:
        raise UserError(
            f"there are no answers of {REFERENCE} {budget}, only under {', '.join(own) or 'other methods'}; the "
            f"`e1 eval` that sampled them adds some with --methods {REFERENCE} --budgets {budget}"
        )
    graded = own[str(budget)][lambda found: found["outcome"] != Outcome.UNGRADED]
    if not graded["problem_id"].fillna("").str.fullmatch(KEY).all():
        raise UserError(
            "the answers do not say which problems they are to; the `e1 eval` of a dataset_name that sampled them, run "
            "again, makes a table that does, and samples nothing"
        )
    if not graded.duplicated(["problem_id", "problem"]).any():
        raise UserError("no problem has two graded answers, and one tells no rate; evaluate with --samples 8")
    solved = graded.assign(rate=graded["outcome"] == Outcome.CORRECT).groupby("problem_id", sort=False)
    return solved.agg({"prompt": "first", "rate": "mean"})


def exclude(folders: list[Path], budget: Budget, output: Path) -> None:
    """Read the evaluations, say how they were sampled, and write the file.

    Raises:
        StoreError, ValueError, OSError: one line about what is wrong.
    """
    import pandas as pd

    from e1_trl.report import samples
    from e1_trl.report.conditions import shared

    answers = pd.concat([samples.read(folder, COLUMNS) for folder in folders], ignore_index=True)
    solved = rates(answers, budget)
    idle = solved[solved["rate"].isin([0, 1])]
    never = int((idle["rate"] == 0).sum())
    counts = f"of {len(solved):,} problems {never:,} were never solved and {len(idle) - never:,} always"
    if len(idle) == len(solved):
        raise UserError(f"{counts}, so none is left to train on; evaluate with more --samples, or on other problems")
    lines = [
        json.dumps({"id": id, "problem": row.prompt.strip()[:80], "rate": row.rate}) for id, row in idle.iterrows()
    ]
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, lambda file: file.write_text("\n".join([*lines, ""])))
    for each in shared(answers):
        print(f"{', '.join(each.models)}: {each.conditions.said(SAMPLED)}")
    print(f"{counts}; wrote {output}")


def main(argv: list[str] | None = None) -> None:
    arguments = parse(argv)
    try:
        exclude(arguments.folders, Budget.parse(arguments.budget), arguments.output)
    except (StoreError, ValueError, OSError) as error:
        sys.exit(f"e1 exclude: {error}")


if __name__ == "__main__":
    main()
