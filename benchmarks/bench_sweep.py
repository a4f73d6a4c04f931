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
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from vllm import LLM

from benchmarks.engines import ImposedLengths
from benchmarks.results import arguments, in_turns, publish, ratio
from e1_trl.budget import Budget, ThinkingClose
from e1_trl.evaluation.methods import Cell, MethodOptions, Setting
from e1_trl.evaluation.sample import Key, is_sampled, sample_plan
from e1_trl.evaluation.sampling_plan import Goal, Problem, SamplingPlan
from e1_trl.evaluation.store import Store
from e1_trl.marker import Marker
from e1_trl.report.markdown import table
from e1_trl.rollout import Request

MODEL = "experiments/nano/base"
THINKING = (512, 1024, 2048, 3072, 4096, None)
SOLUTION = 1024
MEDIAN_THINKING, MEDIAN_SOLUTION, SIGMA = 2500, 300, 0.7  # tokens
CONTEXT = 10_240
LONGEST_THINKING = CONTEXT - SOLUTION - 128
SLOTS = 16  # half as many as problems, so that separate runs fill them, too
PROBLEMS, ROUNDS = 32, 3


def left(key: Key, request: Request) -> int:
    """Tokens up to the natural end of a branch, whose length its place alone decides."""
    tree, branch = key
    thinking = request.stop_at_marker
    rng = np.random.default_rng((tree.problem, tree.sample_index, thinking))
    drawn = int(rng.lognormal(np.log(MEDIAN_THINKING if thinking else MEDIAN_SOLUTION), SIGMA)) + 1
    return min(drawn, LONGEST_THINKING if thinking else SOLUTION) - len(branch.token_ids)


def start() -> tuple[ImposedLengths, PreTrainedTokenizerBase]:
    """The nano base with a longer context: what it says does not matter here."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(shutil.copytree(MODEL, folder, dirs_exist_ok=True))
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}))
        tokenizer = AutoTokenizer.from_pretrained(model)
        llm = LLM(str(model), max_model_len=CONTEXT, max_num_seqs=SLOTS, max_num_batched_tokens=4096, seed=0)
    return ImposedLengths(llm, Marker.from_tokenizer(tokenizer), left, SLOTS), tokenizer


def measure(plans: Sequence[SamplingPlan], engine: ImposedLengths) -> tuple[int, float]:
    """Tokens sampled and seconds taken by runs one after the other, each with a folder of its own."""
    engine.tokens, began = 0, time.perf_counter()
    for plan in plans:
        engine.engine.llm.reset_prefix_cache()
        with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder), {}) as store:
            sample_plan(plan, store, engine)
            assert is_sampled(plan, store)
    return engine.tokens, time.perf_counter() - began


def main() -> None:
    parsed = arguments("Measure one generation for all budgets against one for each.", "sweep.json", "sweep")
    engine, tokenizer = start()
    marker = engine.engine.marker
    setting = Setting(ThinkingClose(marker, CONTEXT), marker, marker.ids, MethodOptions(s1_waits=0), tokenizer.decode)
    prompts = [tokenizer.encode(f"a={i % 10};b={i // 10};a?<think>") for i in range(PROBLEMS)]
    problems = [Problem(i, None, [], ["0"], {"": ids}.__getitem__) for i, ids in enumerate(prompts)]
    goals = [Goal(Cell("separate", Budget(thinking, SOLUTION)), PROBLEMS, 1) for thinking in THINKING]
    shared = SamplingPlan(problems, goals, setting, independent=False, thinking={})
    separate = [replace(shared, goals=[goal]) for goal in goals]
    measure([replace(shared, problems=problems[:4])], engine)  # warms up
    sides = {"shared": lambda _: measure([shared], engine), "separate": lambda _: measure(separate, engine)}
    ours, theirs = in_turns(sides, ROUNDS, "sweep").values()
    (tokens, *_), walls = zip(*ours, strict=True)
    (separate_tokens, *_), separate_walls = zip(*theirs, strict=True)
    record = {
        "problems": PROBLEMS,
        "thinking_budgets": THINKING,
        "solution_budget": SOLUTION,
        "shared_tokens": tokens,
        "separate_tokens": separate_tokens,
        "shared_wall_s": walls,
        "separate_wall_s": separate_walls,
    }
    seconds = f"{ratio(walls, separate_walls)}: median and range of {ROUNDS} rounds"
    rows = [
        ("tokens sampled", f"{tokens:,}", f"{separate_tokens:,}", f"{tokens / separate_tokens:.2f}"),
        ("seconds, median", f"{median(walls):.1f}", f"{median(separate_walls):.1f}", seconds),
    ]
    publish(parsed, record, table(("", "shared", "separate runs", "ratio"), rows))


if __name__ == "__main__":
    main()
