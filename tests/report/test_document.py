"""The report as files, and its command."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from fabricated import CONDITIONS, cell, right

from e1_trl.report import samples
from e1_trl.report.__main__ import main
from e1_trl.report.rows import Row

PROSE = "before\n<!-- nano -->\nold\n<!-- /nano -->\nafter\n"


def read_rows(file: Path) -> list[Row]:
    return [Row(**row) for row in json.loads(file.read_text())["rows"]]


@pytest.fixture
def evaluations(tmp_path: Path) -> list[str]:
    """The folders of two evaluated models."""
    folders = []
    for gain, model in enumerate(("base", "e1")):
        parts = [
            *(cell(right(2 + i + gain, 10, 2), budget, model=model) for i, budget in enumerate((16, 64, 256))),
            cell(right(5, 10, 2), 64, model=model, method="truncation"),
        ]
        folder = tmp_path / model
        folder.mkdir()
        samples.write(pd.concat(parts, ignore_index=True), folder)
        folders.append(str(folder))
    return folders


def test_a_report_is_tables_numbers_and_pictures(
    tmp_path: Path, evaluations: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main([*evaluations, "--output", str(tmp_path / "both")])
    written = sorted(file.name for file in (tmp_path / "both").iterdir())
    assert written == ["allocation.png", "budget.png", "report.md", "results.json", "tokens.png"]
    results = json.loads((tmp_path / "both" / "results.json").read_text(), parse_constant=pytest.fail)
    assert list(results) == ["provenance", "conditions", "rows", "differences", "lines"]
    assert results["provenance"]["seeds"] == [7] and set(results["provenance"]) == {
        "commit",
        "date",
        "machine",
        "seeds",
    }
    assert [row["accuracy"] for row in results["rows"]] == [0.2, 0.3, 0.4, 0.5, 0.3, 0.4, 0.5, 0.5]
    assert len(read_rows(tmp_path / "both" / "results.json")) == 8
    report = (tmp_path / "both" / "report.md").read_text()
    assert "# base, e1 on sums" in report and "10 problems, 2 samples each" in report
    assert 'with the "Wait" that s1 puts in' in report
    assert "| e1 | separate | 256+8 | 50.0% |" in report
    for heading in ("Outcomes", "Several samples", "Models against each other", "Over all budgets"):
        assert f"## {heading}\n" in report
    for alike in ("budget", "tokens used"):
        assert f"## Methods against separate budgeting, at the same {alike}\n" in report
    assert all(f"]({image})" in report for image in written if image.endswith(".png"))
    assert "wrote report.md, results.json" in capsys.readouterr().out


def test_a_report_says_how_answers_were_asked_for_and_what_is_not_alike(tmp_path: Path, evaluations: list[str]) -> None:
    e1 = Path(evaluations[1])
    forced = replace(CONDITIONS, forced_text="Time is up.</think>", top_k=20).as_text()
    samples.write(samples.read(e1).assign(conditions=forced, graded_by="other"), e1)
    main([*evaluations, "--output", str(tmp_path / "both")])
    report = (tmp_path / "both" / "report.md").read_text()
    (common,) = [line for line in report.splitlines() if line.startswith("Asked and sampled with ")]
    for said in (
        "temperature 0.6",
        "top p 0.95",
        "local false",
        'chat template "1"',
        "context 512",
        "problems 10",
    ):
        assert said in common
    assert "forced text" not in common and "Sampled at abc; graded by def and other.\n" in report
    assert '- base: top k 0; forced text "</think>"\n- e1: top k 20; forced text "Time is up.</think>"\n' in report
    models = report[report.index("## Models against each other") :]
    assert "| not alike |" in models and models.count("| top k, forced text |") == 4
    assert "not alike" not in report[report.index("## Methods") : report.index("## Models")]
    results = json.loads((tmp_path / "both" / "results.json").read_text())
    assert [(each["models"], each["conditions"]["top_k"]) for each in results["conditions"]] == [
        (["base"], 0),
        (["e1"], 20),
    ]


def test_a_row_says_what_bounds_an_unlimited_answer_and_what_was_left_out(tmp_path: Path) -> None:
    limited = replace(CONDITIONS, response=32768).as_text()
    parts = [cell(right(4, 9), 16), cell(right(5, 9), None, None, method="unconstrained").assign(truncated=True)]
    samples.write(pd.concat(parts).assign(conditions=limited, asked_problems=10), tmp_path)
    main([str(tmp_path)])
    report = (tmp_path / "report.md").read_text()
    assert "9 problems, 1 sample each." in report and "**Problems were left out**" in report
    header, separate, unconstrained = [line for line in report.splitlines() if line.startswith("| m")][:3]
    assert header.endswith("| forced tokens | forced | cut off | left out |")
    assert separate.startswith("| m | separate | 16+8 |") and separate.endswith("| 1.0 | 100% | 0% | 1 |")
    assert "| unconstrained | unlimited, 32768 at most |" in unconstrained and "| 100% | 1 |" in unconstrained


def test_a_report_is_published_by_name_with_chosen_rows_in_a_document(tmp_path: Path, evaluations: list[str]) -> None:
    prose, output = tmp_path / "README.md", tmp_path / "results"
    prose.write_text(PROSE)
    command = [*evaluations, "--output", str(output), "--name", "nano", "--document", str(prose), "--section", "nano"]
    main([*command, "--rows", "e1 separate 64+8", "base separate 64+8"])
    assert sorted(file.name for file in output.iterdir()) == [
        *("nano-allocation.png", "nano-budget.png", "nano-tokens.png", "nano.json", "nano.md"),
    ]
    assert "](nano-budget.png)" in (output / "nano.md").read_text()
    before, *table, after = prose.read_text().splitlines()
    assert (before, after) == ("before", "after")
    assert [line.split(" | ")[:3] for line in table[3:5]] == [
        ["| e1", "separate", "64+8"],
        ["| base", "separate", "64+8"],
    ]


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (["--rows", "e1 separate 65+8"], "there is no row 'e1 separate 65\\+8'; there are 'base separate 16\\+8', "),
        (["--section", "micro"], "README.md has no section between the lines <!-- micro --> and <!-- /micro -->"),
        (["--document", "missing.md"], "No such file"),
    ],
)
def test_what_cannot_be_published_is_one_line_and_changes_nothing(
    tmp_path: Path, evaluations: list[str], options: list[str], wrong: str
) -> None:
    prose = tmp_path / "README.md"
    prose.write_text(PROSE)
    with pytest.raises(SystemExit, match=wrong) as stopped:
        main([*evaluations, "--output", str(tmp_path / "x"), "--document", str(prose), "--section", "nano", *options])
    assert "\n" not in str(stopped.value)
    assert prose.read_text() == PROSE and not (tmp_path / "x").exists()


def test_grading_anew_changes_the_stored_answers(evaluations: list[str]) -> None:
    folder = Path(evaluations[0])
    samples.write(samples.read(folder).assign(solution=r"\boxed{0}", outcome="wrong"), folder)
    main([str(folder), "--regrade"])
    found = samples.read(folder)
    assert (found["outcome"] == "correct").tolist() == (found["problem"] == 0).tolist()
    assert read_rows(folder / "results.json")[0].accuracy == 0.1


def test_a_report_on_programs_has_their_outcomes_and_says_that_they_have_no_majority(tmp_path: Path) -> None:
    table = cell(right(3, 10, 2), 16).assign(grader="programs", benchmark="codeforces-sample-tests")
    table.loc[table["outcome"] == "wrong", "outcome"] = "timed_out"
    samples.write(table, tmp_path)
    main([str(tmp_path)])
    report = (tmp_path / "report.md").read_text()
    assert "# m on codeforces-sample-tests\n" in report
    assert "| timed out |" in report and "unevaluated" not in report.lower()
    assert "There is no majority of programs" in report and "maj@k" not in report
    assert json.loads((tmp_path / "results.json").read_text())["rows"][0]["faults"]["timed_out"] == 0.7
    # As an older version has stored it.
    older = table.assign(solution="```python\n1\n```", answers=[["sha256:0123456789abcdef"]] * len(table))
    samples.write(older, tmp_path)
    before = (tmp_path / "samples.parquet").read_bytes()
    with pytest.raises(SystemExit, match=r"names no tests in .*`e1 eval`|programs cannot be run safely here"):
        main([str(tmp_path), "--regrade"])
    assert (tmp_path / "samples.parquet").read_bytes() == before


def test_asking_for_help_imports_no_library_that_takes_seconds() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "e1_trl.report", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "--regrade" in done.stdout and "e1_trl.atomic" in imported
    assert not imported & {"pandas", "matplotlib", "scipy", "sympy", "math_verify", "torch", "transformers", "vllm"}
