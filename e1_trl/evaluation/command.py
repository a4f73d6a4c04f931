"""`e1 eval`: evaluate models at every thinking budget, and report on them. Imports engines when one is needed."""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from e1_trl.evaluation.arguments import EvaluationArguments, parse
from e1_trl.problems.trials import Trials, describe_prompt

if TYPE_CHECKING:
    from e1_trl.evaluation.prepare import Prepared


def main(argv: Sequence[str]) -> None:
    arguments = parse(argv)
    if len(arguments.model) > 1:
        return evaluate_each(arguments, argv)
    from e1_trl.evaluation.evaluate import evaluate
    from e1_trl.evaluation.prepare import prepare

    prepared = prepare(arguments)
    if arguments.dry_run:
        return show(prepared)
    evaluate(prepared, command=shlex.join(["e1", "eval", *argv]))


def show(prepared: "Prepared") -> None:
    """Print the first prompt, and how its answers are graded; raise a `UserError` where they are graded wrongly."""
    kind = prepared.arguments.answer_type
    plan = prepared.plan
    asked = [each.index for each in plan.problems if each.index < plan.goals[0].problems]
    with prepared.grader as grader:
        trials = Trials.run(prepared.rows.select(asked), kind, grader)
    setting = plan.setting
    prompt = describe_prompt(setting.decode, plan.problems[0].prompts(""), setting.close.marker, kind)
    print("\n".join([*prompt, *trials.describe()]), flush=True)
    trials.check()


def evaluate_each(arguments: EvaluationArguments, argv: Sequence[str]) -> None:
    """Evaluate every model into a folder of its own, then report on all of them.

    Each has a process of its own, since an engine does not give its memory back.
    """
    assert arguments.output is not None
    folders = []
    for model in arguments.models:
        folders.append(str(arguments.output / model.folder))
        print(f"==> evaluating {model}, {folders[-1]}", flush=True)
        own = ["--model", str(model), "--output", folders[-1]]
        if subprocess.run([sys.executable, "-m", "e1_trl.cli", "eval", *argv, *own], check=False).returncode:
            sys.exit(f"e1 eval: the evaluation of {model} failed; the same command resumes")
    if arguments.dry_run:
        return
    from e1_trl.report.command import main as report

    report([*folders, "--output", str(arguments.output), "--page_problems", str(arguments.page_problems)])
