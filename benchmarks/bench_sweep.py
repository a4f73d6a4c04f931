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
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from transformers import AutoTokenizer
from trl import TrlParser
from vllm import LLM

from e1_trl.budget import Budget, Marker
from e1_trl.engine import Answer, Requests, serve
from e1_trl.evaluation.methods import Cell, Setting, request_for_length
from e1_trl.evaluation.report import HEADER, cells_as_text, read_rows
from e1_trl.evaluation.sampling import Plan, Problem, Results, sample
from e1_trl.evaluation.store import Store
from e1_trl.evaluation.tree import Branch, Kind, Tree
from e1_trl.report import markdown, replace_section
from e1_trl.rollout import Request, Segment, Stop

THINKING = (512, 1024, 2048, 3072, 4096, None)
SOLUTION = 1024
MEDIAN_THINKING, MEDIAN_SOLUTION, SIGMA = 2500, 300, 0.7  # tokens
CONTEXT = 10_240
LONGEST_THINKING = CONTEXT - SOLUTION - 128
SLOTS = 64

Grown = tuple[Tree, Branch]


@dataclass
class SweepArguments:
    """What to measure, and where to put it."""

    model: str = field(default="recipes/nano/base", metadata={"help": "The nano base."})
    problems: int = field(default=32, metadata={"help": "Problems, one sample each."})
    rounds: int = field(default=3, metadata={"help": "Rounds; each samples once with and once without sharing."})
    measure: bool = field(default=True, metadata={"help": "False: keep the ratios of the output, replace its rows."})
    results: list[Path] = field(default_factory=list, metadata={"help": "results.json files whose rows are added."})
    output: Path = field(default=Path("docs/results/sweep.json"), metadata={"help": "JSON file that is written."})
    document: Path | None = field(default=None, metadata={"help": "Markdown file whose section `sweep` is replaced."})


class ImposedLengths:
    """An engine whose thinking and solutions have given lengths, whatever the model would say."""

    def __init__(self, llm: LLM, marker: Marker):
        self.llm, self.marker = llm, marker
        self.sampling = {"temperature": 1.0, "ignore_eos": True, "logit_bias": {marker.ids[0]: -100.0}}
        self.tokens = 0

    @staticmethod
    def length(tree: Tree, branch: Branch) -> int:
        thinking = branch.kind is Kind.THINKING
        rng = np.random.default_rng((tree.problem, tree.sample, thinking))
        drawn = int(rng.lognormal(np.log(MEDIAN_THINKING if thinking else MEDIAN_SOLUTION), SIGMA)) + 1
        return min(drawn, LONGEST_THINKING if thinking else SOLUTION)

    def shorten(self, requests: Iterable[tuple[Grown, Request]]) -> Iterator[tuple[Grown, Request]]:
        for (tree, branch), request in requests:
            left = self.length(tree, branch) - len(branch.token_ids)
            yield (tree, branch), replace(request, max_tokens=min(request.max_tokens, left))

    def __call__(self, requests: Requests[Grown], follow: Answer[Grown]) -> None:
        def answer(key: Grown, segment: Segment) -> Iterator[tuple[Grown, Request]]:
            tree, branch = key
            self.tokens += len(segment.token_ids)
            if len(branch.token_ids) + len(segment.token_ids) == self.length(tree, branch):
                thinking = branch.kind is Kind.THINKING
                token_ids = [*segment.token_ids[:-1], self.marker.ids[0] if thinking else branch.prefix_ids[0]]
                segment = Segment(token_ids, segment.logprobs, Stop.MARKER if thinking else Stop.EOS)
            return self.shorten(follow(key, segment))

        serve(self.llm, self.shorten(requests), answer, self.marker, self.sampling, SLOTS)


def lengthen(model: str, folder: Path) -> None:
    """A copy of the nano base with a longer context: what it says does not matter here."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}))


def measure(plans: list[Plan], engine: ImposedLengths) -> tuple[int, float]:
    """Tokens sampled and seconds taken by runs one after the other, each with a folder of its own."""
    engine.tokens, start = 0, time.perf_counter()
    for plan in plans:
        engine.llm.reset_prefix_cache()
        results: Results = {}
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder), {}) as store:
            sample(plan, store, {}, engine, results)
        assert len(results) == len(plan.problems)
    return engine.tokens, time.perf_counter() - start


def compare(arguments: SweepArguments) -> dict[str, Any]:
    """Ratios of shared to separate, each the median over rounds."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        lengthen(arguments.model, model)
        tokenizer = AutoTokenizer.from_pretrained(model)
        marker = Marker.from_tokenizer(tokenizer)
        llm = LLM(str(model), max_model_len=CONTEXT, max_num_seqs=SLOTS, max_num_batched_tokens=4096, seed=0)
    engine = ImposedLengths(llm, marker)
    problems = [
        Problem(i, "", ["0"], {"": tokenizer.encode(f"a={i % 10};a?<think>")}) for i in range(arguments.problems)
    ]
    cells = [Cell("separate", Budget(thinking, SOLUTION)) for thinking in THINKING]
    setting = Setting(marker, marker.ids, marker.ids, 0, (), CONTEXT, tokenizer.decode)
    plan = partial(
        Plan, problems=problems, samples=1, setting=setting, independent=False, thinking={}, request=request_for_length
    )
    shared, separate = [plan(cells=cells)], [plan(cells=[cell]) for cell in cells]
    measure([replace(shared[0], problems=problems[:4])], engine)  # warms up
    rounds = [(measure(shared, engine), measure(separate, engine)) for _ in range(arguments.rounds)]
    return {
        "tokens_ratio": median(ours[0] / theirs[0] for ours, theirs in rounds),
        "wall_ratio": median(ours[1] / theirs[1] for ours, theirs in rounds),
        "shared_tokens": rounds[0][0][0],
        "separate_tokens": rounds[0][1][0],
        "shared_wall_s": median(ours[1] for ours, _ in rounds),
        "separate_wall_s": median(theirs[1] for _, theirs in rounds),
        "problems": arguments.problems,
        "rounds": arguments.rounds,
        "thinking_budgets": THINKING,
        "solution_budget": SOLUTION,
    }


def main() -> None:
    (arguments,) = TrlParser(SweepArguments).parse_args_and_config()
    rows = read_rows(arguments.results)
    if arguments.measure:
        measured = compare(arguments)
    else:
        measured = {name: value for name, value in json.loads(arguments.output.read_text()).items() if name != "rows"}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    content = {**measured, "rows": [asdict(row) for row in rows]}
    arguments.output.write_text(json.dumps(content, indent=1) + "\n")
    summary = markdown(
        ("", "shared", "separate runs", "ratio"),
        [
            (
                "tokens sampled",
                *(f"{measured['shared_tokens']:,}", f"{measured['separate_tokens']:,}"),
                f"{measured['tokens_ratio']:.2f}",
            ),
            (
                "seconds",
                *(f"{measured['shared_wall_s']:.1f}", f"{measured['separate_wall_s']:.1f}"),
                f"{measured['wall_ratio']:.2f}",
            ),
        ],
    )
    print(summary)
    if arguments.document is not None:
        replace_section(arguments.document, "sweep", summary)
        if rows:
            replace_section(arguments.document, "rows", markdown(HEADER, map(cells_as_text, rows)))


if __name__ == "__main__":
    main()
