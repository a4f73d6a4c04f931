"""Runs one command of the hour: starts it, watches it, ends all of its processes, and reads what it left."""

import contextlib
import json
import math
import os
import re
import resource
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from e1_trl.processes import alone, forget_killed, kill_tree, print_stacks

STEPS = 4
SAVED = 2  # the step of the checkpoint
FIELDS: Mapping[str, Any] = {  # of every training, unless it says otherwise; what else the recipe says stays
    "max_steps": STEPS,
    "logging_steps": 1,
    "save_strategy": "steps",
    "save_steps": SAVED,
    "load_best_model_at_end": False,
    "push_to_hub": False,
    "report_to": "none",
}
OFTEN = 0.5  # seconds between two looks at a run, and at the memory of the GPUs
LONGEST_ANSWER = 10.0  # seconds, of nvidia-smi
OTHERS = 2  # seconds that the other processes have to write what they add to a checkpoint, once it looks whole
STATE = "trainer_state.json"  # written last in a checkpoint
# A line that names an error, and what it says; the launcher's own says nothing.
ERROR = re.compile(r"(?:\b(?!CalledProcess)\w+Error|e1_trl\.train): \S.{0,199}")
# Lines of vLLM's log that tell how it runs here.
KINDS = (
    "Model Runner|attention backend|Available KV cache memory|Maximum concurrency|CUDA graph pool memory|init engine|"
    "Sleep mode freed|to wake up"
)
FACT = re.compile(rf"\] (?P<line>[^\n]*?(?P<kind>{KINDS})[^\n]*)")
MIB = 2**20
# Of a run: all logs in its own, vLLM's facts among them, and stacks where it is aborted.
TELLING = {
    "E1_DEBUG": "1",
    "VLLM_CONFIGURE_LOGGING": "1",  # which our own commands switch off
    "VLLM_LOGGING_LEVEL": "INFO",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True)
class Card:
    """A GPU of this node: its bytes, and how many of them are in use, by whomever."""

    bytes: int
    used: int


def cards() -> list[Card]:
    """Return the GPUs that `CUDA_VISIBLE_DEVICES` leaves of this node's; none without NVIDIA's driver."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    words = ["nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"]
    words += [] if visible is None else ["-i", visible]
    try:  # after a fault of a GPU it may not answer, and of some it does not know the memory
        answer = subprocess.run(words, capture_output=True, text=True, check=True, timeout=LONGEST_ANSWER).stdout
        return [Card(*(int(mib) * MIB for mib in line.split(","))) for line in answer.splitlines()]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    fault: str | None  # why it did not end as it should, in a line; None if it did
    peak: int  # bytes, the most that was in use on any GPU; 0 without one
    printed: str  # by all of its processes
    seconds: float  # from its start to its end
    steps: dict[int, dict[str, float]] = field(default_factory=dict)  # metrics that a training logged at each step
    validation: dict[str, float] = field(default_factory=dict)  # metrics of its validation before the first step

    def values(self, name: str, steps: Iterable[int]) -> list[float]:
        """Return a metric at these steps; NaN where it was not logged, or was null, as which TRL writes NaN."""
        logged = [self.steps.get(step, {}).get(name) for step in steps]
        return [math.nan if value is None else value for value in logged]

    @property
    def facts(self) -> dict[str, str]:
        """Lines of vLLM about itself, the first of each kind."""
        found: dict[str, str] = {}
        for match in FACT.finditer(self.printed):
            found.setdefault(match["kind"], match["line"].strip())
        return found

    def with_training(self, output: Path) -> "Run":
        """Add what a training has logged to its `output_dir`."""
        states = [*sorted(output.glob(f"checkpoint-*/{STATE}")), output / STATE]
        written = [file for file in states if file.is_file()]
        history = json.loads(written[-1].read_text())["log_history"] if written else []
        steps = {entry["step"]: entry for entry in history if "loss" in entry}
        before = [entry for entry in history if entry["step"] == 0 and "loss" not in entry]
        return Run(self.fault, self.peak, self.printed, self.seconds, steps, before[0] if before else {})


def run(line: Sequence[str], log: Path, limit: float, gpus: int = 0, stop: Path | None = None) -> Run:
    """Run a command in processes of its own, which end with this call.

    Args:
        line: the command.
        log: of what it prints, written anew.
        limit: seconds that it may take; then all its Python processes print the stacks of their threads.
        gpus: that it uses, the first ones.
        stop: a file with which the run is killed with signal 9; None: it runs to its end.
    """
    forget_killed()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # of tens of GB each
    started = time.monotonic()
    with log.open("w") as printed:
        process = psutil.Popen(
            line,
            env={**alone(), **TELLING},
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the one who watches
        )
        try:
            fault, peak = _watch(process, limit, gpus, stop)
        finally:
            kill_tree(process.pid)
            process.wait()
    said = log.read_text(errors="replace")
    if fault and (errors := ERROR.findall(said)):
        fault = f"{fault}: {errors[-1]}"
    return Run(fault, peak, said, time.monotonic() - started)


def _watch(process: psutil.Popen, limit: float, gpus: int, stop: Path | None) -> tuple[str | None, int]:
    """Wait until it has ended or is to be killed; returns what is wrong with how that came, and the peak of memory."""
    deadline, peak = time.monotonic() + limit, 0
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.TimeoutExpired):
            status = process.wait(OFTEN)
            if status != 0:
                return f"it ended with status {status}", peak
            return None if stop is None else "it ended before it could be killed", peak
        peak = max([peak, *(card.used for card in cards()[:gpus])])
        if stop is not None and stop.is_file():
            time.sleep(OTHERS)
            return None, peak
    print_stacks(process)
    return f"it took longer than {limit:.0f} s, and its log has the stacks of all threads", peak
