"""An evaluation from its checked arguments to its report: sample what is missing, grade what is new, and report."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from e1_trl.answers.grade import Outcome
from e1_trl.atomic import StoreError
from e1_trl.budget import ThinkingClose
from e1_trl.checkout import commit
from e1_trl.engines.engine import Engine
from e1_trl.errors import UserError, one_line
from e1_trl.evaluation.prepare import Prepared
from e1_trl.evaluation.sample import is_sampled, sample_plan
from e1_trl.evaluation.sampling_plan import Goal, SamplingPlan
from e1_trl.evaluation.store import Store
from e1_trl.evaluation.tabulate import tabulate
from e1_trl.logs import write_logs
from e1_trl.report import document, page, samples

StartEngine = Callable[[ThinkingClose, int], Engine]  # the close, and how many tokens are stored


class EvaluationError(UserError):
    """An evaluation ended before its report; one line that says why, and what is stored."""


def evaluate(prepared: Prepared, start: StartEngine | None = None, command: str = "") -> None:
    """Reach the goals, beside those that the folder has reached, and report on all of them.

    An engine is started if anything is missing. Nobody else may evaluate into the folder until the report is written.

    Args:
        prepared: what is to be done.
        start: starts the engine, in place of the model's own.
        command: what was called, for the report's page.

    Raises:
        StoreError: the folder belongs to another evaluation, is in use, or cannot be written to.
        EvaluationError: something that the user can fix, or the user, ended it; the same command resumes.
        Exception: whatever else failed, with a note that says the same.
    """
    folder = prepared.arguments.folder
    with Store.open(folder, asdict(prepared.manifest)) as store:
        write_logs(folder)
        try:
            plan, sampled = _sample(prepared, store, start or prepared.model.start)
            if sampled or not _is_written(prepared, plan):
                with prepared.grader as grader:
                    parts = tabulate(plan, store, prepared.alike)
                    samples.write(samples.graded(parts, plan.answers, grader, store), folder)
            answers = samples.read(folder, samples.FIGURES)
            report = document.Report.of(answers)
            files = document.write(report, folder)
            texts, problems = [(report.rows[0].model, folder)], prepared.arguments.page_problems
            files += page.write(page.make(report, answers, texts, problems, command), folder / "report.html")
        except StoreError:  # says itself what is safe
            raise
        except (KeyboardInterrupt, UserError) as error:
            why = "interrupted" if isinstance(error, KeyboardInterrupt) else one_line(error)
            raise EvaluationError(f"{why}; {_resumable(store, folder)}") from error
        except Exception as error:
            error.add_note(_resumable(store, folder))
            raise
    document.show(report)
    print(f"wrote {', '.join(map(str, files))}")


def _resumable(store: Store, folder: Path) -> str:
    return f"segments stored in {folder}: {store.count():,}; the same command resumes"


def _is_written(prepared: Prepared, plan: SamplingPlan) -> bool:
    """Whether the table that is there has all answers, as these arguments describe them, graded by this grader."""
    try:
        table = samples.read(prepared.arguments.folder, [*prepared.alike, "graded_by", "outcome"])
    except StoreError:
        return False
    alike = {**prepared.alike, "graded_by": prepared.grader.version}
    is_alike = all((table[name] == value).all() for name, value in alike.items())
    return len(table) == plan.answers and is_alike and not (table["outcome"] == Outcome.UNGRADED).any()


def _sample(prepared: Prepared, store: Store, start: StartEngine) -> tuple[SamplingPlan, bool]:
    """Sample what is missing; returns all that has been answered then, and whether anything was missing."""
    plan = replace(prepared.plan, goals=_together(store.goals(), prepared.plan.goals))
    if missing := not is_sampled(plan, store):
        sample_plan(plan, store, start(plan.close, store.tokens()))
    plan = replace(plan, goals=[replace(goal, commit=goal.commit or commit()) for goal in plan.goals])
    store.bind()
    store.reach(plan.goals)
    return plan, missing


def _together(reached: Sequence[Goal], wanted: Sequence[Goal]) -> list[Goal]:
    """What the folder has answered, then what else is wanted; of a cell that is both, whichever has more.

    Raises:
        StoreError: each has problems or samples that the other has not.
    """
    goals = {goal.cell: goal for goal in reached}
    for goal in wanted:
        old = goals.get(goal.cell, goal)
        if not old.covers(goal) and not goal.covers(old):
            raise StoreError(
                f"{goal.cell} is there for {old.problems} problems with {old.samples} samples, and asked for "
                f"{goal.problems} with {goal.samples}; ask for at least as many of both, or name another folder"
            )
        goals[goal.cell] = old if old.covers(goal) else goal
    return list(goals.values())
