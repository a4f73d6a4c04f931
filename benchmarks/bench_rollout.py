"""Streaming scheduler against the two-barrier form and against one unconstrained call of as many tokens.

    make bench        (nothing else should run)

All three take turns in one process, on the same engine (the nano base), problems and lengths, over several rounds, in
an order drawn anew for each. Engine steps and recomputed prefill tokens do not depend on the machine; of wall times and
their ratios the median and the range over rounds are given. Lengths are drawn from heavy-tailed distributions, as those
of reasoning models are; in one workload they are the nano base's own at temperature 0, whose solutions are short.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import fmean

import numpy as np
from tqdm import tqdm
from transformers import AutoTokenizer
from vllm import LLM, SamplingParams

from benchmarks.barrier import barrier
from benchmarks.counted import Counted, prefill_tokens
from benchmarks.results import arguments, publish, spread
from e1_trl.budget import Budget, Close, Marker
from e1_trl.engines.engine import SamplingSettings
from e1_trl.engines.engine import run as streaming
from e1_trl.engines.local import LocalEngine
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import load_problems
from e1_trl.problems.prompts import tokenize
from e1_trl.report.markdown import table
from e1_trl.rollout import Rollout, Segment, Stop, ThinkingEnd

MODEL, PROBLEMS = "experiments/nano/base", "runs/nano/data"
MEDIAN_THINKING, MEDIAN_SOLUTION, SIGMA = 128, 64, 1.0  # tokens; lognormal, independent of each other
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


class DrawnRollout(Rollout):
    """A rollout whose natural lengths are given: the engine samples as many tokens, and what ends them is put there.

    The engine's work is that of a model which closes its thinking and its solution by itself at these lengths.
    """

    def __init__(self, prompt_ids: Sequence[int], budget: Budget, close: Close, thinking: int, solution: int):
        self._drawn = iter([(thinking, Stop.MARKER, close.marker.ids[0]), (solution, Stop.EOS, prompt_ids[0])])
        super().__init__(prompt_ids, budget, close)
        self._shorten()

    def _shorten(self) -> None:
        if self.request is not None:
            length, stop, last = next(self._drawn)
            self._end = (stop, last) if length <= self.request.max_tokens else None
            self.request = replace(self.request, max_tokens=min(length, self.request.max_tokens))

    def receive(self, segment: Segment) -> None:
        if self._end is not None:
            stop, last = self._end
            segment = Segment([*segment.token_ids[:-1], last], stop, segment.logprobs)
        super().receive(segment)
        self._shorten()


@dataclass(frozen=True)
class Run:
    """One run of one scheduler: seconds, counts, and which share of the sequences was closed by force.

    `prefill_tokens` are those that had been computed already when a solution was requested.
    """

    wall_s: float
    engine_steps: int
    sampled_tokens: int
    prefill_tokens: int = 0
    forced_ratio: float = 0.0


def lengths(rollouts: Sequence[Rollout]) -> list[int]:
    """Tokens that were sampled for each of these rollouts, which are at their end."""
    return [each.completion.thinking_tokens + each.completion.solution_tokens for each in rollouts]


class Bench:
    """One engine, whose work is counted."""

    def __init__(self, model: str, dataset_name: str):
        self.llm = LLM(
            model,
            max_model_len=CONTEXT,
            max_num_seqs=SLOTS,
            max_num_batched_tokens=4096,
            block_size=BLOCK_SIZE,
            seed=0,
        )
        tokenizer = AutoTokenizer.from_pretrained(model)
        self.close = Close(Marker.from_tokenizer(tokenizer), CONTEXT)
        self.never_ending = SamplingSettings(
            extra={"ignore_eos": True, "logit_bias": {self.close.marker.ids[0]: -100.0}}
        )
        problems = load_problems(dataset_name, "train", ProblemArguments(instruction=""))
        self.prompt_ids = [tokenize(tokenizer, prompt, {}) for prompt in problems.select(range(SEQUENCES))["prompt"]]
        self.counted = Counted(self.llm)

    def measure(self, call: Callable[[], None]) -> Run:
        self.llm.reset_prefix_cache()
        self.counted.reset()
        start = time.perf_counter()
        call()
        return Run(time.perf_counter() - start, self.counted.steps, self.counted.sampled_tokens)

    def rollouts(self, workload: Workload, seed: int) -> list[Rollout]:
        if not workload.drawn:
            return [Rollout(ids, workload.budget, self.close) for ids in self.prompt_ids]
        medians = [[MEDIAN_THINKING, MEDIAN_SOLUTION]] * len(self.prompt_ids)
        drawn = np.ceil(np.random.default_rng(seed).lognormal(np.log(medians), SIGMA)).astype(int).tolist()
        return [
            DrawnRollout(ids, workload.budget, self.close, workload.min_thinking + thinking, solution)
            for ids, (thinking, solution) in zip(self.prompt_ids, drawn, strict=True)
        ]

    def budgeted(self, scheduler: Callable[..., None], workload: Workload, rollouts: list[Rollout]) -> Run:
        sampling = self.never_ending if workload.drawn else SamplingSettings(temperature=0.0)
        engine = LocalEngine(self.llm, self.close.marker, sampling)
        run = self.measure(lambda: scheduler(engine, rollouts))
        solutions = [each for each in self.counted.finished if self.close.marker.ids[0] in each.prompt_token_ids]
        forced = fmean(each.completion.thinking_end is ThinkingEnd.FORCED for each in rollouts)
        return replace(run, prefill_tokens=prefill_tokens(solutions), forced_ratio=forced)

    def single_call(self, lengths: list[int]) -> Run:
        """One request per sequence, for as many tokens as the budgeted rollout samples for it."""
        params = [
            SamplingParams(max_tokens=length, logprobs=0, detokenize=False, **self.never_ending.parameters())
            for length in lengths
        ]
        prompts = [{"prompt_token_ids": ids} for ids in self.prompt_ids]
        return self.measure(lambda: self.llm.generate(prompts, params, use_tqdm=False) and None)

    def compare(self, name: str, workload: Workload) -> dict[str, list[Run]]:
        """The runs of each scheduler, a round after the other."""
        first = self.rollouts(workload, seed=ROUNDS)
        self.budgeted(streaming, workload, first)  # the kernels for these shapes are compiled
        self.single_call(own := lengths(first))
        runs: dict[str, list[Run]] = {"streaming": [], "barrier": [], "single_call": []}
        for seed in tqdm(range(ROUNDS), desc=f"{name} ({workload.budget})", unit="round"):
            # The model's own lengths are the same in every round: it samples at temperature 0.
            sampled = drawn_lengths(self.rollouts(workload, seed)) if workload.drawn else own
            schedulers: dict[str, Callable[[], Run]] = {
                "streaming": partial(self.budgeted, streaming, workload, self.rollouts(workload, seed)),
                "barrier": partial(self.budgeted, barrier, workload, self.rollouts(workload, seed)),
                "single_call": partial(self.single_call, sampled),
            }
            for scheduler in random.Random(seed).sample(list(schedulers), len(schedulers)):
                runs[scheduler].append(schedulers[scheduler]())
        return runs


def drawn_lengths(rollouts: list[Rollout]) -> list[int]:
    """Tokens that are sampled for each of these rollouts, which are at their end then."""
    for rollout in rollouts:
        while (request := rollout.request) is not None:
            rollout.receive(Segment([0] * request.max_tokens, Stop.LENGTH))
    return lengths(rollouts)


def row(workload: str, scheduler: str, runs: list[Run], streamed: list[Run]) -> tuple[str, ...]:
    """A row of the table: seconds and their ratio to the streaming scheduler's of the same round, and mean counts."""
    ratios = [run.wall_s / other.wall_s for run, other in zip(runs, streamed, strict=True)]
    return (
        workload,
        f"{fmean(run.forced_ratio for run in streamed):.0%}",
        scheduler,
        f"{fmean(run.sampled_tokens for run in runs):.0f}",
        spread([run.wall_s for run in runs]),
        spread(ratios),
        f"{fmean(run.engine_steps for run in runs):.0f}",
        f"{fmean(run.prefill_tokens for run in runs) / SEQUENCES:.1f}",
    )


def main() -> None:
    parsed = arguments("Measure the scheduler against a barrier and a single call.", "scheduler.json", "bench")
    bench = Bench(MODEL, PROBLEMS)
    measured = {name: bench.compare(name, workload) for name, workload in WORKLOADS.items()}
    rows = [
        row(name, scheduler, each, runs["streaming"])
        for name, runs in measured.items()
        for scheduler, each in runs.items()
    ]
    facts = {"sequences": SEQUENCES, "slots": SLOTS, "block_size": BLOCK_SIZE, "rounds": ROUNDS}
    content = {
        name: {scheduler: [asdict(run) for run in each] for scheduler, each in runs.items()}
        for name, runs in measured.items()
    }
    publish(parsed, {**facts, "runs": content}, table(HEADER, rows))


if __name__ == "__main__":
    main()
