"""The table of closes, from their evaluations: docs/closing.md and docs/results/closing.json.

python -m experiments.closing.document      (called by run.sh)
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from e1_trl.atomic import write_atomically
from e1_trl.report import samples
from e1_trl.report.markdown import replace_section, table
from e1_trl.report.rows import BOXES_ONLY, REFERENCE

RUNS, DOCUMENT, RESULTS = Path("runs/closing"), Path("docs/closing.md"), Path("docs/results/closing.json")
MODELS = {"first_zero": ("base", "e1"), "smollm2": ("base", "e1")}
CLOSES = {
    REFERENCE: "hard",
    "pause": "at a pause",
    "nearly": "where it nearly would",
    "message": "message before it",
    "s1_no_wait": "message after it",
    f"s1_no_wait, {BOXES_ONLY}": f"message after it, {BOXES_ONLY}",
    "hint": "hint early",
}
HEADER = ("model", "budget", "close", "accuracy", "points over hard", "tokens", "at as many tokens", "forced", "escape")
SAMPLED = tuple(
    close for close in CLOSES if not close.endswith(BOXES_ONLY)
)  # the other reads the same answers strictly
SHOWN = 2  # answers of each close in the document


@dataclass(frozen=True)
class ThinkingClose:
    """What one close does at one budget. Tokens are means of sampled ones; `words` are those that were forced.

    `difference` is paired with the hard close at the same budget, `at_tokens` with it at as many tokens, on the line
    through its budgets (`None` where that does not reach), each with its 95% interval. Of the answers after a forced
    close, `escape_ratio` is the share whose solution is cut, or closes a thinking again.
    """

    experiment: str
    model: str
    close: str
    thinking_budget: int
    accuracy: float
    mean_tokens: float
    words: float
    most_over_budget: int
    forced_ratio: float
    escape_ratio: float
    difference: tuple[float, float, float] | None
    at_tokens: tuple[float, float, float] | None
    commit: str


def closes(experiment: str, model: str) -> list[ThinkingClose]:
    """All closes of a model."""
    report = json.loads((RUNS / experiment / "report" / "results.json").read_text())
    return measured(experiment, model, report, samples.read(RUNS / experiment / model))


def measured(experiment: str, model: str, report: dict[str, Any], answers: pd.DataFrame) -> list[ThinkingClose]:
    """All closes of a model, from the report and the answers behind it."""
    pairs = {
        (pair["method"], pair["thinking_budget"], pair["alike"]): (pair["difference"], pair["ci_low"], pair["ci_high"])
        for pair in report["differences"]
        if pair["model"] == pair["minus_model"] == model and pair["minus_method"] == REFERENCE
    }
    found = []
    for row in report["rows"]:
        if row["model"] != model or row["method"] not in CLOSES:
            continue
        method, budget = row["method"], row["thinking_budget"]
        sampled = method.removesuffix(f", {BOXES_ONLY}")
        ours = answers[(answers["method"] == sampled) & (answers["thinking_budget"] == budget)]
        forced = ours[ours["thinking_end"] == "forced"]
        found.append(
            ThinkingClose(
                experiment=experiment,
                model=model,
                close=method,
                thinking_budget=budget,
                accuracy=row["accuracy"],
                mean_tokens=row["mean_tokens"],
                words=row["mean_forced_tokens"],
                most_over_budget=max(0, int(ours["thinking_tokens"].max()) - budget),
                forced_ratio=row["forced_ratio"],
                escape_ratio=float((forced["closes_again"] | forced["truncated"]).mean()) if len(forced) else 0.0,
                difference=pairs.get((method, budget, "budget")),
                at_tokens=pairs.get((method, budget, "tokens used")),
                commit=row["commit"],
            )
        )
    return sorted(found, key=lambda each: (each.thinking_budget, list(CLOSES).index(each.close)))


def points(estimate: tuple[float, float, float] | None) -> str:
    """A difference in points, with its interval."""
    return "" if estimate is None else "{:+.1f} ({:+.1f} to {:+.1f})".format(*(100 * value for value in estimate))


def as_table(found: list[ThinkingClose]) -> str:
    """A line for each close."""
    return table(
        HEADER,
        [
            (
                each.model,
                str(each.thinking_budget),
                CLOSES[each.close],
                f"{each.accuracy:.1%}",
                points(each.difference),
                f"{each.mean_tokens:.1f}",
                points(each.at_tokens),
                f"{each.forced_ratio:.0%}",
                f"{each.escape_ratio:.1%}",
            )
            for each in found
        ],
    )


def shown(answers: pd.DataFrame, budget: int) -> str:
    """The first answers that every close was forced in, with ‖ around what was put in the place of a close."""
    ours = answers[(answers["thinking_budget"] == budget) & (answers["sample"] == 0)]
    forced = ours[ours["thinking_end"] == "forced"].groupby("problem")["method"].nunique()
    lines = []
    for problem in forced[forced == len(SAMPLED)].index[:SHOWN]:
        for method in SAMPLED:
            (answer,) = ours[(ours["problem"] == problem) & (ours["method"] == method)].itertuples()
            text = f"{answer.thinking}‖{answer.close}‖{answer.solution}"
            lines.append(f"{CLOSES[method]}: {answer.outcome}\n{text.strip()}\n")
    return "```\n" + "\n".join(lines) + "```\n"


def main() -> None:
    """Write all closes; rows of models that were not evaluated here stay as they are."""
    there = {
        experiment: [model for model in models if (RUNS / experiment / model / "results.json").exists()]
        for experiment, models in MODELS.items()
    }
    kept = [ThinkingClose(**row) for row in json.loads(RESULTS.read_text())] if RESULTS.exists() else []
    found = [close for close in kept if close.model not in there[close.experiment]]
    for experiment, models in there.items():
        if not models:
            continue
        ours = [close for model in models for close in closes(experiment, model)]
        budgets = sorted({each.thinking_budget for each in ours})
        every = [*(close for close in found if close.experiment == experiment), *ours]
        replace_section(DOCUMENT, experiment, as_table(every))
        answers: dict[str, Any] = {model: samples.read(RUNS / experiment / model) for model in models}
        replace_section(DOCUMENT, f"{experiment}-answers", shown(answers[models[0]], budgets[1]))
        found += ours
    text = json.dumps([asdict(each) for each in found], indent=1) + "\n"
    write_atomically(RESULTS, lambda path: path.write_text(text))


if __name__ == "__main__":
    main()
