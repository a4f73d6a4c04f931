"""Programs evaluated end to end: a small model that writes Python, the real engine, the real sandbox."""

import ast
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import CODE_BASE, ROOT, WARM, kill, results, segments
from warm import Program

from e1_trl.report import samples
from experiments.nano_code.language import problems

BUDGETS = ["32+104", "64+104", "128+104", "192+104", "unlimited"]


pytestmark = [pytest.mark.engine, pytest.mark.distributed, pytest.mark.usefixtures("sandbox")]


@pytest.fixture(scope="module")
def functions() -> list[dict[str, Any]]:
    """Problems of the miniature's language, with their tests."""
    return list(itertools.islice(problems("tests", 3, 4, set()), 48))


def written(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def asked(output: Path, *more: object) -> list[str]:
    """Arguments of an evaluation of the miniature's base."""
    fixed = ["--model", CODE_BASE, "--enforce_eager", "true", "--temperature", 0, "--output", output]
    fixed += ["--methods", "separate", "unconstrained", "--grading_time_limit", 1]
    return [str(word) for word in [*fixed, *more]]


def started(output: Path, *more: object) -> Program:
    log = output.with_suffix(".log")
    return WARM.start("e1_trl.evaluation.__main__", asked(output, *more), ROOT, log, os.environ)


def evaluated(output: Path, *more: object) -> None:
    assert started(output, *more).wait() == 0, output.with_suffix(".log").read_text()[-5000:]


def test_programs_have_the_same_table_as_answers_and_a_killed_run_the_same_as_one_that_was_not(
    functions: list[dict[str, Any]], tmp_path: Path
) -> None:
    data = written(tmp_path / "data" / "test.jsonl", functions).parent
    problems = ["--dataset_name", data, "--grader", "programs", "--instruction", "", "--budgets", *BUDGETS]
    # As many at a time in both: other batches round otherwise.
    problems += ["--concurrency", 8]
    evaluated(tmp_path / "whole", *problems)
    rows = {(row["method"], row["thinking_budget"]): row for row in results(tmp_path / "whole")["rows"]}
    assert len(rows) == 5
    for row in rows.values():
        shares = [row[name] for name in ("accuracy", "wrong", "unevaluated", "unparseable", "censored")]
        assert sum(shares) + sum(row["faults"].values()) == pytest.approx(1)
        assert row["maj_at_k"] is None and row["faults"]["ungraded"] == 0
    assert rows["unconstrained", None]["accuracy"] > 0.8 > rows["separate", 32]["accuracy"]
    report = (tmp_path / "whole" / "report.md").read_text()
    assert "| no program |" in report and "maj@k" not in report
    table = samples.read(tmp_path / "whole")
    assert set(table["grader"]) == {"programs"}
    assert all(answer.startswith("suite:") for (answer,) in table["answers"])

    process = started(tmp_path / "killed", *problems)
    while process.poll() is None and len(segments(tmp_path / "killed")) < 100:
        time.sleep(0.01)
    assert process.poll() is None
    kill(process)
    evaluated(tmp_path / "killed", *problems)
    assert (tmp_path / "killed/samples.parquet").read_bytes() == (tmp_path / "whole/samples.parquet").read_bytes()

    regrade = [sys.executable, "-m", "e1_trl.report", str(tmp_path / "whole"), "--regrade", "--grading_time_limit", "2"]
    subprocess.run(regrade, cwd=ROOT, check=True)
    again = samples.read(tmp_path / "whole")
    assert again["outcome"].equals(table["outcome"]) and not again["graded_by"].isin(table["graded_by"]).any()


def asserted(row: dict[str, Any]) -> str:
    """The tests of a problem as a function `check`."""
    code: str = json.loads(row["tests"])["code"]
    return code


def pairs(row: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Arguments and what is expected."""
    asserts = (node for node in ast.walk(ast.parse(asserted(row))) if isinstance(node, ast.Assert))
    compared = [node.test for node in asserts if isinstance(node.test, ast.Compare)]
    return [
        (ast.literal_eval(each.left.args[0]), ast.literal_eval(each.comparators[0]))
        for each in compared
        if isinstance(each.left, ast.Call)
    ]


def of_humanevalplus(row: dict[str, Any]) -> dict[str, Any]:
    return {"task_id": row["problem"][:20], "prompt": row["problem"], "entry_point": "f", "test": asserted(row)}


def of_leetcode(row: dict[str, Any]) -> dict[str, Any]:
    # As in the authors' file: the query on the Hub is asked with words that the miniature does not know.
    return {"question": row["problem"], "tests": json.loads(row["tests"]), "entry_point": "f"}


def of_codeforces(row: dict[str, Any]) -> dict[str, Any]:
    tests = [{"input": f"{given}\n", "output": f"{expected}\n"} for given, expected in pairs(row)]
    return {"question": row["problem"], "tests": tests, "problem_id": f"{len(row['problem'])}A"}


def of_livecodebench(row: dict[str, Any]) -> dict[str, Any]:
    tests = [
        {"input": json.dumps(given), "output": json.dumps(expected), "testtype": "functional"}
        for given, expected in pairs(row)
    ]
    return {
        "question_id": row["problem"],
        "question_content": row["problem"],
        "contest_date": "2024-10-01T00:00:00",
        "starter_code": "def f(x):",
        "public_test_cases": json.dumps(tests[:1]),
        "private_test_cases": json.dumps(tests[1:]),
        "metadata": json.dumps({"func_name": "f"}),
    }


ROWS = {
    "humanevalplus": of_humanevalplus,
    "leetcode": of_leetcode,
    "codeforces": of_codeforces,
    "livecodebench": of_livecodebench,
}


@pytest.mark.parametrize("name", ROWS)
def test_every_benchmark_of_programs_runs_from_a_local_file(
    name: str, functions: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = written(tmp_path / "benchmarks" / f"{name}.jsonl", [ROWS[name](row) for row in functions[:24]]).parent
    problems = ["--benchmark", name, "--local_benchmarks", folder, "--concurrency", 2]
    budget = ["--budgets", "128+104", "--max_prompt_length", 700]
    evaluated(tmp_path / "whole", *problems, *budget)
    rows = results(tmp_path / "whole")["rows"]
    title = "codeforces-sample-tests" if name == "codeforces" else name
    assert {row["benchmark"] for row in rows} == {title}
    assert [row["problems"] for row in rows] == [24, 24]
    if name in ("humanevalplus", "leetcode"):  # whose prompts are the problems alone
        assert max(row["accuracy"] for row in rows) > 0.5
    else:
        assert all(row["accuracy"] == 0 for row in rows)
