"""Streaming scheduler against the two-barrier form.

    make bench        (nothing else should run)

Both take turns in one process, on the same engine (the nano base), problems and lengths, over several rounds. Engine
steps and recomputed prefill tokens do not depend on the machine; of wall times and their ratios the median and the
range over rounds are given. Lengths are drawn from heavy-tailed distributions, as those of reasoning models are; in one
workload they are the nano base's own at temperature 0, whose solutions are short.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean

import numpy as np
from transformers import AutoTokenizer
from vllm import LLM

from benchmarks.engines import Counted, ImposedLengths, barrier
from benchmarks.results import arguments, in_turns, publish, ratio, spread
from benchmarks.workloads import BASE, prompts_of
from e1_trl.budget import Budget, ThinkingClose
from e1_trl.engines.engine import Engine, SamplingSettings
from e1_trl.engines.engine import run as streaming
from e1_trl.engines.local import LocalEngine
from e1_trl.marker import Marker
from e1_trl.report.markdown import table
from e1_trl.rollout import Rollout, ThinkingEnd

MEDIANS, SIGMA = (128, 64), 1.0  # tokens of thinking and solution; lognormal, independent of each other
CONTEXT = 1024  # tokens
BLOCK_SIZE = 32  # tokens; the smallest of vLLM's CPU attention (16 is the default on GPU)
SEQUENCES, SLOTS, ROUNDS = 96, 64, 8
HEADER = (
    "distribution",
    "forced",
    "scheduler",
    "tokens",
    "wall, s",
    "to streaming",
    "engine steps",
    "phase-2 prefill per sequence",
)
SCHEDULERS = {"streaming": streaming, "barrier": barrier}


@dataclass(frozen=True)
class Workload:
    """A budget, and whose lengths: the model's, or drawn ones of more than `min_thinking` tokens of thinking."""

    budget: Budget
    drawn: bool = True
    min_thinking: int = 0


WORKLOADS = {
    "forced": Workload(Budget(192, 256), min_thinking=192),
    "mixed": Workload(Budget(192, 256)),
    "natural": Workload(Budget(None, 256)),
    "nano": Workload(Budget(96, 64), drawn=False),
}


@dataclass(frozen=True)
class Run:
    """One run of one scheduler: seconds, counts, and which share of the sequences was closed by force.

    `prefill_tokens` are those that had been computed already when a solution was requested.
    """

    wall_s: float
    engine_steps: int
    sampled_tokens: int
    prefill_tokens: int
    forced_ratio: float


class Bench:
    """One engine, whose work is counted."""

    def __init__(self) -> None:
        self.llm = LLM(
            BASE,
            max_model_len=CONTEXT,
            max_num_seqs=SLOTS,
            max_num_batched_tokens=4096,
            block_size=BLOCK_SIZE,
            seed=0,
        )
        tokenizer = AutoTokenizer.from_pretrained(BASE)
        self.close = ThinkingClose(Marker.from_tokenizer(tokenizer), CONTEXT)
        self.prompt_ids = prompts_of(tokenizer, SEQUENCES)
        self.counted = Counted(self.llm)

    def engine(self, workload: Workload, turn: int) -> Engine:
        """It samples to the lengths of a round, which are drawn anew for each, or to the model's own."""
        if not workload.drawn:
            return LocalEngine(self.llm, self.close.marker, SamplingSettings(temperature=0.0))
        drawn = np.random.default_rng(turn).lognormal(np.log([MEDIANS] * SEQUENCES), SIGMA)
        lengths = np.ceil(drawn).astype(int) + np.array([workload.min_thinking, 0])
        return ImposedLengths(
            self.llm, self.close.marker, lambda row, request: int(lengths[row, 0 if request.stop_at_marker else 1])
        )

    def run(self, scheduler: Callable[..., None], workload: Workload, turn: int) -> Run:
        """Run a workload with the lengths of a round."""
        rollouts = [Rollout(ids, workload.budget, self.close) for ids in self.prompt_ids]
        engine = self.engine(workload, turn)
        self.llm.reset_prefix_cache()
        self.counted.reset()
        start = time.perf_counter()
        scheduler(engine, rollouts)
        return Run(
            wall_s=time.perf_counter() - start,
            engine_steps=self.counted.steps,
            sampled_tokens=self.counted.sampled_tokens,
            prefill_tokens=self.counted.prefill_tokens(holding=self.close.marker.ids[0]),
            forced_ratio=fmean(each.completion.thinking_end is ThinkingEnd.FORCED for each in rollouts),
        )

    def compare(self, name: str, workload: Workload) -> dict[str, list[Run]]:
        """The runs of each scheduler, a round after the other."""
        self.run(streaming, workload, ROUNDS)  # the kernels for these shapes are compiled
        runs = {scheduler: partial(self.run, run, workload) for scheduler, run in SCHEDULERS.items()}
        return in_turns(runs, ROUNDS, f"{name} ({workload.budget})")


def row(workload: str, scheduler: str, runs: list[Run], streamed: list[Run]) -> tuple[str, ...]:
    """A row of the table: seconds and their ratio to the streaming scheduler's of the same round, and mean counts."""
    walls = [run.wall_s for run in runs]
    return (
        workload,
        f"{fmean(run.forced_ratio for run in runs):.0%}",
        scheduler,
        f"{fmean(run.sampled_tokens for run in runs):.0f}",
        spread(walls),
        ratio(walls, [run.wall_s for run in streamed]),
        f"{fmean(run.engine_steps for run in runs):.0f}",
        f"{fmean(run.prefill_tokens for run in runs) / SEQUENCES:.1f}",
    )


def main() -> None:
    parsed = arguments("Measure the scheduler against a barrier.", "scheduler.json", "bench")
    bench = Bench()
    measured = {name: bench.compare(name, workload) for name, workload in WORKLOADS.items()}
    rows = [
        row(name, scheduler, each, runs["streaming"])
        for name, runs in measured.items()
        for scheduler, each in runs.items()
    ]
    facts = {"sequences": SEQUENCES, "slots": SLOTS, "block_size": BLOCK_SIZE, "rounds": ROUNDS}
    runs = {name: {key: [*map(asdict, each)] for key, each in runs.items()} for name, runs in measured.items()}
    publish(parsed, {**facts, "runs": runs}, table(HEADER, rows))


if __name__ == "__main__":
    main()
