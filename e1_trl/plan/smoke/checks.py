"""What is asked of the trainings, and the verdicts. Reads what they left, starts nothing."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from e1_trl.plan.memory import GB, memory
from e1_trl.plan.setup import Setup
from e1_trl.plan.smoke.training import SAVED, STEPS, Card, Training

ALL = list(range(1, STEPS + 1))
GAP = "sampling/sampling_logp_difference/mean"
COMPARED = "weights/compared_tensors"
ADAPTER = "adapter_model.safetensors"
LEAST_MEMORY, MOST_MEMORY = 0.5, 1.25  # shares of what is planned


@dataclass(frozen=True)
class Check:
    """A row of the table.

    Attributes:
        name: what was looked at.
        right: whether it is as it should be; None: nobody could look.
        measured: the value, or why nobody could look.
        expected: the value or bound, and where that comes from.
    """

    name: str
    right: bool | None
    measured: str
    expected: str = ""

    @property
    def verdict(self) -> str:
        """In a word or two."""
        return {True: "passed", False: "FAILED", None: "not run"}[self.right]


def ran(name: str, training: Training) -> Check:
    """Whether a training came to its end, with every step in its log, and a number for its loss."""
    losses = training.values("loss", training.steps)
    measured = f"{training.fault or 'status 0'}; losses {_numbers(losses)} at steps {_listed(training.steps)}"
    right = training.fault is None and [*training.steps] == ALL and all(map(math.isfinite, losses))
    expected = f"steps 1 to {STEPS}, status 0, losses that are numbers"
    return Check(name, right, f"{measured} in {training.seconds:.0f} s", expected)


def moved(change: float) -> Check:
    """Whether the weights changed between the checkpoint and the end, where they did by `change` at most."""
    measured = f"by {change:.1e} from step {SAVED} to {STEPS}"
    return Check("weights moved", 0 < change < math.inf, measured, "above 0")


def gap(name: str, training: Training, setup: Setup, bound: float) -> Check:
    """Whether vLLM and the trainer agreed on every generation to so many nats."""
    steps = _beginnings(setup)
    gaps = training.values(GAP, steps)
    measured = f"{_numbers(gaps)} nats at steps {_listed(steps)}"
    return Check(name, all(each <= bound for each in gaps), measured, f"at most {bound:g}")


def weights(training: Training, setup: Setup) -> Check:
    """Whether the trainer compared what the engine holds with what it had sent, before every generation."""
    steps = _beginnings(setup)
    counts = training.values(COMPARED, steps)
    measured = f"{_numbers(counts)} tensors compared at steps {_listed(steps)}"
    expected = "some; the training stops at one that differs"
    return Check("weights in the engine", all(count > 0 for count in counts), measured, expected)


def peak(training: Training, setup: Setup, cards: Sequence[Card]) -> Check:
    """Whether the fullest GPU held what was planned."""
    if not cards:
        return Check("peak memory", None, "on a CPU")
    card = min(card.bytes for card in cards)
    taken = memory(setup, card)
    planned = max(taken.generation, taken.training)
    right = LEAST_MEMORY * planned <= training.peak <= MOST_MEMORY * planned
    measured = f"{training.peak / GB:.1f} GB of {card / GB:.1f} (nvidia-smi)"
    bounds = f"{LEAST_MEMORY:g} to {MOST_MEMORY:g} times {planned / GB:.1f} GB"
    return Check("peak memory", right, measured, f"{bounds} (ours: the plan was never compared with a GPU)")


def resumed(name: str, killed: Training, training: Training) -> Check:
    """Whether a run that was killed after its checkpoint went on from there to the end.

    It did if its log begins with the killed run's: a step that is made again takes another time.
    """
    began = sum(entry == training.steps.get(step) for step, entry in killed.steps.items())
    faults = [f"{which}: {run.fault}; " for which, run in (("killed", killed), ("resumed", training)) if run.fault]
    right = not faults and began == SAVED and [*training.steps] == ALL
    measured = f"{''.join(faults)}went on after step {began}; steps {_listed(training.steps)} in the log"
    return Check(name, right, measured, f"killed after step {SAVED}, went on from there, steps 1 to {STEPS}")


def largest_change(before: Path, after: Path) -> float:
    """The largest difference between the weights of two models, which are the same by name.

    Of an adapter, that of its matrices which are zero at the start; before the start there is none.
    """
    from safetensors import safe_open
    from safetensors.torch import load_file

    if (after / ADAPTER).exists():
        first = load_file(before / ADAPTER) if (before / ADAPTER).exists() else {}
        last = {name: matrix for name, matrix in load_file(after / ADAPTER).items() if ".lora_B." in name}
        return _largest((matrix - first.get(name, 0)).abs().max().item() for name, matrix in last.items())
    with safe_open(before / "model.safetensors", "pt") as old, safe_open(after / "model.safetensors", "pt") as new:
        names = set(old.keys()) | set(new.keys())
        return _largest((old.get_tensor(name) - new.get_tensor(name)).abs().max().item() for name in names)


def _largest(changes: Iterable[float]) -> float:
    """NaN if any is, which `max` passes over."""
    listed = list(changes)
    return math.nan if any(map(math.isnan, listed)) else max(listed)


def _beginnings(setup: Setup) -> range:
    """The steps that begin a generation."""
    return range(1, STEPS + 1, max(1, round(setup.steps)))


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _listed(steps: Iterable[int]) -> str:
    return ", ".join(map(str, steps)) or "none"
