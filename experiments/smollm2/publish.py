"""Publishes what `e1 report` knows nothing of: points over the base, what right answers stand on, transcripts, hours.

    python -m experiments.smollm2.publish --document docs/smollm2.md --results docs/results/smollm2.json

Called by `make results RECIPE=experiments/smollm2/recipe.yaml`, after the report.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from e1_trl.atomic import write_atomically
from e1_trl.report import samples
from e1_trl.report.markdown import replace_section, table
from experiments.smollm2.make_base import TRAINED_AT

RUN = Path("runs/smollm2")
METHODS = ("separate", "unconstrained")  # which the prose is about; the others stand in the tables
OURS = "smollm2-"  # before the name of every model here
BASE = f"{OURS}base"
READ = ("base", "e1")  # whose answers are shown
PROBLEMS, IN_DOCUMENT = 5, 1  # the first; the order is random
ANSWERS = "smollm2-answers.md"  # beside the results
AIMED_AT = {
    "12+20": "not lower",
    "24+20": "at least +10, outside the interval",
    "48+20": "not lower",
    "none": "at least -2, with 20% fewer tokens",
}
HOUR = 3600  # seconds
RESULT = re.compile(r"=(\d*\.?\d+)")


def seconds(stages: str) -> tuple[dict[str, int], int]:
    """What each stage took, and how often one was killed, of which it is not known how long it had taken.

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
    for found in differences:
        is_pair = found["minus_model"] == BASE != found["model"] and found["minus_method"] == found["method"]
        if not is_pair or found["method"] not in METHODS:
            continue
        spent = found["mean_tokens"] / found["minus_mean_tokens"] - 1
        budget = (
            "none" if found["thinking_budget"] is None else f"{found['thinking_budget']}+{found['solution_budget']}"
        )
        points = [f"{100 * found[name]:+.1f}" for name in ("difference", "ci_low", "ci_high")]
        interval = f"{points[1]} to {points[2]}"
        rows.append((found["model"], budget, points[0], interval, f"{spent:+.0%}", AIMED_AT.get(budget, "")))
    return table(("model", "budget", "points over the base", "95% interval", "tokens", "aimed at"), rows)


def text(answer: Any, tokenizer: PreTrainedTokenizerBase) -> str:
    """An answer with ‖ around what was forced."""
    ids, thought, forced = list(answer.token_ids), answer.thinking_tokens, answer.forced_tokens
    parts = [ids[:thought], ids[thought : thought + forced], ids[thought + forced :]]
    shown = [tokenizer.decode(part, skip_special_tokens=True) for part in parts]
    return "‖".join(shown) if forced else "".join(shown)


def last_value(thinking: str) -> str | None:
    """The last result that a thought computes: `13` of `10-6=4. 4+9=13.`."""
    return next(reversed(RESULT.findall(thinking)), None)


def computed(answers: dict[str, pd.DataFrame], tokenizer: PreTrainedTokenizerBase) -> list[tuple[str, str, str, str]]:
    """Of each model at each budget: how many answers are right, and how many of their boxes were computed before."""
    rows = []
    for model, found in answers.items():
        right = found[(found["outcome"] == "correct") & found["method"].isin(METHODS)]
        for (thinking, solution), ours in right.groupby(["thinking_budget", "solution_budget"], dropna=False):
            budget = "unlimited" if pd.isna(thinking) else f"{thinking:.0f}+{solution:.0f}"
            values = [
                last_value(tokenizer.decode(answer.token_ids[: answer.thinking_tokens])) for answer in ours.itertuples()
            ]
            same = [
                value is not None and float(value) == float(answer)
                for value, answer in zip(values, ours["answer"], strict=True)
            ]
            rows.append((model, budget, str(len(same)), str(sum(same))))
    return rows


def transcripts(answers: dict[str, pd.DataFrame], tokenizer: PreTrainedTokenizerBase, problems: int) -> str:
    """The answers of both models to the first problems, at the training budget and without one, as Markdown."""
    parts = []
    for problem in range(problems):
        lines = []
        for model, found in answers.items():
            ours = found[found["problem"] == problem]
            at_budget = ours[(ours["method"] == "separate") & (ours["thinking_budget"] == TRAINED_AT)]
            for name, row in (("budget", at_budget), ("unlimited", ours[ours["method"] == "unconstrained"])):
                answer = next(row.itertuples())
                lines.append(f"{model}, {name}: {answer.outcome}\n{text(answer, tokenizer).strip()}\n")
        expected = ", ".join(answer.answers)
        said = "\n".join(lines)
        parts.append(f"**{answer.prompt}** Expected: {expected}.\n\n```\n{said}```\n")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--document", type=Path, required=True, help="Markdown with the section transcripts")
    parser.add_argument(
        "--results",
        type=Path,
        required=True,
        help=f"JSON of the report, which gets the hours, beside {ANSWERS}",
    )
    arguments = parser.parse_args()
    took, killed = seconds((RUN / "stages").read_text())
    hours = {name: round(time / HOUR, 2) for name, time in took.items()}
    hours["all"] = round(sum(time for name, time in took.items() if "-seed" not in name) / HOUR, 2)
    results = {**json.loads(arguments.results.read_text()), "hours": hours, "killed": killed}
    content = json.dumps(results, indent=1) + "\n"
    write_atomically(arguments.results, lambda path: path.write_text(content))
    said = table(("stage", "hours"), [(name, f"{time:.2f}") for name, time in hours.items()])
    details = arguments.results.with_name(ANSWERS)
    replace_section(details, "hours", said + (f"\nKilled {killed} times, which is not counted.\n" if killed else ""))
    replace_section(details, "marks", marks(results["differences"]))
    tokenizer = AutoTokenizer.from_pretrained(RUN / "base")
    names = dict.fromkeys(row["model"].removeprefix(OURS) for row in results["rows"])
    answers = {name: samples.read(RUN / "evaluation" / name) for name in names}
    header = ("model", "budget", "right answers", "whose box is the thinking's last result")
    replace_section(details, "computed", table(header, computed(answers, tokenizer)))
    read = {model: answers[model] for model in READ}
    replace_section(details, "transcripts", transcripts(read, tokenizer, PROBLEMS))
    replace_section(arguments.document, "transcripts", transcripts(read, tokenizer, IN_DOCUMENT))
    print(f"wrote {arguments.document}, {details} and {arguments.results}")


if __name__ == "__main__":
    main()
