"""Benchmarks by name: where their problems lie on the Hub, and how their answers are read and sampled.

A benchmark of your own is a record at a dotted path: docs/extend.md has one. Imports nothing heavy, so that `--help`
can name them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from e1_trl.arguments import find
from e1_trl.errors import UserError


@dataclass(frozen=True)
class Benchmark:
    """A dataset, and how the paper samples its answers.

    Attributes:
        hub_id, split, config: the dataset, which may also be a local file or folder.
        grader: type of its answers, as in `GradingArguments`.
        problem_column, answer_column: columns of problem and answer.
        answer_after: text that precedes the answer in a column that holds a whole solution (`ProblemArguments`).
        all_required: a list in the answer column holds answers that are all asked for; else any one of them is right.
        samples: answers per problem, whose accuracies are averaged (avg@k).
        temperature, top_p: of the sampling.
    """

    max_tests: ClassVar[int] = 0  # all tests of a program

    hub_id: str
    split: str = "test"
    config: str | None = None
    grader: str = "mathematics"
    problem_column: str = "problem"
    answer_column: str = "answer"
    answer_after: str | None = None
    all_required: bool = False
    samples: int = 16
    temperature: float = 0.6
    top_p: float = 0.95


BENCHMARKS = {
    "aime2024": Benchmark("HuggingFaceH4/aime_2024", "train"),
    "aime2025": Benchmark("math-ai/aime25"),
    "hmmt2025": Benchmark("MathArena/hmmt_feb_2025", "train"),
    "amc": Benchmark("AI-MO/aimo-validation-amc", "train"),
    "math500": Benchmark("HuggingFaceH4/MATH-500"),
    "minerva": Benchmark("math-ai/minervamath", problem_column="question"),
    "olympiadbench": Benchmark(
        "math-ai/olympiadbench", problem_column="question", answer_column="final_answer", all_required=True
    ),
    # Not among the paper's benchmarks; its 1,319 problems need no averaging.
    "gsm8k": Benchmark("openai/gsm8k", config="main", problem_column="question", answer_after="####", samples=1),
    # The authors sample Codeforces eight times, which are its attempts, the card of E1-AceReason-14B LiveCodeBench; the
    # other two are ours.
    "livecodebench": Benchmark("livecodebench/code_generation_lite", grader="programs", samples=8),
    "codeforces": Benchmark("Qwen/CodeElo", grader="programs", samples=8),
    "humanevalplus": Benchmark("evalplus/humanevalplus", grader="programs", samples=8),
    "leetcode": Benchmark("newfacade/LeetCodeDataset", grader="programs", samples=1),
}


def find_benchmark(name: str) -> Benchmark:
    """Return the benchmark of a name: one of `BENCHMARKS`, or a user's at a dotted path."""
    return find(name, BENCHMARKS, "benchmark", Benchmark)


def find_file(folder: Path, name: str) -> str:
    """Return the one file of a benchmark in a folder: `<name>*.jsonl`, `.jsonl.gz` or `.parquet`."""
    patterns = (f"{name}*.jsonl", f"{name}*.jsonl.gz", f"{name}*.parquet")
    files = sorted(file for pattern in patterns for file in folder.glob(pattern))
    if len(files) != 1:
        found = ", ".join(file.name for file in files) or "none"
        raise UserError(f"benchmark {name}: {folder} must hold one file {name}*.jsonl or .parquet, it has: {found}")
    return str(files[0])
