"""Runs of the first hour, and checks that each answer one question about them. Reads logs and files, starts nothing."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from e1_trl.plan.estimate import GB, Memory, gb
from e1_trl.plan.setup import Setup

STEPS = 4
SAVED = 2  # the step of the checkpoint
STATE = "trainer_state.json"  # written last in a checkpoint
# Kinds of lines in vLLM's log that say how it runs on this node.
KINDS = (
    "Model Runner|attention backend|Available KV cache memory|Maximum concurrency|CUDA graph pool memory|init engine|"
    "Sleep mode freed|to wake up"
)
FACT = re.compile(rf"\] (?P<line>[^\n]*?(?P<kind>{KINDS})[^\n]*)")
GAP = "sampling/sampling_logp_difference/mean"
COMPARED = "weights/compared_tensors"
ADAPTER = "adapter_model.safetensors"
MODEL = "model.safetensors"
# Accepted shares of the planned memory and time.
LEAST_MEMORY = 0.5
MOST_MEMORY = 1.25
LEAST_TIME = 0.4
MOST_TIME = 2.0
# Accuracy before training, and its bounds for 30 problems x 8 answers, by model and metric; from the model's card.
PUBLISHED: Mapping[tuple[str, str], tuple[float, float, float]] = {
    ("agentica-org/DeepScaleR-1.5B-Preview", "eval_budget/1024+1024/accuracy"): (0.096, 0.03, 0.17)
}


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    fault: str | None  # one line on a run that failed; None if it did not
    peak: int  # most bytes in use on any GPU; 0 without one
    seconds: float  # from start to end
    steps: dict[int, dict[str, float]]  # a training's metrics at each step
    validation: dict[str, float]  # metrics of the validation before the first step
    facts: dict[str, str]  # vLLM's lines about itself, the first of each kind

    @classmethod
    def read(cls, fault: str | None, peak: int, seconds: float, log: Path, output: Path) -> "Run":
        """Read a run's log, and the metrics that a training left in its `output_dir`."""
        states = [*sorted(output.glob(f"checkpoint-*/{STATE}")), output / STATE]
        written = [file for file in states if file.is_file()]
        history = json.loads(written[-1].read_text())["log_history"] if written else []
        steps = {entry["step"]: entry for entry in history if "loss" in entry}
        before = [entry for entry in history if entry["step"] == 0 and "loss" not in entry]
        said = log.read_text(errors="replace")
        facts: dict[str, str] = {}
        for match in FACT.finditer(said):
            facts.setdefault(match["kind"], match["line"].strip())
        return cls(fault, peak, seconds, steps, before[0] if before else {}, facts)

    def values(self, name: str, steps: Iterable[int]) -> list[float]:
        """Return a metric at these steps; NaN where it was not logged, or logged as null, TRL's form of NaN."""
        logged = [self.steps.get(step, {}).get(name) for step in steps]
        return [math.nan if value is None else value for value in logged]


@dataclass(frozen=True)
class Check:
    """A row of the page."""

    name: str  # the question
    right: bool | None  # None: could not be checked, or there is nothing to compare with
    measured: str  # or the reason why it could not be checked
    expected: str = ""  # a value or bound, and its origin

    @property
    def verdict(self) -> str:
        return {True: "passed", False: "FAILED", None: "open"}[self.right]


def ran(name: str, run: Run, steps: int = STEPS) -> Check:
    """Check that a training ended, with every step in its log and a finite loss at each."""
    losses = run.values("loss", run.steps)
    right = run.fault is None and [*run.steps] == [*range(1, steps + 1)] and all(map(math.isfinite, losses))
    measured = f"{run.fault or 'status 0'}; losses {_numbers(losses)} at steps {_listed(run.steps)}"
    return Check(name, right, f"{measured}; {run.seconds:.0f} s", f"status 0, steps 1 to {steps}, losses are numbers")


def moved(change: float) -> Check:
    """Check that the largest change of a weight between the checkpoint and the end is not zero."""
    measured = f"by {change:.1e} from step {SAVED} to {STEPS}"
    return Check("do steps move the weights", 0 < change < math.inf, measured, "above 0")


def gap(name: str, run: Run, steps: Sequence[int], bound: float | None = None) -> Check:
    """Check that vLLM's and the trainer's log-probabilities agreed at these steps, within `bound` nats a token.

    Without a bound, within twice the first gap: it stays small under a high learning rate only if weights arrive.
    This check is open if only one generation ran.
    """
    gaps = run.values(GAP, steps)
    expected = "at most twice the first" if bound is None else f"at most {bound:g}; on GPUs 0.01 to 0.04"
    most = 2 * gaps[0] if bound is None else bound
    right = None if bound is None and len(gaps) == 1 else all(each <= most for each in gaps)
    return Check(name, right, f"{_numbers(gaps)} nats at steps {_listed(steps)}", expected)


def weights(run: Run, setup: Setup) -> Check:
    """Check that the trainer compared the engine's weights with its own before every generation."""
    steps = beginnings(setup)
    counts = run.values(COMPARED, steps)
    measured = f"{_numbers(counts)} tensors compared at steps {_listed(steps)}"
    right = None if setup.served else all(count > 0 for count in counts)  # a server does not return its weights
    return Check("do weights arrive in vLLM", right, measured, "above 0; the training stops if one differs")


def slept(run: Run, setup: Setup, card: int) -> Check:
    """Check that a sleeping vLLM freed its share of the GPU."""
    said = re.search(r"Sleep mode freed ([\d.]+) GiB", run.facts.get("Sleep mode freed", ""))
    freed = float(said[1]) * 2**30 if said else 0.0
    share = setup.utilization * card
    return Check("does vLLM give its memory back", freed > 0.7 * share, f"{gb(freed)} freed", f"most of {gb(share)}")


def accuracy(run: Run, model: str) -> Check:
    """Compare the validation before the first step with the model's published accuracy."""
    name = "is the model the published one"
    found = {metric: value for metric, value in run.validation.items() if metric.endswith("/accuracy")}
    if not found:
        return Check(name, None, "the recipe has no validation (eval_budgets)")
    metric, value = next(iter(found.items()))
    measured = f"{value:.1%} right ({metric.split('/')[1]})"
    if (model, metric) not in PUBLISHED:
        return Check(name, None, measured, f"no published accuracy of {model} at this budget")
    value_there, least, most = PUBLISHED[model, metric]
    return Check(name, least <= value <= most, measured, f"{value_there:.1%}, {least:.0%} to {most:.0%} by chance")


def peak(run: Run, taken: Memory) -> Check:
    """Compare the memory of the fullest GPU with the plan."""
    planned = max(taken.generation, taken.training)
    right = LEAST_MEMORY * planned <= run.peak <= MOST_MEMORY * planned
    measured = f"{run.peak / GB:.1f} of {gb(taken.card)} (nvidia-smi)" if taken.card else "on a CPU"
    bounds = f"{gb(taken.generation)} at generation, {taken.training / GB:.1f} at training"
    expected = f"{bounds}; {LEAST_MEMORY} to {MOST_MEMORY} times the larger"
    return Check("is memory as planned", right if taken.card else None, measured, expected)


def time(run: Run, setup: Setup, planned: float, on_h100: bool) -> Check:
    """Compare the seconds of the last generation and its update with the plan, which is for an H100."""
    first = beginnings(setup)[-1]
    took = sum(run.values("step_time", range(first, STEPS + 1)))
    right = LEAST_TIME * planned <= took <= MOST_TIME * planned if on_h100 else None
    measured = f"{took:.1f} s from step {first} to {STEPS}"
    expected = f"{LEAST_TIME} to {MOST_TIME} times {planned:.0f} s on an H100"
    return Check("is time as planned", right, measured, expected)


def resumed(name: str, killed: Run, run: Run) -> Check:
    """Check that a run which was killed after its checkpoint resumed from there and ended.

    Its log then begins with the killed run's: a step that is repeated would take another time.
    """
    began = sum(entry == run.steps.get(step) for step, entry in killed.steps.items())
    faults = [f"{which}: {each.fault}; " for which, each in (("killed", killed), ("resumed", run)) if each.fault]
    right = not faults and began == SAVED and [*run.steps] == [*range(1, STEPS + 1)]
    measured = f"{''.join(faults)}went on after step {began}; steps {_listed(run.steps)} in the log"
    return Check(name, right, measured, f"killed after step {SAVED}, went on from there, steps 1 to {STEPS}")


def largest_change(before: Path, after: Path) -> float:
    """Return the largest difference between the weights of two folders, each of a model or an adapter.

    Tensors in only one are left out: DeepSpeed saves a head that is tied to the embeddings, Transformers does not.
    """
    name = ADAPTER if (after / ADAPTER).exists() else MODEL
    with safe_open(before / name, "pt") as old, safe_open(after / name, "pt") as new:
        names = set(old.keys()) & set(new.keys())
        changes = [(old.get_tensor(name) - new.get_tensor(name)).abs().max().item() for name in names]
    return math.nan if any(map(math.isnan, changes)) else max(changes)  # `max` may skip a NaN


def beginnings(setup: Setup, last: int = STEPS) -> range:
    """Return the steps that begin a generation, up to the last one."""
    return range(1, last + 1, max(1, round(setup.steps)))


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _listed(steps: Iterable[int]) -> str:
    return ", ".join(map(str, steps)) or "none"
