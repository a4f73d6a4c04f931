"""Problems that a model never or always solves are found by the script in docs/training.md, and not trained on."""

import json
import logging
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from conftest import BASE, NANO, ROOT, options
from fabricated import cell, stored

from e1_trl.answers.grade import Outcome
from e1_trl.evaluation.arguments import parse
from e1_trl.evaluation.prepare import prepare
from e1_trl.problems.prompts import identity
from e1_trl.train import main as train

(SCRIPT,) = re.findall(r"<!-- idle.py -->\n```python\n(.*?)```", (ROOT / "docs" / "training.md").read_text(), re.DOTALL)


def problem(number: int) -> str:
    return f"a={number};a?"


def answered(*outcomes: str, first: int = 0) -> pd.DataFrame:
    """Answers to problems from the first on: right, wrong, or ? for ungraded."""
    table = cell([[outcome == "r" for outcome in each] for each in outcomes], 8)
    ungraded = [outcome == "?" for each in outcomes for outcome in each]
    return table.assign(
        problem_id=[identity(problem(number + first)) for number in table["problem"]],
        outcome=table["outcome"].mask(pd.Series(ungraded), Outcome.UNGRADED.value),
    )


def idle(monkeypatch: pytest.MonkeyPatch, *words: Path) -> set[str]:
    monkeypatch.setattr(sys, "argv", ["idle.py", *map(str, words)])
    exec(SCRIPT, {})
    return {json.loads(line)["id"] for line in words[-1].read_text().splitlines()}


def test_the_script_names_what_is_never_or_always_solved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = stored(tmp_path / "one", answered("rrrrrrrr", "wwwwwwww", "rwwwwwww", "wwwwwww?"))
    other = stored(tmp_path / "other", answered("w", "w", first=3))
    expected = {identity(problem(number)) for number in (0, 1, 3)}
    assert idle(monkeypatch, one, other, tmp_path / "exclude.jsonl") == expected


def test_an_evaluation_names_problems_as_the_training_does_whatever_is_added_to_them(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = tmp_path / "four.jsonl"
    rows = [{"problem": problem(number), "answer": str(number), "problem_id": "1A"} for number in range(4)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepared = prepare(parse(options(data, tmp_path / "none", "--dataset_split", "train", "--budgets", "8+8")))
    assert [each.problem_id for each in prepared.plan.problems] == [identity(problem(number)) for number in range(4)]
    file = tmp_path / "exclude.jsonl"
    assert len(idle(monkeypatch, stored(tmp_path / "one", answered("rw" * 4, "w" * 8, "rw" * 4)), file)) == 1
    batch = ("--per_device_train_batch_size", 8, "--gradient_accumulation_steps", 1, "--dry_run", "true")
    model = ("--config", NANO, "--model_name_or_path", BASE, "--use_cpu", "true", "--output_dir", tmp_path / "run")
    with caplog.at_level(logging.WARNING):
        train([str(word) for word in (*model, "--dataset_name", data, "--exclude", file, *batch)])
    assert "training         3 prompts" in capsys.readouterr().out
    assert f"left out 1 of 4 problems: they are named in {file}" in caplog.text
