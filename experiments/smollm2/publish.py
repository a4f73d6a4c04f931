"""Publishes what `e1 report` knows nothing of: points over the base, what right answers stand on, a transcript, hours.

Called by `make results RECIPE=experiments/smollm2/recipe.yaml`, after the report, whose JSON gets the field `hours`.
"""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd

from e1_trl.atomic import write_atomically
from e1_trl.report import samples
from e1_trl.report.markdown import replace_section, table
from experiments.smollm2.make_base import TRAINED_AT

RUN, DOCUMENT, RESULTS = Path("runs/smollm2"), Path("docs/smollm2.md"), Path("docs/results/smollm2.json")
METHODS = ("separate", "unconstrained")  # which the prose is about; the others stand in the tables
OURS = "smollm2-"  # before the name of every model here
BASE = f"{OURS}base"
READ = ("base", "e1")  # whose answers are shown
ANSWERS = RESULTS.with_name("smollm2-answers.md")
AIMED_AT = {
    "12+20": "not lower",
    "24+20": "at least +10, outside the interval",
    "48+20": "not lower",
    "none": "at least -2, with 20% fewer tokens",
}
HOUR = 3600  # seconds
OTHERS = re.compile(r"-seed|-random")  # stages that are not of the recipe itself
RESULT = re.compile(r"=(\d*\.?\d+)")


def seconds(stages: str) -> tuple[dict[str, int], int]:
    """Seconds of each stage, and the number of killed runs, whose time is unknown.

    Args:
        stages: lines such as `training began 1764000000` and `training ended 1764003600`.
    """
    took, open_since, killed = dict[str, int](), dict[str, int](), 0
    for line in stages.splitlines():
        name, what, time = line.split()
        killed += what == "began" and name in open_since
        if what == "began":
            open_since[name] = int(time)
        else:
            took[name] = took.get(name, 0) + int(time) - open_since.pop(name)
    return took, killed + len(open_since)


def marks(differences: list[dict[str, Any]]) -> str:
    """Accuracy of each trained model less its base's, paired, in points, beside what was aimed at; a Markdown table."""
    rows = []
    for pair in differences:
        is_ours = pair["minus_model"] == BASE != pair["model"] and pair["minus_method"] == pair["method"]
        if not is_ours or pair["method"] not in METHODS:
            continue
        spent = pair["mean_tokens"] / pair["minus_mean_tokens"] - 1
        parts = (pair["thinking_budget"], pair["solution_budget"])
        budget = "none" if parts[0] is None else f"{parts[0]}+{parts[1]}"
        points, low, high = (f"{100 * pair[name]:+.1f}" for name in ("difference", "ci_low", "ci_high"))
        rows.append((pair["model"], budget, points, f"{low} to {high}", f"{spent:+.0%}", AIMED_AT.get(budget, "")))
    return table(("model", "budget", "points over the base", "95% interval", "tokens", "aimed at"), rows)


def as_text(answer: Any) -> str:
    """An answer with ‖ around what was forced."""
    return ("‖" if answer.close else "").join((answer.thinking, answer.close, answer.solution))


def last_value(thinking: str) -> str | None:
    """The last result that a thought computes: `13` of `10-6=4. 4+9=13.`."""
    return next(reversed(RESULT.findall(thinking)), None)


def computed(answers: dict[str, pd.DataFrame]) -> list[tuple[str, str, str, str]]:
    """Count, for each model and budget, right answers and boxes whose content was computed in the thinking."""
    rows = []
    for model, table_of in answers.items():
        right = table_of[(table_of["outcome"] == "correct") & table_of["method"].isin(METHODS)]
        for (thinking, solution), ours in right.groupby(["thinking_budget", "solution_budget"], dropna=False):
            budget = "unlimited" if pd.isna(thinking) else f"{thinking:.0f}+{solution:.0f}"
            same = 0
            for row in ours.itertuples():
                value = last_value(row.thinking)
                same += value is not None and float(value) == float(row.answer)
            rows.append((model, budget, str(len(ours)), str(same)))
    return rows


def transcript(answers: dict[str, pd.DataFrame]) -> str:
    """The answers of both models to the first problem, at the training budget and without one, as Markdown."""
    lines = []
    for model, every in answers.items():
        ours = every[every["problem"] == 0]
        at_budget = ours[(ours["method"] == "separate") & (ours["thinking_budget"] == TRAINED_AT)]
        for name, rows in (("budget", at_budget), ("unlimited", ours[ours["method"] == "unconstrained"])):
            answer = next(rows.itertuples())
            lines.append(f"{model}, {name}: {answer.outcome}\n{as_text(answer).strip()}\n")
    block = "\n".join(lines)
    return f"**{answer.prompt}** Expected: {', '.join(answer.answers)}.\n\n```\n{block}```\n"


def main() -> None:
    took, killed = seconds((RUN / "stages").read_text())
    hours = {name: round(time / HOUR, 2) for name, time in took.items()}
    hours["all"] = round(sum(time for name, time in took.items() if not OTHERS.search(name)) / HOUR, 2)
    results = {**json.loads(RESULTS.read_text()), "hours": hours, "killed": killed}
    write_atomically(RESULTS, lambda path: path.write_text(json.dumps(results, indent=1) + "\n"))
    names = dict.fromkeys(row["model"].removeprefix(OURS) for row in results["rows"])
    answers = {name: samples.read(RUN / "evaluation" / name) for name in names}
    cost = table(("stage", "hours"), [(name, f"{time:.2f}") for name, time in hours.items()])
    header = ("model", "budget", "right answers", "whose box is the thinking's last result")
    sections = {
        "hours": cost + (f"\nKilled {killed} times, which is not counted.\n" if killed else ""),
        "marks": marks(results["differences"]),
        "computed": table(header, computed(answers)),
    }
    for name, text in sections.items():
        replace_section(ANSWERS, name, text)
    replace_section(DOCUMENT, "transcript", transcript({model: answers[model] for model in READ}))


if __name__ == "__main__":
    main()
