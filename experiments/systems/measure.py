"""A row of the table: what a trained system does at six budgets, from the tables of its answers.

Knows nothing about how it was trained.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from transformers import AutoTokenizer

from e1_trl.answers.grade import Outcome
from e1_trl.provenance import Provenance
from e1_trl.report import samples
from e1_trl.report.statistics import Values, accuracy
from e1_trl.rollout import ThinkingEnd
from e1_trl.training.callbacks import generated_tokens
from experiments.systems.miniatures import Miniature

RESAMPLES = 1000  # of problems, for an interval
SHARES = (0.25, 0.5)  # of the generated tokens, after which a training is measured besides its end
THINKING, SOLUTION = (9, 18, 36, 72, 144, 288), 8  # tokens
ANSWER_TOKENS = 4  # of a box, and the end
FREE_ROW = len(THINKING) + 1  # of the packed answers: without a budget; the row before it is without thinking
BANNED = "base, Wait banned"  # the base with its recheck's first token at a bias of -100: nothing is trained
RATES = ("5e-05", "0.0002", "0.0004")  # besides the base recipe's 1e-4, for E1 and plain GRPO alike
RATED = ("grpo_cut", "e1")
FIRST = 42  # the seed of the rows that are not from several
AT_RATE = " at "  # between a system's name and its learning rate, where that is not the base recipe's
AVERAGED = ", averaged"  # after the name of a system whose weights are the mean of a training's second half
NOT_ASKED = ", not asked"  # after the name of a system whose prompts name a length, where they do not
FORCED_CLOSE, CUT, FREE, WITHOUT = "separate", "truncation", "unconstrained", "no_thinking"

Row = dict[str, Any]


def mean_over_budgets(values: Values) -> tuple[float, float, float]:
    """The mean of budgets × problems, and the ends of its 95% interval, the bootstrap's over problems."""
    problems = values.mean(axis=0)
    draws = np.random.default_rng(0).integers(len(problems), size=(RESAMPLES, len(problems)))
    low, high = np.quantile(problems[draws].mean(axis=1), [0.025, 0.975])
    return float(problems.mean()), float(low), float(high)


def measured(
    miniature: Miniature,
    system: str,
    seed: int,
    model: Path,
    test: Path,
    validation: Path,
    asked: Sequence[Path] = (),
    asked_validation: Sequence[Path] = (),
    earlier: Mapping[float, Path] | None = None,
) -> Row:
    """Make the row of a model that was trained into a folder, or of the base, which was not trained.

    `mean_accuracy` is over the budgets, its interval over problems; `validation_mean_accuracy` is that of the
    validation split, by which what is chosen is chosen. `area_at` has the mean accuracy after shares of the generated
    tokens, each on the first checkpoint that has generated as many. `right` keeps every answer for paired comparisons,
    as `pack` writes it: at each budget, without thinking, and without a budget. Numbers are as short as they are
    certain, but for the learning rate.

    Args:
        miniature: the base and its problems.
        system, seed, model: name, and of its training the seed and the folder.
        test, validation: of its evaluations on either split.
        asked, asked_validation: of those whose prompts ask for each of the budgets, which count for them; what is
            unconstrained asks for nothing.
        earlier: evaluations of earlier checkpoints, by their share of the generated tokens.
    """
    table, state = samples.read(test), model / "trainer_state.json"
    at, cut = _at(table, asked), _at(table, asked, CUT)
    free, without = (table[table["method"] == method] for method in (FREE, WITHOUT))
    trained = json.loads(state.read_text()) if state.exists() else {"log_history": [], "global_step": 0}
    made = Provenance.read(model) if state.exists() else Provenance.here([seed])
    rates = [entry["learning_rate"] for entry in trained["log_history"] if "learning_rate" in entry]
    mean, low, high = mean_over_budgets(_matrix(at))
    on_the_way = {str(share): _matrix(_at(samples.read(own))) for share, own in (earlier or {}).items()}
    row = {
        "miniature": miniature.name,
        "system": system,
        "seed": seed,
        "generated_tokens": generated_tokens(trained["log_history"], miniature.rollouts),
        "steps": trained["global_step"],
        "learning_rate": None,
        "mean_accuracy": mean,
        "mean_accuracy_low": low,
        "mean_accuracy_high": high,
        "validation_mean_accuracy": float(_matrix(_at(samples.read(validation), asked_validation)).mean()),
        "area_at": {share: float(right.mean()) for share, right in on_the_way.items()},
        "budgets": [_at_budget(budget, answers, cut[budget], miniature) for budget, answers in at.items()],
        "no_thinking_accuracy": float(_right(without).mean()),
        "unconstrained_accuracy": float(_right(free).mean()),
        "unconstrained_tokens": float((free["thinking_tokens"] + free["solution_tokens"]).mean()),
        "train_seconds": sum(entry.get("train_runtime", 0.0) for entry in trained["log_history"]),
        "commit": made.commit,
        "date": made.date,
        "machine": made.machine,
        "right": pack(np.stack([*_matrix(at), _right(without), _right(free)])),
    }
    return _rounded(row) | {"learning_rate": max(rates, default=None)}


def pack(right: Values) -> str:
    """Encode right answers (rows x problems) as text: one bit each, row by row, in base64."""
    return base64.b64encode(np.packbits(right.astype(bool)).tobytes()).decode()


def unpack(text: str, rows: int) -> Values:
    """Read what `pack` wrote, rows x problems; the number of answers is a multiple of 8."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8))
    return bits.reshape(rows, -1).astype(float)


def _at(table: pd.DataFrame, asked: Sequence[Path] = (), method: str = FORCED_CLOSE) -> dict[int, pd.DataFrame]:
    """The answers at each budget."""
    tables = [samples.read(folder) for folder in asked] or [table] * len(THINKING)
    return {budget: _of(own, method, budget) for budget, own in zip(THINKING, tables, strict=True)}


def _matrix(at: Mapping[int, pd.DataFrame]) -> Values:
    """Right answers: budgets × problems."""
    return np.stack([_right(answers) for answers in at.values()]).astype(float)


def _of(table: pd.DataFrame, method: str, budget: int) -> pd.DataFrame:
    answers = table[(table["method"] == method) & (table["solution_budget"] == SOLUTION)]
    return answers[answers["thinking_budget"] == budget].sort_values("problem")


def _right(answers: pd.DataFrame) -> Values:
    return np.asarray(answers["outcome"] == Outcome.CORRECT)


def _at_budget(budget: int, answers: pd.DataFrame, cut: pd.DataFrame, miniature: Miniature) -> Row:
    """Describe a system under one budget with a forced close; `accuracy_cut` truncates at the same total.

    Tokens are means of sampled ones. Of the answers after a forced close, `open_ratio` is the share that names what by
    its thinking can still be right, `likeliest_ratio` what is likeliest, and `escape_ratio` that of solutions longer
    than an answer.
    """
    right, tokens = _right(answers), answers["thinking_tokens"] + answers["solution_tokens"]
    forced = answers[answers["thinking_end"] == ThinkingEnd.FORCED]
    share = accuracy(right.astype(float)[:, None])
    named = pd.DataFrame(guesses(forced, miniature), columns=["open", "likeliest"])
    return {
        "thinking_budget": budget,
        "solution_budget": SOLUTION,
        "accuracy": share.mean,
        "ci_low": share.low,
        "ci_high": share.high,
        "accuracy_cut": float(_right(cut).mean()),
        "mean_thinking_tokens": float(answers["thinking_tokens"].mean()),
        "mean_solution_tokens": float(answers["solution_tokens"].mean()),
        "tokens_right": _mean(tokens[right]),
        "tokens_wrong": _mean(tokens[~right]),
        "forced_ratio": len(forced) / len(answers),
        "open_ratio": _mean(named["open"]),
        "likeliest_ratio": _mean(named["likeliest"]),
        "escape_ratio": _mean(forced["solution_tokens"] > ANSWER_TOKENS),
    }


def guesses(answers: pd.DataFrame, miniature: Miniature) -> list[tuple[bool, bool]]:
    """Return whether each answer names what, by its thinking, can still be right, and what is likeliest."""
    tokenizer = AutoTokenizer.from_pretrained(miniature.base)
    found = []
    for row in answers.itertuples():
        thought = tokenizer.convert_ids_to_tokens(list(row.token_ids[: row.thinking_tokens]))
        left = miniature.read(row.prompt).left(thought)
        chance = left.get(str(row.answer), 0.0)
        found.append((chance > 0, chance > 0 and chance >= max(left.values())))
    return found


def references(miniature: Miniature, problems: Sequence[str]) -> dict[str, list[float]]:
    """Accuracy at each budget of the shortest right thought, cut where it does not fit, with either kind of guess."""
    best, random = [], []
    for budget in THINKING:
        chances = []
        for problem in map(miniature.read, problems):
            whole = len(problem.concise) <= budget
            left = problem.left(problem.concise[:budget])
            chances.append((1.0 if whole else max(left.values()), 1.0 if whole else 1 / len(problem.choices)))
        best.append(float(np.mean([chance for chance, _ in chances])))
        random.append(float(np.mean([chance for _, chance in chances])))
    return {"best guess": best, "random guess": random}


def _mean(column: "pd.Series[Any]") -> float | None:
    return float(column.mean()) if len(column) else None


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value
