"""One training: started, watched, ended with all of its processes, and what it left; the GPUs that it has."""

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from e1_trl.training.launch import command

STEPS = 4
SAVED = 2  # the step of the checkpoint
FIELDS: Mapping[str, Any] = {  # of every run; what else the recipe says stays
    "max_steps": STEPS,
    "logging_steps": 1,
    "save_strategy": "steps",
    "save_steps": SAVED,
    "push_to_hub": False,
    "report_to": "none",
}
OFTEN = 0.5  # seconds between two looks at a training, and at the memory of the GPUs
OTHERS = 2  # seconds that the other processes have to write what they add to a checkpoint, once it looks whole
LONGEST_END = 60.0  # seconds that the kernel may take to end a process
STATE = "trainer_state.json"  # written last in a checkpoint
ERROR = re.compile(r"(?:\w+Error|e1_trl\.train): \S.{0,199}")  # a line that names one, and what it says
MIB = 2**20


@dataclass(frozen=True)
class Card:
    """A GPU of this node: its bytes, and how many of them are in use, by whomever."""

    bytes: int
    used: int


def cards() -> list[Card]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` leaves of this node's, as they are now; none without NVIDIA's driver."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    words = ["nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"]
    words += [] if visible is None else ["-i", visible]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [Card(*(int(mib) * MIB for mib in line.split(","))) for line in answer.splitlines()]


@dataclass(frozen=True)
class Training:
    """What a training left.

    Attributes:
        fault: why it did not end as it should, in a line; None if it did.
        steps: what was logged at each step.
        peak: bytes, the most that was in use on any GPU; 0 without one.
        printed: by all of its processes.
        seconds: from its start to its end.
    """

    fault: str | None
    steps: dict[int, dict[str, float]]
    peak: int
    printed: str
    seconds: float

    def values(self, field: str, steps: Iterable[int]) -> list[float]:
        """What was logged at these steps; NaN where nothing was, or a null, as which TRL writes it."""
        logged = [self.steps.get(step, {}).get(field) for step in steps]
        return [math.nan if value is None else value for value in logged]

    @classmethod
    def read(cls, output: Path, log: Path, fault: str | None, peak: int, seconds: float) -> "Training":
        """Read `output_dir` and the log; the fault gets the last error in the log."""
        states = [*sorted(output.glob(f"checkpoint-*/{STATE}")), output / STATE]
        written = [file for file in states if file.is_file()]
        history = json.loads(written[-1].read_text())["log_history"] if written else []
        printed = log.read_text(errors="replace")
        if fault and (errors := ERROR.findall(printed)):
            fault = f"{fault}: {errors[-1]}"
        return cls(fault, {entry["step"]: entry for entry in history if "loss" in entry}, peak, printed, seconds)


def train(words: Sequence[str], output: Path, log: Path, limit: float, stop: Path | None = None) -> Training:
    """Train in processes of its own, which end with this call.

    Args:
        words: the arguments of `e1 train`.
        output: the run's `output_dir`.
        log: of what it prints, written anew.
        limit: seconds that it may take.
        stop: a file with which the run is killed with signal 9; None: it runs to its end.
    """
    forget_killed()
    fields = {**FIELDS, "output_dir": output}
    line = command([*words, *(str(word) for field, value in fields.items() for word in (f"--{field}", value))])
    started = time.monotonic()
    with log.open("w") as printed:
        process = psutil.Popen(
            line,
            env=alone(),
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the one who watches
        )
        try:
            fault, peak = _watch(process, limit, stop)
        finally:
            kill_tree(process.pid)
            process.wait()
    return Training.read(output, log, fault, peak, time.monotonic() - started)


def _watch(process: psutil.Popen, limit: float, stop: Path | None) -> tuple[str | None, int]:
    """Wait until it has ended or is to be killed: what is wrong with how that came, and the most memory in use."""
    deadline, peak = time.monotonic() + limit, 0
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.TimeoutExpired):
            status = process.wait(OFTEN)
            if status != 0:
                return f"it ended with status {status}", peak
            return None if stop is None else "it ended before it could be killed", peak
        peak = max([peak, *(card.used for card in cards())])
        if stop is not None and stop.is_file():
            time.sleep(OTHERS)
            return None, peak
    return f"it took longer than {limit:.0f} s", peak


def alone() -> dict[str, str]:
    """This process's environment without what belongs to a group of processes that it may be in."""
    group = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    return {name: value for name, value in os.environ.items() if name not in group}


def kill_tree(leader: int) -> None:
    """Kill -9 a session's first process, its group and its descendants, as far as they still run.

    Descendants need not be of its group: `accelerate launch` puts the processes of a training into sessions of their
    own. Those whose parents ended before are found by the group alone. Descendants have ended when this returns; the
    first process is for its parent to wait for.
    """
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(leader).children(recursive=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, timeout=LONGEST_END)


def forget_killed() -> None:
    """Remove what killed runs have left in shared memory.

    vLLM's CPU build gives every externally launched group the same name there, so that would stop the next.
    """
    for left_over in Path("/dev/shm").glob("-tp:0-*-cpushm_*"):
        left_over.unlink(missing_ok=True)
