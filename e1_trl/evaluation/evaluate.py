"""An evaluation from its checked arguments to its report: sample what is missing, grade what is new, and report."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from e1_trl.answers.grade import Outcome
from e1_trl.atomic import StoreError
from e1_trl.engines.engine import Engine
from e1_trl.evaluation.manifest import digest
from e1_trl.evaluation.parallel import run_data_parallel
from e1_trl.evaluation.plan import Asked, Plan
from e1_trl.evaluation.prepare import Prepared
from e1_trl.evaluation.sample import finished, grow, identity, tabulate, unfinished
from e1_trl.evaluation.start_engine import start_engine
from e1_trl.evaluation.store import Store
from e1_trl.provenance import commit
from e1_trl.report import document, samples

StartEngine = Callable[[Prepared, Plan, int], Engine]


class EvaluationError(Exception):
    """An evaluation ended before its report; one line that says why, and what is stored."""


def evaluate(prepared: Prepared, start: StartEngine = start_engine) -> None:
    """Answer the cells that are asked for, beside those that the folder has answered, and report on all of them.

    An engine is started if anything is missing. Nobody else may evaluate into the folder until the report is written.

    Raises:
        StoreError: the folder belongs to another evaluation, is in use, or cannot be written to.
        EvaluationError: the engine, the grader or the user ended it; the same command resumes.
        OSError: the folder cannot be made.
    """
    folder = prepared.arguments.folder
    with Store.open(folder, prepared.manifest, exclusive=True) as store:
        try:
            plan = _sample(prepared, store, start)
            _tabulate(prepared, store, plan)
            report = document.Report.of(samples.read(folder, samples.FIGURES))
            files = document.write(report, folder)
        except (KeyboardInterrupt, RuntimeError, ValueError, OSError) as error:
            why = " ".join(str(error).split()) or "interrupted"
            raise EvaluationError(
                f"{why}; segments stored in {folder}: {store.count():,}; the same command goes on"
            ) from error
    document.show(report.rows)
    print(f"wrote {', '.join(map(str, files))}")


def _sample(prepared: Prepared, store: Store, start: StartEngine) -> Plan:
    """Sample what is missing; returns the plan of all that has been answered then."""
    plan = prepared.plan(_together(store.read_cells(), prepared.asked))
    missing = unfinished(plan, store)
    if missing and prepared.arguments.data_parallel_size > 1:
        run_data_parallel(prepared, plan)
    elif missing:
        grow(plan, store, start(prepared, plan, store.count()), missing)
    plan = replace(plan, asked=[replace(asked, commit=asked.commit or commit()) for asked in plan.asked])
    store.bind()
    store.write_cells(plan.asked)
    return plan


def _tabulate(prepared: Prepared, store: Store, plan: Plan) -> None:
    """Write the table of answers, unless the one that is there is whole, and was made of the same, by the same."""
    folder, grader = prepared.arguments.folder, prepared.grader
    facts = [commit(), identity(prepared), [asdict(asked) for asked in plan.asked], store.contents()]
    made_of = {"answers": digest(json.dumps(facts)), "grader": grader.version}
    if samples.made_of(folder) != made_of or _has_ungraded(folder):
        answers = sum(len(plan.cells(problem, sample)) for problem, sample in plan.trees())
        with grader:
            parts = tabulate(prepared, plan, finished(plan, store))
            samples.write(samples.graded(parts, answers, grader, store), folder, made_of)


def _has_ungraded(folder: Path) -> bool:
    """Whether the grader itself failed on an answer of the table."""
    return bool((samples.read(folder, ["outcome"])["outcome"] == Outcome.UNGRADED).any())


def _together(answered: Sequence[Asked], wanted: Sequence[Asked]) -> list[Asked]:
    """What the folder has answered, then what else is asked for; of a cell that is both, whichever has more.

    Raises:
        StoreError: each has problems or samples that the other has not.
    """
    cells = {asked.cell: asked for asked in answered}
    for asked in wanted:
        old = cells.get(asked.cell, asked)
        if not old.covers(asked) and not asked.covers(old):
            raise StoreError(
                f"{asked.cell} is there for {old.problems} problems with {old.samples} samples, and asked for "
                f"{asked.problems} with {asked.samples}; ask for at least as many of both, or name another folder"
            )
        cells[asked.cell] = old if old.covers(asked) else asked
    return list(cells.values())
