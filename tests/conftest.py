"""What several test files share: the small real model, its problems, and where the offline data lies."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
BASE = ROOT / "recipes" / "nano" / "base"
SHARED = ROOT.parent / "shared" / "data"

# The engine runs inside the test process and holds little; set before vLLM is imported.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


@pytest.fixture(scope="session")
def nano_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The nano problems, made afresh by their own script."""
    output = tmp_path_factory.mktemp("nano")
    script = ROOT / "recipes" / "nano" / "make_base.py"
    subprocess.run([sys.executable, script, "--what", "data", "--output", output], check=True, capture_output=True)
    return output / "data"


@pytest.fixture
def train(nano_data: Path, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Run `e1_trl.train` on the nano recipe through `accelerate launch`, and return its log, an entry per step."""

    def run(*options: object, accelerate_config: str = "cpu", output: Path = tmp_path / "run") -> list[dict[str, Any]]:
        process = launch(*options, accelerate_config=accelerate_config, output=output, data=nano_data)
        text, _ = process.communicate()
        assert process.returncode == 0, text[-5000:]
        return json.loads((output / "trainer_state.json").read_text())["log_history"]

    return run


def launch(*options: object, accelerate_config: str = "cpu", output: Path, data: Path) -> "subprocess.Popen[str]":
    """Start the nano recipe on tiny batches; `options` override."""
    command = [
        *(sys.executable, "-m", "accelerate.commands.launch"),
        *("--config_file", ROOT / "accelerate_configs" / f"{accelerate_config}.yaml"),
        *("-m", "e1_trl.train", "--config", ROOT / "recipes" / "nano.yaml"),
        *("--dataset_name", data, "--output_dir", output, "--max_steps", 3),
        *("--per_device_train_batch_size", 16, "--gradient_accumulation_steps", 2),
        *options,
    ]
    environment = {"DS_ACCELERATOR": "cpu", **os.environ}
    return subprocess.Popen(
        [str(part) for part in command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
