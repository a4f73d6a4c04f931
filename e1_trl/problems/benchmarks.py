"""Benchmarks by name: where their problems lie on the Hub, or in a local folder for machines that cannot reach it.

A benchmark names its grader. Imports no library until one is loaded, so that `--help` can name them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from e1_trl.answers.kinds import PROGRAMS, kind_of
from e1_trl.answers.programs.livecodebench import PAPERS_WINDOW, Window
from e1_trl.errors import UserError
from e1_trl.problems.arguments import ProblemArguments

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class Benchmark:
    """A dataset on the Hub, and how the paper samples its answers.

    Attributes:
        hub_id, split, config: the dataset.
        grader: what its answers are. `problems.program_benchmarks` knows the columns of programs.
        problem_column, answer_column: where problem and answer stand in it.
        answer_after: what precedes the answer in a column that holds a whole solution (`ProblemArguments`).
        all_required: a list in the answer column holds answers that are all asked for; else each of them is right.
        samples: answers per problem, whose accuracies are averaged (avg@k).
        temperature, top_p: of the sampling.
    """

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


def load_benchmark(
    name: str, arguments: ProblemArguments, window: Sequence[str] = PAPERS_WINDOW
) -> tuple["Dataset", str]:
    """The problems of a benchmark, as `make_problems` describes them, and what a report calls them.

    With `local_benchmarks`, they are read from that folder's file `<name>*.jsonl`, `.jsonl.gz` or `.parquet`: of
    mathematics with the columns `problem`, and `answer` or (several accepted ones) `answers`; of programs with those of
    the dataset on the Hub. A benchmark knows its columns: those that the arguments name are another dataset's.

    Args:
        name: of the benchmark.
        arguments: all but what they say of columns, grader and prompts of programs.
        window: of LiveCodeBench.

    Raises:
        UserError: the benchmark is unknown, the folder has not exactly one such file, or its rows cannot be used.
    """
    from e1_trl.problems.load import load_problems, load_source

    if name not in BENCHMARKS:
        raise UserError(f"unknown benchmark {name!r}; known are {', '.join(BENCHMARKS)}, or name a dataset_name")
    benchmark, folder = BENCHMARKS[name], arguments.local_benchmarks
    place = benchmark.hub_id if folder is None else _file(folder, name)
    # Its own, not those of what is trained on.
    arguments = replace(
        arguments,
        grader=benchmark.grader,
        exclude=None,
        problem_column="problem",
        answer_column=None,
        answer_after=benchmark.answer_after,
    )
    if kind_of(benchmark.grader) is PROGRAMS:
        from e1_trl.problems.program_benchmarks import read_tasks

        days = Window(*window)
        files = days.files if name == "livecodebench" else None
        return read_tasks(name, load_source(place, benchmark.split, benchmark.config, files), arguments, days)
    if folder is not None:
        return load_problems(place, benchmark.split, arguments), name
    arguments = replace(arguments, problem_column=benchmark.problem_column, answer_column=benchmark.answer_column)
    problems = load_problems(place, benchmark.split, arguments, benchmark.config)
    return (problems.map(_together, input_columns=["answers"]) if benchmark.all_required else problems), name


def _file(folder: Path, name: str) -> str:
    """The one file of a benchmark in a folder."""
    patterns = (f"{name}*.jsonl", f"{name}*.jsonl.gz", f"{name}*.parquet")
    longer = tuple(other for other in BENCHMARKS if other != name and other.startswith(name))
    files = sorted(
        file for pattern in patterns for file in folder.glob(pattern) if not (longer and file.name.startswith(longer))
    )
    if len(files) != 1:
        found = ", ".join(file.name for file in files) or "none"
        raise UserError(f"benchmark {name}: {folder} must hold one file {name}*.jsonl or .parquet, it has: {found}")
    return str(files[0])


def _together(answers: list[str]) -> dict[str, list[str]]:
    return {"answers": [", ".join(answers)]}
