"""How long it takes from `make train` to the end of the first optimizer step, and what of it is before the training.

    make bench        (nothing else should run)

What `make train` runs is run until it has logged the first step, and is killed then. It begins with nothing that vLLM
has compiled; the other rounds find that there. Times are those at which its lines are printed.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.results import Results, arguments
from benchmarks.rows import FirstStep

SCRIPT = ["experiments/nano/run.sh"]
ROUNDS = 2  # after the first, for which everything is compiled
LINES = {"problems_s": "==> training", "evaluated_s": "step 0/", "first_step_s": "step 1/"}


def milestones(lines: Iterable[str], start: float) -> dict[str, float]:
    """Seconds from `start` to the first line of each kind, as they come; those that never came are absent."""
    found: dict[str, float] = {}
    for line in lines:
        for name, beginning in LINES.items():
            if line.startswith(beginning):
                found.setdefault(name, time.monotonic() - start)
        if len(found) == len(LINES):
            break
    return found


def first_step(folder: Path) -> dict[str, float]:
    """One start, with `folder` for the model and for what is compiled.

    Raises:
        ValueError: it ended before the first step; names the log.
    """
    log = folder / "log"
    start = time.monotonic()
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*SCRIPT, "--output_dir", str(folder / "e1")],
            env={
                **os.environ,
                "VLLM_CACHE_ROOT": str(folder / "vllm"),
                "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"),
            },
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        try:
            found = milestones(process.stdout or (), start)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if len(found) < len(LINES):
        raise ValueError(f"{' '.join(SCRIPT)} ended before its first step: {log.read_text()[-2000:]}")
    return found


def row(cache: str, starts: list[dict[str, float]]) -> FirstStep:
    """The row of some starts."""
    seconds: dict[str, Any] = {name: [start[name] for start in starts] for name in LINES}
    return FirstStep(distribution="first_step", scheduler="e1", cache=cache, **seconds)


def main() -> None:
    parsed = arguments("Measure the time from the start of a training to the end of its first step.")
    results = Results.read(parsed.output)
    if results.has("first_step"):
        return
    with tempfile.TemporaryDirectory() as folder:
        cold, *warm = (first_step(Path(folder)) for _ in tqdm(range(1 + ROUNDS), desc="first steps", unit="start"))
    results.merged([row("empty", [cold]), row("filled", warm)]).publish(parsed.output, parsed.document)


if __name__ == "__main__":
    main()
