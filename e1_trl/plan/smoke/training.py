"""One training of the subject: started, watched, ended, and what it left."""

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from e1_trl.plan.smoke import timed
from e1_trl.plan.smoke.subject import Subject, used
from e1_trl.training.launch import command
from experiments.processes import kill_tree
from tests.reduced.run import forget_killed

STEPS = 4
SAVED = 2  # the step of the checkpoint
FIELDS = {  # of every run; what else the recipe says stays
    "max_steps": STEPS,
    "logging_steps": 1,
    "save_strategy": "steps",
    "save_steps": SAVED,
    "push_to_hub": False,
    "report_to": "none",
}
OFTEN = 0.5  # seconds between two looks at a training, and at the memory of the cards
ERROR = re.compile(r"(?:\w+Error|e1_trl\.train): \S.{0,199}")  # a line that names one, and what it says
OTHERS = 2  # seconds that the other processes have to write what they add to a checkpoint, once it looks whole
PHASES = ".seconds"  # the suffix of the file that they are written into
STATE = "trainer_state.json"  # written last in a checkpoint

Entry = dict[str, float]


@dataclass(frozen=True)
class Phase:
    """A phase that TRL's profiler measured: its name, the steps made before it, seconds."""

    name: str
    step: int
    seconds: float


@dataclass(frozen=True)
class Training:
    """What a training left.

    Attributes:
        fault: why it did not end as it should, in a line; None if it did.
        steps: what was logged at each step.
        phases: of the main process.
        peak: bytes, the most that was in use on any card; 0 without one.
        printed: by all of its processes.
        seconds: from its start to its end.
    """

    fault: str | None
    steps: list[Entry]
    phases: list[Phase]
    peak: int
    printed: str
    seconds: float

    @classmethod
    def read(cls, output: Path, log: Path, fault: str | None, **watched: Any) -> "Training":
        """Read `output_dir`, the log, and the phases beside it; the fault gets the last error in the log."""
        states = [*sorted(output.glob(f"checkpoint-*/{STATE}")), output / STATE]
        written = [file for file in states if file.is_file()]
        history = json.loads(written[-1].read_text())["log_history"] if written else []
        phases, printed = log.with_suffix(PHASES), log.read_text(errors="replace")
        errors = ERROR.findall(printed)
        return cls(
            fault=f"{fault}: {errors[-1]}" if fault and errors else fault,
            steps=[entry for entry in history if "loss" in entry],
            phases=[Phase(**json.loads(line)) for line in phases.read_text().splitlines()] if phases.exists() else [],
            printed=printed,
            **watched,
        )


def train(
    subject: Subject, folder: Path, name: str, output: Path, stop: Callable[[], bool] | None = None, **more: Any
) -> Training:
    """Train the subject in processes of its own, which end with this call.

    Args:
        subject: what is trained.
        folder: of the files NAME.log and NAME.seconds, which are made anew.
        name: of the run.
        output: the run's `output_dir`.
        stop: when the run is to be killed with signal 9; unset: it runs to its end.
        more: fields of the recipe.
    """
    forget_killed()
    log = folder / f"{name}.log"
    log.with_suffix(PHASES).unlink(missing_ok=True)
    fields = {**FIELDS, "output_dir": output, **more}
    line = command([*subject.words, *(str(word) for field, value in fields.items() for word in (f"--{field}", value))])
    line[line.index("e1_trl.train")] = timed.__name__
    started = time.monotonic()
    with log.open("w") as printed:
        process = psutil.Popen(
            line,
            cwd=subject.cwd,
            env={**subject.environment, timed.FILE: str(log.with_suffix(PHASES))},
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the one who watches
        )
        try:
            fault, peak = _watch(process, subject, stop)
        finally:
            kill_tree(process.pid)
            process.wait()
    return Training.read(output, log, fault=fault, peak=peak, seconds=time.monotonic() - started)


def _watch(process: psutil.Popen, subject: Subject, stop: Callable[[], bool] | None) -> tuple[str | None, int]:
    """Wait until it has ended or is to be killed: what is wrong with how that came, and the most memory in use."""
    deadline, peak = time.monotonic() + subject.limit, 0
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.TimeoutExpired):
            status = process.wait(OFTEN)
            if status != 0:
                return f"it ended with status {status}", peak
            return None if stop is None else "it ended before it could be killed", peak
        if subject.cards:
            peak = max(peak, used())
        if stop is not None and stop():
            time.sleep(OTHERS)
            return None, peak
    return f"it took longer than {subject.limit:.0f} s", peak
