"""An evaluation from its checked arguments to its report: sample what is missing, grade what is new, and report."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from e1_trl.answers.grade import Outcome
from e1_trl.atomic import StoreError
from e1_trl.budget import Close
from e1_trl.engines.engine import Engine
from e1_trl.errors import UserError
from e1_trl.evaluation.forest import Forest, Goal
from e1_trl.evaluation.grow import grow, is_grown
from e1_trl.evaluation.prepare import Prepared
from e1_trl.evaluation.store import Store
from e1_trl.evaluation.tabulate import tabulate
from e1_trl.provenance import commit
from e1_trl.report import document, page, samples

StartEngine = Callable[[Close, int], Engine]  # the close, and how many tokens are stored


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
        EvaluationError: the engine, the grader or the user ended it; the same command resumes.
        OSError: the folder cannot be made.
    """
    folder = prepared.arguments.folder
    with Store.open(folder, asdict(prepared.manifest)) as store:
        try:
            forest, sampled = _sample(prepared, store, start or prepared.model.start)
            if sampled or not _is_written(prepared, forest):
                with prepared.grader as grader:
                    parts = tabulate(forest, store, prepared.alike)
                    samples.write(samples.graded(parts, forest.answers, grader, store), folder)
            answers = samples.read(folder, samples.FIGURES)
            report = document.Report.of(answers)
            files = document.write(report, folder)
            texts, problems = [(report.rows[0].model, folder)], prepared.arguments.page_problems
            files += page.write(page.make(report, answers, texts, problems, command), folder / "report.html")
        except (KeyboardInterrupt, RuntimeError, ValueError, OSError) as error:
            why = " ".join(str(error).split()) or "interrupted"
            raise EvaluationError(
                f"{why}; segments stored in {folder}: {store.count():,}; the same command goes on"
            ) from error
    document.show(report)
    print(f"wrote {', '.join(map(str, files))}")


def _is_written(prepared: Prepared, forest: Forest) -> bool:
    """Whether the table that is there has all answers, as these arguments describe them, graded by this grader."""
    try:
        table = samples.read(prepared.arguments.folder, [*prepared.alike, "graded_by", "outcome"])
    except StoreError:
        return False
    alike = {**prepared.alike, "graded_by": prepared.grader.version}
    is_alike = all((table[name] == value).all() for name, value in alike.items())
    return len(table) == forest.answers and is_alike and not (table["outcome"] == Outcome.UNGRADED).any()


def _sample(prepared: Prepared, store: Store, start: StartEngine) -> tuple[Forest, bool]:
    """Sample what is missing; returns all that has been answered then, and whether anything was missing."""
    forest = replace(prepared.forest, goals=_together(store.goals(), prepared.forest.goals))
    if missing := not is_grown(forest, store):
        grow(forest, store, start(forest.close, store.tokens()))
    forest = replace(forest, goals=[replace(goal, commit=goal.commit or commit()) for goal in forest.goals])
    store.bind()
    store.reach(forest.goals)
    return forest, missing


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
