"""`e1 exclude`: which problems a model never or always solves, as a file that a recipe's `exclude` leaves out.

    e1 exclude runs/DeepScaleR/rates --budget 1024+1024 --output runs/DeepScaleR/exclude.jsonl

In GRPO an advantage is a reward less the mean of its group: where none or all of a group are right there is none, and
the group costs as much as any other. A rate of a few answers is a guess: what was never solved in eight may be solved
once in ten. Each line of the file is JSON: `id`, `problem`, `rate`.
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from e1_trl.arguments import Within
from e1_trl.atomic import make_folder, write_atomically
from e1_trl.budget import Budget
from e1_trl.command_line import CommandParser
from e1_trl.errors import UserError, run_command

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ["model", "conditions", "method", "thinking_budget", "solution_budget"]
COLUMNS += ["problem", "problem_id", "prompt", "outcome"]
ANSWERS = 8  # graded, to a problem, before it may be left out
SELDOM = 0.1  # how often a problem is solved of which the chance of being left out is told
KEY = "[0-9a-f]{16}"  # of `problems.prompts.identity`
# What a training should share with the evaluation.
SAMPLED = ["instruction", "chat_template_kwargs", "temperature", "top_p", "top_k", "min_p", "logit_bias", "marker"]
SAMPLED += ["forced_text"]


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
    least = "Graded answers that a problem needs to be left out, at least 2."
    add("--min_answers", metavar="N", hint=Annotated[int, Within(2)], default=ANSWERS, help=least)
    return made


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line, `sys.argv` if `argv` is None."""
    return make_parser().parse_args(argv)


def rates(answers: "pd.DataFrame", budget: Budget) -> "pd.DataFrame":
    """How often each problem was solved with separate budgets: its `prompt`, its `rate`, from 0 to 1, by its key.

    A rate is the share of right answers among those that were graded, whose number is in `answers`; a problem without
    any has none.

    Raises:
        UserError: one line about why the answers, with `COLUMNS`, tell no rates.
    """
    from e1_trl.answers.grade import Outcome
    from e1_trl.report import samples
    from e1_trl.report.rows import REFERENCE

    if len(models := answers["model"].unique()) > 1:
        raise UserError(
            f"the answers are of several models ({', '.join(models)}), whose rates are not one model's; name the "
            "evaluations of one, under one --name"
        )
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
    correct = graded["outcome"] == Outcome.CORRECT
    solved = graded.assign(rate=correct, answers=1).groupby("problem_id", sort=False)
    return solved.agg({"prompt": "first", "rate": "mean", "answers": "sum"})


def exclude(folders: list[Path], budget: Budget, output: Path, least: int) -> None:
    """Read the evaluations, say how they were sampled, and write the file.

    Args:
        folders: of the evaluations.
        budget: whose answers count.
        output: the file.
        least: graded answers that a problem needs to be left out.

    Raises:
        UserError: one line about what is wrong.
    """
    import pandas as pd

    from e1_trl.report import samples
    from e1_trl.report.conditions import shared

    answers = pd.concat([samples.read(folder, COLUMNS) for folder in folders], ignore_index=True)
    solved = rates(answers, budget)
    enough = solved[solved["answers"] >= least]
    if enough.empty:
        raise UserError(
            f"no problem has {least} graded answers, the most have {solved['answers'].max()}; evaluate with --samples "
            f"{least}, or lower --min_answers"
        )
    idle = enough[enough["rate"].isin([0, 1])]
    never = int((idle["rate"] == 0).sum())
    counts = f"of {len(solved):,} problems {never:,} were never solved and {len(idle) - never:,} always"
    if few := len(solved) - len(enough):
        counts += f"; {few:,} with fewer than {least} graded answers stay"
    if len(idle) == len(solved):
        raise UserError(f"{counts}, so none is left to train on; evaluate with more --samples, or on other problems")
    lines = [
        json.dumps({"id": id, "problem": row.prompt.strip()[:80], "rate": row.rate}) for id, row in idle.iterrows()
    ]
    make_folder(output.parent)
    write_atomically(output, lambda file: file.write_text("\n".join([*lines, ""])))
    for each in shared(answers):
        print(f"{', '.join(each.models)}: {each.conditions.said(SAMPLED)}")
    print(f"{counts}; wrote {output}")
    print(
        f"with {least} answers (--min_answers), a problem that is solved {SELDOM:.0%} of the time is never solved with "
        f"a probability of {(1 - SELDOM) ** least:.0%}"
    )


def main(argv: list[str] | None = None) -> None:
    arguments = parse(argv)
    exclude(arguments.folders, Budget.parse(arguments.budget), arguments.output, arguments.min_answers)


if __name__ == "__main__":
    run_command("e1 exclude", main)
