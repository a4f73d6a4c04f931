"""The programs that a user sees first, run as they stand: `example.py`, and the library example of docs/training.md."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, outside_a_group

from e1_trl.budget import Budget
from e1_trl.checkpoints.budget_file import BudgetInfo

pytestmark = pytest.mark.engine

LIBRARY_EXAMPLE = re.compile(r"<!-- library example -->\n+```python\n(.*?)```", re.DOTALL)


def printed(program: str, folder: Path, without: str | None = None) -> str:
    (folder / "experiments").symlink_to(ROOT / "experiments")
    (folder / "program.py").write_text(program)
    command, environment = [sys.executable, "program.py"], {**outside_a_group(), "PYTHONPATH": str(ROOT)}
    environment.pop(without, None)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


@pytest.mark.slow
def test_the_example_shows_thinking_forced_close_and_answer(tmp_path: Path) -> None:
    text = printed((ROOT / "example.py").read_text(), tmp_path, without="VLLM_CPU_KVCACHE_SPACE")
    thinking, close, answer = re.findall(r"^(?:thinking|forced close|answer): (.*)$", text, re.MULTILINE)
    assert thinking and answer and (close == "</think>") != thinking.endswith("</think>")


def test_the_library_example_trains(tmp_path: Path) -> None:
    (program,) = LIBRARY_EXAMPLE.findall((ROOT / "docs" / "training.md").read_text())
    steps = re.findall(r"^step \d+/\d+ \| reward .*$", printed(program, tmp_path), re.MULTILINE)
    assert steps and "accuracy" in steps[0]
    assert BudgetInfo.read(tmp_path / "runs" / "example" / "budget.json").budget == Budget(64, 32)
