"""Uploads of a training to a stub of the Hub on this machine, and models loaded back from there."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BASE, Train, evaluation, kill, launch, printed, results
from hub_stub import Commit, Hub, faults, serving_hub
from huggingface_hub import ModelCard

from e1_trl.checkpoints.budget_file import BudgetInfo

pytestmark = [pytest.mark.engine, pytest.mark.distributed]

OF_A_MODEL = {"README.md", "config.json", "model.safetensors", "tokenizer.json", "budget.json", "provenance.json"}
OF_ITS_CARD = {"e1/origin.json", "e1/recipe.yaml", "e1/versions.txt", "trainer_state.json"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """The stub, which the programs that a test starts take for the Hub."""
    with serving_hub() as hub:
        for name, value in {**hub.environment, "HF_HOME": str(tmp_path / "home")}.items():
            monkeypatch.setenv(name, value)
        yield hub


@pytest.fixture
def texts(nano_data: Path, tmp_path: Path) -> Path:
    """Prompts that are texts, which go to the model as they are."""
    data = tmp_path / "texts.jsonl"
    with data.open("w") as file:
        for line in (nano_data / "train.jsonl").read_text().splitlines()[:64]:
            problem = json.loads(line)
            text = f"<|user|>{problem['problem']}<|assistant|><think>"
            file.write(json.dumps({"prompt": text, "answer": problem["answer"]}) + "\n")
    return data


def pushing(data: Path, **more: Any) -> list[str]:
    options = {
        "dataset_name": data,
        "problem_column": "prompt",
        "thinking_budget": 192,
        "max_steps": 2,
        "save_strategy": "steps",
        "save_steps": 1,
        "push_to_hub": "true",
        "hub_model_id": "someone/e1",
        **more,
    }
    lists = {name: value if isinstance(value, list) else [value] for name, value in options.items()}
    return [str(word) for name, values in lists.items() for word in (f"--{name}", *values)]


def assert_whole(commit: Commit, output: Path) -> None:
    """All of a model and of its card is there, and nothing else."""
    files = commit.files
    assert files.keys() >= OF_A_MODEL | OF_ITS_CARD
    assert not [path for path in files if "completions" in path or path.startswith("checkpoint")]
    assert faults(files["README.md"].decode()) == []
    for path, content in files.items():
        assert content == (output / path).read_bytes()
        assert b"hf_writer" not in content


@pytest.mark.slow
def test_a_trained_model_is_uploaded_once_and_evaluated_from_there_at_its_own_budget(
    train: Train, hub: Hub, texts: Path, nano_data: Path, tmp_path: Path
) -> None:
    log = train(*pushing(texts, log_completions="true", num_completions_to_print=1), launched=False)
    assert all(entry["reward"] > 0 for entry in log if "loss" in entry)
    assert list((tmp_path / "run" / "completions").glob("*.parquet"))
    (commit,) = hub.commits("someone/e1")
    assert_whole(commit, tmp_path / "run")
    assert commit.files["model.safetensors"] == (tmp_path / "run/checkpoint-2/model.safetensors").read_bytes()
    text = ModelCard(commit.files["README.md"].decode()).text
    assert "| steps | 2 |" in text and "192+32" in text and "--model someone/e1" in text and "None" not in text

    output = tmp_path / "evaluation"
    asked = evaluation(nano_data, output, "--methods", "separate", "--max_problems", 16, "--model", "someone/e1")
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    assert "budgets: ['192+32'], from budget.json of someone/e1" in done.stderr + done.stdout
    (row,) = results(output)["rows"]
    assert (row["thinking_budget"], row["solution_budget"], row["problems"]) == (192, 32, 16)
    assert json.loads((output / "run.json").read_text())["model"] == commit.id


@pytest.mark.slow
def test_an_adapter_is_uploaded_after_an_upload_was_killed(train: Train, hub: Hub, texts: Path, tmp_path: Path) -> None:
    # As if the base came from the Hub.
    files = {path.name: path.read_bytes() for path in BASE.iterdir() if path.is_file()}
    files["README.md"] = b"---\nlicense: mit\n---\n# Base\n"
    hub.add("org/base", files)
    lora = {"use_peft": "true", "lora_r": 8, "lora_target_modules": ["q_proj", "v_proj"]}
    hub_options = {"hub_strategy": "checkpoint", "hub_revision": "lora", "hub_private_repo": "true"}
    words = pushing(texts, model_name_or_path="org/base", log_completions="true", **hub_options, **lora)
    output = tmp_path / "run"
    hub.stalled = True
    process = launch(*words, output=output, data=texts, launched=False)
    try:
        while not hub.uploading.wait(timeout=1):
            assert process.poll() is None, printed(output)[-3000:]
    finally:
        kill(process)
    hub.stalled, hub.full = False, True
    assert hub.commits("someone/e1", "lora") == []

    process = launch(*words, "--resume_from_checkpoint", "true", output=output, data=texts, launched=False)
    assert process.wait(timeout=300) != 0
    lines = [line for line in printed(output).splitlines() if line.startswith("e1 train: ")]
    assert len(lines) == 1 and f"the model is whole in {output}" in lines[0] and "400" in lines[0]
    assert f": upload it with hf upload someone/e1 {output} . --revision lora --exclude " in lines[0]
    hub.full = False

    tables = {*(output / "completions").glob("*.parquet")}
    resumed = (*words, "--resume_from_checkpoint", "true")
    for more in ((), ("--max_steps", 9, "--max_generated_tokens", 1)):  # finished in steps, and in tokens
        train(*resumed, *more, launched=False)
        assert json.loads((output / "trainer_state.json").read_text())["global_step"] == 2
        weights = (output / "checkpoint-2" / "adapter_model.safetensors").read_bytes()
        assert (output / "adapter_model.safetensors").read_bytes() == weights
    assert tables and {*(output / "completions").glob("*.parquet")} == tables  # nothing was sampled
    commits = hub.commits("someone/e1", "lora")
    assert hub.repositories["someone/e1"].private and hub.commits("someone/e1") == []
    last = commits[-1].files
    assert {"adapter_model.safetensors", "adapter_config.json"} <= last.keys()
    assert "model.safetensors" not in last
    card = ModelCard(last["README.md"].decode())
    assert faults(last["README.md"].decode()) == []
    assert (card.data.base_model, card.data.license, card.data.library_name) == ("org/base", "mit", "peft")
    assert re.search("--model org/base --revision [0-9a-f]{40} --enable-lora", card.text)
    assert "More Information Needed" not in card.text
    assert json.loads(last["adapter_config.json"])["base_model_name_or_path"] == "org/base"
    assert BudgetInfo.read(output / "budget.json").budget.thinking == 192
    assert f"model_revision: {hub.repositories['org/base'].at('main').id}" in last["e1/recipe.yaml"].decode()


@pytest.mark.slow
def test_checkpoints_are_uploaded_if_asked_the_model_last(train: Train, hub: Hub, texts: Path, tmp_path: Path) -> None:
    hub.add("someone/e1", dict.fromkeys(["budget.json", "adapter_config.json"], b"{}"))  # of an earlier model
    words = pushing(texts, hub_strategy="all_checkpoints", hub_always_push="true", log_completions="true")
    train(*words, launched=False)
    commits = {commit.message: commit.files for commit in hub.commits("someone/e1")}
    last = hub.commits("someone/e1")[-1].files
    for step in (1, 2):
        model = commits[f"Training in progress, step {step}"]
        weights = (tmp_path / "run" / f"checkpoint-{step}" / "model.safetensors").read_bytes()
        assert model["model.safetensors"] == weights == last[f"checkpoint-{step}/model.safetensors"]
        assert f"checkpoint-{step}/trainer_state.json" in last
        assert model.keys() >= OF_A_MODEL and faults(model["README.md"].decode()) == []
    assert last["model.safetensors"] == weights != last["checkpoint-1/model.safetensors"]
    assert "| steps | 2 |" in last["README.md"].decode() and "adapter_config.json" not in last
    assert not [path for path in last if "completions" in path]
