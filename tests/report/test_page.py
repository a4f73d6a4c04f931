"""The page of a report as a file: what is on it, what is not, and that nothing in it can end it."""

import json
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fabricated import CONDITIONS, HOSTILE, SOLVED, cell, evaluated, report, stored, thought
from test_training_log import run_folder

from e1_trl.errors import UserError
from e1_trl.report import page
from e1_trl.report.command import main
from e1_trl.report.page import choose_places
from e1_trl.report.rows import Row
from e1_trl.report.tables import accuracies
from e1_trl.report.training_log import TrainingLog
from e1_trl.rollout import ThinkingEnd

PACKED = ("items", "steps")


def test_the_page_has_words_for_every_end_of_a_thinking() -> None:
    (ends,) = re.findall(r"const ENDS = \{(.*?)\};", (page.TEMPLATES / "page_data.js").read_text(), re.S)
    assert re.findall(r'(\w+): "', ends) == list(ThinkingEnd)


def scripts_of(page: str) -> list[str]:
    return re.findall(r"<script[^>]*>(.*?)</script", page, re.S)


def tables_of(page: str) -> list[list[list[str]]]:
    """Texts of the cells in the body of each table."""
    bodies = [re.findall(r"<tr>(.*?)</tr>", body, re.S) for body in re.findall(r"<tbody>(.*?)</tbody>", page, re.S)]
    return [[[unescape(text) for text in re.findall(r"<td>(.*?)</td>", row)] for row in rows] for rows in bodies]


def trained(folder: Path, parts: Sequence[str] = ("think", "</think>", "<b>so</b>"), **columns: Any) -> Path:
    """What a training of 30 steps leaves, of which every tenth logged its rollouts."""
    (folder / "completions").mkdir(parents=True)
    run_folder(folder, *({"step": i, "loss": 0.1, "reward": i / 30} for i in range(1, 31)))
    for step in (1, 11, 21):
        rows = {"step": step, "prompt": [f"Q{step}", f"R{step}"], "thinking_end": "forced", "thinking_tokens": 8}
        rows |= {"solution_tokens": 2, "solution_truncated": [False, True], "advantage": [1.0, -1.0]}
        rows |= {"parts": [list(parts)] * 2, **columns}
        pd.DataFrame(rows).to_parquet(folder / "completions" / f"completions_{step:05d}.parquet")
    return folder


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    return report(folder, "--training", str(trained(folder / "run")))


def reported(folder: Path, table: pd.DataFrame) -> Path:
    main([str(stored(folder, table))])
    return folder / "report.html"


def data_of(file: Path) -> dict[str, Any]:
    data = json.loads(scripts_of(file.read_text())[0])
    packed = {name: [json.loads(zlib.decompress(b64decode(text), wbits=-15)) for text in data[name]] for name in PACKED}
    return {**data, **packed}


def test_a_page_says_what_results_json_says(usual: Path) -> None:
    rows = [Row(**row) for row in json.loads(usual.with_name("results.json").read_text())["rows"]]
    grid, *tables = tables_of(usual.read_text())
    assert not grid and tables[0] == accuracies(rows).rows
    published = usual.with_name("report.md").read_text()
    assert len(tables) == published.count("\n| --- ") > 5
    assert all(f"| {' | '.join(row)} |\n" in published for table in tables for row in table)
    for model, solved in SOLVED.items():
        right = sum(steps <= 16 for steps in solved) / len(solved)
        (line,) = [line for line in tables[0] if line[:3] == [model, "separate", "16+8"]]
        assert line[3] == f"{right:.1%}"


def test_a_page_asks_no_network_and_runs_one_script(tmp_path: Path) -> None:
    text = report(tmp_path, texts=HOSTILE[:4]).read_text()
    data, script = scripts_of(text)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"content=\"default-src 'none'; script-src 'sha256-{digest}'; " in text
    assert "<" not in data and not re.search(r"\s(src|href)=", text)
    assert not re.search(r"\b(fetch|XMLHttpRequest|import|eval|innerHTML|insertAdjacent|document\.write)\b", script)


def test_a_thought_is_there_once_and_each_answer_says_where_it_was_cut(usual: Path) -> None:
    data = data_of(usual)
    at = {(cell["method"], cell["budget"]): i for i, cell in enumerate(data["cells"])}
    base, e1 = data["items"][1]["models"]
    assert [each["thought"][0] for each in (base, e1)] == [thought(38) + "</think>", thought(20) + "</think>"]
    for budget, steps in (("8+8", 8), ("16+8", 16), ("32+8", 32)):
        answer = base["answers"][at["separate", budget]]
        assert base["thought"][0].encode("utf-16-le")[: 2 * answer["length"]].decode("utf-16-le") == thought(steps)
        assert (answer["own"], answer["close"], answer["end"]) == (None, "</think>", "forced")
    assert base["answers"][at["unconstrained", "unlimited"]]["length"] == base["thought"][1]
    assert base["answers"][at["s1", "16+8"]]["own"] == thought(4) + "Wait " + thought(6)
    assert base["solutions"] == [["so", 2], ["\\boxed{1}", 9]]
    assert [answer["solution"] for answer in base["answers"]] == [0, 0, 1, 1, 0]
    assert [answer["final_outcome"] for answer in base["answers"]] == ["wrong", "wrong", "correct", "correct", "wrong"]
    assert data["items"][2]["models"][0]["answers"][at["separate", "8+8"]]["closes_again"]


def test_an_answer_says_what_it_was_asked_and_how_it_ended(tmp_path: Path) -> None:
    table = evaluated("m", (6, 12)).assign(problem_id=["AIME 1", None] * 5)
    waited, cut = table["method"] == "s1", table["thinking_budget"].eq(8).fillna(False)
    table = table.assign(prompt=table["prompt"].mask(waited, "Wait: which?"), truncated=cut)
    table = table.assign(conditions=replace(CONDITIONS, forced_text="**Final**").as_text())
    file = reported(tmp_path, table.assign(outcome=table["outcome"].mask(cut, "unboxed")))
    first, second = data_of(file)["items"]
    assert (first["id"], first["accepted"], second["id"]) == ("AIME 1", ["0"], None)
    assert first["questions"] == [["Which is 0?", 11], ["Wait: which?", 12]]
    answers = first["models"][0]["answers"]
    assert [answer["question"] for answer in answers] == [0, 0, 0, 0, 1]
    assert [answer["truncated"] for answer in answers] == [True, False, False, False, False]
    assert [answer["final_outcome"] for answer in answers] == ["unanswered", *["correct"] * 4]
    assert '"**Final**"' in unescape(file.read_text())


@pytest.mark.slow
def test_long_texts_are_cut_and_say_so(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", parts=("", "", HOSTILE[2]))
    file = report(tmp_path, "--training", str(run), texts=HOSTILE[2:4])
    assert file.stat().st_size < 400_000
    for own, item in zip(HOSTILE[2:4], data_of(file)["items"], strict=False):
        shown, length = item["models"][0]["solutions"][0]
        assert length == len(own) and own.startswith(shown) and len(shown) == page.CHARACTERS
    assert data_of(file)["steps"][0]["rollouts"][0]["solution"] == HOSTILE[2][: page.CHARACTERS]


def test_few_problems_are_chosen_from_all_patterns_of_outcomes() -> None:
    solved = [6] * 90 + [12] * 8 + [99] * 2
    table = evaluated("m", solved)
    assert choose_places(table, 3) == [(98, 0), (90, 0), (0, 0)]
    assert choose_places(table, 5) == [(98, 0), (90, 0), (0, 0), (99, 0), (91, 0)]
    assert sorted(choose_places(table, 200)) == [(i, 0) for i in range(100)]


def test_samples_of_other_problems_come_before_more_of_the_same() -> None:
    table = pd.concat([evaluated("m", [6, 12, 99]).assign(sample=i) for i in range(16)], ignore_index=True)
    places = choose_places(table, 6)
    assert sorted(places) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


@pytest.mark.slow
def test_a_page_says_how_many_problems_are_on_it(usual: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "All 4 problems." in usual.read_text()
    few = report(tmp_path / "few", "--page_problems", "2")
    assert "2 of 4 problems" in few.read_text() and len(data_of(few)["items"]) == 2
    monkeypatch.setattr(page, "TEXT_BYTES", 1500)
    small = report(tmp_path / "small", texts=["".join(map(chr, range(0x4E00, 0x6E00)))])  # the first does not fit
    found = [item["problem"] for item in data_of(small)["items"]]
    assert found and 0 not in found and f"{len(found)} of 4 problems" in small.read_text()


@pytest.mark.slow
def test_a_page_that_cannot_be_made_leaves_what_was_there_and_one_without_problems_removes_it(tmp_path: Path) -> None:
    file = report(tmp_path)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir() if each.is_file()}
    command = [str(tmp_path / "base"), "--output", str(tmp_path)]
    with pytest.raises(UserError, match=r"there is no .*trainer_state.json"):
        main([*command, "--training", str(tmp_path / "none")])
    assert before == {each.name: each.read_bytes() for each in tmp_path.iterdir() if each.is_file()}
    main([*command, "--page_problems", "0"])
    assert not file.exists()


def test_two_models_are_side_by_side_and_of_others_there_are_numbers(tmp_path: Path) -> None:
    file = report(tmp_path, a=(6, 99), b=(12, 6), c=(99, 99))
    assert "Answers of a and b; of c the numbers alone." in file.read_text()
    data = data_of(file)
    assert data["models"] == ["a", "b"] and len(data["items"][0]["models"]) == 2
    assert {row[0] for row in tables_of(file.read_text())[1]} == {"a", "b", "c"}


def test_a_model_in_two_folders_is_one_model(tmp_path: Path) -> None:
    table = evaluated("m", (6, 12))
    folders = [stored(tmp_path / name, table[table["method"] == name]) for name in ("separate", "s1")]
    main([*map(str, folders), "--output", str(tmp_path), "--name", "both"])
    data = data_of(tmp_path / "both.html")
    assert data["models"] == ["m"] and [len(item["models"]) for item in data["items"]] == [1, 1]
    assert all(None not in item["models"][0]["answers"] for item in data["items"])


def test_each_sample_is_a_thought_of_its_own(tmp_path: Path) -> None:
    file = reported(tmp_path, cell([[True, False], [False, False]], 8))
    items = data_of(file)["items"]
    assert [(item["problem"], item["sample"]) for item in items] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert "All 4 thoughts." in file.read_text()


def test_of_programs_the_kind_of_the_failure_is_told_and_never_what_a_test_expects(tmp_path: Path) -> None:
    table = cell([[True], [False]], 8).assign(grader="programs", answers=[["suite 1"], ["suite 2"]], answer="secret")
    items = data_of(reported(tmp_path, table.assign(outcome=["correct", "timed_out"])))["items"]
    answers = [item["models"][0]["answers"][0] for item in items]
    assert [answer["final_outcome"] for answer in answers] == ["correct", "timed_out"]
    assert all(answer["read"] is None for answer in answers) and not any(item["accepted"] for item in items)


def test_names_are_text(tmp_path: Path) -> None:
    table = cell([[True]], 8, model="<script>alert(1)</script>").assign(benchmark="</title><b>")
    text = reported(tmp_path, table).read_text()
    assert len(scripts_of(text)) == 2 and tables_of(text)[-1]


def test_the_training_is_on_the_page_with_its_rollouts(usual: Path) -> None:
    assert 'aria-label="How the training went"' in usual.read_text()
    assert usual.with_name("training.png").exists() and usual.with_name("training.json").exists()
    steps = data_of(usual)["steps"]
    assert [each["step"] for each in steps] == [1, 11, 21]
    first, second = steps[1]["rollouts"]
    assert (first["prompt"], first["close"], first["solution"]) == ("Q11", "</think>", "<b>so</b>")
    assert second["facts"] == "thinking forced after 8 tokens, solution of 2, truncated, advantage -1.00"


def test_a_recipes_own_advantages_are_shown_in_place_of_trls(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", thinking_advantage=[0.5, -0.25], solution_advantage=[0.5, 0.0])
    (_, rollouts), *_ = TrainingLog.read(folder).rollouts(3, 2)
    assert [each["facts"].rpartition("advantage ")[2] for each in rollouts] == ["+0.50", "-0.25 and +0.00"]
