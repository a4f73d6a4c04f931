"""Page of a report: one HTML file with curves, tables and the answers behind them, which needs no network.

`page.jinja` is its text, `page.css` its style; `page_data.js` and `page.js` are its script. Texts of models are only
data: compressed, one problem at a time, and put into text nodes.
"""

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from e1_trl.atomic import write_atomically
from e1_trl.budget import Budget
from e1_trl.report import conditions, document, pictures, samples
from e1_trl.report.document import Report
from e1_trl.report.rows import REFERENCE, final_outcome
from e1_trl.report.samples import PLACE
from e1_trl.report.training_log import TrainingLog

PROBLEMS = 200
MODELS = 2  # side by side
CHARACTERS = 16_000  # of one text, some 4,000 tokens
ANSWER_CHARACTERS = 200  # of the answer that was read
TEXT_BYTES = 2_000_000  # of all answers, compressed
ROLLOUT_BYTES = 400_000  # of all rollouts of the training, compressed
STEPS = 20  # of the training
ROLLOUTS = 16  # of each step
SHARED = (REFERENCE, "unconstrained", "truncation")  # methods that cut one thought at their budgets
TEXTS = ["prompt", "thinking", "close", "solution"]
TEMPLATES = Path(__file__).parent
SCRIPTS = ("page_data.js", "page.js")  # one script, in this order
MADE = re.compile('<span id="made">.*?</span>')  # commit, date and machine
BOLD = re.compile(r"^\*\*(.+?)\*\*")  # at the beginning of a line of Markdown
Place = tuple[int, int]  # problem and sample
Cell = tuple[str, Budget]  # a method at a budget


def make(
    report: Report,
    answers: pd.DataFrame,
    texts: Sequence[tuple[str, Path]],
    problems: int = PROBLEMS,
    command: str = "",
    training: TrainingLog | None = None,
) -> str:
    """Make the page of a report on the figures of `answers`; "" if it is to show no problems.

    `texts` names the models, with the folders of their evaluations; `command` makes the page, for its button; and
    `training` is the log of the run that made a model, for its curve and rollouts.
    """
    if problems == 0:
        return ""
    models = pictures.models_of(report.rows)
    shown = answers[answers["model"].isin(models[:MODELS])]
    places = choose_places(shown, problems)
    data = _data([each for each in texts if each[0] in models[:MODELS]], places)
    data["samples"] = bool((shown["sample"] > 0).any())
    data["steps"] = [] if training is None else _steps(training)
    script = "".join((TEMPLATES / name).read_text() for name in SCRIPTS)
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    said = [line for line in conditions.as_markdown(report.conditions).splitlines() if line]
    return environment.get_template("page.jinja").render(
        title=document.title(report.rows),
        size=document.size(report.rows),
        made=document.made(report),
        notes=[BOLD.sub(r"\1", note) for note in document.notes(report)],
        said=[BOLD.sub(r"\1", line).removeprefix("- ") for line in (document.INTRODUCTION, *said)],
        command=command,
        selection=_selection(len(data["items"]), shown, models),
        curves={document.PICTURES[name]: pictures.as_svg(each) for name, each in document.curves(report).items()},
        tables=document.tables_of(report),
        training=None if training is None else pictures.as_svg(training.draw()),
        steps=bool(data["steps"]),
        style=(TEMPLATES / "page.css").read_text(),
        script=script,
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
        data=json.dumps(data).replace("<", "\\u003c"),
    )


def write(page: str, file: Path) -> list[Path]:
    """Write a page and return its file; without a page, remove what an earlier report left.

    A file that differs only in commit, date and machine stays: pages are published, and large.
    """
    if not page:
        file.unlink(missing_ok=True)
        return []
    if not file.exists() or MADE.sub("", file.read_text(encoding="utf-8")) != MADE.sub("", page):
        write_atomically(file, page)
    return [file]


def choose_places(answers: pd.DataFrame, most: int) -> list[Place]:
    """Choose problems and samples to show, from each combination of the models' final outcomes equally many.

    The first of each combination comes first, then the second of each, rare combinations in front; problems come in
    front of further samples of the same problem.
    """
    answers = answers.assign(final_outcome=final_outcome(answers))
    kinds = answers.groupby([*PLACE, "model"])["final_outcome"].agg(lambda own: " ".join(sorted(set(own))))
    places = kinds.groupby(level=PLACE).agg("|".join).reset_index(name="kind").sort_values(["sample", "problem"])
    own = places.groupby("kind")["kind"]
    places = places.assign(rank=own.cumcount(), size=own.transform("size"))
    first = places.sort_values(["rank", "size", "sample", "problem"]).head(most)
    return [(int(problem), int(sample)) for problem, sample in first[PLACE].itertuples(index=False)]


def _data(evaluations: Sequence[tuple[str, Path]], places: Sequence[Place]) -> dict[str, Any]:
    """Collect the data of the page's script: answers at as many places as fit, each place as a compressed text."""
    where = [[(name, "=", value) for name, value in zip(PLACE, place, strict=True)] for place in places]
    columns = [*samples.FIGURES, *TEXTS]
    tables = [samples.read(folder, columns, where).assign(model=name) for name, folder in evaluations]
    answers = pd.concat(tables)
    answers = answers.assign(
        final_outcome=final_outcome(answers), budget=[samples.budget_of(row) for _, row in answers.iterrows()]
    )
    models = list(dict.fromkeys(name for name, _ in evaluations))
    cells = list(dict.fromkeys(zip(answers["method"], answers["budget"], strict=True)))
    groups = answers.groupby(PLACE)
    items: dict[Place, str] = {}
    left = TEXT_BYTES
    for place in places:
        text = _compress(_item(groups.get_group(place), models, cells))
        if len(text) <= left:
            left -= len(text)
            items[place] = text
    named = [{"method": method, "budget": str(budget), **asdict(budget)} for method, budget in cells]
    return {"models": models, "cells": named, "items": [items[place] for place in sorted(items)]}


def _item(answers: pd.DataFrame, models: Sequence[str], cells: Sequence[Cell]) -> dict[str, Any]:
    first = answers.iloc[0]
    questions = list(dict.fromkeys(answers["prompt"]))
    votes = samples.answer_type(answers).votes
    return {
        **{name: int(first[name]) for name in PLACE},
        "id": None if pd.isna(first["problem_id"]) else first["problem_id"],
        "questions": [_clip(text) for text in questions],
        "accepted": [str(each)[:ANSWER_CHARACTERS] for each in first["answers"]] if votes else [],
        "models": [_answers(answers[answers["model"] == model], cells, questions, votes) for model in models],
    }


def _answers(answers: pd.DataFrame, cells: Sequence[Cell], questions: Sequence[str], votes: bool) -> dict[str, Any]:
    """Collect one model's answers to a problem: its longest thought once, and for each answer where that was cut."""
    rows = {(row.method, row.budget): row for row in answers.itertuples()}
    thought = max((row.thinking for row in rows.values() if row.method in SHARED), key=len, default="")
    solutions = list(dict.fromkeys(row.solution for row in rows.values()))

    def answer(row: Any) -> dict[str, Any]:
        whole = row.thinking.rstrip("\ufffd")  # where the cut goes through a character
        is_part = thought.startswith(whole)
        return {
            "final_outcome": row.final_outcome,
            "own": None if is_part else _clip(row.thinking)[0],
            "length": _units(whole if is_part else row.thinking),
            "close": row.close,
            "question": questions.index(row.prompt),
            "solution": solutions.index(row.solution),
            "end": row.thinking_end,
            "truncated": bool(row.truncated),
            "closes_again": bool(row.closes_again),
            "thinking": int(row.thinking_tokens),
            "spent": int(row.solution_tokens),
            "read": row.answer[:ANSWER_CHARACTERS] if votes and isinstance(row.answer, str) else None,
        }

    return {
        "thought": _clip(thought),
        "solutions": [_clip(text) for text in solutions],
        "answers": [answer(rows[cell]) if cell in rows else None for cell in cells],
    }


def _units(text: str) -> int:
    """Return the length of a text as JavaScript counts it."""
    return len(text.encode("utf-16-le")) // 2


def _clip(text: str) -> list[Any]:
    """Return the part of a text that is shown, and the length of all of it."""
    return [text[:CHARACTERS], _units(text)]


def _compress(content: Any) -> str:
    """Compress a value as JSON (raw deflate, base64)."""
    packer = zlib.compressobj(9, wbits=-15)
    return b64encode(packer.compress(json.dumps(content).encode()) + packer.flush()).decode()


def _steps(training: TrainingLog) -> list[str]:
    """Compress rollouts of a training: of each step as many as fit, and no step of which none fits."""
    found = training.rollouts(STEPS, ROLLOUTS)
    most = ROLLOUT_BYTES // max(1, len(found))
    packed = []
    for step, kept in found:
        shown = [{name: each[:CHARACTERS] for name, each in rollout.items()} for rollout in kept]
        while len(text := _compress({"step": step, "rollouts": shown})) > most:
            shown = shown[: len(shown) * most // len(text)]
        if shown:
            packed.append(text)
    return packed


def _selection(used: int, answers: pd.DataFrame, models: Sequence[str]) -> str:
    every = len(answers[PLACE].drop_duplicates())
    what = "thoughts" if (answers["sample"] > 0).any() else "problems"
    text = f"All {every:,} {what}."
    if used < every:
        text = (
            f"{used:,} of {every:,} {what}. Each combination of outcomes is shown equally often, as far as there are "
            "enough of it, so rare outcomes are more frequent here than in the whole evaluation."
        )
    if len(models) > MODELS:
        text += f" Answers of {' and '.join(models[:MODELS])}; of {', '.join(models[MODELS:])} the numbers alone."
    return text
