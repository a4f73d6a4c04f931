"""Streaming scheduler against the two-barrier form and against one unconstrained call of as many tokens.

    make bench        (some minutes on two cores; nothing else should run)

All three take turns in one process, on the same engine (the nano base), problems and lengths, over several rounds, and
change places each round. Engine steps and recomputed prefill tokens do not depend on the machine; of the wall-clock
ratio the median and the range over rounds are given. Lengths are drawn from heavy-tailed distributions, as those of
reasoning models are; in one workload they are the nano base's own at temperature 0, whose solutions are short.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from tqdm import tqdm
from transformers import AutoTokenizer
from vllm import LLM, SamplingParams

from benchmarks.barrier import barrier
from e1_trl.budget import Budget, Marker
from e1_trl.engines.engine import SamplingSettings
from e1_trl.engines.engine import run as streaming
from e1_trl.engines.local import LocalEngine
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import load_problems
from e1_trl.problems.prompts import tokenize
from e1_trl.report.markdown import replace_section, table
from e1_trl.report.provenance import Provenance
from e1_trl.rollout import Completion, Rollout, Segment, Stop, ThinkingEnd

MEDIAN_THINKING, MEDIAN_SOLUTION, SIGMA = 128, 64, 1.0  # tokens; lognormal, independent of each other
CONTEXT = 1024  # tokens
HEADER = ("distribution", "forced", "scheduler", "tokens", "wall", "engine steps", "phase-2 prefill per sequence")
BLOCK_SIZE = 32  # tokens; the smallest of vLLM's CPU attention (16 is the default on GPU)


SEQUENCES, SLOTS, ROUNDS = 96, 64, 8


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

    def __init__(self, prompt_ids: Sequence[int], budget: Budget, marker: Marker, thinking: int, solution: int):
        self._drawn = iter([(thinking, Stop.MARKER, marker.ids[0]), (solution, Stop.EOS, prompt_ids[0])])
        super().__init__(prompt_ids, budget, marker, CONTEXT)
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
class Measurement:
    """One scheduler on one length distribution: the median wall time (seconds), and means of counts per run.

    `wall_ratio` is that of the wall time to the streaming one's of the same round, and so of the same lengths: median,
    lowest and highest over rounds.
    """

    distribution: str
    scheduler: str
    sequences: int
    slots: int
    block_size: int
    rounds: int
    wall_s: float
    wall_ratio: float
    wall_ratio_low: float
    wall_ratio_high: float
    engine_steps: float
    generated_tokens: float
    phase2_prefill_tokens: float
    forced_ratio: float


@dataclass
class Run:
    """What one run of one scheduler took."""

    wall_s: float
    engine_steps: int = 0
    generated_tokens: int = 0
    phase2_prefill_tokens: int = 0
    completions: list[Completion] = field(default_factory=list)


class Bench:
    """One engine, whose steps are counted and whose finished requests are kept."""

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
        self.marker = Marker.from_tokenizer(tokenizer)
        self.never_ending = SamplingSettings(extra={"ignore_eos": True, "logit_bias": {self.marker.ids[0]: -100.0}})
        problems = load_problems(dataset_name, "train", ProblemArguments(instruction=""))
        self.prompt_ids = [tokenize(tokenizer, prompt, {}) for prompt in problems.select(range(SEQUENCES))["prompt"]]
        self.steps, self.outputs = 0, []
        step = self.llm.llm_engine.step

        def counted_step() -> list[Any]:
            self.steps += 1
            outputs = step()
            self.outputs += [output for output in outputs if output.finished]
            return outputs

        self.llm.llm_engine.step = counted_step

    def measure(self, call: Callable[[], None]) -> Run:
        self.llm.reset_prefix_cache()
        self.steps, self.outputs = 0, []
        start = time.perf_counter()
        call()
        run = Run(time.perf_counter() - start, self.steps)
        run.generated_tokens = sum(len(output.outputs[0].token_ids) for output in self.outputs)
        return run

    def rollouts(self, workload: Workload, seed: int) -> list[Rollout]:
        if not workload.drawn:
            return [Rollout(ids, workload.budget, self.marker, CONTEXT) for ids in self.prompt_ids]
        medians = [[MEDIAN_THINKING, MEDIAN_SOLUTION]] * len(self.prompt_ids)
        lengths = np.ceil(np.random.default_rng(seed).lognormal(np.log(medians), SIGMA)).astype(int).tolist()
        return [
            DrawnRollout(ids, workload.budget, self.marker, workload.min_thinking + thinking, solution)
            for ids, (thinking, solution) in zip(self.prompt_ids, lengths, strict=True)
        ]

    def budgeted(self, scheduler: Callable[..., None], workload: Workload, seed: int) -> Run:
        rollouts = self.rollouts(workload, seed)
        sampling = self.never_ending if workload.drawn else SamplingSettings(temperature=0.0)
        engine = LocalEngine(self.llm, self.marker, sampling)
        run = self.measure(lambda: scheduler(engine, rollouts))
        run.completions = [rollout.completion for rollout in rollouts]
        run.phase2_prefill_tokens = sum(
            len(output.prompt_token_ids) - output.num_cached_tokens
            for output in self.outputs
            if self.marker.ids[0] in output.prompt_token_ids
        )
        return run

    def single_call(self, completions: list[Completion]) -> Run:
        """One request per sequence, for as many tokens as the budgeted rollout sampled for it."""
        params = [
            SamplingParams(
                max_tokens=c.thinking_tokens + c.solution_tokens,
                logprobs=0,
                detokenize=False,
                **self.never_ending.parameters(),
            )
            for c in completions
        ]
        prompts = [{"prompt_token_ids": ids} for ids in self.prompt_ids]
        return self.measure(lambda: self.llm.generate(prompts, params, use_tqdm=False) and None)

    def compare(self, distribution: str, workload: Workload) -> list[Measurement]:
        runs: dict[str, list[Run]] = {"streaming": [], "barrier": [], "single_call": []}
        warm = self.budgeted(streaming, workload, seed=ROUNDS).completions  # the kernels for these shapes
        self.single_call(warm)
        for seed in tqdm(range(ROUNDS), desc=f"{distribution} ({workload.budget})", unit="round"):
            # A single call is as long as streaming sampled for its sequence, which is known beforehand: lengths are
            # drawn from the seed, or sampled at temperature 0.
            completions = self.budgeted(streaming, workload, seed).completions
            schedulers: list[tuple[str, Callable[[], Run]]] = [
                ("streaming", partial(self.budgeted, streaming, workload, seed)),
                ("barrier", partial(self.budgeted, barrier, workload, seed)),
                ("single_call", partial(self.single_call, completions)),
            ]
            first = seed % len(schedulers)
            for name, scheduler in [*schedulers[first:], *schedulers[:first]]:
                runs[name].append(scheduler())
        ratios = {
            name: [run.wall_s / ours.wall_s for run, ours in zip(of_scheduler, runs["streaming"], strict=True)]
            for name, of_scheduler in runs.items()
        }
        ends = [c.thinking_end for run in runs["streaming"] for c in run.completions]
        return [
            Measurement(
                distribution=distribution,
                scheduler=scheduler,
                sequences=SEQUENCES,
                slots=SLOTS,
                block_size=BLOCK_SIZE,
                rounds=ROUNDS,
                wall_s=median(run.wall_s for run in of_scheduler),
                wall_ratio=median(ratios[scheduler]),
                wall_ratio_low=min(ratios[scheduler]),
                wall_ratio_high=max(ratios[scheduler]),
                engine_steps=fmean(run.engine_steps for run in of_scheduler),
                generated_tokens=fmean(run.generated_tokens for run in of_scheduler),
                phase2_prefill_tokens=fmean(run.phase2_prefill_tokens for run in of_scheduler),
                forced_ratio=fmean(end is ThinkingEnd.FORCED for end in ends),
            )
            for scheduler, of_scheduler in runs.items()
        ]


def summary(rows: list[Measurement]) -> list[tuple[str, ...]]:
    """A line per scheduler, with its ratios to the streaming one on the same distribution."""
    streaming = {row.distribution: row for row in rows if row.scheduler == "streaming"}
    return [
        (
            row.distribution,
            f"{row.forced_ratio:.0%}",
            row.scheduler,
            f"{row.generated_tokens:.0f}",
            f"{row.wall_s:.2f} s ({row.wall_ratio:.2f}×, {row.wall_ratio_low:.2f} to {row.wall_ratio_high:.2f})",
            f"{row.engine_steps:.0f} ({row.engine_steps / streaming[row.distribution].engine_steps:.2f}×)",
            f"{row.phase2_prefill_tokens / row.sequences:.1f}",
        )
        for row in rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the scheduler against a barrier and a single call.")
    parser.add_argument("--model", default="recipes/nano/base", help="the nano base")
    parser.add_argument("--dataset_name", default="runs/nano/data", help="the nano problems")
    parser.add_argument("--output", type=Path, default=Path("docs/results/bench.json"), help="JSON file")
    parser.add_argument("--document", type=Path, help="Markdown file whose section `bench` is replaced")
    arguments = parser.parse_args()
    bench = Bench(arguments.model, arguments.dataset_name)
    rows = [row for name, workload in WORKLOADS.items() for row in bench.compare(name, workload)]
    content = {"provenance": asdict(Provenance.here([0])), "rows": [asdict(row) for row in rows]}
    arguments.output.write_text(json.dumps(content, indent=1) + "\n")
    text = table(HEADER, summary(rows))
    print(text)
    if arguments.document is not None:
        replace_section(arguments.document, "bench", text)


if __name__ == "__main__":
    main()
