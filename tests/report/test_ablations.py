"""The ablations: what the script trains and evaluates, and the report on it."""

import json
import os
import subprocess
from itertools import product
from pathlib import Path

import pytest
import yaml
from conftest import NANO, ROOT
from fabricated import cell, right, stored

from e1_trl.evaluation.arguments import parse
from e1_trl.provenance import Provenance
from experiments.nano import ablations

THINKING_OF_ANOTHER = [("base", "e1"), ("e1", "base")]


def run_script(folder: Path) -> list[list[str]]:
    """The words of the commands that the script runs in the folder, from programs that only write them down."""
    for name in ("e1", "python"):
        (folder / name).write_text("#!/bin/sh\nprintf '%s\\t' \"$@\" >> commands; echo >> commands\n")
        (folder / name).chmod(0o755)
    (folder / "commands").unlink(missing_ok=True)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run([ROOT / "experiments" / "nano" / "ablations.sh"], cwd=folder, env=environment, check=True)
    return [line.split("\t")[:-1] for line in (folder / "commands").read_text().splitlines()]


def option(command: list[str], name: str) -> str:
    return command[command.index(f"--{name}") + 1]


def test_every_model_that_is_compared_is_trained_once_and_evaluated_as_the_recipes_own(tmp_path: Path) -> None:
    *commands, report = run_script(tmp_path)
    assert report == ["-m", "experiments.nano.ablations"]
    trained = [Path(option(each, "output_dir")).name for each in commands if each[0] == "train"]
    assert len(trained) == 8 and [each[0] for each in commands[:8]] == ["train"] * 8
    evaluations = commands[8:]
    names = [Path(option(each, "output")).name for each in evaluations]
    compared = {model for pairs in ablations.COMPARISONS.values() for pair in pairs for model in pair}
    assert compared == set(names) and len(names) == len(compared)

    read = [parse(command[1:]) for command in evaluations]
    recipe = yaml.safe_load((NANO.parent / "evaluation.yaml").read_text())
    settings = [(each.instruction, each.temperature, each.top_p, each.budgets, each.max_problems) for each in read]
    assert settings == [("", 0.6, 1.0, recipe["budgets"], 512)] * len(evaluations)
    assert {tuple(each.methods) for each in read[:-2]} == {("separate", "unconstrained")}
    forced = {name: each.forced_text for name, each in zip(names, read, strict=True) if each.forced_text}
    (transition,) = [option(each, "forced_text") for each in commands[:8] if "--forced_text" in each]
    assert forced == dict.fromkeys(["transition", "base, transition"], transition)
    models = {"base": "experiments/nano/base", "e1": "runs/nano/e1"}
    for command, (thinking, solution) in zip(evaluations[-2:], THINKING_OF_ANOTHER, strict=True):
        assert option(command, "methods") == "mixed" and Path(option(command, "thinking_from")).name == thinking
        assert option(command, "name") == solution and option(command, "model") == models[solution]

    for name in trained[1:]:
        (tmp_path / "runs" / "ablations" / name).mkdir(parents=True)
        if name != "seed-44":  # which was stopped in the middle
            (tmp_path / "runs" / "ablations" / name / "trainer_state.json").write_text("{}")
    again = [Path(option(each, "output_dir")).name for each in run_script(tmp_path) if each[0] == "train"]
    assert again == [trained[0], "seed-44"]


def evaluate(name: str, good: int) -> None:
    method = "mixed" if "→" in name else "separate"
    parts = [cell(right(good, 20), budget, 32, model=name, method=method) for budget in (32, 64)]
    if method == "separate":
        parts.append(cell(right(good, 20), None, None, model=name, method="unconstrained"))
    stored(ablations.RUNS / "evaluations" / name, *parts)


def train(model: Path, commit: str, seed: int) -> None:
    model.mkdir(parents=True)
    (model / "trainer_state.json").write_text("{}")
    Provenance(commit, "2026-01-31", "a machine", (seed,)).write(model)


def test_the_report_has_every_comparisons_own_differences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    comparisons = ablations.COMPARISONS.values()
    names = list(dict.fromkeys(model for pairs in comparisons for model in ablations.compared(pairs)))
    for good, name in enumerate(names):
        evaluate(name, good)
    train(ablations.RECIPE, "new", 42)
    for name, seed in (("budget-32", 42), ("seed-43", 43)):
        train(ablations.RUNS / name, "old", seed)
    prose, output = tmp_path / "ablations.md", tmp_path / "results"
    prose.write_text("<!-- accuracies -->\n<!-- /accuracies -->\n")
    ablations.report(output, prose)

    content = json.loads((output / "ablations.json").read_text())
    assert list(content["trainings"]) == ["e1", "budget-32", "seed-43"]
    assert content["trainings"]["e1"] == {"commit": "new", "date": "2026-01-31", "machine": "a machine", "seeds": [42]}
    pairs = {
        name: [(found["model"], found["minus_model"], found["method"]) for found in each["differences"]]
        for name, each in content["comparisons"].items()
    }
    assert pairs["iterative"] == [("second-round-128", "e1", m) for m in ("separate", "separate", "unconstrained")]
    assert ("transition", "base, transition", "separate") in pairs["forced_text"]
    mixed = {(model, minus) for model, minus, _ in pairs["mixed_models"]}
    assert mixed == set(product(("base → e1", "e1 → base"), ("base", "e1")))
    (first, *_) = content["comparisons"]["mixed_models"]["differences"]
    gain = names.index("base → e1") - names.index("base")
    assert first["minus_method"] == "separate" and first["difference"] == pytest.approx(gain / 20)

    assert "<!-- accuracies -->\n| model | 32+32 | 64+32 | unlimited |\n" in prose.read_text()
    assert "| base → e1 | 30.0% | 30.0% |  |" in prose.read_text()
    text = (output / "ablations.md").read_text()
    assert "- e1: trained at new; 2026-01-31; a machine; seed 42\n- budget-32: " in text
    assert "- seed-43: trained at old; 2026-01-31; a machine; seed 43\n" in text
    assert text.count("Paired differences") == len(ablations.COMPARISONS)
    assert {file.name for file in output.glob("*.png")} == {"ablations.png", "allocation.png"}

    (ablations.RUNS / "budget-32" / "provenance.json").unlink()
    with pytest.raises(ValueError, match=r"there is no .*budget-32/provenance\.json"):
        ablations.report(output, prose)
