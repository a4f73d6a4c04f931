"""What several test files share: the small real model, its problems, and where the offline data lies."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from vllm import LLM

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


@pytest.fixture(scope="session")
def start_engine() -> Callable[..., "LLM"]:
    """Starts an engine of the nano base that lives as long as the tests: freeing one breaks others of its process."""
    from vllm import LLM

    engines: list[LLM] = []

    def start(**options: Any) -> LLM:
        engines.append(LLM(str(BASE), enforce_eager=True, seed=0, **options))
        return engines[-1]

    return start


Train = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def train(nano_data: Path, tmp_path: Path) -> Train:
    """Run `e1_trl.train` on the nano recipe through `accelerate launch`, and return its log, an entry per step."""

    def run(*options: object, output: Path = tmp_path / "run", **launcher: Any) -> list[dict[str, Any]]:
        process = launch(*options, output=output, data=nano_data, **launcher)
        try:
            process.wait()
        finally:
            kill(process)
        assert process.returncode == 0, printed(output)[-5000:]
        return json.loads((output / "trainer_state.json").read_text())["log_history"]

    return run


def launch(
    *options: object, output: Path, data: Path, accelerate_config: str = "cpu", processes: int | None = None
) -> "subprocess.Popen[bytes]":
    """Start the nano recipe on tiny batches, in a process group of its own; `options` override the recipe.

    What it prints goes into a file beside `output`: nobody reads a pipe while the run is waited for.
    """
    command = [
        *(sys.executable, "-m", "accelerate.commands.launch"),
        *("--config_file", ROOT / "accelerate_configs" / f"{accelerate_config}.yaml"),
        *(() if processes is None else ("--num_processes", processes)),
        *("-m", "e1_trl.train", "--config", ROOT / "recipes" / "nano.yaml"),
        *("--dataset_name", data, "--output_dir", output, "--max_steps", 3),
        *("--per_device_train_batch_size", 16, "--gradient_accumulation_steps", 2),
        *options,
    ]
    with output.with_suffix(".log").open("a") as log:
        return subprocess.Popen(
            [str(part) for part in command],
            cwd=ROOT,
            env=os.environ if torch.cuda.is_available() else {"DS_ACCELERATOR": "cpu", **os.environ},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def printed(output: Path) -> str:
    """What the runs with this output folder have printed."""
    return output.with_suffix(".log").read_text()


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill -9 a launched run with all its processes, if it still runs."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
