"""Rows of the table, from evaluations and trainings, and what they show: intervals over stories and seeds; the gate.

Problems of one story are right or wrong together, so that intervals are over stories: each counts with the sum of its
problems, and Student's interval is that of the mean of the sums. Where both sides of a difference have several seeds,
these are a second chance (`experiments.systems.compare`).
"""

import json
import operator
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from transformers import PreTrainedTokenizerBase

from e1_trl.provenance import Provenance
from e1_trl.recipes import fields_of
from e1_trl.report import samples
from e1_trl.report.statistics import Values
from e1_trl.training.callbacks import generated_tokens
from experiments.real.make_base import MARKER, rollouts
from experiments.systems.compare import Comparison, over_both
from experiments.systems.measure import pack, unpack

FOLDER = Path(__file__).parent
BUDGETS = tuple(fields_of(FOLDER / "evaluation.yaml")["budgets"])
BASE, E1, FREE = "base", "e1", "unconstrained"
BANNED = " banned"  # ends the name of a base without the first token of some sentences
NUMBER = r"\$?(\d[\d,]*(?:\.\d+)?)"
EQUATION = re.compile(rf"{NUMBER} ?([-+*x/]) ?{NUMBER} ?= ?{NUMBER}")
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "x": operator.mul, "/": operator.truediv}
SENTENCE_END = (".", "!", "?", "\n")
LEAST_RIGHT, LEAST_CLOSED, LEAST_SPREAD, MOST_RECOVERED = 0.25, 0.95, 4.0, 1 / 3

Row = Mapping[str, Any]
Line = tuple[str, str, str, bool]  # a condition on a base, what was found, what is wanted, and whether it holds


def measured(
    folder: Path, base: int, system: str, seed: int, stories: Sequence[int], model: Path | None
) -> Iterator[Row]:
    """Make the rows of an evaluation, one for each method and budget (`None`: without).

    Tokens of thinking are sampled ones; `generated_tokens` are those of the training, `right` keeps every answer in the
    order of the problems, and `commit` made the model.

    Args:
        folder: of the evaluation.
        base: 1 or 2.
        system: what was trained from it, or `BASE`.
        seed: of the training.
        stories: of the test problems.
        model: folder of the training, if there was one.
    """
    made = Provenance.here([]) if model is None else Provenance.read(model)
    origin = {"commit": made.commit, "date": made.date, "machine": made.machine}
    table = samples.read(folder)
    for (method, thinking, solution), own in table.groupby(
        ["method", "thinking_budget", "solution_budget"], dropna=False
    ):
        own = own.sort_values("problem")
        right = np.asarray(own["outcome"] == "correct", dtype=float)[None]
        budget = None if pd.isna(solution) else f"{thinking}+{solution}"
        low, high = minus(by_story(right, stories)).interval
        p10, p90 = np.percentile(own["thinking_tokens"], [10, 90])
        numbers = {
            "accuracy": right.mean(),
            "ci_low": low,
            "ci_high": high,
            "mean_thinking_tokens": own["thinking_tokens"].mean(),
            "thinking_p10": p10,
            "thinking_p90": p90,
            "closed_ratio": (own["thinking_end"] == "closed").mean(),
        }
        place = {"base": base, "system": system, "seed": seed, "method": method, "budget": budget}
        rounded = {name: round(float(value), 4) for name, value in numbers.items()}
        yield {**place, **rounded, "generated_tokens": spent(model), **origin, "right": pack(right)}


def spent(model: Path | None) -> int:
    """Count the tokens that a training has generated; without one, none."""
    if model is None:
        return 0
    history = json.loads((model / "trainer_state.json").read_text())["log_history"]
    return generated_tokens(history, rollouts(fields_of(FOLDER / "e1.yaml")))


def by_story(right: Values, stories: Sequence[int]) -> Values:
    """Sum seeds × problems over the problems of each story, in units of the mean number: their mean is the accuracy."""
    members = np.eye(max(stories) + 1)[np.asarray(stories)]
    return right @ members * (members.shape[1] / members.shape[0])


def minus(ones: Values, others: Values | None = None) -> Comparison:
    """Compare two systems (seeds × stories), or one with 0, over stories; over seeds, too, where both have several.

    Two methods are asked of the same models: their difference, a row for each model, is compared with 0.
    """
    others = np.zeros_like(ones) if others is None else others
    values = ones.mean(axis=0) - others.mean(axis=0)
    if min(len(ones), len(others)) > 1 and np.ptp(values):
        return over_both(ones, others)
    return Comparison(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))), len(values) - 1)


def points(found: Comparison) -> str:
    """A difference in points with its interval: `+3.5 (+1.9 to +5.1)`."""
    low, high = found.interval
    return f"{100 * found.difference:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


@dataclass(frozen=True)
class Rows:
    """The rows that are there, and the story of each test problem."""

    rows: Sequence[Row]
    stories: Sequence[int]

    def of(self, base: int, system: str, method: str, budget: str | None) -> list[Row]:
        """The rows of a system, one a seed."""
        wanted = (base, system, method, budget)
        found = [row for row in self.rows if (row["base"], row["system"], row["method"], row["budget"]) == wanted]
        return sorted(found, key=lambda row: row["seed"])

    def systems(self, base: int) -> list[str]:
        """The systems of a base that have a row, in their order."""
        return list(dict.fromkeys(row["system"] for row in self.rows if row["base"] == base))

    def right(self, base: int, system: str, method: str, *budgets: str | None) -> Values:
        """Right answers as seeds × problems; of several budgets, the mean."""
        at = [[unpack(row["right"], 1)[0] for row in self.of(base, system, method, budget)] for budget in budgets]
        return np.mean(at, axis=0)

    def values(self, base: int, system: str, method: str = "separate", *budgets: str | None) -> Values:
        """Right answers as seeds × stories; of several budgets the mean, and of all where none is named."""
        return by_story(self.right(base, system, method, *(budgets or BUDGETS)), self.stories)


def gate(rows: Rows, base: int) -> list[Line]:
    """The conditions on a base as it is."""
    (free,) = rows.of(base, BASE, FREE, None)
    right, closed, p10, p90 = (free[name] for name in ("accuracy", "closed_ratio", "thinking_p10", "thinking_p90"))
    spread = p90 / max(p10, 1)
    at = [rows.values(base, BASE, "separate", budget) for budget in BUDGETS]
    rises = [minus(later, earlier) for earlier, later in pairwise(at)]
    rising = all(each.interval[0] > 0 for each in rises)
    return [
        ("right without a budget", f"{right:.1%}", f"{LEAST_RIGHT:.0%}", right >= LEAST_RIGHT),
        ("thoughts it closes", f"{closed:.1%}", f"{LEAST_CLOSED:.0%}", closed >= LEAST_CLOSED),
        ("longest over shortest tenth", f"{p90:.0f} / {p10:.0f} tokens", f"{LEAST_SPREAD:.0f}", spread >= LEAST_SPREAD),
        ("points gained from each budget to the next", ", ".join(map(points, rises)), "above 0", rising),
    ]


def banned_gate(rows: Rows, base: int) -> list[Line]:
    """The condition on what a banned token does, once there are rows of it and of E1: its share of E1's gain."""
    systems = rows.systems(base)
    banned = [name for name in systems if name.endswith(BANNED)]
    if not banned or E1 not in systems:
        return []
    mean = {name: float(rows.values(base, name).mean()) for name in (BASE, E1, *banned)}
    best = max(banned, key=lambda name: mean[name])
    whole = mean[E1] - mean[BASE]
    share = (mean[best] - mean[BASE]) / whole if whole > 0 else float("inf")
    holds = share <= MOST_RECOVERED
    return [(f"share of E1's gain by {best}", f"{share:.0%}", f"{MOST_RECOVERED:.0%} at most", holds)]


def stage_row(answers: pd.DataFrame, base: int, stage: str) -> Row:
    """Make the row of a stage of a base.

    `equations_right` is the share of the equations in its thoughts whose result is what their left side comes to.
    """
    found = [each for thought in answers["thinking"] for each in equations_right(thought)]
    numbers = {
        "right": (answers["outcome"] == "correct").mean(),
        "equations_right": np.mean(found),
        "mean_thinking_tokens": answers["thinking_tokens"].mean(),
    }
    rounded = {name: round(float(value), 4) for name, value in numbers.items()}
    place = {"base": base, "stage": stage, "answers": len(answers), "equations": len(found)}
    return {**place, **rounded, "commit": answers["commit"].iloc[0]}


def equations_right(text: str) -> list[bool]:
    """Find the equations of a text, and say of each whether its result is what its left side comes to."""
    found = []
    for left, sign, right, result in EQUATION.findall(text):
        one, other, said = (float(each.replace(",", "")) for each in (left, right, result))
        by_zero = sign == "/" and other == 0
        found.append(not by_zero and abs(OPERATORS[sign](one, other) - said) < 0.01)
    return found


def sentence_starts(thoughts: Iterable[Sequence[int]], tokenizer: PreTrainedTokenizerBase) -> Counter[int]:
    """Count the tokens that begin the sentences of thoughts; a full stop in a number ends none, and a close is none."""
    found: Counter[int] = Counter()
    close = tokenizer.encode(MARKER)[0]
    for ids in thoughts:
        texts = [tokenizer.decode([token]) for token in ids]
        for before, text, token in zip(["\n", *texts], texts, ids, strict=False):
            if token != close and text.strip() and not text[0].isdigit() and before.rstrip(" ").endswith(SENTENCE_END):
                found[token] += 1
    return found
