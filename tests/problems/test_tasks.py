"""The benchmarks of programs: read from their own rows, asked for as the paper's authors do, and graded right."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e1_trl.answers.grade import Grader, Outcome
from e1_trl.answers.kinds import make_grader
from e1_trl.answers.programs.livecodebench import Window
from e1_trl.answers.programs.rows import in_block
from e1_trl.answers.programs.suite import Suites
from e1_trl.errors import UserError
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import load_benchmark

pytestmark = pytest.mark.usefixtures("datasets_cache")


@pytest.fixture
def grader(sandbox: None) -> Iterator[Grader]:
    with make_grader(ProblemArguments(grader="programs"), 2) as opened:
        yield opened


def written(folder: Path, name: str, *rows: dict[str, Any]) -> ProblemArguments:
    """A folder of benchmarks with one file."""
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ProblemArguments(local_benchmarks=folder)


def livecodebench_row(name: str, day: str, **more: Any) -> dict[str, Any]:
    hidden = [{"input": f"{i}\n", "output": f"{2 * i}\n", "testtype": "stdin"} for i in range(40)]
    return {
        "question_id": name,
        "question_content": f"Double a number ({name}).",
        "contest_date": f"{day}T00:00:00",
        "starter_code": "",
        "public_test_cases": json.dumps([{"input": "2\n", "output": "4\n", "testtype": "stdin"}]),
        "private_test_cases": json.dumps(hidden),
        "metadata": "{}",
        **more,
    }


METHOD = {
    "starter_code": "class Solution:\n    def double(self, n: int) -> int:\n        ",
    "public_test_cases": json.dumps([{"input": "2", "output": "4", "testtype": "functional"}]),
    "private_test_cases": json.dumps([{"input": "-3", "output": "-6", "testtype": "functional"}]),
    "metadata": json.dumps({"func_name": "double"}),
}


def test_livecodebench_has_a_window_a_template_and_all_its_tests(tmp_path: Path, grader: Grader) -> None:
    days = ("2024-07-31", "2024-08-01", "2025-01-31", "2025-02-01")
    rows = [livecodebench_row(f"on {day}", day, **(METHOD if day == "2025-01-31" else {})) for day in days]
    arguments = written(tmp_path, "livecodebench", *rows)
    problems, title = load_benchmark("livecodebench", arguments)
    assert (title, problems["key"][:]) == ("livecodebench", ["on 2024-08-01", "on 2025-01-31"])
    assert [len(Suites()[name].cases) for (name,) in problems["answers"]] == [41, 2]
    stdin, method = (prompt[0]["content"] for prompt in problems["prompt"])
    assert "Double a number (on 2024-08-01).### Format: Read the inputs from stdin" in stdin
    assert "### Format: You will use the following starter code" in method and "def double(self, n" in method
    right = [in_block("print(2 * int(input()))"), in_block("class Solution:\n    def double(self, n): return 2 * n")]
    wrong = [
        in_block("n = int(input()); print(2 * n if n < 39 else 0)"),
        in_block("class Solution:\n    def double(self, n): return 4"),
    ]
    for solutions, outcome in ((right, Outcome.CORRECT), (wrong, Outcome.WRONG)):
        assert [grade.outcome for grade in grader.grade(solutions, problems["answers"][:])] == [outcome] * 2

    other, title = load_benchmark("livecodebench", arguments, ["v6", "2025-02-01", "2025-05-01"])
    assert (title, other["key"][:]) == ("livecodebench-v6-2025-02-01-2025-05-01", ["on 2025-02-01"])
    with pytest.raises(ValueError, match="there are no problems"):
        load_benchmark("livecodebench", arguments, ["v6", "2026-01-01", "2026-02-01"])


def test_a_window_names_its_files_and_refuses_what_is_none() -> None:
    assert Window().files == ["test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl"]
    assert Window("v1").files == ["test.jsonl"]
    with pytest.raises(ValueError, match=r"no release 'v7'; it has v1, .*, v6"):
        Window("v7")
    for day in ("20240801", "2024-8-1"):
        with pytest.raises(UserError, match=f"expected a day such as 2024-08-01, found '{day}'"):
            Window("v5", day)
    with pytest.raises(ValueError, match="has no problems from"):
        Window("v5", "2025-02-01", "2025-02-01")


SUM = {
    "problem_id": "1A",
    "description": "Add two numbers.",
    "input": "Two numbers.",
    "output": "Their sum.",
    "tags": ["math"],
    "time_limit_ms": 1000,
    "memory_limit_mb": 256,
    "examples": [["1 2\n", "3\n"]],
}
OFFICIAL = {
    "id": "1/B",
    "description": "Halve n.",
    "input_format": "n",
    "output_format": "Its half.",
    "tags": ["math"],
    "time_limit": 1.5,
    "memory_limit": 256.0,
    "examples": [{"input": "6\n", "output": "3\n"}],
    "input_mode": "stdio",
    "official_tests_complete": True,
    "official_tests": [{"input": "6\n", "output": "3\n"}, {"input": "8\n", "output": "4\n"}],
    "generated_checker": None,
}


def test_codeforces_uses_official_tests_or_says_that_it_has_only_samples(tmp_path: Path, grader: Grader) -> None:
    problems, title = load_benchmark("codeforces", written(tmp_path, "codeforces", SUM))
    assert (title, problems["key"][:]) == ("codeforces-sample-tests", ["1A"])
    assert problems["problem"][0] == "Add two numbers."
    assert problems["prompt"][0][0]["content"].endswith(
        "Tags:\n['math']\n\nTime Limit: 1000 ms\nMemory Limit: 256 MB\n"
    )

    problems, title = load_benchmark("codeforces", written(tmp_path, "codeforces", OFFICIAL))
    assert (title, problems["key"][:]) == ("codeforces-official-tests", ["1B"])
    assert "Time Limit: 1500 ms" in problems["prompt"][0][0]["content"]
    solutions = [in_block("print(int(input()) // 2)"), in_block("print(3)")]
    grades = grader.grade(solutions, problems["answers"][:] * 2)
    assert [grade.outcome for grade in grades] == [Outcome.CORRECT, Outcome.WRONG]

    cut = {**OFFICIAL, "official_tests_complete": False, "input_format": None, "tags": None}
    problems, title = load_benchmark("codeforces", written(tmp_path, "codeforces", OFFICIAL, cut))
    assert title == "codeforces-sample-tests"
    assert [len(Suites()[name].cases) for (name,) in problems["answers"]] == [2, 1]
    assert "None" not in problems["prompt"][1][0]["content"]
    files = {**OFFICIAL, "input_mode": "file"}
    checked = {**OFFICIAL, "generated_checker": "print(1)"}
    unusable = ({**OFFICIAL, "description": None}, files, checked)
    problems, title = load_benchmark("codeforces", written(tmp_path, "codeforces", *[OFFICIAL] * 300, *unusable))
    assert (len(problems), title) == (300, "codeforces-official-tests")
    with pytest.raises(ValueError, match=r"1 of 2 rows .*row 1: generated_checker says .*; max_unusable"):
        load_benchmark("codeforces", written(tmp_path, "codeforces", OFFICIAL, checked))


def test_leetcode_is_read_as_it_lies_on_the_hub(tmp_path: Path, grader: Grader) -> None:
    row = {
        "task_id": "doubling",
        "query": "Double it.\n```python\nclass Solution:\n    def double(self, n: int) -> int:\n```\n",
        "entry_point": "Solution().double",
        "test": "def check(candidate):\n    assert candidate(n = 2) == 4\n    assert candidate(n = 5) == 10\n",
    }
    problems, title = load_benchmark("leetcode", written(tmp_path, "leetcode", row))
    assert (title, problems["key"][:]) == ("leetcode", ["doubling"])
    assert problems["prompt"][0][0]["content"].startswith("Please solve the programming task below")
    assert problems["problem"][0].startswith("Double it.")
    solutions = [
        in_block("class Solution:\n    def double(self, n): return 2 * n"),
        in_block("def double(n): return 4"),
    ]
    grades = grader.grade(solutions, problems["answers"][:] * 2)
    assert [grade.outcome for grade in grades] == [Outcome.CORRECT, Outcome.WRONG]


def test_an_instruction_takes_the_place_of_what_a_benchmark_adds(tmp_path: Path) -> None:
    text = "Double a number (doubling)."
    method = f"{text}\n\n{METHOD['starter_code']} Go."
    for more, instruction, wanted in (({}, "Go.", f"{text} Go."), ({}, "", text), (METHOD, "Go.", method)):
        arguments = written(tmp_path, "livecodebench", livecodebench_row("doubling", "2024-09-01", **more))
        (problem,) = load_benchmark("livecodebench", replace(arguments, instruction=instruction))[0]
        assert (problem["problem"], problem["prompt"][0]["content"]) == (text, wanted)
