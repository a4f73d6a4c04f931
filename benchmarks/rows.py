"""The rows of docs/results/bench.json. A value is the median over rounds; `_low` and `_high` are its range."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import binom


@dataclass(frozen=True)
class Scheduled:
    """One scheduler on one distribution of lengths: the wall time (seconds), and means of counts per run.

    Attributes:
        wall_ratio: of the wall time to the streaming scheduler's in the same round, and so at the same lengths.
        clairvoyant_steps: of a schedule that knows all lengths, see `benchmarks.schedule`.
        phase2_prefill_tokens: of what had been computed already when the solution was requested.
        forced_ratio: share of sequences whose thinking was closed by force.
    """

    distribution: str
    scheduler: str
    sequences: int
    slots: int
    block_size: int
    rounds: int
    wall_s: float
    wall_s_low: float
    wall_s_high: float
    wall_ratio: float
    wall_ratio_low: float
    wall_ratio_high: float
    engine_steps: float
    clairvoyant_steps: float
    generated_tokens: float
    phase2_prefill_tokens: float
    forced_ratio: float


@dataclass(frozen=True)
class TrainStep:
    """An optimizer step of one trainer: seconds, and counts per step.

    Attributes:
        scheduler: `e1` (`E1Trainer`) or `grpo` (TRL's `GRPOTrainer`).
        step_ratio: of the step's seconds to the other trainer's in the same round; 1 for `grpo`.
        step_ratio_from, step_ratio_to: a 95% interval of that median.
        phases_s: seconds of the parts of a step, which add up to the step in each round.
        cpu_s: CPU seconds of the process in its step.
        idle_cpu_s: CPU seconds of the process in a step of the other; the most of all rounds.
        engine_requests, engine_steps: of vLLM.
        block_size: tokens of a block of the prefix cache, as vLLM chooses it for TRL.
        prefill_tokens: of prompts that were not in the prefix cache.
        sampled_tokens: by vLLM.
        trained_tokens: tokens in the loss.
    """

    distribution: str
    scheduler: str
    rollouts: int
    rounds: int
    step_s: float
    step_s_low: float
    step_s_high: float
    step_ratio: float
    step_ratio_low: float
    step_ratio_high: float
    step_ratio_from: float
    step_ratio_to: float
    phases_s: dict[str, float]
    cpu_s: float
    idle_cpu_s: float
    engine_requests: int
    engine_steps: int
    block_size: int
    prefill_tokens: int
    sampled_tokens: int
    trained_tokens: int


@dataclass(frozen=True)
class FirstStep:
    """Seconds since the start of the miniature's script, which `make train` runs, of each round.

    Attributes:
        scheduler: `e1`.
        cache: of what vLLM compiles: `empty`, or `filled` by an earlier run.
        problems_s: its problems are made, and `e1 train` starts.
        evaluated_s: the base is evaluated at three budgets.
        first_step_s: the first optimizer step has ended, and is logged.
    """

    distribution: str
    scheduler: str
    cache: str
    problems_s: list[float]
    evaluated_s: list[float]
    first_step_s: list[float]


Row = Scheduled | TrainStep | FirstStep
KINDS: dict[str, type[Row]] = {"train_step": TrainStep, "first_step": FirstStep}


def read(record: dict[str, Any]) -> Row:
    """The row that `asdict` made a record of."""
    return KINDS.get(record["distribution"], Scheduled)(**record)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """A 95% interval of the median of six values or more, whatever their distribution: between two of them.

    Raises:
        ValueError: there are fewer than six.
    """
    if len(values) < 6:
        raise ValueError(f"{len(values)} values have no 95% interval of their median; it takes six")
    ordered = sorted(values)
    rank = int(binom.ppf(0.025, len(ordered), 0.5))
    return ordered[rank - 1], ordered[-rank]
