"""The report as files, its command, and tables in documents."""

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fabricated import CONDITIONS, cell, right, stored

from e1_trl.answers import kinds
from e1_trl.atomic import StoreError, locked
from e1_trl.errors import UserError
from e1_trl.report import samples
from e1_trl.report.command import check_weights, main
from e1_trl.report.markdown import replace_section, table
from e1_trl.report.rows import Row

PROSE = "before\n<!-- nano -->\nold\n<!-- /nano -->\nafter\n"
FILES = ["allocation.png", "budget.png", "report.html", "report.md", "results.json", "tokens.png"]


@pytest.fixture
def evaluations(tmp_path: Path) -> list[str]:
    folders = []
    for gain, model in enumerate(("base", "e1")):
        separate = [cell(right(2 + i + gain, 10, 2), budget, model=model) for i, budget in enumerate((16, 64, 256))]
        truncation = cell(right(5, 10, 2), 64, model=model, method="truncation")
        folders.append(str(stored(tmp_path / model, *separate, truncation)))
    return folders


def reported(output: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    main([*arguments, "--output", str(output)])
    results = json.loads((output / "results.json").read_text(), parse_constant=pytest.fail)
    return (output / "report.md").read_text(), results


def test_a_report_is_tables_numbers_and_pictures(
    tmp_path: Path, evaluations: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    report, results = reported(tmp_path / "both", *evaluations)
    assert sorted(file.name for file in (tmp_path / "both").iterdir()) == FILES
    assert " ".join(results) == "provenance conditions rows differences not_compared lines stopping"
    assert list(results["provenance"]) == ["commit", "date", "machine", "seeds"]
    assert [Row(**row).accuracy for row in results["rows"]] == [0.2, 0.3, 0.4, 0.5, 0.3, 0.4, 0.5, 0.5]
    assert "# base, e1 on sums" in report and "10 problems, 2 samples each" in report
    assert 'with the "Wait" that s1 inserts' in report
    assert "| e1 | separate | 256+8 | 50.0% |" in report
    assert re.findall("## (.*)", report) == [
        "Outcomes",
        "Several samples",
        "Methods against separate budgeting, at the same budget",
        "Methods against separate budgeting, at the same tokens used",
        "Models against each other",
        "Over all budgets",
        "When a thought could have stopped",
        "Rules that stop each thought",
    ]
    assert all(f"]({image})" in report for image in FILES if image.endswith(".png"))
    printed = capsys.readouterr().out
    assert re.search(r"\n e1 +separate +256\+8 +50.0%", printed) and "wrote report.md, results.json" in printed


@pytest.mark.slow
def test_a_report_says_how_answers_were_asked_for_and_what_is_not_alike(tmp_path: Path, evaluations: list[str]) -> None:
    e1 = Path(evaluations[1])
    forced = replace(CONDITIONS, forced_text="Time is up.</think>", top_k=20).as_text()
    samples.write(samples.read(e1).assign(conditions=forced, graded_by="other"), e1)
    report, results = reported(tmp_path / "both", *evaluations)
    (common,) = [line for line in report.splitlines() if line.startswith("Sampled with ")]
    said = ("temperature 0.6", "top p 0.95", "local false", 'chat template "1"', "context 512", "problems 10")
    assert all(each in common for each in said)
    assert "forced text" not in common and "Sampled at abc; graded by def (base) and other (e1).\n" in report
    assert '- base: top k 0; forced text "</think>"\n- e1: top k 20; forced text "Time is up.</think>"\n' in report
    models = report[report.index("## Models against each other") :]
    assert "| not alike |" in models and models.count("| top k, forced text, graded by |") == 4
    assert "not alike" not in report[report.index("## Methods") : report.index("## Models")]
    own = [(each["models"], each["conditions"]["top_k"]) for each in results["conditions"]]
    assert own == [(["base"], 0), (["e1"], 20)]


def test_a_report_says_how_much_was_not_graded(tmp_path: Path) -> None:
    part = cell(right(4, 10), 16)
    part.loc[part.index[:2], "outcome"] = ["timed_out", "crashed"]
    text, results = reported(tmp_path / "report", str(stored(tmp_path / "answers", part)))
    assert "**Grading failed or took too long** of 20.0% of the answers of m, separate 16+8" in text
    assert results["rows"][0]["ungraded"] == 0.2 <= results["rows"][0]["unparseable"]


def test_a_report_warns_of_thoughts_without_an_answer_and_of_models_that_are_not_compared(
    tmp_path: Path, evaluations: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    few = samples.read(Path(evaluations[1]))
    stored(Path(evaluations[1]), few[few["sample"] == 0].assign(thinking_end="eos", forced_tokens=0))
    other = stored(tmp_path / "other", few[few["problem"] < 9].assign(model="other", asked_problems=9))
    report, results = reported(tmp_path / "both", *evaluations, str(other))
    warning = "e1, separate 16+8: 100% of the thoughts ended in an end-of-sequence token, without an answer (eos)"
    sizes = "e1 and base (10 problems, 1 each, against 10 problems, 2 each)"
    assert results["not_compared"][0] == f"{sizes}: separate 16+8, separate 64+8, separate 256+8, truncation 64+8"
    names = [each.partition(" (")[0] for each in results["not_compared"]]
    assert names == ["e1 and base", "other and base", "other and e1"]
    for text in (report, (tmp_path / "both/report.html").read_text(), " ".join(capsys.readouterr().out.split())):
        assert warning in text and sizes in text
    assert "| e1 | separate | 16+8 | 30.0% |" in report and "| 0% | 100% | 0% |\n" in report
    answers = samples.read(Path(evaluations[0]))
    once = stored(tmp_path / "once", answers[(answers["method"] == "separate") | (answers["sample"] == 0)])
    assert reported(tmp_path / "once", str(once))[1]["not_compared"] == [
        "base, methods and separate (10 problems, 1 each, against 10 problems, 2 each): truncation 64+8"
    ]
    usual, results = reported(tmp_path / "usual", evaluations[0])
    assert "Not compared" not in usual and "end-of-sequence" not in usual and results["not_compared"] == []


OWN = {"dtype": "auto"}


@pytest.mark.parametrize(
    ("engine", "changed", "said"),
    [
        (OWN, {"logit_bias": {"17": -100.0}, "engine": OWN}, "logit bias"),
        (OWN, {"engine": {**OWN, "quantization": "fp8"}}, "quantization"),
        (OWN, {"engine": {"dtype": "float32"}}, "dtype"),
        (OWN, {"options": {**CONDITIONS.options, "s1_text": "So"}, "engine": OWN}, "s1 text"),
        (OWN, {"engine": {**OWN, "block_size": 64}}, None),
        ({}, {"engine": OWN}, None),  # the first at a server
        ({}, {"versions": {"vllm": "1"}}, None),
    ],
)
def test_two_evaluations_of_one_name_that_were_sampled_differently_are_refused(
    engine: dict[str, str], changed: dict[str, Any], said: str | None
) -> None:
    both = (replace(CONDITIONS, engine=engine), replace(CONDITIONS, **changed))
    tables = [cell(right(5, 10), 8 * at).assign(conditions=each.as_text()) for at, each in enumerate(both)]
    if said == "s1 text":  # an option of methods that did not run
        assert len(samples.join(tables)) == 20
        tables = [each.assign(method="s1_no_wait") for each in tables]
    with nullcontext() if said is None else pytest.raises(UserError, match=f"of 'm' differ in {said}; evaluate one"):
        assert len(samples.join(tables)) == 20


def test_two_folders_that_call_different_weights_alike_are_refused(tmp_path: Path) -> None:
    def check(*models: str) -> None:
        for name, model in zip("ab", models, strict=True):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "run.json").write_text(json.dumps({"model": model}))
        check_weights(dict.fromkeys([tmp_path / "a", tmp_path / "b"], "base"))

    check("abc", "served: m, abc")
    with pytest.raises(UserError, match="have different weights, and both call their model 'base'; evaluate one with"):
        check("abc", "def")
    with pytest.raises(UserError, match="have different names at a server, and both call their model 'base'"):
        check("served: lora-a, abc", "served: lora-b, abc")


def test_a_report_is_published_by_name_with_chosen_rows_in_a_document(tmp_path: Path, evaluations: list[str]) -> None:
    prose, output = tmp_path / "README.md", tmp_path / "results"
    prose.write_text(PROSE)
    command = [*evaluations, "--output", str(output), "--name", "nano", "--document", str(prose), "--section", "nano"]
    main([*command, "--rows", "e1 separate 64+8", "base separate 64+8"])
    files = ["nano-allocation.png", "nano-budget.png", "nano-tokens.png", "nano.html", "nano.json", "nano.md"]
    assert sorted(file.name for file in output.iterdir()) == files
    assert "](nano-budget.png)" in (output / "nano.md").read_text()
    before, *table, after = prose.read_text().splitlines()
    assert (before, after) == ("before", "after")
    assert [line.partition(" | 64+8 | ")[0] for line in table[3:5]] == ["| e1 | separate", "| base | separate"]


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
    with pytest.raises(UserError, match=wrong) as stopped:
        main([*evaluations, "--output", str(tmp_path / "x"), "--document", str(prose), "--section", "nano", *options])
    assert "\n" not in str(stopped.value)
    assert prose.read_text() == PROSE and not (tmp_path / "x").exists()


def test_regrading_changes_answers_within_their_limit(evaluations: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(evaluations[0])
    own = replace(CONDITIONS, grading_time_limit=9.0).as_text()
    samples.write(samples.read(folder).assign(solution=r"\boxed{0}", outcome="wrong", conditions=own), folder)
    made, make = [], kinds.make_grader
    monkeypatch.setattr(kinds, "make_grader", lambda given, workers: made.append(given) or make(given, workers))
    _, results = reported(folder, str(folder), "--regrade")
    assert [each.grading_time_limit for each in made] == [9.0]
    found = samples.read(folder)
    assert (found["outcome"] == "correct").tolist() == (found["problem"] == 0).tolist()
    assert results["rows"][0]["accuracy"] == 0.1
    with locked(folder), pytest.raises(StoreError, match=rf"^another process evaluates into {folder}"):
        main([str(folder), "--regrade"])


def test_a_report_on_programs_has_their_outcomes_and_says_that_they_have_no_majority(tmp_path: Path) -> None:
    table = cell(right(3, 10, 2), 16).assign(grader="programs", benchmark="codeforces-sample-tests")
    table.loc[table["outcome"] == "wrong", "outcome"] = "timed_out"
    samples.write(table, tmp_path)
    report, results = reported(tmp_path, str(tmp_path))
    assert "# m on codeforces-sample-tests\n" in report
    assert "| timed out |" in report and "unevaluated" not in report.lower()
    assert "Programs have no majority" in report and "maj@k" not in report
    assert results["rows"][0]["faults"]["timed_out"] == 0.7


DOCUMENT = "# Title\n\n<!-- one -->\nold\n<!-- /one -->\nbetween\n<!-- two -->\n<!-- /two -->\nend\n"


def test_a_table_has_a_line_for_its_header_and_one_a_row() -> None:
    assert table(("a", "b"), [("1", "2"), ("x|y", "")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n| x\\|y |  |\n"


def test_a_section_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text(DOCUMENT)
    replace_section(document, "one", "new\nlines\n")
    replace_section(document, "two", "more\n")
    new = DOCUMENT.replace("old\n", "new\nlines\n").replace("<!-- two -->\n", "<!-- two -->\nmore\n")
    assert document.read_text() == new and list(tmp_path.iterdir()) == [document]


@pytest.mark.parametrize("content", ["", "<!-- /one -->\n<!-- one -->\n", "<!-- ones -->\n<!-- /ones -->"])
def test_a_document_without_the_section_is_named_and_left_alone(tmp_path: Path, content: str) -> None:
    document = tmp_path / "document.md"
    document.write_text(content)
    with pytest.raises(ValueError, match=r"document\.md has no section between the lines <!-- one --> and <!-- /one"):
        replace_section(document, "one", "new\n")
    assert document.read_text() == content
