"""Fixtures and helpers of several test files: the small real model, its problems, servers and launched runs."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import openai
import pytest
import torch
from hypothesis import HealthCheck, settings
from warm import Group, Program

from e1_trl.ports import free_port
from e1_trl.processes import alone as outside_a_group  # in whose environment an engine has set variables
from e1_trl.processes import kill_tree

if TYPE_CHECKING:
    from vllm import LLM

ROOT = Path(__file__).parents[1]
NANO = ROOT / "experiments" / "nano" / "recipe.yaml"
BASE = ROOT / "experiments" / "nano" / "base"
# In bfloat16 a log-probability moves by 0.02 and more with the other sequences of its batch.
DTYPE = "float32"
CODE_BASE = ROOT / "experiments" / "nano_code" / "base"
# Real data sets, tokenizers and grading cases, which are not part of the project; tests that need them are skipped.
DATA = Path(os.environ.get("E1_TRL_DATA", ROOT.parent / "shared" / "data"))

# A script's background jobs, and all that they start, ignore SIGINT; with a handler, child processes get the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The engine runs inside the test process with a small cache; set before vLLM is imported.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"  # engines/ has set another default
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("DO_NOT_TRACK", "1")
if not torch.cuda.is_available():
    # TRL lets vLLM compile the model in every training, for 10 to 30 seconds; one slow test does, that of TRL's recipe.
    os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")

# The same examples on every machine, busy or not.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.fixture
def datasets_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, in which no file has been read before."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def sandbox() -> None:
    """Skip the test if this machine has no sandbox for programs."""
    from e1_trl.answers.programs.sandbox.isolation import choose
    from e1_trl.errors import UserError

    try:
        choose()
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def nano_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of 256 nano problems of each split; every training, dry run and evaluation reads and encodes them all."""
    from experiments.nano.make_base import SPLITS, problems
    from experiments.pretraining import write_data

    output = tmp_path_factory.mktemp("nano")
    rows = [*islice(problems(seed=17), SPLITS["test"] + 256)]
    write_data(output, {"test": rows[:256], "train": rows[-256:]})
    return output / "data"


@pytest.fixture(scope="session")
def prompt_ids(nano_data: Path) -> list[list[int]]:
    """24 nano problems as prompts, in token ids."""
    from transformers import AutoTokenizer

    from e1_trl.problems.prompts import tokenize

    tokenizer = AutoTokenizer.from_pretrained(BASE)
    problems = [json.loads(line)["problem"] for line in (nano_data / "test.jsonl").read_text().splitlines()[:24]]
    return [tokenize(tokenizer, [{"role": "user", "content": problem}], {}) for problem in problems]


@pytest.fixture(scope="session")
def start_engine() -> Callable[..., "LLM"]:
    """Start an engine of the nano base that is never freed, because that would break others of its process."""
    from vllm import LLM

    engines: list[LLM] = []

    def start(**options: Any) -> LLM:
        engines.append(LLM(str(BASE), dtype=DTYPE, enforce_eager=True, seed=0, **options))
        return engines[-1]

    return start


def python(*words: object, cwd: Path = ROOT, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run `python …` outside of a group of processes, with the package on its path and these environment variables."""
    environment = {**outside_a_group(), "PYTHONPATH": str(ROOT), "E1_DEBUG": "0", **variables}
    line = [sys.executable, *map(str, words)]
    return subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


# Texts without English, which the nano tokenizer cannot encode.
WORDS = ["--instruction", "", "--s1_text", r"\boxed{", "--wait_text", "Wait "]


def options(data: Path, output: Path, *more: object) -> list[str]:
    """Return the arguments of an evaluation of the nano base."""
    fixed = ["--model", BASE, "--enforce_eager", "true", "--dataset_name", data, *WORDS, "--output", output]
    return [str(part) for part in [*fixed, *more]]


def evaluation(data: Path, output: Path, *more: object) -> list[str]:
    """Return the command of an evaluation of the nano base."""
    return [sys.executable, "-m", "e1_trl.cli", "eval", *options(data, output, *more)]


def started(data: Path, output: Path, log: Path, *more: object) -> Program:
    """Start an evaluation of the nano base in a process group of its own; its output goes into the file."""
    return Program("e1_trl.evaluation.command", options(data, output, *more), ROOT, log, os.environ)


def evaluated(data: Path, output: Path, *more: object) -> None:
    """Run an evaluation of the nano base to its end."""
    log = output.with_suffix(".log")
    assert started(data, output, log, *more).wait() == 0, log.read_text()[-5000:]


def results(output: Path) -> dict[str, Any]:
    """Read the results of an evaluation, without their provenance."""
    report = json.loads((output / "results.json").read_text())
    del report["provenance"]
    return report


def segments(output: Path) -> dict[tuple[object, ...], int]:
    """Return the row of each stored segment by its place in the trees; a segment that is rewritten gets a new row."""
    if not (output / "segments.sqlite").exists():
        return {}
    with contextlib.closing(sqlite3.connect(output / "segments.sqlite")) as database:
        query = "SELECT rowid, problem, sample, branch, start, before FROM legs"
        try:
            return {tuple(place): row for row, *place in database.execute(query)}
        except sqlite3.OperationalError:  # the table does not exist yet
            return {}


SERVED_CONTEXT = 256  # tokens
STARTUP = 300  # seconds
# A seeded request whose prefill is split ends vLLM's CPU engine (docs/internals.md).
SERVER_FLAGS = ("--enforce-eager", "--no-enable-chunked-prefill")


def wait_for(process: Program, port: int) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + STARTUP
    while True:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/v1/models")
            return
        assert process.poll() is None, f"{process.module} {process.argv} ended while starting"
        assert time.monotonic() < deadline, f"{process.module} {process.argv} did not start within {STARTUP} s"
        time.sleep(0.1)


def reasoning_config(end: str) -> str:
    return json.dumps({"reasoning_start_str": "<think>", "reasoning_end_str": end})


@contextlib.contextmanager
def serving(port: int, **changed: object) -> Iterator[tuple[openai.OpenAI, Program]]:
    """Run a real vLLM server of the nano base, named nano, in a process group of its own; options may be `changed`."""
    options = {
        "--model": BASE,
        "--dtype": DTYPE,
        "--served-model-name": "nano",
        "--port": port,
        "--max-model-len": SERVED_CONTEXT,
        "--logprobs-mode": "processed_logprobs",
        "--reasoning-config": reasoning_config("</think>"),
        **{f"--{name.replace('_', '-')}": value for name, value in changed.items()},
    }
    words = [str(word) for option in options.items() for word in option]
    environment = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    process = Program("warm_server", [*SERVER_FLAGS, *words], ROOT, Path(os.devnull), environment)
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="unused")
    try:
        wait_for(process, port)
        yield client, process
    finally:
        kill(process)


@pytest.fixture(scope="session")
def server() -> Iterator[openai.OpenAI]:
    with serving(free_port()) as (client, _):
        yield client


@pytest.fixture(scope="session")
def proxy(server: openai.OpenAI) -> Iterator[str]:
    """Address of a real `e1 serve` of the nano model at 64+32."""
    port = free_port()
    words = ["--upstream", server.base_url, "--model", BASE, "--served_model_name", "nano", "--port", port]
    words += ["--budget", "64+32"]
    process = Program("e1_trl.serving.app", [str(word) for word in words], ROOT, Path(os.devnull), os.environ)
    try:
        wait_for(process, port)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        kill(process)


Train = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def train(nano_data: Path, tmp_path: Path) -> Train:
    """Run `e1_trl.train` on the nano recipe through `accelerate launch` and return its log, one entry per step."""

    def run(*options: object, output: Path = tmp_path / "run", **launcher: Any) -> list[dict[str, Any]]:
        process = launch(*options, output=output, data=nano_data, **launcher)
        try:
            process.wait()
        finally:
            kill(process)
        assert process.returncode == 0, printed(output)[-5000:]
        return json.loads((output / "trainer_state.json").read_text())["log_history"]

    return run


# Ends a script under Gloo without Python's finalization, which aborts if a thread still frees a gathered weight.
ENDS = """
import os, sys
sys.stdout.flush()
os._exit(0)
"""


def in_group(script: str, *arguments: object, folder: Path, processes: int = 2, **variables: str) -> str:
    """Run a script in processes of one group on CPUs, with these environment variables, and return what they print."""
    (folder / "script.py").write_text(script + ENDS)
    words = [str(word) for word in (folder / "script.py", *arguments)]
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests" / "training")))
    environment = {**outside_a_group(), "DS_ACCELERATOR": "cpu", "PYTHONPATH": path, **variables}
    if torch.cuda.is_available():  # for which DeepSpeed is imported where programs are forked
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
        done = subprocess.run([*launcher, *words], cwd=ROOT, env=environment, capture_output=True, text=True)
        code, said = done.returncode, done.stdout + done.stderr
    else:
        logs = [folder / f"script_{rank}.log" for rank in range(processes)]  # one each: a line is not written at once
        members = zip(ranks_of(processes, free_port()), logs, strict=True)
        group = Group([Program("warm_script", words, ROOT, log, environment | rank) for rank, log in members])
        try:
            code = group.wait()
        finally:
            group.kill()
        said = "".join(log.read_text() for log in logs)
    assert code == 0, said[-9000:]
    return said


def ranks_of(size: int, port: int) -> list[dict[str, str]]:
    """Return the variables by which PyTorch's launcher tells each process its place in a group."""
    number = str(size)
    group = {"WORLD_SIZE": number, "LOCAL_WORLD_SIZE": number, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [{**group, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]


def launch(
    *options: object,
    output: Path,
    data: Path,
    accelerate_config: str = "cpu",
    processes: int | None = None,
    launched: bool = True,
    launcher: Sequence[object] = (),
    recipe: Path = NANO,
) -> "subprocess.Popen[bytes] | Program | Group":
    """Start a recipe on tiny batches, in a process group of its own; its output goes into a file beside `output`.

    Args:
        options: override the recipe.
        launched: start it by Accelerate's launcher, and not forked, as one process or as those of DeepSpeed; nor is
            one forked for which the environment names another Hub, which libraries read as they are imported.
        launcher: more options of the launcher.
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
    launched = launched or (accelerate_config != "cpu" and torch.cuda.is_available())  # as in `in_group`
    if not launched and accelerate_config == "cpu":
        environment |= {"ACCELERATE_USE_CPU": "true"}  # as the launcher would set it
        command = [sys.executable, "-m", "e1_trl.train"]
    if not launched and "HF_ENDPOINT" not in environment:
        log_file, words = output.with_suffix(".log"), [str(part) for part in line]
        if accelerate_config == "cpu":
            return Program("e1_trl.train", words, ROOT, log_file, environment)
        ranks = deepspeed_ranks([str(part) for part in command[3:]])
        return Group([Program("e1_trl.train", words, ROOT, log_file, environment | rank) for rank in ranks])
    with output.with_suffix(".log").open("a") as log:
        return subprocess.Popen(
            [str(part) for part in [*command, *line]],
            cwd=ROOT,
            env=environment if torch.cuda.is_available() else {"DS_ACCELERATOR": "cpu", **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def deepspeed_ranks(line: list[str]) -> list[dict[str, str]]:
    """Return the variables that Accelerate's launcher gives each process of DeepSpeed for this command line."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    arguments, written, _ = _validate_launch_command(launch_command_parser().parse_args(line))
    arguments.deepspeed_fields_from_accelerate_config = ",".join(written.deepspeed_config)
    given = prepare_deepspeed_cmd_env(arguments)[1]
    deepspeed = {name: value for name, value in given.items() if name not in os.environ}
    ranks = ranks_of(arguments.num_processes, arguments.main_process_port)
    return [{"DS_ACCELERATOR": "cpu", **deepspeed, **rank} for rank in ranks]


def printed(output: Path) -> str:
    """Read the output of the runs with this output folder."""
    return output.with_suffix(".log").read_text()


def kill(process: "subprocess.Popen[bytes] | Program | Group") -> None:
    """Kill a launched run with all its processes by signal 9, if it still runs."""
    if isinstance(process, Group):
        process.kill()
    else:
        kill_tree(process.pid)
        process.wait()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests were skipped because the offline data is absent."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if str(DATA) in str(report.longrepr)]
    where = f"{DATA} (the variable E1_TRL_DATA names it)"
    terminalreporter.write_line(f"{len(skipped)} tests were skipped for the absence of data in {where}")
