"""The command line of the evaluation, and the folder that it names."""

from pathlib import Path

import pytest

from e1_trl.errors import UserError
from e1_trl.evaluation.arguments import Model, parse

NEEDED = ["--model", "someone/model", "--budgets", "8+8", "--benchmark", "amc"]


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
    config.write_text("{model: [")
    with pytest.raises(ValueError, match=r"evaluation\.yaml cannot be read: while parsing"):
        parse(["--config", str(config)])


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("samples: [1, 2]", "samples is [1, 2]; it must be a whole number, 1 or more"),
        ("modle: a", "modle is unknown; did you mean model?"),
    ],
)
def test_an_entry_of_a_file_that_is_wrong_is_named_with_the_file(written: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "evaluation.yaml"
    file.write_text(f"model: a\nbenchmark: amc\n{written}\n")
    with pytest.raises(UserError) as error:
        parse(["--config", str(file)])
    assert str(error.value) == f"{file}: {said}"


def test_a_folder_is_named_after_model_revision_and_problems_or_by_the_command() -> None:
    folder = parse([*NEEDED, "--revision", "v1"]).folder
    assert folder == Path("runs/evaluations/someone--model@v1-amc")
    assert parse([*NEEDED, "--output", "here"]).folder == Path("here")


def test_a_model_is_named_with_its_revision_or_as_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("E1@home").mkdir()
    assert list(map(Model.parse, ("a/E1@step-200", "a/E1"))) == [Model("a/E1", "step-200"), Model("a/E1")]
    assert Model.parse("E1@home/") == Model("E1@home")
    arguments = parse(["--model", "./E1@home/", "--benchmark", "aime2024", "--budgets", "16+16"])
    assert arguments.weights == Model("./E1@home/")  # by which a server knows it


def test_two_models_never_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    models = ["a/E1", "b/E1", "b/E1@v1", "b/E1@v2", "b/E1@refs/pr/1", "E1", ".", "../E1", f"{tmp_path}/E1"]
    folders = {Model.parse(text).folder for text in models}
    assert len(folders) == len(models)
    assert not any("/" in folder or folder.startswith(".") for folder in folders)


SEVERAL = "several models need output, and no name, revision or served_model_name"
NO_BIASES = ('{"Wait": -100}', '{"1": -101}', '{"-1": 1}', '{"1": "x"}', '{"1": true}')


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "a", "b", "--output", "x", "--revision=v1"], SEVERAL),
        (["--model", "a", "b", "--output", "x", "--name", "b"], SEVERAL),
        (["--model", "a", "b"], SEVERAL),
        (["--model", "a/b", "a--b", "--output", "x"], "two of the models have the same name: a/b a--b"),
        (["--engine_args", '{"hf_token": "hf_x"}'], "engine_args has hf_token, which would stand in the report"),
        (["--base_url", "http://me:pass@host:8000/v1"], "^base_url holds a name or password, which the"),
        (["--thinking_from", "x"], "thinking_from needs --methods mixed alone"),
        (["--dataset_name", "x"], "name either a benchmark or a dataset_name"),
        (["--logit_bias", "x"], "logit_bias is 'x', which is not JSON"),
        *((["--logit_bias", text], f"logit_bias is {text}; expected token ids") for text in NO_BIASES),
        (["--livecodebench", "v5"], "--livecodebench needs --benchmark livecodebench"),
        (["--benchmark", "livecodebench", "--livecodebench", "v5"], "livecodebench is .*; it must be like v5"),
        (["--grader", "programs"], "grader is 'programs'; the benchmark amc has"),
        (["--benchmark", "leetcode", "--max_tests", "3"], "max_tests is 3; the benchmark leetcode has"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_in_one_line(words: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        parse([*NEEDED, *words])
    assert "\n" not in str(error.value)
