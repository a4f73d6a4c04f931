"""Benchmarks by name: where their problems lie on the Hub, or in a local folder for machines that cannot reach it.

Code benchmarks belong here too, once there is a grader for code: a `Benchmark` then names it.
"""

from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset

from e1_trl.data import load_problems


@dataclass(frozen=True)
class Benchmark:
    """A dataset on the Hub; `answer_after` precedes the answer in a column that holds a whole solution."""

    hub_id: str
    split: str = "test"
    config: str | None = None
    problem_column: str = "problem"
    answer_column: str = "answer"
    answer_after: str | None = None


BENCHMARKS = {
    "aime2024": Benchmark("HuggingFaceH4/aime_2024", "train"),
    "aime2025": Benchmark("math-ai/aime25"),
    "amc": Benchmark("AI-MO/aimo-validation-amc", "train"),
    "math500": Benchmark("HuggingFaceH4/MATH-500"),
    "minerva": Benchmark("math-ai/minervamath", problem_column="question"),
    "olympiadbench": Benchmark("math-ai/olympiadbench", problem_column="question", answer_column="final_answer"),
    "gsm8k": Benchmark("openai/gsm8k", config="main", problem_column="question", answer_after="####"),
}


def load_benchmark(name: str, local: Path | None) -> Dataset:
    """The problems (`problem`, `answers`) of a benchmark.

    With a local folder, they are read from its file `<name>*.jsonl` or `.parquet`, with the columns `problem`, and
    `answer` or (several accepted ones) `answers`.

    Raises:
        ValueError: the benchmark is unknown, or the folder has not exactly one such file.
    """
    if name not in BENCHMARKS:
        raise ValueError(f"unknown benchmark {name!r}; known are {', '.join(BENCHMARKS)}, or name a dataset_name")
    if local is not None:
        files = sorted(file for pattern in (f"{name}*.jsonl", f"{name}*.parquet") for file in local.glob(pattern))
        if len(files) != 1:
            found = ", ".join(file.name for file in files) or "none"
            raise ValueError(f"benchmark {name}: {local} must hold one file {name}*.jsonl or .parquet, it has: {found}")
        return load_problems(str(files[0]), "train", None, "problem", ("answers", "answer"))
    benchmark = BENCHMARKS[name]
    problems = load_problems(
        benchmark.hub_id, benchmark.split, benchmark.config, benchmark.problem_column, benchmark.answer_column
    )
    if benchmark.answer_after is None:
        return problems
    return problems.map(_after, fn_kwargs={"mark": benchmark.answer_after})


def _after(row: dict[str, list[str]], mark: str) -> dict[str, list[str]]:
    return {"answers": [answer.rpartition(mark)[2].strip() for answer in row["answers"]]}
