"""Rows of the table, from evaluations and trainings, and what they show: intervals over stories and seeds, and the gate.

Problems of one story are right or wrong together, so that intervals are over stories: each counts with the sum of its
problems, and Student's interval is that of the mean of the sums. Where both sides of a difference have several seeds,
these are a second chance (`experiments.systems.compare`).
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from transformers import PreTrainedTokenizerBase

from e1_trl.answers.grade import Outcome
from e1_trl.provenance import Provenance
from e1_trl.recipes import fields_of
from e1_trl.report import samples
from e1_trl.report.statistics import Values
from e1_trl.rollout import ThinkingEnd
from e1_trl.training.callbacks import generated_tokens
from experiments.systems.compare import Comparison, over_both
from experiments.systems.measure import pack, unpack

FOLDER = Path(__file__).parent
BUDGETS = tuple(fields_of(FOLDER / "evaluation.yaml")["budgets"])
BASE, E1 = "base", "e1"
BANNED = " banned"  # ends the name of a base whose first token of some sentences is banned
SENTENCE_END = (".", "!", "?", "\n")
LEAST_RIGHT, LEAST_CLOSED, LEAST_SPREAD, MOST_RECOVERED = 0.25, 0.95, 4.0, 1 / 3

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Measured:
    """A row: one model, asked by one method at one budget.

    `base` is 1 or 2, `system` what was trained from it ("base": nothing), `seed` the training's, and `budget` as
    "24+20", `None` without one. Tokens are sampled ones; `generated_tokens` are those of the training. `right` keeps
    every answer, in the order of the problems, as `experiments.systems.measure.pack` writes it.
    """

    base: int
    system: str
    method: str
    seed: int
    budget: str | None
    accuracy: float
    ci_low: float
    ci_high: float
    mean_thinking_tokens: float
    thinking_p10: float
    thinking_p90: float
    mean_tokens: float
    closed_ratio: float
    truncated_ratio: float
    generated_tokens: int
    commit: str
    date: str
    machine: str
    right: str


def measured(
    folder: Path, base: int, system: str, seed: int, stories: Sequence[int], model: Path | None
) -> Iterator[dict[str, Any]]:
    """Make the rows of an evaluation; `model` is the folder of the training, if there was one."""
    made = Provenance.here([seed]) if model is None else Provenance.read(model)
    tokens = 0 if model is None else spent(model)
    table = samples.read(folder)
    for (method, thinking, solution), own in table.groupby(["method", "thinking_budget", "solution_budget"], dropna=False):
        own = own.sort_values("problem")
        right = np.asarray(own["outcome"] == Outcome.CORRECT, dtype=float)[None]
        share = minus(by_story(right, stories))
        thought = own["thinking_tokens"]
        row = Measured(
            base,
            system,
            method,
            seed,
            None if pd.isna(solution) else f"{thinking}+{solution}",
            float(right.mean()),
            *share.interval,
            float(thought.mean()),
            *(float(np.percentile(thought, share)) for share in (10, 90)),
            float((thought + own["solution_tokens"]).mean()),
            float((own["thinking_end"] == ThinkingEnd.CLOSED).mean()),
            float(own["truncated"].mean()),
            tokens,
            made.commit,
            made.date,
            made.machine,
            pack(right),
        )
        yield {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(row).items()}


def spent(model: Path) -> int:
    """Count the tokens that a training has generated."""
    fields = fields_of(FOLDER / "e1.yaml")
    rollouts = fields["per_device_train_batch_size"] * fields["gradient_accumulation_steps"]
    return generated_tokens(json.loads((model / "trainer_state.json").read_text())["log_history"], rollouts)


def by_story(right: Values, stories: Sequence[int]) -> Values:
    """Sum seeds × problems over the problems of each story, in units of the mean number: their mean is the accuracy."""
    members = np.eye(max(stories) + 1)[np.asarray(stories)]
    return right @ members * (members.shape[1] / members.shape[0])


def minus(ones: Values, others: Values | None = None) -> Comparison:
    """The mean of a system over stories, or a difference of two; over seeds, too, where both have several.

    Args:
        ones, others: seeds × stories.
    """
    if others is not None and min(len(ones), len(others)) > 1:
        return over_both(ones, others)
    values = ones.mean(axis=0) - (0 if others is None else others.mean(axis=0))
    return Comparison(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))), len(values) - 1)


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

    def problems(self, base: int, system: str, method: str = "separate", budgets: Iterable[str | None] = BUDGETS) -> Values:
        """Right answers as seeds × problems, the mean over the budgets; without a row of a seed, none."""
        at = [[unpack(row["right"], 1)[0] for row in self.of(base, system, method, budget)] for budget in budgets]
        return np.mean(at, axis=0)

    def values(self, base: int, system: str, method: str = "separate", budgets: Iterable[str | None] = BUDGETS) -> Values:
        """Right answers as seeds × stories."""
        return by_story(self.problems(base, system, method, budgets), self.stories)


@dataclass(frozen=True)
class Line:
    """One condition on a base: what was found, what is wanted, and whether it holds."""

    name: str
    found: str
    wanted: str
    holds: bool


def gate(rows: Rows, base: int) -> list[Line]:
    """The conditions on a base as it is."""
    (free,) = rows.of(base, BASE, "unconstrained", None)
    spread = free["thinking_p90"] / max(free["thinking_p10"], 1)
    at = [rows.values(base, BASE, budgets=[budget]) for budget in BUDGETS]
    rises = [minus(later, earlier) for earlier, later in zip(at, at[1:], strict=False)]
    return [
        Line("right without a budget", f"{free['accuracy']:.1%}", f"{LEAST_RIGHT:.0%}", free["accuracy"] >= LEAST_RIGHT),
        Line("thoughts it closes", f"{free['closed_ratio']:.1%}", f"{LEAST_CLOSED:.0%}", free["closed_ratio"] >= LEAST_CLOSED),
        Line("90th over 10th percentile of thinking tokens", f"{spread:.1f}", f"{LEAST_SPREAD:.0f}", spread >= LEAST_SPREAD),
        Line(
            "points gained from each budget to the next",
            ", ".join(points(each) for each in rises),
            "above 0",
            all(each.interval[0] > 0 for each in rises),
        ),
    ]


def banned_gate(rows: Rows, base: int) -> list[Line]:
    """The condition on what one banned token does, once there are rows of it and of E1."""
    systems = rows.systems(base)
    banned = [name for name in systems if name.endswith(BANNED)]
    if not banned or E1 not in systems:
        return []
    shares = {name: recovered(rows, base, name) for name in banned}
    best = max(banned, key=lambda name: shares[name])
    holds = shares[best] <= MOST_RECOVERED
    return [Line(f"share of E1's gain by {best}", f"{shares[best]:.0%}", f"{MOST_RECOVERED:.0%} at most", holds)]


def recovered(rows: Rows, base: int, system: str) -> float:
    """The share of E1's gain in mean accuracy over the budgets that another system gains over the base."""
    gain, whole = (
        float(rows.values(base, name).mean() - rows.values(base, BASE).mean()) for name in (system, E1)
    )
    return gain / whole if whole > 0 else float("inf")


def points(found: Comparison) -> str:
    """A difference in points with its interval: `+3.5 (+1.9 to +5.1)`."""
    low, high = found.interval
    return f"{100 * found.difference:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def sentence_starts(thoughts: Iterable[Sequence[int]], tokenizer: PreTrainedTokenizerBase) -> Counter[int]:
    """Count the tokens that begin the sentences of thoughts; a full stop in a number ends none."""
    found: Counter[int] = Counter()
    for ids in thoughts:
        texts = [tokenizer.decode([token]) for token in ids]
        for place, text in enumerate(texts):
            before = texts[place - 1].rstrip(" ") if place else "\n"
            if text.strip() and before.endswith(SENTENCE_END) and not text[0].isdigit():
                found[ids[place]] += 1
    return found
