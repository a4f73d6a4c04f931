"""An evaluation from its checked arguments to its report: sample what is missing, grade everything, and report."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from e1_trl.atomic import StoreError
from e1_trl.engines.engine import Engine
from e1_trl.evaluation.grow import completed, grow, tabulate
from e1_trl.evaluation.parallel import run_data_parallel
from e1_trl.evaluation.plan import Asked, Plan
from e1_trl.evaluation.prepare import Prepared
from e1_trl.evaluation.start import start_engine
from e1_trl.evaluation.store import Store
from e1_trl.report import document, samples
from e1_trl.report.provenance import commit

logger = logging.getLogger(__name__)

StartEngine = Callable[[Prepared, Plan, int], Engine]


def evaluate(prepared: Prepared, start: StartEngine = start_engine) -> None:
    """Answer the cells that are asked for, beside those that the folder has answered, and report on all of them.

    An engine is started if anything is missing.

    Raises:
        StoreError: the folder belongs to another evaluation, is in use, or cannot be written to.
        EngineError: the engine failed; the same command resumes.
    """
    arguments = prepared.arguments
    with Store(arguments.folder, prepared.manifest, exclusive=True) as store:
        plan = prepared.plan(_together(store.read_cells(), prepared.asked))
        saved = store.read()
        for damage in store.damaged:
            logger.warning("damaged, and put aside; what it held is sampled again: %s", damage)
        done = completed(plan, saved)
        if len(done) < len(plan.trees()) and arguments.data_parallel_size > 1:
            run_data_parallel(prepared, plan)
            done = completed(plan, store.read())
        elif len(done) < len(plan.trees()):
            grow(plan, store, saved, start(prepared, plan, sum(map(len, saved.values()))), done)
        plan = replace(plan, asked=[replace(asked, commit=asked.commit or commit()) for asked in plan.asked])
        store.write_cells(plan.asked)
        store.compact()
    with prepared.grader as grader:
        table = samples.grade(tabulate(prepared, plan, done), grader, prepared.accepted_answers)
    samples.write(table, arguments.folder)
    report = document.Report.of(table)
    files = document.write(report, arguments.folder)
    document.show(report.rows)
    print(f"wrote {', '.join(map(str, files))}")


def _together(answered: Sequence[Asked], wanted: Sequence[Asked]) -> list[Asked]:
    """What the folder has answered and is not asked for, then what is; of a cell that is both, whichever has more.

    Raises:
        StoreError: each has problems or samples that the other has not.
    """
    before = {asked.cell: asked for asked in answered}
    new = []
    for asked in wanted:
        old = before.pop(asked.cell, asked)
        if not old.covers(asked) and not asked.covers(old):
            raise StoreError(
                f"{asked.cell} is there for {old.problems} problems with {old.samples} samples, and asked for "
                f"{asked.problems} with {asked.samples}; ask for at least as many of both, or name another folder"
            )
        new.append(old if old.covers(asked) else asked)
    return [*before.values(), *new]
