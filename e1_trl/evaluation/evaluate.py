"""Evaluate, from checked arguments to the report: sample what is missing, grade what is new, and report."""

from pathlib import Path

from e1_trl.atomic import StoreError
from e1_trl.errors import UserError, one_line
from e1_trl.evaluation.prepare import Prepared
from e1_trl.evaluation.sample import StartEngine, reach
from e1_trl.evaluation.store import Store
from e1_trl.evaluation.tabulate import write_table
from e1_trl.logs import write_logs
from e1_trl.report import document, page


def evaluate(prepared: Prepared, start: StartEngine | None = None, command: str = "") -> None:
    """Reach the goals, beside those that the folder has reached, and report on all of them.

    An engine is started if anything is missing: by `start`, if given, in place of the model's own. Nobody else may
    evaluate into the folder until the report is written, whose page shows the `command`.

    Raises:
        StoreError: the folder belongs to another evaluation, is in use, or cannot be written to.
        UserError: something that the user can fix, or the user, ended it; the same command resumes.
        Exception: any other failure, with a note that says what is stored.
    """
    folder = prepared.arguments.folder
    with Store.open(folder, prepared.facts) as store:
        write_logs(folder)
        try:
            plan, is_new = reach(prepared.plan, store, start or prepared.model.start)
            answers = write_table(prepared, plan, store, is_new)
            report = document.Report.of(answers)
            files = document.write(report, folder)
            texts = [(report.rows[0].model, folder)]
            made = page.make(report, answers, texts, prepared.arguments.page_problems, command)
            files += page.write(made, folder / "report.html")
        except StoreError:  # its message says what is safe
            raise
        except (KeyboardInterrupt, UserError) as error:
            why = "interrupted" if isinstance(error, KeyboardInterrupt) else one_line(error)
            raise UserError(f"{why}; {_resumable(store, folder)}") from error
        except Exception as error:
            error.add_note(_resumable(store, folder))
            raise
    document.show(report)
    print(f"wrote {', '.join(map(str, files))}")


def _resumable(store: Store, folder: Path) -> str:
    return f"segments stored in {folder}: {store.count():,}; the same command resumes"
