"""Runs one command of the hour: starts it, watches it, ends all of its processes, and reads what it left."""

import json
import math
import re
import resource
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from e1_trl import processes
from e1_trl.training.cuda import visible_cards

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
# Of a run: all logs in its own, vLLM's facts among them, and stacks where it is aborted.
TELLING = {
    "E1_DEBUG": "1",
    "VLLM_CONFIGURE_LOGGING": "1",  # which our own commands switch off
    "VLLM_LOGGING_LEVEL": "INFO",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONUNBUFFERED": "1",
}


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
        return replace(self, steps=steps, validation=before[0] if before else {})


def run(line: Sequence[str], log: Path, limit: float, gpus: int = 0, stop: Path | None = None) -> Run:
    """Run a command in processes of its own, which end with this call.

    Args:
        line: the command.
        log: of what it prints, written anew.
        limit: seconds that it may take.
        gpus: that it uses, the first ones.
        stop: a file with which the run is killed with signal 9; None: it runs to its end.
    """
    used = [0]
    stopped = False

    def look() -> bool:
        nonlocal stopped
        used.extend(card.used for card in visible_cards()[:gpus])
        if stop is not None and stop.is_file():
            time.sleep(OTHERS)
            stopped = True
        return stopped

    processes.forget_killed()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # of tens of GB each
    log.write_text("")
    started = time.monotonic()
    fault = processes.run(line, log, {**processes.alone(), **TELLING}, limit, is_enough=look)
    if fault is None and stop is not None and not stopped:
        fault = "it ended before it could be killed"
    said = log.read_text(errors="replace")
    if fault and (errors := ERROR.findall(said)):
        fault = f"{fault}: {errors[-1]}"
    return Run(fault, max(used), said, time.monotonic() - started)
