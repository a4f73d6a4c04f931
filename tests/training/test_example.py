"""The library example of the README, run as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

# Without what an engine in the test process has left for processes of its own group.
GROUP = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in GROUP}

EXAMPLE = re.compile(r"<!-- library example -->\n+```python\n(.*?)```", re.DOTALL)


@pytest.mark.engine
def test_the_readmes_library_example_runs_as_it_stands(tmp_path: Path) -> None:
    found = EXAMPLE.findall((ROOT / "README.md").read_text())
    assert len(found) == 1, "README.md must hold one python block after <!-- library example -->"
    (tmp_path / "example.py").write_text(found[0])
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    steps = [line for line in done.stdout.splitlines() if re.match(r"step \d+/\d+ \| reward ", line)]
    assert len(steps) >= 1 and "accuracy" in steps[0]
