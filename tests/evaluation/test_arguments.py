"""The command line of the evaluation, and the folder that it names."""

from pathlib import Path

import pytest

from e1_trl.evaluation.arguments import parse, slug

NEEDED = ["--model", "someone/model", "--budgets", "8+8"]


def test_a_yaml_file_stands_for_its_arguments_and_the_command_line_overrides_it(tmp_path: Path) -> None:
    config = tmp_path / "evaluation.yaml"
    config.write_text(
        "model: a/b\nbudgets: [8+8, unlimited]\nbenchmark: amc\nenforce_eager: true\ninstruction: ''\n"
        "engine_args: {quantization: fp8}\nname:\n"
    )
    arguments = parse(["--config", str(config), "--model", "c/d"])
    assert (arguments.model, arguments.budgets, arguments.benchmark) == (["c/d"], ["8+8", "unlimited"], "amc")
    assert arguments.enforce_eager is True and arguments.instruction == "" and arguments.name is None
    assert arguments.engine_args == '{"quantization": "fp8"}'
    config.write_text("- model")
    with pytest.raises(ValueError, match="must hold a YAML mapping"):
        parse(["--config", str(config)])
    config.write_text("{model: [")
    with pytest.raises(ValueError, match=r"evaluation\.yaml: while parsing"):
        parse(["--config", str(config)])


def test_an_unknown_argument_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="--modle"):
        parse([*NEEDED, "--benchmark", "amc", "--modle", "x"])
    with pytest.raises(SystemExit):
        parse(["--benchmark", "amc", "--budgets", "8+8"])
    assert "--model" in capsys.readouterr().err


def test_a_folder_is_named_after_model_revision_and_problems_or_by_the_command() -> None:
    assert len({slug("b/e1", revision) for revision in (None, "v1", "refs/pr/1")}) == 3
    assert "/" not in slug("b/e1", "refs/pr/1")
    folder = parse([*NEEDED, "--benchmark", "amc", "--revision", "v1"]).folder
    assert folder == Path("runs/evaluations/someone--model@v1-amc")
    assert parse([*NEEDED, "--benchmark", "amc", "--output", "here"]).folder == Path("here")


def test_a_folder_is_called_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server knows it by that name."""
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    arguments = parse(["--model", "./model/", "--benchmark", "aime2024", "--budgets", "16+16"])
    assert arguments.weights.path == "./model/"
