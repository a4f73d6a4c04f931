"""The page of a report: one HTML file with curves, tables and the answers behind them, which needs no network.

`page.jinja` is its text, `page.css` its style and `page.js` what moves. What a model has written is only ever data: it
is compressed, a problem at a time, and put into text nodes.
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
from e1_trl.report.stopping import PLACE
from e1_trl.report.training_log import TrainingLog

PROBLEMS = 200
MODELS = 2  # side by side
CHARACTERS = 16_000  # of one text, some 4,000 tokens
ANSWER_CHARACTERS = 200  # of what was read of one
TEXT_BYTES, ROLLOUT_BYTES = 2_000_000, 400_000  # of all texts, as they are packed
STEPS, ROLLOUTS = 20, 16  # of a training, and of each of its steps
SHARED = (REFERENCE, "unconstrained", "truncation")  # methods of whose thoughts the longest is shown
TEXTS = ["prompt", "thinking", "close", "solution"]
TEMPLATES = Path(__file__).parent
MADE = re.compile('<span id="made">.*?</span>')  # commit, date and machine
BOLD = re.compile(r"^\*\*(.+?)\*\*")  # what a line begins with
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
    """The page of a report; "" if it is to show no problems.

    Args:
        report: what is said on it.
        answers: the figures that the report is of (`samples.FIGURES`).
        texts: the models' names, and the folders of their evaluations, which hold the texts.
        problems: how many answers to problems to show whole, at most; fewer if they would not fit.
        command: what makes the page, for whoever wants to make it again.
        training: of the run that made a model, whose curve and rollouts are shown.

    Raises:
        StoreError: an evaluation cannot be read.
        ValueError: another version logged the run's rollouts.
    """
    if problems == 0:
        return ""
    models = pictures.models_of(report.rows)
    shown = answers[answers["model"].isin(models[:MODELS])]
    places = chosen(shown.assign(final_outcome=final_outcome(shown)), problems)
    data = _data([each for each in texts if each[0] in models[:MODELS]], places)
    data["samples"] = bool((shown["sample"] > 0).any())
    data["steps"] = [] if training is None else _steps(training)
    script = (TEMPLATES / "page.js").read_text()
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    said = [line for line in conditions.as_markdown(report.conditions).splitlines() if line]
    return environment.get_template("page.jinja").render(
        title=document.title(report.rows),
        size=document.size(report.rows),
        provenance=document.made(report),
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
    """Write a page and return its file; where there is none, remove what an earlier report has left.

    One that differs in where it was made alone stays as it is: pages are published, and large.

    Raises:
        StoreError: it cannot be written.
    """
    if not page:
        file.unlink(missing_ok=True)
        return []
    if not file.exists() or MADE.sub("", file.read_text(encoding="utf-8")) != MADE.sub("", page):
        write_atomically(file, lambda path: path.write_text(page, encoding="utf-8"))
    return [file]


def chosen(answers: pd.DataFrame, most: int) -> list[Place]:
    """Problems and samples to show, of each kind as many as there are: what became of the answers of each model.

    Of each kind the first, then of each the second, the rarer kinds before, until there are `most`; other problems
    before other samples of the same.
    """
    kinds = answers.groupby([*PLACE, "model"])["final_outcome"].agg(lambda own: " ".join(sorted(set(own))))
    places = kinds.groupby(level=PLACE).agg("|".join).reset_index(name="kind").sort_values(["sample", "problem"])
    own = places.groupby("kind")["kind"]
    places = places.assign(rank=own.cumcount(), size=own.transform("size"))
    first = places.sort_values(["rank", "size", "sample", "problem"]).head(most)
    return [(int(problem), int(sample)) for problem, sample in first[PLACE].itertuples(index=False)]


def _data(evaluations: Sequence[tuple[str, Path]], places: Sequence[Place]) -> dict[str, Any]:
    """What the page's script reads: the answers to as many of the places as fit, those of each as a packed text."""
    where = [(name, "in", sorted({place[at] for place in places})) for at, name in enumerate(PLACE)]
    columns = [*samples.FIGURES, *TEXTS]
    tables = [samples.read(folder, columns, where).assign(model=name) for name, folder in evaluations]
    answers = pd.concat(tables).merge(pd.DataFrame(places, columns=PLACE))
    answers = answers.assign(
        final_outcome=final_outcome(answers), budget=[samples.budget_of(row) for _, row in answers.iterrows()]
    )
    models = list(dict.fromkeys(name for name, _ in evaluations))
    cells = list(dict.fromkeys(zip(answers["method"], answers["budget"], strict=True)))
    groups, items, left = answers.groupby(PLACE), dict[Place, str](), TEXT_BYTES
    for place in places:
        text = _packed(_item(groups.get_group(place), models, cells))
        if len(text) <= left:
            left -= len(text)
            items[place] = text
    named = [{"method": method, "budget": str(budget), **asdict(budget)} for method, budget in cells]
    return {"models": models, "cells": named, "items": [items[place] for place in sorted(items)]}


def _item(answers: pd.DataFrame, models: Sequence[str], cells: Sequence[Cell]) -> dict[str, Any]:
    """All answers to a problem, with their texts."""
    first, questions = answers.iloc[0], list(dict.fromkeys(answers["prompt"]))
    votes = samples.answer_type(answers).votes
    return {
        **{name: int(first[name]) for name in PLACE},
        "id": None if pd.isna(first["problem_id"]) else first["problem_id"],
        "questions": [_clipped(text) for text in questions],
        "accepted": [str(each)[:ANSWER_CHARACTERS] for each in first["answers"]] if votes else [],
        "models": [_answers(answers[answers["model"] == model], cells, questions, votes) for model in models],
    }


def _answers(answers: pd.DataFrame, cells: Sequence[Cell], questions: Sequence[str], votes: bool) -> dict[str, Any]:
    """One model's answers to a problem: its longest thought once, and of each answer where that was cut."""
    rows = {(row.method, row.budget): row for row in answers.itertuples()}
    thought = max((row.thinking for row in rows.values() if row.method in SHARED), key=len, default="")
    solutions = list(dict.fromkeys(row.solution for row in rows.values()))

    def answer(row: Any) -> dict[str, Any]:
        whole = row.thinking.rstrip("\ufffd")  # where the cut goes through a character
        return {
            "final_outcome": row.final_outcome,
            "own": None if thought.startswith(whole) else _clipped(row.thinking)[0],
            "length": _units(whole if thought.startswith(whole) else row.thinking),
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


def _packed(content: Any) -> str:
    """JSON, compressed (raw deflate) and as base64."""
    packer = zlib.compressobj(9, wbits=-15)
    return b64encode(packer.compress(json.dumps(content).encode()) + packer.flush()).decode()


def _steps(training: TrainingLog) -> list[str]:
    """Rollouts of a training: of each step as many as fit, and no step of which none does."""
    found, packed = training.rollouts(STEPS, ROLLOUTS), []
    most = ROLLOUT_BYTES // max(1, len(found))
    for step, kept in found:
        shown = [{name: each[:CHARACTERS] for name, each in rollout.items()} for rollout in kept]
        while len(text := _packed({"step": step, "rollouts": shown})) > most:
            shown = shown[: len(shown) * most // len(text)]
        packed += [text] if shown else []
    return packed


def _selection(used: int, answers: pd.DataFrame, models: Sequence[str]) -> str:
    """Which answers are on the page."""
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
