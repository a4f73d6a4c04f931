"""The page of a report: one HTML file with curves, tables and the answers behind them, which needs no network.

`page.jinja` is its text, `page.css` its style and `page.js` what moves. What a model has written is only ever data: it
is compressed, a problem at a time, and put into text nodes.
"""

import json
import re
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
ANSWER_CHARACTERS = 200  # of what was read of one
TEXT_BYTES, ROLLOUT_BYTES = 2_000_000, 400_000  # of all texts, compressed
STEPS, ROLLOUTS = 20, 16  # of a training, and of each of its steps
SHARED = (REFERENCE, "unconstrained", "truncation")  # methods of whose thoughts the longest is shown
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
TEMPLATES = Path(__file__).parent
BUDGET = ["thinking_budget", "solution_budget"]
MADE = re.compile('<span id="made">.*?</span>')  # commit, date and machine
Place = tuple[int, int]  # problem and sample


def make(
    report: Report,
    answers: pd.DataFrame,
    texts: Sequence[tuple[str, Path]],
    problems: int = PROBLEMS,
    command: str = "",
    training: Path | None = None,
) -> str:
    """The page of a report; "" if it is to show no problems.

    Args:
        report: what is said on it.
        answers: the figures that the report is of (`samples.FIGURES`).
        texts: the models' names, and the folders of their evaluations, which hold the texts.
        problems: how many answers to problems to show whole, at most; fewer if they would not fit.
        command: what makes the page, for whoever wants to make it again.
        training: the `output_dir` of the run that made a model, whose curve and rollouts are shown.

    Raises:
        StoreError: an evaluation cannot be read.
        ValueError: the run has left no log.
    """
    if problems == 0:
        return ""
    models = pictures.models_of(report.rows)
    shown = answers[answers["model"].isin(models[:MODELS])]
    shown = shown.assign(became=became(shown), budget=_budgets(shown))
    places = chosen(shown, problems)
    data, used = _data(shown, _texts([each for each in texts if each[0] in models[:MODELS]], places), places)
    log = None if training is None else TrainingLog.read(training)
    data["steps"] = [] if training is None else _steps(training)
    script = (TEMPLATES / "page.js").read_text()
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    said = [line for line in conditions.as_markdown(report.conditions).splitlines() if line]
    left_out = [document.LEFT_OUT] if any(row.left_out for row in report.rows) else []
    return environment.get_template("page.jinja").render(
        title=document.title(report.rows),
        size=document.size(report.rows),
        provenance=document.made(report),
        said=[line.replace("**", "").removeprefix("- ") for line in (document.INTRODUCTION, *left_out, *said)],
        command=command,
        selection=_selection(used, shown, models),
        curves={document.PICTURES[name]: pictures.as_svg(each) for name, each in document.curves(report).items()},
        tables=document.tables_of(report),
        training=None if log is None else pictures.as_svg(log.draw()),
        steps=bool(data["steps"]),
        style=(TEMPLATES / "page.css").read_text(),
        script=script,
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
        data=json.dumps(data).replace("<", "\\u003c"),
    )


def write(page: str, file: Path) -> list[Path]:
    """Write a page and return its file; where there is none, remove what an earlier report has left.

    One that differs in where it was made alone stays as it is: pages are published, and large.

    Raises:
        StoreError: it cannot be written.
    """
    if not page:
        file.unlink(missing_ok=True)
        return []
    if file.exists() and MADE.sub("", file.read_text(encoding="utf-8")) == MADE.sub("", page):
        return [file]
    write_atomically(file, lambda path: path.write_text(page, encoding="utf-8"))
    return [file]


def _budgets(answers: pd.DataFrame) -> list[str]:
    """The budget of each answer as a text."""
    distinct = answers[BUDGET].drop_duplicates()
    names = {tuple(map(_number, row[BUDGET])): str(budget_of(row)) for _, row in distinct.iterrows()}
    return [names[_number(thinking), _number(solution)] for thinking, solution in answers[BUDGET].to_numpy()]


def chosen(answers: pd.DataFrame, most: int) -> list[Place]:
    """Problems and samples to show, of each kind as many as there are: what became of the answers of each model.

    Of each kind the first, then of each the second, the rarer kinds before, until there are `most`; other problems
    before other samples of the same.
    """
    kinds = answers.groupby([*PLACE, "model"])["became"].agg(lambda own: " ".join(sorted(set(own))))
    places = kinds.groupby(level=PLACE).agg("|".join).reset_index(name="kind").sort_values(["sample", "problem"])
    own = places.groupby("kind")["kind"]
    places = places.assign(rank=own.cumcount(), size=own.transform("size"))
    first = places.sort_values(["rank", "size", "sample", "problem"]).head(most)
    return [(int(problem), int(sample)) for problem, sample in first[PLACE].itertuples(index=False)]


def _texts(evaluations: Sequence[tuple[str, Path]], places: Sequence[Place]) -> dict[Place, pd.DataFrame]:
    """All answers to what was chosen."""
    columns, wanted = [*samples.FIGURES, "prompt", "thinking", "close", "solution"], set(places)
    where = [(name, "in", sorted({place[at] for place in places})) for at, name in enumerate(PLACE)]
    tables = [samples.read(folder, columns, where).assign(model=name) for name, folder in evaluations]
    groups = pd.concat(tables, ignore_index=True).groupby(PLACE)
    keys = ((int(problem), int(sample)) for problem, sample in groups.groups)
    return {place: groups.get_group(place).assign(budget=_budgets) for place in keys if place in wanted}


def _data(
    answers: pd.DataFrame, texts: Mapping[Place, pd.DataFrame], places: Sequence[Place]
) -> tuple[dict[str, Any], int]:
    """What the page's script reads, and how many of the places fit into it."""
    models = list(dict.fromkeys(answers["model"]))
    cells = answers[["method", "budget", *BUDGET]].drop_duplicates(["method", "budget"])
    names = list(cells[["method", "budget"]].itertuples(index=False, name=None))
    outcomes = list(dict.fromkeys(["correct", "wrong", *answers["became"]]))
    wanted = answers.set_index(PLACE).sort_index()
    items, left = [], TEXT_BYTES
    for place in places:
        text = _packed(_item(texts[place], models, names))
        if len(text) <= left:
            left -= len(text)
            items.append({**_outcomes(place, wanted.loc[[place]], models, names, outcomes), "texts": text})
    return {
        "models": models,
        "cells": [
            {
                "method": row.method,
                "budget": row.budget,
                "thinking": _number(row.thinking_budget),
                "solution": _number(row.solution_budget),
            }
            for row in cells.itertuples()
        ],
        "outcomes": outcomes,
        "samples": bool((answers["sample"] > 0).any()),
        "items": sorted(items, key=lambda item: (item["problem"], item["sample"])),
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
    first, questions = answers.iloc[0], list(dict.fromkeys(answers["prompt"]))
    votes = kind_of(first["grader"]).votes
    own = [answers[answers["model"] == model] for model in models]
    return {
        "questions": [_clipped(text) for text in questions],
        "accepted": [str(each)[:ANSWER_CHARACTERS] for each in first["answers"]] if votes else [],
        "models": [_answers(each, cells, questions, votes) for each in own],
    }


def _answers(answers: pd.DataFrame, cells: Sequence[Any], questions: Sequence[str], votes: bool) -> dict[str, Any]:
    """One model's answers to a problem: its longest thought once, and of each answer where that was cut."""
    rows = {(row.method, row.budget): row for row in answers.itertuples()}
    thought = max((row.thinking for row in rows.values() if row.method in SHARED), key=len, default="")
    solutions = list(dict.fromkeys(row.solution for row in rows.values()))

    def answer(row: Any) -> dict[str, Any]:
        whole = row.thinking.rstrip("\ufffd")  # where the cut goes through a character
        return {
            "own": None if thought.startswith(whole) else _clipped(row.thinking)[0],
            "length": _units(whole if thought.startswith(whole) else row.thinking),
            "close": row.close,
            "question": questions.index(row.prompt),
            "solution": solutions.index(row.solution),
            "end": row.thinking_end,
            "cut": bool(row.truncated),
            "thinking": int(row.thinking_tokens),
            "spent": int(row.solution_tokens),
            "read": row.answer[:ANSWER_CHARACTERS] if votes and isinstance(row.answer, str) else None,
        }

    return {
        "thought": _clipped(thought),
        "solutions": [_clipped(text) for text in solutions],
        "answers": [answer(rows[cell]) if cell in rows else None for cell in cells],
    }


def _units(text: str) -> int:
    """The length of a text as JavaScript counts it."""
    return len(text.encode("utf-16-le")) // 2


def _clipped(text: str) -> list[Any]:
    """What is shown of a text, and the length of all of it."""
    return [text[:CHARACTERS], _units(text)]


def _number(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _packed(content: Any) -> str:
    """JSON, compressed (raw deflate) and as base64."""
    packer = zlib.compressobj(9, wbits=-15)
    return b64encode(packer.compress(json.dumps(content).encode()) + packer.flush()).decode()


def _steps(training: Path) -> list[dict[str, Any]]:
    """Rollouts of a training, as many as fit."""
    found, left = [], ROLLOUT_BYTES
    for step, kept in rollouts(training, STEPS, ROLLOUTS):
        text = _packed([{name: each[:CHARACTERS] for name, each in rollout.items()} for rollout in kept])
        if len(text) <= left:
            left -= len(text)
            found.append({"step": step, "texts": text})
    return found


def _selection(used: int, answers: pd.DataFrame, models: Sequence[str]) -> str:
    """Which answers are on the page."""
    every = len(answers[PLACE].drop_duplicates())
    what = "thoughts" if (answers["sample"] > 0).any() else "problems"
    text = f"All {every} {what}."
    if used < every:
        text = (
            f"{used} of {every} {what}, in equal parts of what became of each model's answers as far as there are so "
            "many: what is rare is more frequent here than in all."
        )
    if len(models) > MODELS:
        text += f" Answers of {' and '.join(models[:MODELS])}; of {', '.join(models[MODELS:])} the numbers alone."
    return text
