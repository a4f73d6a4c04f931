"""The ablations' runner: what it would run, and what it makes of what was evaluated."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
import yaml
from conftest import ROOT
from fabricated import cell, right

from e1_trl.evaluation.arguments import parse
from e1_trl.provenance import Provenance
from e1_trl.report import samples

NANO = ROOT / "experiments" / "nano"
ABLATIONS = yaml.safe_load((NANO / "ablations.yaml").read_text())


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """experiments/nano/ablations.py, in a folder where nothing has run."""
    spec = importlib.util.spec_from_file_location("ablations", NANO / "ablations.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "ablations", module)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    return module


def option(command: list[str], name: str) -> str:
    return command[command.index(f"--{name}") + 1]


def trained(commands: list[list[str]]) -> list[str]:
    return [Path(option(command, "output_dir")).name for command in commands if "e1_trl.train" in command]


def evaluated(commands: list[list[str]]) -> list[str]:
    return [Path(option(command, "output")).name for command in commands if "e1_trl.evaluation" in command]


def test_every_ablation_is_trained_then_every_model_evaluated(runner: ModuleType) -> None:
    commands = runner.commands(ABLATIONS, "cpu.yaml")
    assert trained(commands) == list(ABLATIONS)
    assert evaluated(commands) == ["e1", "base", *ABLATIONS, "base, transition", "base → e1", "e1 → base"]
    assert len(trained(commands)) + len(evaluated(commands)) == len(commands)
    first_evaluation = next(i for i, command in enumerate(commands) if "e1_trl.evaluation" in command)
    assert all("e1_trl.train" in command for command in commands[:first_evaluation])
    first = commands[0]
    assert first[1:5] == ["-m", "accelerate.commands.launch", "--config_file", "cpu.yaml"]
    assert option(first, "config") == str(NANO / "recipe.yaml") and option(first, "thinking_budget") == "32"


def test_what_is_trained_is_not_trained_again(runner: ModuleType) -> None:
    for name in ("budget-32", "seed-44"):
        (runner.RUNS / name).mkdir(parents=True)
        (runner.RUNS / name / "trainer_state.json").write_text("{}")
    (runner.RUNS / "budget-128").mkdir()  # stopped in the middle
    commands = runner.commands(ABLATIONS, "cpu.yaml")
    assert trained(commands) == [name for name in ABLATIONS if name not in ("budget-32", "seed-44")]
    assert len(evaluated(commands)) == len(ABLATIONS) + 5, "an evaluation resumes by itself"


def test_a_model_is_evaluated_with_the_text_it_was_trained_with(runner: ModuleType) -> None:
    forced = {
        Path(option(command, "output")).name: option(command, "forced_text")
        for command in runner.commands(ABLATIONS, "cpu.yaml")
        if "--forced_text" in command and "e1_trl.evaluation" in command
    }
    assert forced == dict.fromkeys(["transition", "base, transition"], ABLATIONS["transition"]["forced_text"])


def test_every_model_is_asked_as_the_recipes_own_are(runner: ModuleType) -> None:
    commands = [command for command in runner.commands(ABLATIONS, "cpu.yaml") if "e1_trl.evaluation" in command]
    found = [parse(command[command.index("e1_trl.evaluation") + 1 :]) for command in commands]
    asked = [(each.instruction, each.temperature, each.top_p, each.budgets, each.max_problems) for each in found]
    recipe = yaml.safe_load((NANO / "evaluation.yaml").read_text())
    assert asked == [("", 0.6, 1.0, recipe["budgets"], runner.PROBLEMS)] * len(commands)
    assert [each.methods for each in found[-2:]] == [["mixed"]] * 2
    assert {tuple(each.methods) for each in found[:-2]} == {("separate", "unconstrained")}


def test_mixed_models_take_the_thinking_of_a_finished_evaluation(runner: ModuleType) -> None:
    *before, one, other = runner.commands(ABLATIONS, "cpu.yaml")
    for command, thinking, solution in ((one, "base", "e1"), (other, "e1", "base")):
        assert Path(option(command, "thinking_from")).name == thinking and option(command, "name") == solution
        assert any(
            option(earlier, "output") == option(command, "thinking_from") for earlier in before if "--output" in earlier
        )
        assert option(command, "model") == str(runner.RECIPE[solution])


def test_every_model_that_is_compared_is_evaluated(runner: ModuleType) -> None:
    compared = {model for comparison in runner.COMPARISONS.values() for model in comparison.models}
    assert compared == set(evaluated(runner.commands(ABLATIONS, "cpu.yaml")))
    for comparison in runner.COMPARISONS.values():
        assert {model for pair in comparison.pairs for model in pair} <= set(comparison.models)


def evaluate(runner: ModuleType, name: str, good: int) -> None:
    method = "mixed" if "→" in name else "separate"
    parts = [cell(right(good, 20), budget, 32, model=name, method=method) for budget in (32, 64)]
    if method == "separate":
        parts.append(cell(right(good, 20), None, None, model=name, method="unconstrained"))
    folder = runner.EVALUATIONS / name
    folder.mkdir(parents=True)
    samples.write(pd.concat(parts, ignore_index=True), folder)


def train(model: Path, commit: str, seed: int) -> None:
    model.mkdir(parents=True)
    (model / "trainer_state.json").write_text("{}")
    Provenance(commit, "2026-01-31", "a machine", (seed,)).write(model)


def test_a_model_that_does_not_say_what_trained_it_stops_before_anything_runs(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(runner.RUNS / "budget-32", "abc", 42)
    (runner.RUNS / "budget-32" / "provenance.json").unlink()
    monkeypatch.setattr(sys, "argv", ["ablations.py"])
    monkeypatch.setattr(runner.subprocess, "run", pytest.fail)
    with pytest.raises(SystemExit, match=r"^ablations.py: there is no .*budget-32/provenance\.json.*$"):
        runner.main()


def test_the_report_has_every_comparisons_own_differences(runner: ModuleType, tmp_path: Path) -> None:
    names = evaluated(runner.commands(ABLATIONS, "cpu.yaml"))
    for good, name in enumerate(names):
        evaluate(runner, name, good)
    train(runner.RECIPE["e1"], "new", 42)
    for name in ABLATIONS:
        train(runner.RUNS / name, "old", ABLATIONS[name].get("seed", 42))
    prose, output = tmp_path / "ablations.md", tmp_path / "results"
    prose.write_text("<!-- accuracies -->\n<!-- /accuracies -->\n")
    runner.report(ABLATIONS, output, prose)

    content = json.loads((output / "ablations.json").read_text())
    assert content["provenance"]["seeds"] == [7] and content["provenance"]["commit"]
    assert list(content["trainings"]) == ["e1", *ABLATIONS]
    assert content["trainings"]["e1"] == {"commit": "new", "date": "2026-01-31", "machine": "a machine", "seeds": [42]}
    assert (content["trainings"]["seed-43"]["commit"], content["trainings"]["seed-43"]["seeds"]) == ("old", [43])
    pairs = {
        name: [(found["model"], found["minus_model"], found["method"]) for found in each["differences"]]
        for name, each in content["comparisons"].items()
    }
    assert pairs["iterative"] == [("second-round-128", "e1", m) for m in ("separate", "separate", "unconstrained")]
    assert ("transition", "base, transition", "separate") in pairs["forced_text"]
    assert {(model, minus) for model, minus, _ in pairs["mixed_models"]} == {
        *(("base → e1", "base"), ("base → e1", "e1"), ("e1 → base", "base"), ("e1 → base", "e1")),
    }
    (first, *_) = content["comparisons"]["mixed_models"]["differences"]
    gain = names.index("base → e1") - names.index("base")
    assert first["minus_method"] == "separate" and first["difference"] == pytest.approx(gain / 20)

    assert "<!-- accuracies -->\n| model | 32+32 | 64+32 | unlimited |\n" in prose.read_text()
    assert "| base → e1 | 55.0% | 55.0% |  |" in prose.read_text()
    text = (output / "ablations.md").read_text()
    assert "- e1: trained at new; 2026-01-31; a machine; seed 42\n- budget-32, " in text
    assert "- seed-43: trained at old; 2026-01-31; a machine; seed 43\n" in text
    assert text.count("Paired differences") == len(runner.COMPARISONS)
    assert {file.name for file in output.glob("*.png")} == {"ablations.png", "allocation.png"}
