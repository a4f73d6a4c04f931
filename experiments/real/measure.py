"""Rows of the table, from evaluations and trainings, and what they show: intervals over stories and seeds.

Problems of one story are right or wrong together, so that intervals are over stories: each counts with the sum of its
problems, and Student's interval is that of the mean of the sums. Where a side of a difference has several seeds, these
are a second chance (`experiments.systems.compare`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from e1_trl.provenance import Provenance
from e1_trl.recipes import fields_of
from e1_trl.report import samples
from e1_trl.report.statistics import Values
from e1_trl.training.callbacks import generated_tokens
from experiments.real.make_base import rollouts
from experiments.systems.compare import Comparison, over_both
from experiments.systems.measure import pack, unpack

FOLDER = Path(__file__).parent
BUDGETS = tuple(fields_of(FOLDER / "evaluation.yaml")["budgets"])
TIGHT = BUDGETS[1]  # which E1 is trained at
E1, FREE = "e1", "unconstrained"
IN_TRAINING = {"reward": "reward", "thinking/forced_ratio": "forced", "solution/truncated_ratio": "truncated"}
IN_TRAINING |= {"frac_reward_zero_std": "groups_alike"}

Row = Mapping[str, Any]


def measured(
    folder: Path, base: int, system: str, seed: int, stories: Sequence[int], model: Path | None
) -> Iterator[Row]:
    """Make the rows of an evaluation, one for each method and budget (`None`: without).

    Tokens of thinking are sampled ones; `generated_tokens` are those of the training, of which `first_` and `last_` are
    means of ten steps; `right` keeps every answer in the order of the problems, and `commit` made the model. `stories`
    are those of the problems, `model` is a training's folder.
    """
    made, trained = Provenance.here([]), {"generated_tokens": 0}
    if model:
        history = json.loads((model / "trainer_state.json").read_text())["log_history"]
        steps = pd.DataFrame([entry for entry in history if "reward" in entry])[list(IN_TRAINING)]
        ends = {"first": steps.head(10), "last": steps.tail(10)}
        made, trained = Provenance.read(model), {"generated_tokens": generated_tokens(history, rollouts(E1))}
        trained |= {f"{end}_{IN_TRAINING[name]}": round(of[name].mean(), 4) for end, of in ends.items() for name in of}
    origin = {**trained, "commit": made.commit, "date": made.date, "machine": made.machine}
    asked = samples.read(folder).groupby(["method", "thinking_budget", "solution_budget"], dropna=False)
    for (method, thinking, solution), own in asked:
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
            "closes_again_ratio": own["closes_again"].mean(),
            "truncated_ratio": own["truncated"].mean(),
            "unboxed_ratio": (own["outcome"] == "unboxed").mean(),
            "accuracy_by_boxes": (right[0] * ~own["unboxed"].astype(bool)).mean(),
        }
        place = {"base": base, "system": system, "seed": seed, "method": method, "budget": budget}
        rounded = {name: round(float(value), 4) for name, value in numbers.items()}
        yield {**place, **rounded, **origin, "right": pack(right)}


def by_story(right: Values, stories: Sequence[int]) -> Values:
    """Sum seeds × problems over the problems of each story, in units of the mean number: their mean is the accuracy."""
    members = np.eye(max(stories) + 1)[np.asarray(stories)]
    return right @ members * (members.shape[1] / members.shape[0])


def minus(ones: Values, others: Values | None = None) -> Comparison:
    """Compare two systems (seeds × stories), or one with 0, over stories; over seeds, too, where one has several.

    Two methods are asked of the same models: their difference, a row for each model, is compared with 0.
    """
    others = np.zeros_like(ones) if others is None else others
    values = ones.mean(axis=0) - others.mean(axis=0)
    if max(len(ones), len(others)) > 1 and np.ptp(values):
        return over_both(ones, others)
    return Comparison(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))), len(values) - 1)


def points(found: Comparison) -> str:
    """A difference in points with its interval, `+3.5 (+1.9 to +5.1)`; without one where nothing differs."""
    if found.error == 0 == found.difference:
        return "no difference"
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

    def right(self, base: int, system: str, method: str, *budgets: str | None) -> Values:
        """Right answers as seeds × problems; of several budgets, the mean."""
        at = [[unpack(row["right"], 1)[0] for row in self.of(base, system, method, budget)] for budget in budgets]
        return np.mean(at, axis=0)

    def values(self, base: int, system: str, method: str = "separate", *budgets: str | None) -> Values:
        """Right answers as seeds × stories; of several budgets the mean, and of all where none is named."""
        return by_story(self.right(base, system, method, *(budgets or BUDGETS)), self.stories)
