"""What is asked of the trainings, and the verdicts. Reads what they left, starts nothing."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from e1_trl.plan.memory import GB, memory
from e1_trl.plan.setup import Setup
from e1_trl.plan.smoke.training import SAVED, STEPS, Card, Training

GAP = "sampling/sampling_logp_difference/mean"
CHECKED = "weights/compared_tensors"
ADAPTER = "adapter_model.safetensors"
ON_CPU = "on a CPU"
NEVER_COMPARED = "ours: the plan was never compared with a GPU"
LEAST_MEMORY, MOST_MEMORY = 0.5, 1.25  # shares of what is planned
FREED = 0.5  # of vLLM's share, which falling asleep frees at least


class Verdict(StrEnum):
    """What came of a check."""

    PASSED = "passed"
    FAILED = "FAILED"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Check:
    """A row of the table.

    Attributes:
        name: what was looked at.
        verdict: on it.
        measured: the value; of a check that was not run, the reason.
        expected: the value or bound, and where that comes from.
    """

    name: str
    verdict: Verdict
    measured: str
    expected: str = ""

    @classmethod
    def of(cls, name: str, right: bool, measured: str, expected: str) -> "Check":
        """A check that was made."""
        return cls(name, Verdict.PASSED if right else Verdict.FAILED, measured, expected)

    @classmethod
    def not_run(cls, name: str, reason: str) -> "Check":
        """A check that was not made."""
        return cls(name, Verdict.NOT_RUN, reason)


def ran(name: str, training: Training) -> Check:
    """Whether a training came to its end, with every step in its log."""
    logged = [int(entry["step"]) for entry in training.steps]
    measured = f"{training.fault or 'status 0'}; steps {_listed(logged)} in {training.seconds:.0f} s"
    right = training.fault is None and logged == list(range(1, STEPS + 1))
    return Check.of(name, right, measured, f"steps 1 to {STEPS}, status 0")


def finite(name: str, training: Training) -> Check:
    """Whether every loss is a number, and every gradient one above zero."""
    losses, norms = ([_value(entry, name) for entry in training.steps] for name in ("loss", "grad_norm"))
    right = bool(training.steps) and all(map(math.isfinite, losses)) and all(0 < norm < math.inf for norm in norms)
    measured = f"losses {_numbers(losses)}; gradients {_numbers(norms)}"
    return Check.of(name, right, measured, "finite; gradients above 0")


def moved(name: str, change: float) -> Check:
    """Whether the weights changed between the checkpoint and the end, where they did by `change` at most."""
    measured = f"by {change:.1e} from step {SAVED} to {STEPS}"
    return Check.of(name, 0 < change < math.inf, measured, "above 0")


def gap(name: str, training: Training, generation: int, bound: float) -> Check:
    """Whether vLLM and the trainer agreed on every generation, each of which is `generation` steps long."""
    steps = range(1, STEPS + 1, generation)
    gaps = [_at(training, step, GAP) for step in steps]
    measured = f"{_numbers(gaps)} nats at steps {_listed(steps)}"
    return Check.of(name, all(each <= bound for each in gaps), measured, f"at most {bound:g}")


def weights(name: str, training: Training, generation: int) -> Check:
    """Whether the trainer compared what the engine holds with what it had sent, before every generation."""
    steps = range(1, STEPS + 1, generation)
    counts = [_at(training, step, CHECKED) for step in steps]
    measured = f"{_numbers(counts)} tensors compared at steps {_listed(steps)}"
    return Check.of(name, all(count > 0 for count in counts), measured, "some; the training stops at one that differs")


def peak(name: str, training: Training, setup: Setup, cards: Sequence[Card]) -> Check:
    """Whether the fullest GPU held what was planned."""
    if not cards:
        return Check.not_run(name, ON_CPU)
    card = min(card.bytes for card in cards)
    taken = memory(setup, card)
    planned = max(taken.generation, taken.training)
    right = LEAST_MEMORY * planned <= training.peak <= MOST_MEMORY * planned
    measured = f"{training.peak / GB:.1f} GB of {card / GB:.1f} (nvidia-smi)"
    return Check.of(
        name, right, measured, f"{LEAST_MEMORY:g} to {MOST_MEMORY:g} times {planned / GB:.1f} GB ({NEVER_COMPARED})"
    )


def sleep(name: str, training: Training, generation: int, setup: Setup, cards: Sequence[Card]) -> Check:
    """Whether vLLM slept after every generation, and gave the memory back."""
    if not cards:
        return Check.not_run(name, f"{ON_CPU}: vLLM sleeps on GPUs only")
    if not setup.sleep:
        return Check.not_run(name, "the recipe does not set vllm_enable_sleep_mode")
    fell = len(re.findall(r"It took [\d.]+ seconds to fall asleep", training.printed))
    woke = len(re.findall(r"It took [\d.]+ seconds to wake up tags", training.printed))
    freed = [float(gib) for gib in re.findall(r"Sleep mode freed ([\d.]+) GiB", training.printed)]
    times = setup.gpus * math.ceil(STEPS / generation)
    least = FREED * setup.utilization * min(card.bytes for card in cards) / 2**30
    right = min(fell, woke) >= times and min(freed, default=0.0) >= least
    measured = f"asleep {fell} times, awake {woke} times, freed {min(freed, default=0.0):.3g} GiB or more"
    expected = f"{times} times each (a GPU and a generation), {least:.0f} GiB: half of vLLM's share (ours)"
    return Check.of(name, right, measured, expected)


def resumed(name: str, killed: Training, training: Training) -> Check:
    """Whether a run that was killed after its checkpoint went on from there to the end.

    It did if its log begins with the killed run's: a step that is made again takes another time.
    """
    logged = [int(entry["step"]) for entry in training.steps]
    began = sum(one == other for one, other in zip(killed.steps, training.steps, strict=False))
    right = killed.fault is None and training.fault is None and began == SAVED and logged == list(range(1, STEPS + 1))
    faults = [f"{which}: {run.fault}; " for which, run in (("killed", killed), ("resumed", training)) if run.fault]
    measured = f"{''.join(faults)}went on after step {began}; steps {_listed(logged)} in the log"
    return Check.of(name, right, measured, f"killed after step {SAVED}, went on from there, steps 1 to {STEPS}")


def largest_change(before: Path, after: Path) -> float:
    """The largest difference between the weights of two models, which are the same by name.

    Of an adapter, that of its matrices which are zero at the start; before the start there is none.
    """
    from safetensors import safe_open
    from safetensors.torch import load_file

    if (after / ADAPTER).exists():
        first = load_file(before / ADAPTER) if (before / ADAPTER).exists() else {}
        last = {name: matrix for name, matrix in load_file(after / ADAPTER).items() if ".lora_B." in name}
        return max((matrix - first.get(name, 0)).abs().max().item() for name, matrix in last.items())
    with safe_open(before / "model.safetensors", "pt") as old, safe_open(after / "model.safetensors", "pt") as new:
        names = set(old.keys()) | set(new.keys())
        return max((old.get_tensor(name) - new.get_tensor(name)).abs().max().item() for name in names)


def _value(entry: Mapping[str, float | None], name: str) -> float:
    value = entry.get(name)
    return math.nan if value is None else float(value)


def _at(training: Training, step: int, name: str) -> float:
    """What was logged at a step; NaN if nothing was."""
    return next((_value(entry, name) for entry in training.steps if entry["step"] == step), math.nan)


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values) or "none"


def _listed(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps)) or "none"
