"""What is asked of the trainings, and the verdicts. Pure: reads what they left, starts nothing."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from e1_trl.plan.duration import CARDS, Duration, duration
from e1_trl.plan.memory import GB, memory
from e1_trl.plan.setup import Setup
from e1_trl.plan.smoke.subject import Card
from e1_trl.plan.smoke.training import SAVED, STEPS, Training

GAP = "sampling/sampling_logp_difference/mean"
CHECKED = "weights/compared_tensors"
PHASES = ("decoding", "sending weights", "scoring and grading", "learning")
ON_CPU = "on a CPU"
NEVER_COMPARED = "ours: the plan was never compared with a GPU"
LEAST_MEMORY, MOST_MEMORY = 0.5, 1.25  # shares of what is planned
TIMES, SECONDS = 2.0, 5.0  # how far a phase may be off: by this factor, or by so many seconds
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
        measured: what was found; of a check that was not run, the reason.
        expected: the value or bound, and where that comes from.
    """

    name: str
    verdict: Verdict
    measured: str
    expected: str

    @classmethod
    def of(cls, name: str, right: bool, measured: str, expected: str) -> "Check":
        """A check that was made."""
        return cls(name, Verdict.PASSED if right else Verdict.FAILED, measured, expected)

    @classmethod
    def not_run(cls, name: str, reason: str, expected: str = "") -> "Check":
        """A check that was not made."""
        return cls(name, Verdict.NOT_RUN, reason, expected)


def ran(name: str, training: Training) -> Check:
    """Whether a training came to its end, with every step in its log."""
    logged = [int(entry["step"]) for entry in training.steps]
    measured = f"steps {_listed(logged)} in {training.seconds:.0f} s"
    right = training.fault is None and logged == list(range(1, STEPS + 1))
    return Check.of(
        name, right, f"{training.fault}; {measured}" if training.fault else measured, f"steps 1 to {STEPS}, status 0"
    )


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


def gap(name: str, training: Training, generation: int, bound: float, source: str) -> Check:
    """Whether vLLM and the trainer agreed on every generation, each of which is `generation` steps long."""
    steps = range(1, STEPS + 1, generation)
    gaps = [_at(training, step, GAP) for step in steps]
    measured = f"{_numbers(gaps)} nats at steps {_listed(steps)}"
    return Check.of(name, all(each <= bound for each in gaps), measured, f"at most {bound:g} ({source})")


def weights(name: str, training: Training, generation: int) -> Check:
    """Whether the trainer compared what the engine holds with what it had sent, before every generation."""
    steps = range(1, STEPS + 1, generation)
    counts = [_at(training, step, CHECKED) for step in steps]
    measured = f"{_numbers(counts)} tensors compared at steps {_listed(steps)}"
    return Check.of(name, all(count > 0 for count in counts), measured, "some; the training stops at one that differs")


def peak(name: str, training: Training, setup: Setup, cards: tuple[Card, ...]) -> Check:
    """Whether the fullest card held what was planned."""
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


def sleep(name: str, training: Training, generation: int, setup: Setup, cards: tuple[Card, ...]) -> Check:
    """Whether vLLM slept after every generation, and gave the card back."""
    if not cards:
        return Check.not_run(name, f"{ON_CPU}: vLLM sleeps on GPUs only")
    if not setup.sleep:
        return Check.not_run(name, "the recipe does not set vllm_enable_sleep_mode")
    fell = len(re.findall(r"It took [\d.]+ seconds to fall asleep", training.printed))
    woke = len(re.findall(r"It took [\d.]+ seconds to wake up tags", training.printed))
    freed = [float(gib) for gib in re.findall(r"Sleep mode freed ([\d.]+) GiB", training.printed)]
    times = setup.gpus * math.ceil(STEPS / generation)
    least = FREED * setup.utilization * min(card.bytes for card in cards) / 2**30
    right = min(fell, woke) >= times and bool(freed) and min(freed) >= least
    measured = f"asleep {fell} times, awake {woke} times, freed {_numbers(sorted({*freed[:1], *freed[-1:]}))} GiB"
    expected = f"{times} times each (a GPU and a generation), {least:.0f} GiB: half of vLLM's share (ours)"
    return Check.of(name, right, measured, expected)


def phases(training: Training, generation: int) -> dict[str, float]:
    """Seconds of the last whole generation by phase, as the plan divides them; empty if the log does not tell.

    TRL scores and grades at once: a GPU still scores while rewards are calculated, so these are one phase here.
    """
    begin = (STEPS // generation - 1) * generation
    steps = range(begin, begin + generation)
    took = {name: 0.0 for name in ("vLLM.generate", "sync_weights", "_prepare_inputs")}
    for phase in training.phases:
        name = phase.name.partition(".")[2]
        if phase.step in steps and name in took:
            took[name] += phase.seconds
    whole = sum(_at(training, step + 1, "step_time") for step in steps)
    if begin < 0 or not took["vLLM.generate"] or math.isnan(whole):
        return {}
    decoding, sync, generation_and_scores = took.values()
    scored = generation_and_scores - decoding - sync
    return dict(zip(PHASES, (decoding, sync, scored, whole - generation_and_scores), strict=True))


def seconds(name: str, phase: str, training: Training, generation: int, setup: Setup, cards: tuple[Card, ...]) -> Check:
    """Whether a phase of the last generation took as long as planned."""
    took = phases(training, generation).get(phase)
    if took is None:
        return Check.not_run(name, f"no whole generation in {STEPS} steps")
    kind = next((kind for kind in CARDS if cards and kind in cards[0].name.lower()), None)
    if kind is None:
        why = f"the plan knows no {cards[0].name}" if cards else ON_CPU
        return Check.not_run(name, f"{why}; {took:.1f} s")
    plan = _planned(duration(setup, CARDS[kind]))[phase]
    right = abs(took - plan) <= SECONDS or plan / TIMES <= took <= plan * TIMES
    expected = f"{plan:.0f} s, within {TIMES:g} times or {SECONDS:g} s ({NEVER_COMPARED})"
    return Check.of(name, right, f"{took:.1f} s", expected)


def _planned(took: Duration) -> dict[str, float]:
    """The plan's seconds, divided like `phases`."""
    scored = took.scoring + took.rest
    return dict(zip(PHASES, (took.decoding, took.sync, scored, took.learning), strict=True))


def resumed(name: str, killed: Training, training: Training) -> Check:
    """Whether a run that was killed after its checkpoint went on from there to the end."""
    logged = [int(entry["step"]) for entry in training.steps]
    began = min((phase.step for phase in training.phases), default=None)
    right = killed.fault is None and training.fault is None and began == SAVED and logged == list(range(1, STEPS + 1))
    faults = [f"{which}: {run.fault}; " for which, run in (("killed", killed), ("resumed", training)) if run.fault]
    measured = f"{''.join(faults)}went on after step {began}; steps {_listed(logged)} in the log"
    return Check.of(name, right, measured, f"killed after step {SAVED}, went on from there, steps 1 to {STEPS}")


def compared(name: str, training: Training, base: Training, generation: int, bound: float, source: str) -> Check:
    """Whether a training with another value of a field came to its end, its engine in agreement; seconds of both."""
    whole = ran(name, training)
    if whole.verdict is Verdict.FAILED:
        return whole
    check = gap(name, training, generation, bound, source)
    took = [phases(run, generation) for run in (training, base)]
    shown = [f"{phase} {took[0][phase]:.1f} s (base {took[1][phase]:.1f})" for phase in (took[0] if all(took) else {})]
    return Check(name, check.verdict, "; ".join([check.measured, *shown]), check.expected)


def _value(entry: Mapping[str, float | None], name: str) -> float:
    value = entry.get(name)
    return math.nan if value is None else float(value)


def _at(training: Training, step: int, name: str) -> float:
    """What was logged at a step; NaN if nothing was."""
    return next((_value(entry, name) for entry in training.steps if entry["step"] == step), math.nan)


def _numbers(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values) or "none"


def _listed(steps: range | list[int]) -> str:
    return ", ".join(map(str, steps)) or "none"
