"""What several test files share: the small real model, its problems, and where the offline data lies."""

import contextlib
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openai
import pytest
import torch
from hypothesis import HealthCheck, settings
from warm import Program

from e1_trl.processes import kill_tree

if TYPE_CHECKING:
    from vllm import LLM

ROOT = Path(__file__).parents[1]
NANO = ROOT / "experiments" / "nano" / "recipe.yaml"
BASE = ROOT / "experiments" / "nano" / "base"
# Of the tests' engines. In bfloat16 a log-probability moves by 0.02 and more with what else is in the batch.
DTYPE = "float32"
CODE_BASE = ROOT / "experiments" / "nano_code" / "base"
# Real data sets, tokenizers and grading cases, which are not part of the project; tests that need them skip without.
DATA = Path(os.environ.get("E1_TRL_DATA", ROOT.parent / "shared" / "data"))

# A background job of a script has SIGINT ignored, and so has all that it starts; a handler becomes the default there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The engine runs inside the test process and holds little; set before vLLM is imported.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"  # engines/ has set another default by now
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("DO_NOT_TRACK", "1")
if not torch.cuda.is_available():
    # TRL has vLLM compile the model for every training, 10 to 30 seconds each; one test does.
    os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")

# The same examples everywhere, however busy the machine is.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.fixture
def datasets_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read for the first time."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def sandbox() -> None:
    """Skips the test where this machine has no sandbox for programs."""
    from e1_trl.answers.programs.sandbox.command import SandboxError
    from e1_trl.answers.programs.sandbox.isolation import choose

    try:
        choose()
    except SandboxError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def nano_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The nano problems, made afresh by their own script."""
    from experiments.nano.make_base import make_data

    output = tmp_path_factory.mktemp("nano")
    make_data(output, seed=17)
    return output / "data"


@pytest.fixture(scope="session")
def start_engine() -> Callable[..., "LLM"]:
    """Starts an engine of the nano base that lives as long as the tests: freeing one breaks others of its process."""
    from vllm import LLM

    engines: list[LLM] = []

    def start(**options: Any) -> LLM:
        engines.append(LLM(str(BASE), dtype=DTYPE, enforce_eager=True, seed=0, **options))
        return engines[-1]

    return start


# Without English, which the nano tokenizer has no words for.
WORDS = ["--instruction", "", "--s1_text", r"\boxed{", "--wait_text", "Wait "]


def options(data: Path, output: Path, *more: object) -> list[str]:
    """Arguments of an evaluation of the nano base."""
    fixed = ["--model", BASE, "--enforce_eager", "true", "--dataset_name", data, *WORDS, "--output", output]
    return [str(part) for part in [*fixed, *more]]


def evaluation(data: Path, output: Path, *more: object) -> list[str]:
    """The command of an evaluation of the nano base."""
    return [sys.executable, "-m", "e1_trl.evaluation", *options(data, output, *more)]


def started(data: Path, output: Path, log: Path, *more: object) -> Program:
    """An evaluation of the nano base that runs, in a process group of its own, and prints into the file."""
    return Program("e1_trl.evaluation.__main__", options(data, output, *more), ROOT, log, os.environ)


def evaluated(data: Path, output: Path, *more: object) -> None:
    """Run an evaluation of the nano base to its end."""
    log = output.with_suffix(".log")
    assert started(data, output, log, *more).wait() == 0, log.read_text()[-5000:]


def results(output: Path) -> dict[str, Any]:
    """All that an evaluation reports but when and where."""
    report = json.loads((output / "results.json").read_text())
    del report["provenance"]
    return report


def segments(output: Path) -> dict[tuple[object, ...], int]:
    """Where the stored segments belong, and the row that each stands in: one that is written again gets another."""
    if not (output / "segments.sqlite").exists():
        return {}
    with contextlib.closing(sqlite3.connect(output / "segments.sqlite")) as database:
        query = "SELECT rowid, problem, sample, branch, start, before FROM legs"
        try:
            return {tuple(place): row for row, *place in database.execute(query)}
        except sqlite3.OperationalError:  # the table is not there yet
            return {}


SERVED_CONTEXT = 256  # tokens
STARTUP = 300  # seconds
# A seeded request whose prefill is split ends vLLM's CPU engine (docs/upstream.md).
SERVER_FLAGS = ("--enforce-eager", "--no-enable-chunked-prefill")


def free_port() -> int:
    """A port that nobody listens on, outside of those that clients are given, so that it stays free."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


@contextlib.contextmanager
def serving(port: int) -> "Iterator[tuple[openai.OpenAI, subprocess.Popen[bytes]]]":
    """A real vLLM server of the nano base, named nano, in a process group of its own, up and answering."""
    options = {
        "--model": BASE,
        "--dtype": DTYPE,
        "--served-model-name": "nano",
        "--port": port,
        "--max-model-len": SERVED_CONTEXT,
        "--logprobs-mode": "processed_logprobs",
        "--reasoning-config": '{"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}',
    }
    words = [str(word) for option in options.items() for word in option]
    process = subprocess.Popen(
        [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *SERVER_FLAGS, *words],
        env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="unused")
    try:
        deadline = time.monotonic() + STARTUP
        while True:
            assert process.poll() is None, "the server died while starting"
            assert time.monotonic() < deadline, f"the server did not start within {STARTUP} s"
            try:
                client.with_options(max_retries=0).models.list()
                break
            except openai.APIConnectionError:
                time.sleep(1)
        yield client, process
    finally:
        kill(process)


@pytest.fixture(scope="session")
def server() -> Iterator[openai.OpenAI]:
    with serving(free_port()) as (client, _):
        yield client


@pytest.fixture(scope="session")
def proxy(server: openai.OpenAI) -> Iterator[str]:
    """A real `e1 serve` of the nano model at 64+32, up and answering; its address."""
    port = free_port()
    words = ["--upstream", server.base_url, "--model", BASE, "--served_model_name", "nano", "--port", port]
    words += ["--thinking_budget", 64, "--solution_budget", 32]
    process = subprocess.Popen([sys.executable, "-m", "e1_trl.serving.app", *map(str, words)], start_new_session=True)
    try:
        deadline = time.monotonic() + STARTUP
        with socket.socket() as probe:
            while probe.connect_ex(("127.0.0.1", port)):
                assert process.poll() is None and time.monotonic() < deadline, "the proxy did not start"
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        kill(process)


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


# A script under Gloo ends without Python's own end, which aborts where a thread still lets go of a gathered weight.
ENDS = """
import os, sys
sys.stdout.flush()
os._exit(0)
"""


def outside_a_group() -> dict[str, str]:
    """The environment, without what an engine in this process has set for processes of its own group."""
    group = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    return {name: value for name, value in os.environ.items() if name not in group}


def launch(
    *options: object,
    output: Path,
    data: Path,
    accelerate_config: str = "cpu",
    processes: int | None = None,
    compiled: bool = False,
    launched: bool = True,
    launcher: Sequence[object] = (),
    recipe: Path = ROOT / "experiments" / "nano" / "recipe.yaml",
) -> "subprocess.Popen[bytes] | Program":
    """Start a recipe, the nano one, on tiny batches, in a process group of its own; `options` override it.

    `launcher` are more options of the launcher. With `compiled`, the engine compiles the model, as it does for users.
    Unless `launched`, it is one process that no launcher has started.

    What it prints goes into a file beside `output`: nobody reads a pipe while the run is waited for.
    """
    command = [
        *(sys.executable, "-m", "accelerate.commands.launch"),
        *("--config_file", ROOT / "accelerate_configs" / f"{accelerate_config}.yaml"),
        *(() if processes is None else ("--num_processes", processes)),
        *("--main_process_port", free_port(), *launcher),
        *("-m", "e1_trl.train"),
    ]
    line = [
        *("--config", recipe),
        *("--dataset_name", data, "--output_dir", output, "--max_steps", 3),
        *("--per_device_train_batch_size", 16, "--gradient_accumulation_steps", 2),
        *options,
    ]
    environment = outside_a_group()
    if compiled:
        environment["TORCH_COMPILE_DISABLE"] = "0"
    if not launched:
        log_file = output.with_suffix(".log")
        environment |= {"ACCELERATE_USE_CPU": "true"}  # what the launcher makes of the configuration
        return Program("e1_trl.train", [str(part) for part in line], ROOT, log_file, environment)
    with output.with_suffix(".log").open("a") as log:
        return subprocess.Popen(
            [str(part) for part in [*command, *line]],
            cwd=ROOT,
            env=environment if torch.cuda.is_available() else {"DS_ACCELERATOR": "cpu", **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def printed(output: Path) -> str:
    """What the runs with this output folder have printed."""
    return output.with_suffix(".log").read_text()


def kill(process: "subprocess.Popen[bytes] | Program") -> None:
    """Kill -9 a launched run with all its processes, if it still runs."""
    kill_tree(process.pid)
    process.wait()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how much was not tested for want of the offline data."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if str(DATA) in str(report.longrepr)]
    where = f"{DATA} (the variable E1_TRL_DATA names it)"
    terminalreporter.write_line(f"{len(skipped)} tests were skipped for the absence of data in {where}")
