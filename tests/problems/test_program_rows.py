"""Rows of programming problems: how they are asked, what their tests become, and which are left out."""

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from e1_trl.answers.programs.rows import in_block, references
from e1_trl.answers.programs.suite import Rule, Suite, Suites
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import load_problems, make_problems
from e1_trl.problems.prompts import identity
from e1_trl.problems.selection import exclude

pytestmark = pytest.mark.usefixtures("datasets_cache")

PIPED = {"inputs": ["1\n2\n", "5\n6\n"], "outputs": ["3\n", "11\n"]}
TACO = {"problem": "Add two numbers.", "tests": json.dumps(PIPED), "solutions": ["print(int(input()) + int(input()))"]}
LISTED = {"problem": "Double it.", "tests": json.dumps([{"type": "stdin_stdout", "input": "1", "output": "2"}])}
CALL = {"input": "1\n2", "output": "3", "testtype": "functional", "metadata": {"func_name": "add"}}
UNNAMED = json.dumps([{key: value for key, value in CALL.items() if key != "metadata"}])
LIVE = {"problem": "Add.", "tests": json.dumps([CALL]), "starter_code": "def add(a, b):"}


def make(rows: list[dict[str, Any]], **fields: Any) -> Dataset:
    return make_problems(Dataset.from_list(rows), "rows", ProblemArguments(grader="programs", **fields))


def suite_of(problem: dict[str, Any]) -> Suite:
    return Suites()[problem["answers"][0]]


def request(row: dict[str, Any], **fields: Any) -> str:
    (problem,) = make([row], **fields)
    (message,) = problem["prompt"]
    assert message["role"] == "user" and problem["problem"] == row["problem"]
    return message["content"]


def test_tests_become_the_accepted_answer_and_their_column_goes() -> None:
    problems = make([TACO, {**LISTED, "solutions": None}])
    assert sorted(problems.column_names) == ["answers", "key", "problem", "prompt", "solutions"]
    suites = [(len(suite.cases), suite.call, suite.rule) for suite in map(suite_of, problems)]
    assert suites == [(2, None, Rule.TOLERANT), (1, None, Rule.TOLERANT)]
    for column, tests in (
        ({"metadata": json.dumps({"func_name": "add"})}, UNNAMED),
        ({"entry_point": "add"}, UNNAMED),
        ({"entry_point": "S().add"}, '{"type": "assert", "code": "assert candidate(1) == 2"}'),
    ):
        (problem,) = make([{"problem": "Add.", "tests": tests, **column}])
        assert suite_of(problem).call == "add"
    (live,) = make([LIVE])
    assert suite_of(live).rule is Rule.EXACT
    (listed,) = make([{**LISTED, "tests": [{"type": "stdin", "input": "1", "output": "2", "testtype": None}]}])
    assert suite_of(listed).rule is Rule.TOLERANT


def test_fifteen_tests_with_the_longest_inputs_are_kept() -> None:
    many = {"problem": "Zero.", "tests": json.dumps({"inputs": [str(10**n) for n in range(40)], "outputs": ["0"] * 40})}
    (problem,) = make([many])
    assert [case.input for case in suite_of(problem).cases] == [str(10**n) for n in range(25, 40)]
    (problem,) = make([many], max_tests=0)
    assert len(suite_of(problem).cases) == 40
    with pytest.raises(ValueError, match="max_tests is -1; it must be"):
        ProblemArguments(max_tests=-1)


def test_both_ways_of_asking_are_those_of_their_sources() -> None:
    end = "Please place the solution code in the following format:\n```python\n# Your solution code here\n```"
    assert request(TACO) == f"Add two numbers.\n\nWrite Python code to solve the problem. {end}"
    assert request(LIVE) == (
        "Add.\n\nSolve the problem starting with the provided function header.\n\nFunction header:\n```\n"
        f"def add(a, b):\n```\n\n{end}"
    )
    assert request(TACO, program_prompt="deepcoder") == "Add two numbers."
    called = (
        "You will use the following starter code to write the solution to the problem and enclose your code within "
        "delimiters.\n```python\ndef add(a, b):\n```"
    )
    piped = (
        "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on the "
        "sample inputs). Enclose your code within delimiters as follows. Ensure that when the python program runs, it "
        "reads the inputs, runs the algorithm and writes output to STDOUT.\n```python\n# YOUR CODE HERE\n```"
    )
    for starter, form in (("def add(a, b):", called), ("", piped)):
        assert request({**LIVE, "starter_code": starter}, program_prompt="deepcoder") == (
            "You are an expert Python programmer. You will be given a question (problem specification) and will "
            "generate a correct Python program that matches the specification and passes all tests.\n\n"
            f"Add.### Format: {form}\n\n### Answer: (use the provided format with backticks)\n\n"
        )
    assert request(TACO, instruction="") == "Add two numbers."
    assert request(TACO, instruction="In Python.") == "Add two numbers. In Python."
    for style in ("acereason", "deepcoder"):
        assert "{x} {starter}" in request({**LIVE, "problem": "{x} {starter}"}, program_prompt=style)
    with pytest.raises(ValueError, match="program_prompt is 'other'; it must be one of acereason, deepcoder"):
        ProblemArguments(program_prompt="other")


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ("no JSON", "no JSON"),
        (json.dumps({"inputs": [{"a": "x" * 10**6}], "outputs": ["1"]}), "expected a text"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_unreadable_tests_are_dropped_with_a_reason(tests: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    problems = make([{**TACO, "tests": tests}, TACO], max_unusable=0.5)
    assert len(problems) == 1
    assert "1 of 2 rows cannot be used" in caplog.text and reason in caplog.text
    assert max(map(len, caplog.text.splitlines())) < 1000
    with pytest.raises(ValueError, match="1 of 2 rows cannot be used") as error:
        make([{**TACO, "tests": tests}, TACO])
    assert reason in str(error.value) and "tests of a known shape" in str(error.value)


def test_a_file_names_what_is_left_out_wherever_it_stands(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    named = tmp_path / "failing.jsonl"
    mine = json.dumps({"id": identity(" Add  two\nnumbers."), "problem": "Add\u2028two"}, ensure_ascii=False)
    named.write_text(f"\n{mine}\n\n")  # as files that are joined may have empty lines
    rows = [{key: row[key] for key in ("problem", "tests")} for row in (LISTED, TACO)]
    assert make(rows, exclude=str(named))["problem"] == ["Double it."]
    assert "left out 1 of 2 problems" in caplog.text
    assert len(make(rows, exclude="")) == 2
    double = [row for row in rows if row["problem"] == "Double it."]
    assert make(double, exclude=str(named))["problem"] == ["Double it."]
    assert "left out 0 of 1 problems" in caplog.text  # a file for another dataset is noticed
    with pytest.raises(ValueError, match="all 1 problems are named in"):
        exclude(make(rows[1:]), named)
    with pytest.raises(ValueError, match="`e1 validate --config RECIPE` writes that of programs"):
        make(rows, exclude=str(tmp_path / "none.jsonl"))
    for line in ("x", "[]", "{}"):
        named.write_text(f"{line}\n")
        with pytest.raises(ValueError, match="must hold lines of JSON, each with an id"):
            make(rows, exclude=str(named))


def test_a_table_holds_names_and_suites_that_are_gone_are_read_again(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({**TACO, "tests": TACO["tests"].replace("1", "1" * n)}) + "\n" for n in (1, 9999))
    )
    arguments = ProblemArguments(grader="programs")
    first = load_problems(str(rows), "train", arguments)
    assert all(len(name) == len("suite:") + 16 for (name,) in first["answers"])
    for file in Suites().folder.iterdir():
        file.unlink()
    again = load_problems(str(rows), "train", arguments)
    assert again["answers"][:] == first["answers"][:]
    assert [len(suite_of(row).cases[-1].input) for row in again] == [4, 10_002]


def test_known_solutions_are_a_text_or_a_list_and_stand_in_one_block() -> None:
    for solutions in (["a", " ", "b"], json.dumps(["a", "b"])):
        assert references({"solutions": solutions}, "solutions") == ["a", "b"]
    assert references({"solutions": "print(1)"}, "solutions") == ["print(1)"]
    for row in ({"solutions": None}, {"solutions": []}, {}):
        assert references(row, "solutions") == []
    assert in_block("print(1)") == "```python\nprint(1)\n```"
    assert in_block("x = '````'") == "`````python\nx = '````'\n`````"
    fenced = "Here:\n```python\nprint(1)\n```"
    assert in_block(fenced) == fenced
