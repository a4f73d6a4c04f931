"""Programs evaluated end to end: a small model that writes Python, the real engine, the real sandbox."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import CODE_BASE, ROOT, results
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


def evaluated(output: Path, *more: object) -> None:
    """Run an evaluation of the miniature's base to its end."""
    fixed = ["--model", CODE_BASE, "--enforce_eager", "true", "--temperature", 0, "--output", output]
    fixed += ["--methods", "separate", "unconstrained", "--grading_time_limit", 1]
    words = [str(word) for word in [*fixed, *more]]
    log = output.with_suffix(".log")
    assert Program("e1_trl.evaluation.command", words, ROOT, log, os.environ).wait() == 0, log.read_text()[-5000:]


@pytest.mark.slow
def test_programs_have_the_same_table_and_regrade_alike(functions: list[dict[str, Any]], tmp_path: Path) -> None:
    data = written(tmp_path / "data" / "test.jsonl", functions).parent
    problems = ["--dataset_name", data, "--grader", "programs", "--instruction", "", "--budgets", *BUDGETS]
    evaluated(tmp_path / "whole", *problems)
    rows = {(row["method"], row["thinking_budget"]): row for row in results(tmp_path / "whole")["rows"]}
    assert len(rows) == 5
    for row in rows.values():
        shares = [row[name] for name in ("accuracy", "wrong", "unevaluated", "unparseable", "unanswered")]
        assert sum(shares) + sum(row["faults"].values()) == pytest.approx(1)
        assert row["maj_at_k"] is None and row["faults"]["ungraded"] == 0
    assert rows["unconstrained", None]["accuracy"] > 0.8 > rows["separate", 32]["accuracy"]
    report = (tmp_path / "whole" / "report.md").read_text()
    assert "| no program |" in report and "maj@k" not in report
    table = samples.read(tmp_path / "whole")
    assert set(table["grader"]) == {"programs"}
    assert all(answer.startswith("suite:") for (answer,) in table["answers"])

    samples.write(table.assign(outcome="ungraded"), tmp_path / "whole")
    regrade = ["report", str(tmp_path / "whole"), "--regrade"]
    subprocess.run([sys.executable, "-m", "e1_trl.cli", *regrade], cwd=ROOT, check=True)
    assert samples.read(tmp_path / "whole")["outcome"].equals(table["outcome"])


@pytest.mark.slow
def test_a_benchmark_of_programs_runs_from_a_local_file(functions: list[dict[str, Any]], tmp_path: Path) -> None:
    rows = [
        {
            "task_id": row["problem"][:20],
            "prompt": row["problem"],
            "entry_point": "f",
            "test": json.loads(row["tests"])["code"],
        }
        for row in functions[:24]
    ]
    folder = written(tmp_path / "benchmarks" / "humanevalplus.jsonl", rows).parent
    problems = ["--benchmark", "humanevalplus", "--local_benchmarks", folder, "--concurrency", 2]
    evaluated(tmp_path / "whole", *problems, "--budgets", "128+104", "--max_prompt_length", 700)
    found = results(tmp_path / "whole")["rows"]
    assert [(row["benchmark"], row["problems"]) for row in found] == [("humanevalplus", 24)] * 2
    assert max(row["accuracy"] for row in found) > 0.5
