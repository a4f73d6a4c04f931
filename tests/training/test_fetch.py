"""A recipe that `e1 fetch` has fetched needs no internet. The Hub is a stub on this machine."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
import yaml
from conftest import BASE, NANO, ROOT, outside_a_group
from hub_stub import Hub, serving_hub

from e1_trl.errors import UserError
from e1_trl.recipes import fields_of
from e1_trl.training.fetch import fetch_model

WEIGHTS = {path.name: path.read_bytes() for path in BASE.iterdir() if path.name != "generation_config.json"}
OFFLINE = """
import sys
from huggingface_hub import snapshot_download
from transformers import AutoModelForCausalLM
from e1_trl.train import main
main(["--config", sys.argv[1], "--use_cpu", "true", "--dry_run", "true"])
print("PARAMETERS", AutoModelForCausalLM.from_pretrained("org/base").num_parameters())
"""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """The stub, which this process and those that it starts take for the Hub, with a cache of their own."""
    with serving_hub() as hub:
        hub.stand_in(monkeypatch)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
        yield hub


def cached(home: Path, repository: str) -> set[str]:
    """The files of a repository's only snapshot."""
    (snapshot,) = (home / "hub" / repository / "snapshots").iterdir()
    return {str(file.relative_to(snapshot)) for file in snapshot.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_a_recipe_that_was_fetched_needs_no_hub(hub: Hub, nano_data: Path, tmp_path: Path) -> None:
    hub.add("org/base", {**WEIGHTS, "pytorch_model.bin": b"as large again"})
    rows = (nano_data / "train.jsonl").read_bytes().splitlines(keepends=True)
    hub.add("org/problems", {"train.jsonl": b"".join(rows[:256])})
    hub.add("HuggingFaceH4/MATH-500", {"test.jsonl": json.dumps({"problem": "1+1", "answer": "2"}).encode()})
    fields = {**fields_of(NANO), "model_name_or_path": "org/base", "dataset_name": "org/problems"}
    fields |= {"eval_benchmark": "math500", "eval_budgets": ["64+32"], "output_dir": str(tmp_path / "run")}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({**fields, "bf16": True, "exclude": str(tmp_path / "yet to be written")}))
    command = [sys.executable, "-m", "e1_trl.training.fetch", "--config", str(recipe)]
    environment = {**outside_a_group(), **hub.environment, "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.splitlines()[-1].startswith(f"fetched into {tmp_path}/home; on a node without internet: HF_HOME")
    assert cached(tmp_path / "home", "models--org--base") == WEIGHTS.keys()
    hub.repositories.clear()
    recipe.write_text(yaml.safe_dump({**fields, "bf16": False}))
    command = [sys.executable, "-c", OFFLINE, str(recipe)]
    offline = {**environment, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=offline, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    assert "PARAMETERS" in done.stdout and "evaluation       1 prompts" in done.stdout


def test_pickled_weights_are_fetched_where_there_are_no_others(hub: Hub, tmp_path: Path) -> None:
    hub.add("org/old", {"config.json": b"{}", "pytorch_model.bin": b"0", "model.gguf": b"0"})
    fetch_model("org/old", None)
    assert cached(tmp_path / "home", "models--org--old") == {"config.json", "pytorch_model.bin"}
    fetch_model(str(BASE), None)
    with pytest.raises(UserError, match=r"^the model org/none: "):
        fetch_model("org/none", None)
