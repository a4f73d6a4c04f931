"""Benchmarks are found by name in a local folder, with the paper's sampling."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import DATA

from e1_trl.answers.kinds import INSTRUCTION
from e1_trl.answers.programs.suite import Suites
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.benchmarks import BENCHMARKS, Benchmark
from e1_trl.problems.load import load_benchmark
from e1_trl.problems.prompts import identity

pytestmark = pytest.mark.usefixtures("datasets_cache")


def write(folder: Path, name: str, **columns: object) -> None:
    (folder / name).write_text(json.dumps({"problem": "1 + 1?", **columns}) + "\n")


def test_a_local_benchmark_is_found_by_the_beginning_of_its_name(tmp_path: Path) -> None:
    write(tmp_path, "minerva272.jsonl", answer="2")
    write(tmp_path, "math500.jsonl", answer="2", answers=["2", "two"], solution="It is 2.")
    # The columns, the grader and the problems left out are those of the dataset that is trained on.
    (tmp_path / "excluded.jsonl").write_text(json.dumps({"id": identity("1 + 1?")}) + "\n")
    other = {"problem_column": "question", "answer_column": "final", "exclude": str(tmp_path / "excluded.jsonl")}
    arguments = ProblemArguments(grader="programs", local_benchmarks=tmp_path, **other)
    assert load_benchmark("minerva", arguments)[0]["answers"][:] == [["2"]]
    (row,) = load_benchmark("math500", arguments)[0]
    assert row["answers"] == ["2", "two"]
    assert row["prompt"] == [{"role": "user", "content": f"1 + 1? {INSTRUCTION}"}]
    (row,) = load_benchmark("math500", replace(arguments, instruction="Box it."))[0]
    assert row["prompt"][0]["content"] == "1 + 1? Box it."


def test_a_benchmark_knows_where_problem_and_answer_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "rows.jsonl", question="2 + 2?", answer="It is #### not 5.\n#### 4")
    benchmark = Benchmark(str(tmp_path / "rows.jsonl"), "train", problem_column="question", answer_after="####")
    monkeypatch.setitem(BENCHMARKS, "rows", benchmark)
    (row,) = load_benchmark("rows", ProblemArguments(problem_column="problem", instruction=""))[0]
    assert (row["prompt"], row["answers"]) == ([{"role": "user", "content": "2 + 2?"}], ["4"])

    tests = [{"input": str(n), "output": str(n), "type": "stdin"} for n in range(20)]
    write(tmp_path, "programs.jsonl", question="Echo it.", tests=tests)
    benchmark = Benchmark(str(tmp_path / "programs.jsonl"), "train", None, "programs", "question", "tests")
    monkeypatch.setitem(BENCHMARKS, "echo", benchmark)
    (row,) = load_benchmark("echo", ProblemArguments(max_tests=15))[0]
    assert len(Suites()[row["answers"][0]].cases) == 20  # all, whatever the dataset runs

    # Several required answers are one, not alternatives.
    write(tmp_path, "several.jsonl", question="1 + 1?", final_answer=["$(0, 2)$", "$(0, -2)$"])
    there = replace(BENCHMARKS["olympiadbench"], hub_id=str(tmp_path / "several.jsonl"))
    monkeypatch.setitem(BENCHMARKS, "olympiadbench", there)
    (row,) = load_benchmark("olympiadbench", ProblemArguments())[0]
    assert row["answers"] == ["$(0, 2)$, $(0, -2)$"]


def test_a_folder_without_or_with_two_files_of_the_benchmark_is_an_error(tmp_path: Path) -> None:
    arguments = ProblemArguments(local_benchmarks=tmp_path)
    with pytest.raises(ValueError, match=r"^benchmark amc: .* must hold one file amc\*.jsonl .*, it has: none$"):
        load_benchmark("amc", arguments)
    write(tmp_path, "amc22.jsonl", answer="2")
    write(tmp_path, "amc23.jsonl", answer="2")
    with pytest.raises(ValueError, match=r"it has: amc22.jsonl, amc23.jsonl$"):
        load_benchmark("amc", arguments)
    with pytest.raises(
        ValueError, match=r"^unknown benchmark 'aime'; available are aime2024, .*, leetcode, a dotted path"
    ):
        load_benchmark("aime", arguments)


@pytest.mark.parametrize(
    ("name", "count"),
    [("aime2024", 30), ("amc", 83), ("math500", 500), ("minerva", 272), ("olympiadbench", 675), ("gsm8k", 1319)],
)
def test_real_benchmarks_load(name: str, count: int) -> None:
    folder = DATA / "math_eval"
    if not folder.exists():
        pytest.skip(f"{folder} is not on this machine")
    assert len(load_benchmark(name, ProblemArguments(local_benchmarks=folder))[0]) == count
