"""`e1 card`: what was measured, in a card, of the weights it was measured of."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from fabricated import CONDITIONS, cell, right
from hub_stub import faults, serving_hub
from huggingface_hub import ModelCard, parse_eval_result_entries

from e1_trl.budget import Budget
from e1_trl.checkpoints.budget_file import Trained
from e1_trl.checkpoints.checkpoint import Checkpoint
from e1_trl.checkpoints.model_card import Details
from e1_trl.checkpoints.origin import Origin
from e1_trl.report import samples
from e1_trl.report.card import main
from e1_trl.report.conditions import Conditions

TRAINING = Details(Trained("</think>", "</think>", 1, Budget(8, 8)), Origin("base", None))
WHOLE = replace(CONDITIONS, problems=5)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "e1-model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "config.json").write_text("{}")
    TRAINING.publish(folder, None, None)
    return folder


def evaluation(
    folder: Path, weights: str, benchmark: str = "gsm8k", conditions: Conditions = WHOLE, **more: object
) -> Path:
    folder.mkdir()
    cells = [cell(right(3, 5), 8), cell(right(4, 5), 16), cell(right(5, 5), None, None, method="unconstrained")]
    table = samples.join([*cells, cell(right(1, 5), 8, method="truncation")])
    samples.write(table.assign(benchmark=benchmark, conditions=conditions.as_text()), folder)
    (folder / "run.json").write_text(json.dumps({"model": weights, "thinking_from": None, **more}))
    return folder


def weights(checkpoint: Path) -> str:
    return Checkpoint.find(str(checkpoint), None).fingerprint()


def card(checkpoint: Path) -> ModelCard:
    return ModelCard((checkpoint / "README.md").read_text())


def test_the_card_has_the_curve_and_the_files_that_it_speaks_of(checkpoint: Path, tmp_path: Path) -> None:
    results = [evaluation(tmp_path / name, weights(checkpoint), name) for name in ("gsm8k", "sums")]
    main([str(checkpoint), "--results", *map(str, results), "--name", "me/e1"])
    text = card(checkpoint).text
    assert "### gsm8k" in text and "### sums" in text and "Not evaluated" not in text
    assert re.search(r"\| separate \| 8\+8 \| 60\.0% \| \d", text) and "truncation" not in text
    assert re.search(r"\| unconstrained \| unlimited \| 100\.0% \|", text)
    linked = re.findall(r"\]\((?!http)([^)]+)\)", text)
    assert len(linked) > 6 and all((checkpoint / file).is_file() for file in linked)
    assert "--model me/e1" in text

    trained = Trained.read(checkpoint / "budget.json")
    assert [str(budget) for budget in trained.budgets] == ["8+8", "16+8", "unlimited"]
    assert [(p.benchmark, p.method, p.accuracy) for p in trained.curve][:3] == [
        ("gsm8k", "separate", 0.6),
        ("gsm8k", "separate", 0.8),
        ("gsm8k", "unconstrained", 1.0),
    ]

    files = sorted((checkpoint / ".eval_results").iterdir())
    assert len(files) == 3  # of the one benchmark that lies on the Hub
    entries = [entry for file in files for entry in parse_eval_result_entries(yaml.safe_load(file.read_text()))]
    assert {entry.dataset_id for entry in entries} == {"openai/gsm8k"}
    assert all(entry.notes and "tokens of thinking+solution" in entry.notes for entry in entries)
    assert sorted(entry.value for entry in entries) == [60.0, 80.0, 100.0]


@pytest.mark.parametrize(
    "otherwise",
    [{"problems": 1319}, {"local": True}, {"temperature": 0.0}, {"top_p": 1.0}, {"top_k": 20}, {"instruction": ""}, {}],
    ids=lambda otherwise: next(iter(otherwise), "samples"),
)
def test_only_the_whole_benchmark_asked_and_sampled_as_it_says_is_the_hubs(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], otherwise: dict[str, Any]
) -> None:
    conditions = replace(WHOLE, **otherwise)
    benchmark = "gsm8k" if otherwise else "amc"  # which has 16 samples of each problem
    results = evaluation(tmp_path / "results", weights(checkpoint), benchmark, conditions)
    main([str(checkpoint), "--results", str(results)])
    assert not list(checkpoint.glob(".eval_results/*")) and f"### {benchmark}" in card(checkpoint).text
    assert f"no .eval_results of {benchmark}: that needs all its problems from the Hub" in capsys.readouterr().out


def test_what_was_measured_before_goes_and_so_does_all_of_it_with_new_weights(checkpoint: Path, tmp_path: Path) -> None:
    results = [evaluation(tmp_path / name, weights(checkpoint), name) for name in ("gsm8k", "sums")]
    main([str(checkpoint), "--results", *map(str, results)])
    main([str(checkpoint), "--results", str(results[1])])
    assert "gsm8k" not in card(checkpoint).text and not list((checkpoint / ".eval_results").iterdir())
    assert {file.name.split("-")[1].split(".")[0] for file in (checkpoint / "e1").glob("results-*")} == {"sums"}
    TRAINING.publish(checkpoint, None, None)
    assert "Not evaluated yet" in card(checkpoint).text and not list((checkpoint / "e1").glob("results-*"))
    assert Trained.read(checkpoint / "budget.json").curve == ()


def test_without_results_the_curve_stays_and_other_peoples_results_do_always(checkpoint: Path, tmp_path: Path) -> None:
    theirs = checkpoint / ".eval_results" / "mmlu.yaml"
    theirs.parent.mkdir()
    theirs.write_text("- mine\n")
    main([str(checkpoint), "--results", str(evaluation(tmp_path / "gsm8k", weights(checkpoint)))])
    before = {file: file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()}
    main([str(checkpoint)])
    assert {file: file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()} == before
    main([str(checkpoint), "--name", "me/other"])
    assert "--model me/other" in card(checkpoint).text and "### gsm8k" in card(checkpoint).text
    assert theirs.read_text() == "- mine\n"


def test_the_card_is_uploaded_beside_its_weights_and_nowhere_else(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = str(evaluation(tmp_path / "gsm8k", weights(checkpoint)))
    with serving_hub() as hub:
        hub.stand_in(monkeypatch)
        hub.add("me/e1", {"model.safetensors": b"others"})
        hub.add("someone/e1", {"model.safetensors": b"weights", ".eval_results/e1-old.yaml": b""})
        with pytest.raises(SystemExit, match=r"^e1 card: the weights in me/e1 cannot be compared: .*HF_TOKEN"):
            main([str(checkpoint), "--results", results, "--push", "me/e1"])
        assert "Not evaluated" in card(checkpoint).text
        main([str(checkpoint), "--results", results, "--push", "someone/e1"])
        files = hub.commits("someone/e1")[-1].files
    assert files["README.md"] == (checkpoint / "README.md").read_bytes()
    assert b"--model someone/e1" in files["README.md"] and ".eval_results/e1-old.yaml" not in files
    assert {"e1/results-gsm8k.json", "budget.json", ".eval_results/e1-gsm8k_separate_8+8.yaml"} <= files.keys()
    assert faults(files["README.md"].decode()) == []


def test_numbers_that_are_not_this_models_are_refused_and_the_card_is_left(checkpoint: Path, tmp_path: Path) -> None:
    own = weights(checkpoint)
    before = {file: file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()}
    (tmp_path / "nothing").mkdir()
    refused = {
        "is not an evaluation of the weights": [evaluation(tmp_path / "other", "0" * 16)],
        "it is of served": [evaluation(tmp_path / "served", f"served: e1, {own}")],
        "not an evaluation": [evaluation(tmp_path / "mixed", own, thinking_from="abc")],
        "is a second evaluation on gsm8k": [evaluation(tmp_path / name, own) for name in ("one", "two")],
        "run the evaluation into": [tmp_path / "nothing"],
    }
    for expected, results in refused.items():
        with pytest.raises(SystemExit, match=f"^e1 card: [^\n]*{expected}[^\n]*$"):
            main([str(checkpoint), "--results", *map(str, results)])
    assert {file: file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()} == before
    with pytest.raises(SystemExit, match=r"^e1 card: [^\n]*budget.json does not say a model.s budgets[^\n]*$"):
        main([str(tmp_path)])
