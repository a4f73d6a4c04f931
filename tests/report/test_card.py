"""`e1 card`: what was measured, in a card, of the weights it was measured of."""

import json
import re
from pathlib import Path

import pytest
from fabricated import cell, right, stored
from hub_stub import faults, serving_hub
from huggingface_hub import ModelCard

from e1_trl.atomic import StoreError
from e1_trl.budget import Budget
from e1_trl.checkpoints.budget_file import BudgetInfo
from e1_trl.checkpoints.checkpoint import Checkpoint
from e1_trl.checkpoints.model_card import BaseModel, publish
from e1_trl.errors import UserError
from e1_trl.report.card import main

TRAINING = (BudgetInfo("</think>", "</think>", 1, Budget(8, 8)), BaseModel("base", None))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "e1-model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "config.json").write_text("{}")
    publish(folder, *TRAINING)
    return folder


def evaluation(folder: Path, weights: str, benchmark: str = "gsm8k", **more: object) -> Path:
    cells = [cell(right(3, 5), 8), cell(right(4, 5), 16), cell(right(5, 5), None, None, method="unconstrained")]
    cells.append(cell(right(1, 5), 8, method="truncation"))
    stored(folder, *(each.assign(benchmark=benchmark) for each in cells))
    facts = {"model": weights, "thinking_from": None, "engine": {"dtype": "auto"}, **more}
    (folder / "run.json").write_text(json.dumps(facts))
    return folder


def weights(checkpoint: Path) -> str:
    return Checkpoint.find(str(checkpoint), None).fingerprint()


def card(checkpoint: Path) -> ModelCard:
    return ModelCard((checkpoint / "README.md").read_text())


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_the_card_has_the_curve_until_another_is_measured_or_weights_are_new(checkpoint: Path, tmp_path: Path) -> None:
    results = [evaluation(tmp_path / name, weights(checkpoint), name) for name in ("gsm8k", "sums")]
    main([str(checkpoint), "--results", *map(str, results), "--name", "me/e1"])
    text = card(checkpoint).text
    assert "### gsm8k" in text and "### sums" in text and "Not evaluated" not in text
    assert re.search(r"\| separate \| 8\+8 \| 60\.0% \| \d", text) and "truncation" not in text
    assert re.search(r"\| unconstrained \| unlimited \| 100\.0% \|", text)
    linked = re.findall(r"\]\((?!http)([^)]+)\)", text)
    assert len(linked) > 6 and all((checkpoint / file).is_file() for file in linked)
    assert "--model me/e1" in text

    trained = BudgetInfo.read(checkpoint / "budget.json")
    assert [str(budget) for budget in trained.budgets] == ["8+8", "16+8", "unlimited"]
    curve = [(p.benchmark, p.method, p.accuracy) for p in trained.curve]
    assert curve[1:3] == [("gsm8k", "separate", 0.8), ("gsm8k", "unconstrained", 1.0)]

    before = contents(checkpoint)
    main([str(checkpoint), "--name", "me/e1"])
    assert contents(checkpoint) == before
    main([str(checkpoint), "--results", str(results[1])])
    assert "gsm8k" not in card(checkpoint).text and "### sums" in card(checkpoint).text
    assert {file.name.split("-")[1].split(".")[0] for file in (checkpoint / "e1").glob("results-*")} == {"sums"}
    publish(checkpoint, *TRAINING)
    assert "Not evaluated yet" in card(checkpoint).text and not list((checkpoint / "e1").glob("results-*"))
    assert BudgetInfo.read(checkpoint / "budget.json").curve == ()


def test_the_card_is_uploaded_beside_its_weights_and_nowhere_else(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = str(evaluation(tmp_path / "gsm8k", weights(checkpoint)))
    with serving_hub() as hub:
        hub.stand_in(monkeypatch)
        hub.add("me/e1", {"model.safetensors": b"others"})
        hub.add("someone/e1", {"model.safetensors": b"weights", "e1/results-old.md": b""})
        with pytest.raises(UserError, match=r"^the weights in me/e1 cannot be compared .*HF_TOKEN"):
            main([str(checkpoint), "--results", results, "--push", "me/e1"])
        assert "Not evaluated" in card(checkpoint).text
        main([str(checkpoint), "--results", results, "--push", "someone/e1"])
        files = hub.commits("someone/e1")[-1].files
    assert files["README.md"] == (checkpoint / "README.md").read_bytes()
    assert b"--model someone/e1" in files["README.md"] and "e1/results-old.md" not in files
    assert {"e1/results-gsm8k.json", "budget.json"} <= files.keys()
    assert faults(files["README.md"].decode()) == []


def test_numbers_that_are_not_this_models_are_refused_and_the_card_is_left(checkpoint: Path, tmp_path: Path) -> None:
    own, before = weights(checkpoint), contents(checkpoint)
    (tmp_path / "nothing").mkdir()
    refused = {
        "is not an evaluation of the weights": [evaluation(tmp_path / "other", "0" * 16)],
        "it is of served": [evaluation(tmp_path / "served", f"served: e1, {own}")],
        "not an evaluation": [evaluation(tmp_path / "mixed", own, thinking_from="abc")],
        "was sampled with logit_bias, not": [evaluation(tmp_path / "biased", own, logit_bias={"1": -100.0})],
        "was sampled with quantization, not": [evaluation(tmp_path / "fp8", own, engine={"quantization": "fp8"})],
        "with hf_config_path, not": [evaluation(tmp_path / "other_config", own, engine={"hf_config_path": "a"})],
        "is a second evaluation on gsm8k": [evaluation(tmp_path / name, own) for name in ("one", "two")],
        "there is no [^\n]*nothing/samples.parquet": [tmp_path / "nothing"],
    }
    for expected, results in refused.items():
        with pytest.raises((UserError, StoreError), match=f"^[^\n]*{expected}[^\n]*$"):
            main([str(checkpoint), "--results", *map(str, results)])
    assert contents(checkpoint) == before
    with pytest.raises(UserError, match=r"^there is no [^\n]*budget.json, which a training with e1_trl writes$"):
        main([str(tmp_path)])
