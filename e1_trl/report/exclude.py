"""`e1 exclude`: write the problems that a model never or always solves to a file, for a recipe's field `exclude`.

    e1 exclude runs/DeepScaleR/rates --budget 1024+1024 --output runs/DeepScaleR/exclude.jsonl

In GRPO an advantage is a reward minus the mean of its group: a group that is all right or all wrong has none, and costs
as much as any other. Rates of few answers are guesses: a problem never solved in eight may be solved once in ten. Each
line of the file is JSON: `id`, `problem`, `rate`.
"""

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
ANSWERS = 8  # default of the graded answers that a problem needs to be left out
SELDOM = 0.1  # share of right answers, for which the chance of never being right is printed
KEY = "[0-9a-f]{16}"  # form of `problems.prompts.identity`
# Conditions that the training should share with the evaluation.
SAMPLED = ["instruction", "chat_template_kwargs", "temperature", "top_p", "top_k", "min_p", "logit_bias", "marker"]
SAMPLED += ["forced_text"]


def make_parser() -> CommandParser:
    """Make the parser of `e1 exclude`."""
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


def rates(answers: "pd.DataFrame", budget: Budget) -> "pd.DataFrame":
    """Compute the share of right answers of each problem under separate budgets.

    Returns:
        By the problem's key: `prompt`, `rate` from 0 to 1, and the number of graded `answers`. Problems without graded
        answers are left out.

    Raises:
        UserError: the answers (with `COLUMNS`) are of several models, of other budgets, or of unnamed problems.
    """
    from e1_trl.answers.grade import Outcome
    from e1_trl.report import samples
    from e1_trl.report.rows import REFERENCE

    if len(models := answers["model"].unique()) > 1:
        raise UserError(
            f"the answers are of several models ({', '.join(models)}), and rates must be of one; name the evaluations "
            "of one model, under one --name"
        )
    separate = answers[answers["method"] == REFERENCE]
    by_budget = separate.groupby(["thinking_budget", "solution_budget"], sort=False, dropna=False)
    own = {str(samples.budget_of(found.iloc[0])): found for _, found in by_budget}
    if str(budget) not in own:
        raise UserError(
            f"there are no answers of {REFERENCE} {budget}, only under {', '.join(own) or 'other methods'}; run the "
            f"`e1 eval` that sampled them with --methods {REFERENCE} --budgets {budget}"
        )
    graded = own[str(budget)][lambda found: found["outcome"] != Outcome.UNGRADED]
    if not graded["problem_id"].fillna("").str.fullmatch(KEY).all():
        raise UserError(
            "the answers do not say to which problems they belong; run the `e1 eval` of a dataset_name that sampled "
            "them again: it writes a table that does, and samples nothing"
        )
    solved = graded.assign(rate=graded["outcome"] == Outcome.CORRECT, answers=1).groupby("problem_id", sort=False)
    return solved.agg({"prompt": "first", "rate": "mean", "answers": "sum"})


def exclude(folders: list[Path], budget: Budget, output: Path, least: int) -> None:
    """Write the file, and print how the answers were sampled and how many problems are left out.

    Args:
        folders: of the evaluations.
        budget: whose answers count.
        output: the file.
        least: graded answers that a problem needs to be left out.

    Raises:
        UserError: the evaluations give no rates, or leave no problem to train on.
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
    records = ({"id": key, "problem": row.prompt.strip()[:80], "rate": row.rate} for key, row in idle.iterrows())
    text = "".join(json.dumps(record) + "\n" for record in records)
    make_folder(output.parent)
    write_atomically(output, lambda file: file.write_text(text))
    for each in shared(answers):
        print(f"{', '.join(each.models)}: {each.conditions.said(SAMPLED)}")
    print(f"{counts}; wrote {output}")
    print(
        f"with {least} answers (--min_answers), a problem that is solved {SELDOM:.0%} of the time is never solved with "
        f"a probability of {(1 - SELDOM) ** least:.0%}"
    )


def main(argv: list[str] | None = None) -> None:
    """Run `e1 exclude` with the words of `argv`, by default those of the command line."""
    arguments = make_parser().parse_args(argv)
    exclude(arguments.folders, Budget.parse(arguments.budget), arguments.output, arguments.min_answers)


if __name__ == "__main__":
    run_command("e1 exclude", main)
