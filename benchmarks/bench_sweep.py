"""One generation for every budget against one run per budget: tokens sampled, and time.

    make sweep        (some minutes on two cores; nothing else should run)

The engine and the evaluation are the real ones. The lengths are imposed: lognormal, as those of reasoning models are,
and the same for both sides, since the nano model's own thinking is shorter than the smallest of these budgets. Both
take turns over several rounds.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from transformers import AutoTokenizer
from vllm import LLM

from benchmarks.results import arguments, publish, spread
from e1_trl.budget import Budget, Close, Marker
from e1_trl.engines.engine import Follow, Requests, SamplingSettings
from e1_trl.engines.local import LocalEngine
from e1_trl.evaluation.forest import Forest, Goal, Problem
from e1_trl.evaluation.grow import Grown, grow, is_grown
from e1_trl.evaluation.methods import Cell, Setting
from e1_trl.evaluation.store import Store
from e1_trl.report.markdown import table
from e1_trl.rollout import Request, Segment, Stop
from e1_trl.tree import Branch, Kind, Tree

MODEL = "experiments/nano/base"
THINKING = (512, 1024, 2048, 3072, 4096, None)
SOLUTION = 1024
MEDIAN_THINKING, MEDIAN_SOLUTION, SIGMA = 2500, 300, 0.7  # tokens
CONTEXT = 10_240
LONGEST_THINKING = CONTEXT - SOLUTION - 128
SLOTS = 16  # half as many as problems, so that separate runs fill them, too

PROBLEMS, ROUNDS = 32, 3


@dataclass(frozen=True)
class Sweep:
    """Tokens sampled, and seconds of each round, by shared and by separate runs."""

    problems: int
    thinking_budgets: tuple[int | None, ...]
    solution_budget: int
    shared_tokens: int
    separate_tokens: int
    shared_wall_s: list[float]
    separate_wall_s: list[float]


class ImposedLengths:
    """An engine whose thinking and solutions have given lengths, whatever the model would say."""

    def __init__(self, llm: LLM, marker: Marker):
        never_ending = SamplingSettings(extra={"ignore_eos": True, "logit_bias": {marker.ids[0]: -100.0}})
        self.engine = LocalEngine(llm, marker, never_ending, SLOTS)
        self.tokens = 0

    @staticmethod
    def length(tree: Tree[Cell], branch: Branch) -> int:
        thinking = branch.kind is Kind.THINKING
        rng = np.random.default_rng((tree.problem, tree.sample_index, thinking))
        drawn = int(rng.lognormal(np.log(MEDIAN_THINKING if thinking else MEDIAN_SOLUTION), SIGMA)) + 1
        return min(drawn, LONGEST_THINKING if thinking else SOLUTION)

    def shorten(self, requests: Iterable[tuple[Grown, Request]]) -> Iterator[tuple[Grown, Request]]:
        for (tree, branch), request in requests:
            left = self.length(tree, branch) - len(branch.token_ids)
            yield (tree, branch), replace(request, max_tokens=min(request.max_tokens, left))

    def serve(self, requests: Requests[Grown], follow: Follow[Grown]) -> None:
        def ended(key: Grown, segment: Segment) -> Iterator[tuple[Grown, Request]]:
            tree, branch = key
            self.tokens += len(segment.token_ids)
            if len(branch.token_ids) + len(segment.token_ids) == self.length(tree, branch):
                thinking = branch.kind is Kind.THINKING
                last = self.engine.marker.ids[0] if thinking else branch.prefix_ids[0]
                segment = Segment([*segment.token_ids[:-1], last], Stop.MARKER if thinking else Stop.EOS)
            return self.shorten(follow(key, segment))

        self.engine.serve(self.shorten(requests), ended)


def lengthen(model: str, folder: Path) -> None:
    """A copy of the nano base with a longer context: what it says does not matter here."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}))


def measure(forests: list[Forest], engine: ImposedLengths) -> tuple[int, float]:
    """Tokens sampled and seconds taken by runs one after the other, each with a folder of its own."""
    engine.tokens, start = 0, time.perf_counter()
    for forest in forests:
        engine.engine.llm.reset_prefix_cache()
        with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder), {}) as store:
            grow(forest, store, engine)  # type: ignore[arg-type]
            assert is_grown(forest, store)
    return engine.tokens, time.perf_counter() - start


def compare(model_name: str) -> Sweep:
    """One generation for all budgets and one for each, in turns that change places."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        lengthen(model_name, model)
        tokenizer = AutoTokenizer.from_pretrained(model)
        marker = Marker.from_tokenizer(tokenizer)
        llm = LLM(str(model), max_model_len=CONTEXT, max_num_seqs=SLOTS, max_num_batched_tokens=4096, seed=0)
    engine = ImposedLengths(llm, marker)
    problems = [
        Problem(i, None, [], ["0"], {"": tokenizer.encode(f"a={i % 10};b={i // 10};a?<think>")})
        for i in range(PROBLEMS)
    ]
    setting = Setting(
        close=Close(marker, CONTEXT),
        s1_marker=marker,
        wait_ids=marker.ids,
        s1_waits=0,
        decode=tokenizer.decode,
    )
    goals = [Goal(Cell("separate", Budget(thinking, SOLUTION)), PROBLEMS, 1) for thinking in THINKING]
    shared = [Forest(problems, goals, setting, independent=False, thinking={})]
    separate = [Forest(problems, [goal], setting, independent=False, thinking={}) for goal in goals]
    measure([replace(shared[0], problems=problems[:4])], engine)  # warms up
    runs: dict[bool, list[tuple[int, float]]] = {True: [], False: []}
    for i in range(ROUNDS):
        for together in (True, False) if i % 2 == 0 else (False, True):
            runs[together].append(measure(shared if together else separate, engine))
    return Sweep(
        problems=PROBLEMS,
        thinking_budgets=THINKING,
        solution_budget=SOLUTION,
        shared_tokens=runs[True][0][0],
        separate_tokens=runs[False][0][0],
        shared_wall_s=[seconds for _, seconds in runs[True]],
        separate_wall_s=[seconds for _, seconds in runs[False]],
    )


def summary(sweep: Sweep) -> str:
    """The ratios as a Markdown table."""
    ratios = [ours / theirs for ours, theirs in zip(sweep.shared_wall_s, sweep.separate_wall_s, strict=True)]
    shared, separate = (f"{median(seconds):.1f}" for seconds in (sweep.shared_wall_s, sweep.separate_wall_s))
    tokens = f"{sweep.shared_tokens / sweep.separate_tokens:.2f}"
    return table(
        ("", "shared", "separate runs", "ratio"),
        [
            ("tokens sampled", f"{sweep.shared_tokens:,}", f"{sweep.separate_tokens:,}", tokens),
            ("seconds, median", shared, separate, f"{spread(ratios)}: median and range of {ROUNDS} rounds"),
        ],
    )


def main() -> None:
    parsed = arguments("Measure one generation for all budgets against one for each.", "sweep.json", "sweep")
    sweep = compare(MODEL)
    wall = [ours / theirs for ours, theirs in zip(sweep.shared_wall_s, sweep.separate_wall_s, strict=True)]
    ratios = {"tokens_ratio": sweep.shared_tokens / sweep.separate_tokens, "wall_ratio": median(wall)}
    publish(parsed, {**asdict(sweep), **ratios}, summary(sweep))


if __name__ == "__main__":
    main()
