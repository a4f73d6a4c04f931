"""Reads the answers of the miniature of programs: what forced and wrong ones lacked, which right ones are not.

Called by `make results RECIPE=experiments/nano_code/recipe.yaml`, after the report.
"""

import json
import random
import re
from collections import Counter
from pathlib import Path

import pandas as pd

from e1_trl.answers.grade import Outcome
from e1_trl.answers.kinds import make_grader
from e1_trl.answers.programs.rows import arguments, as_json
from e1_trl.answers.programs.suite import Case, Suite, Suites
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.report import samples
from e1_trl.report.markdown import replace_section, table
from experiments.nano_code.language import argument, made

FOLDER, DOCUMENT = Path("runs/nano_code"), Path("docs/results/nano_code-answers.md")
MODELS = ("base", "e1")
FRESH = 60  # inputs
MOST = 3  # steps that are told apart


def missing(problem: str, thinking: str) -> int:
    """Count the steps of a problem that its thinking does not state in whole."""
    steps = [f"{part}." for part in problem.split(". ")[1:-1]]
    return sum(step not in thinking for step in steps)


def forced(answers: pd.DataFrame) -> dict[int, tuple[int, int]]:
    """Count right and all forced answers, by the number of missing steps."""
    counts: Counter[tuple[int, bool]] = Counter()
    for row in answers.itertuples():
        lacking = min(MOST, missing(row.prompt, row.thinking))
        counts[lacking, row.outcome == Outcome.CORRECT] += 1
    return {count: (counts[count, True], counts[count, True] + counts[count, False]) for count in range(MOST + 1)}


def refuted(answers: pd.DataFrame, programs: dict[str, str]) -> tuple[int, int]:
    """Count the distinct right answers that fail on fresh inputs, and all distinct right answers."""
    right = answers[answers["outcome"] == Outcome.CORRECT].drop_duplicates(["prompt", "solution"])
    suites = {}
    for problem in set(right["prompt"]):
        call, rng = made(programs[problem]), random.Random(problem)
        inputs = [argument(programs[problem], rng) for _ in range(FRESH)]
        cases = tuple(Case(arguments([given]), (as_json(call(given)),)) for given in inputs)
        suites[problem] = Suites().add(Suite(cases, "f"))
    with make_grader(ProblemArguments(grader="programs", grading_time_limit=1.0), 2) as grader:
        grades = grader.grade(right["solution"].tolist(), [[suites[problem]] for problem in right["prompt"]])
    return sum(grade.outcome not in (Outcome.CORRECT, Outcome.UNGRADED) for grade in grades), len(grades)


def misread(answers: pd.DataFrame, programs: dict[str, str]) -> tuple[int, int]:
    """Count the wrong answers that are the problem's own program with other numerals, and all wrong answers."""

    def shape(program: str) -> str:
        return re.sub(r"\d+", "0", program.removeprefix("```python\n").removesuffix("```")).strip()

    wrong = answers[answers["outcome"] == Outcome.WRONG]
    alike = [shape(row.solution) == shape(programs[row.prompt]) for row in wrong.itertuples()]
    return sum(alike), len(alike)


def main() -> None:
    problems = [json.loads(line) for line in (FOLDER / "data" / "test.jsonl").read_text().splitlines()]
    programs = {row["problem"]: row["solutions"][0] for row in problems}
    lines, failing, misreading = [], [], []
    for model in MODELS:
        answers = samples.read(FOLDER / "evaluation" / model)
        separate = answers[(answers["method"] == "separate") & (answers["thinking_end"] == "forced")]
        for budget in (32, 64):
            counts = forced(separate[separate["thinking_budget"] == budget])
            lines.append((model, str(budget), *(f"{right} of {every}" for right, every in counts.values())))
        wrong, right = refuted(answers, programs)
        failing.append(f"{wrong} of {right} of {model}")
        alike, wrong = misread(answers[answers["method"] == "unconstrained"], programs)
        misreading.append(f"{alike} of {wrong} of {model}")
    sections = {
        "forced": table(("model", "thinking budget", "whole plan", "one step missing", "two", "three or more"), lines),
        "refuted": f"Different answers that passed their tests and fail on some of {FRESH} fresh inputs: "
        f"{', '.join(failing)}.\n",
        "misread": f"Wrong answers without a budget that are the right program but for numerals: "
        f"{', '.join(misreading)}.\n",
    }
    for name, text in sections.items():
        replace_section(DOCUMENT, name, text)


if __name__ == "__main__":
    main()
