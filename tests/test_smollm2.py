"""The word problems of SmolLM2: what is held out, equations, planted thoughts, and resuming."""

import json
import os
import random
import re
import subprocess
import sys
from fractions import Fraction
from itertools import islice
from pathlib import Path

import pandas as pd
import pytest
import yaml
from conftest import DATA, ROOT

from e1_trl.report.markdown import around_section
from experiments.pretraining import SEED, last_checkpoint
from experiments.real.problems import Problem, content_words, read
from experiments.results import Results
from experiments.smollm2 import bases, policies
from experiments.smollm2.equations import Step, Worked, find, numbers_in, work_out
from experiments.smollm2.make_base import TRAINED_AT
from experiments.smollm2.overlap import nearest
from experiments.smollm2.problems import OVERLAP, clusters, hold_out
from experiments.smollm2.thoughts import concise, planted, solution

FILES = [DATA / "math_train" / f"{name}.jsonl" for name in ("mawps", "svamp")]
needs_problems = pytest.mark.skipif(not all(file.exists() for file in FILES), reason=f"no MAWPS or SVAMP in {DATA}")

# As Qwen2.5-Math has them.
RAW = {
    "mawps": {"input": "Joan had 3 shells and  found 4. How many has she?", "target": 7.0, "type": "addsub", "idx": 0},
    "svamp": {"Body": "Each pen costs 1.5.", "Question": "How much do 3 cost?", "Answer": 4.5, "ID": "chal-1"},
}


def test_the_document_makes_the_problems_from_what_it_names(tmp_path: Path) -> None:
    for name, row in RAW.items():
        folder = tmp_path / "Qwen2.5-Math" / "evaluation" / "data" / name
        folder.mkdir(parents=True)
        (folder / "test.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "data" / "math_train").mkdir(parents=True)
    text = (ROOT / "docs" / "smollm2.md").read_text()
    (program,) = re.findall(r"<!-- problems -->\n```python\n(.*?)```", text, re.S)
    environment = {**os.environ, "E1_TRL_DATA": str(tmp_path / "data")}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True)
    assert read([tmp_path / "data" / "math_train" / f"{name}.jsonl" for name in RAW]) == [
        Problem("Joan had 3 shells and found 4. How many has she?", "7"),
        Problem("Each pen costs 1.5. How much do 3 cost?", "4.5"),
    ]


ALIKE = [
    ("Tom has 5 apples. He eats 2. How many are left?", "Ann has 15 apples. She eats 12. How many are left?"),
    ("Tom has 5 apples in a box.", "tom  has five apples in a box ."),
    ("There are 2 birds on the roof.", "There is 1 bird on the roof."),
    ("Sam paid $1,250.50 for the old boat.", "Sam paid $ 3 for the old boat"),
    ("Eve ’s cat ate 3 mice in the barn.", "Joe's cat ate 7 mice in the barn."),
    ("Max ate 2 times as many sweets.", "His sister ate 12 times as many sweets."),
    ("Oak trees grow in the old park. Workers plant 3 more.", "Elm trees grow in the old park. Workers plant 5 more."),
]


def test_problems_that_differ_in_names_and_numbers_are_one_template_and_in_what_happens_are_not() -> None:
    def are_one_template(*texts: str) -> bool:
        return len(clusters([Problem(text, "1") for text in texts])) == 1

    assert all(are_one_template(*pair) for pair in ALIKE)
    assert not are_one_template("Tom has 5 apples. He eats 2.", "Tom has 5 apples. He buys 2.")
    assert not are_one_template("How many apples are there?", "How many pears are there?")
    chain = ["a b c d e f g h i j", "b c d e f g h i j k", "c d e f g h i j k l"]
    assert are_one_template(*chain) and not are_one_template(chain[0], chain[2])


def overlapping(held: list[Problem], rest: list[Problem]) -> list[tuple[str, str]]:
    """Pairs across the two sides that are one template, found without `clusters`."""
    words = content_words([problem.text for problem in held + rest])
    return [
        (one.text, other.text)
        for one, ones in zip(held, words, strict=False)
        for other, others in zip(rest, words[len(held) :], strict=True)
        if len(ones & others) >= OVERLAP * len(ones | others) > 0
    ]


def test_near_duplicates_land_on_one_side_at_any_seed_and_in_any_order() -> None:
    problems = [Problem(text, "1") for pair in ALIKE[1:7] for text in pair]
    for seed in range(50):
        held, rest = hold_out(problems, 6, seed)
        assert len(held) == 6
        assert not overlapping(held, rest)
        assert (held, rest) == hold_out(problems[::-1], 6, seed)


def test_equations_are_found_where_one_alone_gives_the_answer() -> None:
    distracted = find(Problem("Joan found 70 shells and 31 crabs. She gave Sam 27 shells. How many are left?", "43"))
    assert distracted is not None and distracted.steps == ["70-27=43"]
    two_steps = find(Problem("John had 5 figures, but needed 7. If each costs $15.50, how much does he need?", "31"))
    assert two_steps is not None and two_steps.steps == ["7-5=2", "2*15.5=31"]
    assert find(Problem("Ann has 4 pears and eats 2. How many are left?", "2")) is None  # 4-2 or 4/2
    assert find(Problem("Dan has $ 4. A bar costs $ 8, and his friend gave him $ 5. What is left?", "1")) is None
    assert find(Problem("Ann has 4 pears and eats 1. How many are left?", "17")) is None


@pytest.fixture(scope="module")
def some_worked() -> list[Worked]:
    """200 problems, half of them on other numbers."""
    worked = (found for problem in hold_out(read(FILES), 1000, 17)[1] if (found := find(problem)))
    rng = random.Random(0)
    return [each.on_other_numbers(rng) if place % 2 else each for place, each in enumerate(islice(worked, 200))]


def computed(step: str) -> bool:
    """Whether `70-27=43` is right."""
    match = re.fullmatch(r"([\d.]+)([-+*/])([\d.]+)=([\d.]+)", step)
    assert match, step
    left, right, value = (Fraction(match[place]) for place in (1, 3, 4))
    return value == {"+": left + right, "-": left - right, "*": left * right, "/": left / right}[match[2]]


@needs_problems
def test_equations_and_thoughts_of_real_problems_compute_their_answers(some_worked: list[Worked]) -> None:
    rng = random.Random(0)
    for worked in some_worked:
        answer = Fraction(worked.problem.answer.replace(",", ""))
        assert work_out(worked.equation, numbers_in(worked.problem.text))[-1] == answer
        for thought in (concise(worked), planted(worked, rng)):
            steps = [word.rstrip(".:") for word in thought.split() if "=" in word]
            assert steps and all(map(computed, steps))
            assert Fraction(steps[-1].partition("=")[2]) == answer
        boxed = re.fullmatch(r"\nThe answer is \\boxed\{([\d.]+)\}\.", solution(worked))
        assert boxed is not None and Fraction(boxed[1]) == answer


def test_other_numbers_go_into_the_equation_as_evenly() -> None:
    worked = Worked(Problem("72 pens and 8.50 dollars for 9 friends, 1 each?", "8"), (Step(0, "/", 2),))
    for seed in range(100):
        other = worked.on_other_numbers(random.Random(seed))
        pens, dollars, friends, one = numbers_in(other.problem.text)
        assert other.problem.answer == str(pens // friends) and pens % friends == 0 and one == 1
        assert 36 <= pens <= 144 and Fraction("4.25") <= dollars <= 17


def test_a_warm_up_resumes_from_its_last_whole_checkpoint(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None
    for step in (50, 100, 150):
        (tmp_path / f"checkpoint-{step}").mkdir()
    for step in (50, 100):
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").touch()
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-100")


def run_script(folder: Path, **variables: str) -> list[list[str]]:
    """The commands of `e1` and `python` that the script runs in the folder, from programs that only write them down."""
    for name in ("e1", "python"):
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> commands\ntest ! -e broken\n')
        (folder / name).chmod(0o755)
    (folder / "commands").write_text("")
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", **variables}
    subprocess.run([ROOT / "experiments" / "smollm2" / "run.sh"], cwd=folder, env=environment, capture_output=True)
    return [line.split() for line in (folder / "commands").read_text().splitlines()]


def after(name: str, words: list[str]) -> str:
    return words[words.index(name) + 1]


@pytest.mark.parametrize(("variables", "name"), [({}, "e1"), ({"SEED": "43"}, "e1-seed43")])
def test_the_command_evaluates_what_it_trained_and_does_no_stage_twice(
    variables: dict[str, str], name: str, tmp_path: Path
) -> None:
    recipe = yaml.safe_load((ROOT / "experiments" / "smollm2" / "recipe.yaml").read_text())
    assert recipe["thinking_budget"] == TRAINED_AT  # of the thoughts that the base learns
    data, warm_up, training, *evaluations, report = run_script(tmp_path, **variables)
    assert (after("--what", data), after("--what", warm_up)) == ("data", "model")
    assert after("--output_dir", training) == f"runs/smollm2/{name}"
    assert ("--seed" in training) == bool(variables)
    assert [after("--model", each) for each in evaluations] == ["runs/smollm2/base", f"runs/smollm2/{name}"]
    assert [after("--output", each) for each in evaluations] == report[2:4]
    assert run_script(tmp_path, **variables) == [report]


def test_the_command_resumes_a_failed_training(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    assert [words[0] for words in run_script(tmp_path)] == ["python"]
    (tmp_path / "broken").unlink()
    assert "--resume_from_checkpoint" not in run_script(tmp_path)[2]
    stages = tmp_path / "runs" / "smollm2" / "stages"
    stages.write_text("".join(line for line in stages.open() if not line.startswith("training")))
    checkpoint = tmp_path / "runs" / "smollm2" / "e1" / "checkpoint-5"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").touch()
    training, _ = run_script(tmp_path)
    assert after("--resume_from_checkpoint", training) == "true"


def test_policies_are_compared_problem_by_problem() -> None:
    def answers(right_at: int) -> pd.DataFrame:
        """Of two problems, the first right at both budgets, the second from one on, and neither without a budget."""
        rows = [
            (
                "separate",
                budget,
                problem,
                not problem or budget >= right_at,
                f"\\boxed{{1+{problem}=2}}" if problem else "2=2",
            )
            for budget in (12, 24)
            for problem in (1, 0)
        ]
        rows += [("unconstrained", float("nan"), problem, False, "\\boxed{2}") for problem in (0, 1)]
        table = pd.DataFrame(rows, columns=["method", "thinking_budget", "problem", "right", "solution"])
        outcome = table["right"].map({True: "correct", False: "wrong"})
        return table.assign(outcome=outcome, solution_budget=table["thinking_budget"] * 0 + 20)

    # One of two budgets on one of two problems; a draw of problems has it never, once, or twice.
    assert f"{policies.less(answers(24), answers(96)):+}" == "+25.0 (+0.0 to +50.0)"
    assert policies.equations(answers(24)) == {"12": "50.0%", "24": "50.0%", "none": "0.0%"}


def test_the_document_has_both_bases_as_the_results_have_them() -> None:
    page = ROOT / "docs" / "smollm2.md"
    drawn = bases.as_table(Results()).join(around_section(page, "smollm2-bases"))
    assert page.read_text() == drawn, "run `python -m experiments.smollm2.bases`"


@pytest.mark.slow
@needs_problems
def test_the_published_overlap_with_trained_problems_is_what_the_problems_have() -> None:
    shares = nearest(SEED)
    assert Results()["smollm2-overlap"]["share_with_an_overlap_of"] == shares
    assert shares[str(OVERLAP)] == 0
