"""Evaluate, from checked arguments to the report: sample what is missing, grade what is new, and report.

`report.samples` has the columns of the table of answers.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from e1_trl.answers.grade import PASSING, Outcome
from e1_trl.atomic import StoreError
from e1_trl.errors import UserError, one_line
from e1_trl.evaluation.methods import METHODS
from e1_trl.evaluation.prepare import Prepared
from e1_trl.evaluation.sample import StartEngine, reach, trees
from e1_trl.evaluation.sampling_plan import SamplingPlan
from e1_trl.evaluation.store import Store
from e1_trl.logs import write_logs
from e1_trl.problems.load import compose
from e1_trl.problems.prompts import last_question
from e1_trl.report import document, page, samples
from e1_trl.rollout import ThinkingEnd

# Answers, and tokens of answers, after which a part of the table ends, so that a part takes megabytes only.
PART_ANSWERS = 1000
PART_TOKENS = 2**20


def evaluate(prepared: Prepared, start: StartEngine | None = None, command: str = "") -> None:
    """Reach the goals, in addition to those that the folder has reached, and report on all of them.

    If anything is missing, an engine is started, by `start` or else by the model. The folder is locked until the
    report is written; the report's page shows the `command`. Errors say what is stored.
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


def write_table(prepared: Prepared, plan: SamplingPlan, store: Store, is_new: bool) -> pd.DataFrame:
    """Write the graded table of all answers if it is missing or out of date; return its columns with figures."""
    folder = prepared.arguments.folder
    if is_new or not _is_written(prepared, plan):
        with prepared.grader as grader:
            parts = tabulate(plan, store, prepared.alike)
            samples.write(samples.graded(parts, plan.answers, grader, store), folder)
    return samples.read(folder, samples.FIGURES)


def _is_written(prepared: Prepared, plan: SamplingPlan) -> bool:
    """Return whether the table has all answers, as these arguments describe them, graded by this grader."""
    if not all(goal.cell.method in METHODS for goal in plan.goals):
        return False  # a user's method may have changed
    try:
        table = samples.read(prepared.arguments.folder, [*prepared.alike, "asked_problems", "graded_by", "outcome"])
    except StoreError:
        return False
    # Goals only grow, so a table of as many answers and problems has the same goals.
    is_whole = len(table) == plan.answers and {*table["asked_problems"]} == {goal.problems for goal in plan.goals}
    alike = {**prepared.alike, "graded_by": prepared.grader.version}
    is_alike = all((table[name] == value).all() for name, value in alike.items())
    again = (Outcome.UNGRADED,) if prepared.arguments.answer_type.faults else PASSING  # slow programs are slow again
    return is_whole and is_alike and not table["outcome"].isin(again).any()


def tabulate(plan: SamplingPlan, store: Store, alike: Mapping[str, Any]) -> Iterator[pd.DataFrame]:
    """Yield all answers in parts, not yet graded: a row each, by problem, sample and cell, with the columns `alike`."""
    decode = plan.setting.decode
    rows: list[dict[str, Any]] = []
    tokens = 0
    for problem, tree in trees(plan, store):
        for goal in plan.goals:
            cell = goal.cell
            if (completion := tree.completions.get(cell)) is None:
                continue
            tokens += len(completion.token_ids)
            after_words = cell.record.unboxed and completion.thinking_end is ThinkingEnd.FORCED
            rows.append(
                {
                    **alike,
                    "commit": goal.commit,
                    "asked_problems": goal.problems,
                    "method": cell.method,
                    "thinking_budget": cell.budget.thinking,
                    "solution_budget": cell.budget.solution,
                    "problem": problem.index,
                    "problem_id": problem.problem_id,
                    "sample": tree.sample_index,
                    "prompt": last_question(compose(problem.prompt, cell.request)),
                    "answers": problem.answers,
                    "thinking": decode(completion.parts[0]),
                    "close": decode(completion.parts[1][: completion.close_tokens]),
                    "solution": decode(completion.graded_ids, skip_special_tokens=True),
                    "free_text": decode(completion.solution_ids, skip_special_tokens=True) if after_words else None,
                    "token_ids": np.asarray(completion.token_ids, dtype=np.int32),
                    "thinking_end": completion.thinking_end.value,
                    "truncated": completion.truncated,
                    "thinking_tokens": completion.thinking_tokens,
                    "forced_tokens": completion.forced_tokens,
                    "solution_tokens": completion.solution_tokens,
                    "closes_again": plan.setting.close.marker.text in decode(completion.solution_ids),
                }
            )
        if len(rows) >= PART_ANSWERS or tokens >= PART_TOKENS:
            yield pd.DataFrame(rows)
            rows = []
            tokens = 0
    if rows:
        yield pd.DataFrame(rows)
