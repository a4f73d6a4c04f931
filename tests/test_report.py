"""The report on answers made up for it: what is said of few problems, few samples, or none that differ."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from e1_trl.evaluation import report
from e1_trl.grading import Outcome


def answers(correct: list[list[bool]], thinking_budget: int) -> pd.DataFrame:
    """One cell: problems × samples."""
    rows = [
        {
            **{"model": "m", "benchmark": "b", "method": "separate", "seed": 0, "commit": "c"},
            **{"thinking_budget": thinking_budget, "solution_budget": 8, "problem": problem, "sample": sample},
            **{"thinking_end": "forced", "truncated": False, "thinking_tokens": thinking_budget, "solution_tokens": 4},
            **{"correct": right, "outcome": Outcome.CORRECT if right else Outcome.WRONG},
            **{"boxed": str(right), "answers": [f"{problem}"]},
        }
        for problem, samples in enumerate(correct)
        for sample, right in enumerate(samples)
    ]
    return pd.DataFrame(rows).astype({"thinking_budget": "Int64", "solution_budget": "Int64"})


def write(output: Path, *cells: pd.DataFrame) -> dict[str, list[dict[str, object]]]:
    report.write(pd.concat(cells, ignore_index=True), output)
    return json.loads((output / "results.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("correct", [[[True, False, False]], [[False]], [[False], [False]]])
def test_few_problems_or_none_right_give_numbers_all_the_same(tmp_path: Path, correct: list[list[bool]]) -> None:
    results = write(tmp_path, *(answers(correct, budget) for budget in (16, 32, 64)))
    assert len(results["rows"]) == 3
    assert all(0 <= row["ci_low"] <= row["accuracy"] <= row["ci_high"] <= 1 for row in results["rows"])


def test_pass_at_k_is_reported_at_powers_of_two_up_to_all_samples(tmp_path: Path) -> None:
    correct = np.arange(2 * 6).reshape(2, 6) % 5 == 0
    (row,) = write(tmp_path, answers(correct.tolist(), 16))["rows"]
    assert list(row["pass_at_k"]) == ["1", "2", "4", "6"]
    assert row["pass_at_k"]["1"] == pytest.approx(row["accuracy"]) and row["pass_at_k"]["6"] == 1
    assert "| k | pass@2 | pass@4 | pass@6 | maj@k |" in (tmp_path / "report.md").read_text()


def test_an_answer_that_is_missing_does_not_vote(tmp_path: Path) -> None:
    cell = answers([[True, False, False], [True, False, False]], 16)
    cell["boxed"] = ["4", None, None] * 2
    report.write_samples(cell, tmp_path)
    (row,) = report.write(report.read_samples(tmp_path), tmp_path)
    assert row.maj_at_k == 1


def test_only_answers_to_the_same_problems_are_paired(tmp_path: Path) -> None:
    one = answers([[True], [False]], 16)
    same, other = one.assign(model="same"), one.assign(model="other", problem=one["problem"] + 1)
    reworded = one.assign(model="reworded", answers=[["7"], ["8"]])
    compared = write(tmp_path, one, same, other, reworded)["differences"]
    assert [difference["model"] for difference in compared] == ["same"]


def test_a_report_is_on_one_benchmark(tmp_path: Path) -> None:
    one = answers([[True], [False]], 16)
    with pytest.raises(ValueError, match="these are of b, c"):
        write(tmp_path, one, one.assign(benchmark="c"))
