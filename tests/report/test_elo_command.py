"""`e1 elo` on tables of answers, made by hand, to contests whose ratings `test_elo.py` calculates."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from contests import FIRST, NEVER, SECOND, WITH_POINTS, WITHOUT
from fabricated import cell

from e1_trl.report import samples
from experiments.table1 import ratings as elo
from experiments.table1.elo import main

NAMES = ["1A", "1B", "2A", "2/B1", "3A", "1Z"]


def evaluation(folder: Path, *passed: list[bool], names: Sequence[str | None] = NAMES, **more: Any) -> Path:
    """An evaluation with an answer a budget for each sequence of attempts at the problems; rows are in no order."""
    folder.mkdir()
    cells = [cell([list(each) for each in tried], budget) for budget, tried in zip((None, 64), passed, strict=False)]
    table = pd.concat(cells, ignore_index=True)
    problem_id = table["problem"].map(dict(enumerate(names)))
    table = table.assign(**{"benchmark": "cf [samples]", "grader": "programs", "problem_id": problem_id} | more)
    samples.write(table.sample(frac=1, random_state=0), folder)
    return folder


@pytest.fixture
def standings(tmp_path: Path) -> Path:
    elo.write_standings(tmp_path / "standings.json", [WITH_POINTS, WITHOUT], {500: 1, 900: 2, 1000: 1}, "https://x/api")
    return tmp_path / "standings.json"


def test_evaluations_are_rated(standings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # 811 and 1001 by the calculations above, their mean 906; then 0 in both.
    some = [FIRST, NEVER, SECOND, SECOND, FIRST, FIRST]
    folder = evaluation(tmp_path / "run", some, [NEVER] * 6)
    other = evaluation(tmp_path / "other", [SECOND, NEVER, FIRST, NEVER, NEVER, NEVER], model="n")
    output = tmp_path / "new" / "elo.json"
    main([str(folder), str(other), "--standings", str(standings), "--output", str(output)])
    printed = capsys.readouterr().out
    assert "cf [samples]: Codeforces rating" in printed and f"wrote {output}" in printed
    assert "contests that the standings lack, and that do not count: 3\n" in printed
    assert "problems that their contests lack, and that do not count: 1Z\n" in printed
    lines = [[part.strip() for part in line.split("│")[1:-1]] for line in printed.splitlines() if "separate" in line]
    assert lines == [
        ["m", "separate", "unlimited+8", "906", "811 – 1001", "75.0", "2", "4", "8"],
        ["m", "separate", "64+8", "0", "0 – 0", "0.0", "2", "4", "8"],
        ["n", "separate", "unlimited+8", "811", "811 – 811", "25.0", "2", "4", "8"],
    ]
    record = json.loads(output.read_text())
    assert record["benchmark"] == "cf [samples]" and record["provenance"]["seeds"] == [7]
    assert record["standings"]["source"] == "https://x/api"
    first = record["rows"][0]
    assert first["ratings"] == {"1": 811, "2": 1001} and first["skipped"] == [3] and first["unknown"] == ["1Z"]
    assert (first["rating"], first["percentile"], first["contests"], first["problems"]) == (906, 75, 2, 4)
    assert (first["thinking_budget"], first["solution_budget"]) == (None, 8)


def test_a_problem_counts_with_as_many_attempts_as_were_made(
    standings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = evaluation(tmp_path / "few", [[True, False], [False, True]], names=["1A", "1B"])
    main([str(folder), "--standings", str(standings)])  # 500 + 950 is more than what 300 have: rank 100
    line = next(line for line in capsys.readouterr().out.splitlines() if "separate" in line)
    assert [part.strip() for part in line.split("│")[4:-1]] == ["1099", "1099 – 1099", "100.0", "1", "2", "2"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            [None, "1A"],
            "cf [samples], problem 0: '' is no problem of Codeforces; those are called like 1971A or 1971/B1",
        ),
        (["HumanEval/3", "1A"], "cf [samples], problem 0: 'HumanEval/3' is no problem of Codeforces"),
        (["1A", "1/A"], "cf [samples] has the problem 1A twice"),
        (["7A", "8A"], "the standings have none of the contests 7, 8; `e1 elo --fetch` adds contests"),
    ],
)
def test_problems_that_cannot_be_rated_are_named(
    standings: Path, tmp_path: Path, names: list[str | None], said: str
) -> None:
    folder = evaluation(tmp_path / "run", [FIRST, FIRST], names=names)
    with pytest.raises(SystemExit) as stop:
        main([str(folder), "--standings", str(standings)])
    assert str(stop.value).startswith(f"e1 elo: {said}") and "\n" not in str(stop.value)


def test_evaluations_that_do_not_go_together_are_refused_in_a_line(standings: Path, tmp_path: Path) -> None:
    one, two = (evaluation(tmp_path / name, [FIRST] * 6) for name in ("one", "two"))
    other = evaluation(tmp_path / "other", [FIRST] * 6, benchmark="cf")
    for folders, said in (
        ([one, two], "two evaluations answer problem"),
        ([one, other], "a report is on one benchmark"),
        ([tmp_path / "no"], "there is no"),
    ):
        with pytest.raises(SystemExit, match=rf"^e1 elo: {said}.*$"):
            main([*map(str, folders), "--standings", str(standings)])
    with pytest.raises(SystemExit, match=r"^e1 elo: there is no file .*"):
        main([str(one), "--standings", str(tmp_path / "absent")])
