"""The page of a report: one HTML file with curves, tables and the answers behind them, which needs no network.

`page.jinja` is its text, `page.css` its style and `page.js` what moves. What a model has written is only ever data: it
is compressed, a problem at a time, and put into text nodes.
"""

import json
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from e1_trl.answers.kinds import kind_of
from e1_trl.atomic import write_atomically
from e1_trl.report import conditions, document, pictures, samples
from e1_trl.report.document import Report
from e1_trl.report.rows import REFERENCE, became
from e1_trl.report.samples import budget_of
from e1_trl.report.stopping import PLACE
from e1_trl.report.training_log import TrainingLog, rollouts
from e1_trl.rollout import ThinkingEnd

PROBLEMS = 200
MODELS = 2  # side by side
CHARACTERS = 16_000  # of one text, some 4,000 tokens
TEXT_BYTES = 2_400_000  # of all texts, compressed
STEPS, ROLLOUTS = 20, 16  # of a training, and of each of its steps
SHARED = (REFERENCE, "unconstrained", "truncation")  # methods whose thoughts are the beginnings of one
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
TEMPLATES = Path(__file__).parent
BUDGET = ["thinking_budget", "solution_budget"]
Place = tuple[int, int]  # problem and sample


def write(
    report: Report,
    answers: pd.DataFrame,
    texts: Sequence[tuple[str, Path]],
    file: Path,
    problems: int = PROBLEMS,
    command: str = "",
    training: Path | None = None,
) -> list[Path]:
    """Write the page of a report, and return its file; neither if it is to show no problems.

    Args:
        report: what is said on it.
        answers: the figures that the report is of (`samples.FIGURES`).
        texts: the models' names, and the folders of their evaluations, which hold the texts.
        file: the page.
        problems: how many to show whole, at most; fewer if they would not fit.
        command: what makes the page, for whoever wants to make it again.
        training: the `output_dir` of the run that made a model, whose curve and rollouts are shown.

    Raises:
        StoreError: it cannot be written, or an evaluation cannot be read.
        ValueError: the run has left no log.
    """
    if problems == 0:
        return []
    models = pictures.models_of(report.rows)
    shown = answers[answers["model"].isin(models[:MODELS])]
    shown = shown.assign(became=became(shown), budget=[str(budget_of(row)) for _, row in shown[BUDGET].iterrows()])
    places = chosen(shown, problems)
    data, used = _data(shown, _texts([each for each in texts if each[0] in models[:MODELS]], places), places)
    log = None if training is None else TrainingLog.read(training)
    kept = [] if training is None else rollouts(training, STEPS, ROLLOUTS)
    data["steps"] = [{"step": step, "texts": _packed(texts)} for step, texts in kept]
    script = (TEMPLATES / "page.js").read_text()
    text = (
        _environment()
        .get_template("page.jinja")
        .render(
            title=document.title(report.rows),
            size=document.size(report.rows),
            provenance=document.made(report),
            conditions=[line for line in conditions.as_markdown(report.conditions).splitlines() if line],
            command=command,
            items=used,
            selection=_selection(used, shown, models),
            curves={
                document.PICTURES[name]: pictures.as_svg(figure) for name, figure in document.curves(report).items()
            },
            tables=document.tables_of(report),
            training=None if log is None else pictures.as_svg(log.draw()),
            steps=bool(kept),
            style=(TEMPLATES / "page.css").read_text(),
            script=script,
            script_hash=b64encode(sha256(script.encode()).digest()).decode(),
            data=json.dumps(data).replace("<", "\\u003c"),
        )
    )
    write_atomically(file, lambda path: path.write_text(text, encoding="utf-8"))
    return [file]


def _environment() -> Environment:
    return Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)


def chosen(answers: pd.DataFrame, most: int) -> list[Place]:
    """Problems and samples to show, so that every pattern of outcomes over models, methods and budgets has its share.

    Of each pattern the first, then of each the second, the rarer patterns before, until there are `most`.
    """
    ordered = answers.sort_values([*PLACE, "model", "method", *BUDGET])
    patterns = ordered.groupby(PLACE)["became"].agg("|".join).reset_index()
    own = patterns.groupby("became")["became"]
    patterns = patterns.assign(rank=own.cumcount(), size=own.transform("size"))
    first = patterns.sort_values(["rank", "size", *PLACE]).head(most)
    return [(int(problem), int(sample)) for problem, sample in first[PLACE].itertuples(index=False)]


def _texts(evaluations: Sequence[tuple[str, Path]], places: Sequence[Place]) -> dict[Place, pd.DataFrame]:
    """All answers to what was chosen."""
    columns = [*samples.FIGURES, "prompt", "thinking", "close", "solution"]
    where = [("problem", "in", sorted({problem for problem, _ in places}))]
    tables = [samples.read(folder, columns, where).assign(model=name) for name, folder in evaluations]
    groups = pd.concat(tables, ignore_index=True).groupby(PLACE)
    return {(int(problem), int(sample)): own for (problem, sample), own in groups}


def _data(
    answers: pd.DataFrame, texts: Mapping[Place, pd.DataFrame], places: Sequence[Place]
) -> tuple[dict[str, Any], int]:
    """What the page's script reads, and how many of the places fit into it."""
    models = list(dict.fromkeys(answers["model"]))
    cells = answers[["method", "budget", "thinking_budget"]].drop_duplicates(["method", "budget"])
    names = list(cells[["method", "budget"]].itertuples(index=False, name=None))
    outcomes = list(dict.fromkeys(["correct", "wrong", *answers["became"]]))
    wanted = answers.set_index(PLACE).sort_index()
    items, packed, spent = [], [], 0
    for place in places:
        text = _packed(_item(texts[place], models, names))
        spent += len(text)
        if spent > TEXT_BYTES:
            break
        items.append(_outcomes(place, wanted.loc[[place]], models, names, outcomes))
        packed.append(text)
    order = sorted(range(len(items)), key=lambda i: (items[i]["problem"], items[i]["sample"]))
    return {
        "models": models,
        "cells": [
            {"method": row.method, "budget": row.budget, "thinking": _number(row.thinking_budget)}
            for row in cells.itertuples()
        ],
        "outcomes": outcomes,
        "samples": bool((answers["sample"] > 0).any()),
        "items": [items[i] for i in order],
        "texts": [packed[i] for i in order],
    }, len(items)


def _outcomes(
    place: Place, answers: pd.DataFrame, models: Sequence[str], cells: Sequence[Any], outcomes: Sequence[str]
) -> dict[str, Any]:
    """What became of the answers to a problem: a character for each cell, a text for each model."""
    of = {(row.model, row.method, row.budget): row for row in answers.itertuples()}
    rows = [[of.get((model, *cell)) for cell in cells] for model in models]
    identifier = answers["problem_id"].iloc[0]
    return {
        "problem": place[0],
        "sample": place[1],
        "id": None if pd.isna(identifier) else identifier,
        "became": ["".join("." if row is None else DIGITS[outcomes.index(row.became)] for row in own) for own in rows],
        "forced": ["".join(map(_forced, own)) for own in rows],
    }


def _forced(answer: Any) -> str:
    """Whether the thinking was closed by force, and the solution went on with it."""
    if answer is None or answer.thinking_end != ThinkingEnd.FORCED:
        return "-"
    return "e" if answer.truncated or answer.closes_again else "f"


def _item(answers: pd.DataFrame, models: Sequence[str], cells: Sequence[Any]) -> dict[str, Any]:
    """All texts of a problem."""
    first = answers.iloc[0]
    kind = kind_of(first["grader"])
    return {
        "question": first["prompt"][:CHARACTERS],
        "accepted": list(first["answers"]) if kind.votes else [],
        "models": [_answers(answers[answers["model"] == model], cells, kind.votes) for model in models],
    }


def _answers(answers: pd.DataFrame, cells: Sequence[Any], votes: bool) -> dict[str, Any]:
    """One model's answers to a problem: its longest thought once, and of each answer where that was cut."""
    rows = {(row.method, str(budget_of(answers.loc[row.Index]))): row for row in answers.itertuples()}
    shared = [row.thinking for row in rows.values() if row.method in SHARED]
    thought = max(shared, key=len, default="")
    solutions = list(dict.fromkeys(row.solution for row in rows.values()))
    return {
        "thought": thought[:CHARACTERS],
        "length": len(thought),
        "solutions": [[text[:CHARACTERS], len(text)] for text in solutions],
        "answers": [
            None if (row := rows.get(cell)) is None else _answer(row, thought, solutions, votes) for cell in cells
        ],
    }


def _answer(row: Any, thought: str, solutions: Sequence[str], votes: bool) -> dict[str, Any]:
    begins = row.method in SHARED and thought.startswith(row.thinking)
    return {
        "own": None if begins else row.thinking[:CHARACTERS],
        "length": len(row.thinking),
        "close": row.close,
        "solution": solutions.index(row.solution),
        "end": row.thinking_end,
        "cut": bool(row.truncated),
        "thinking": int(row.thinking_tokens),
        "spent": int(row.solution_tokens),
        "read": row.answer if votes and isinstance(row.answer, str) else None,
    }


def _number(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _packed(content: Any) -> str:
    """JSON, compressed (raw deflate) and as base64."""
    packer = zlib.compressobj(9, wbits=-15)
    return b64encode(packer.compress(json.dumps(content).encode()) + packer.flush()).decode()


def _selection(used: int, answers: pd.DataFrame, models: Sequence[str]) -> str:
    """Which answers are on the page."""
    every = len(answers[PLACE].drop_duplicates())
    what = "thoughts" if (answers["sample"] > 0).any() else "problems"
    text = f"All {every} {what}."
    if used < every:
        text = (
            f"{used} of {every} {what}, of each pattern of outcomes some: rare ones are more frequent here than in all."
        )
    if len(models) > MODELS:
        text += f" Answers of {' and '.join(models[:MODELS])}; of {', '.join(models[MODELS:])} the numbers alone."
    return text
