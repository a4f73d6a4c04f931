"""The benchmarks whose answers are programs: each reads its own rows, as the Hub or a file of them has them.

All tests of a problem are run, as in these benchmarks' own graders. Problems are put as the paper's authors put them:
as they are, but for LiveCodeBench, which has a template.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from datasets import Dataset, Features, List, Value
from tqdm import tqdm

from e1_trl.grading.graders import limits_of
from e1_trl.grading.sandbox.box import Box
from e1_trl.grading.sandbox.command import SandboxError
from e1_trl.grading.sandbox.isolation import choose
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.humanevalplus import humaneval_suite
from e1_trl.problems.programs import read_answer
from e1_trl.problems.prompts import ROWS, STARTER, ask_program

logger = logging.getLogger(__name__)

Row = Mapping[str, Any]

ALL = sys.maxsize
# Of HumanEval+'s reference functions, whose results are what is expected: what is larger is left out on every machine.
LARGEST_RESULT = 2**19  # bytes
FEATURES = Features(
    {
        "problem": Value("string"),
        "prompt": List({"role": Value("string"), "content": Value("string")}),
        "answers": List(Value("string")),
        "problem_id": Value("string"),
        "fault": Value("string"),
    }
)
# The authors' data preparation, of rows of Qwen/CodeElo and of newfacade/LeetCodeDataset.
CODEFORCES = (
    "\n{description}\n\nInput Format:\n{input}\n\nOutput Format:\n{output}\n\nTags:\n{tags}\n\n"
    "Time Limit: {time_limit_ms} ms\nMemory Limit: {memory_limit_mb} MB\n"
)
LEETCODE = "Please solve the programming task below using a self-contained code snippet in a markdown code block.\n\n"
SAMPLES_ONLY = "sample-tests"  # what a report on these alone is called by


@dataclass(frozen=True)
class Window:
    """Which of LiveCodeBench's problems: a release, and the days of the contests, without the last. Here the paper's.

    Raises:
        ValueError: a day is none, or there is none between them.
    """

    release: str = "v5"
    since: str = "2024-08-01"
    until: str = "2025-02-01"

    def __post_init__(self) -> None:
        if date.fromisoformat(self.since) >= date.fromisoformat(self.until):
            raise ValueError(f"LiveCodeBench's problems from {self.since} to before {self.until} are none")

    @property
    def files(self) -> list[str]:
        """Those on the Hub that the release consists of.

        Raises:
            ValueError: there is no such release.
        """
        releases = [f"v{number}" for number in range(1, 7)]
        if self.release not in releases:
            raise ValueError(f"LiveCodeBench has no release {self.release!r}; it has {', '.join(releases)}")
        last = releases.index(self.release) + 1
        return ["test.jsonl", *(f"test{number}.jsonl" for number in range(2, last + 1))]

    def __str__(self) -> str:
        """What a report adds to the benchmark's name: nothing for the paper's window."""
        return "" if self == Window() else f"-{self.release}-{self.since}-{self.until}"


@dataclass(frozen=True)
class Task:
    """A problem, how it is asked for, its suite as text, and its name in the benchmark."""

    problem: str
    asked: str
    suite: str
    problem_id: str | None


def livecodebench(row: Row) -> Task:
    suite = read_answer(row, "private_test_cases", ALL)
    problem, starter = str(row["question_content"]), row[STARTER] or ""
    return Task(problem, ask_program(problem, starter, "deepcoder"), suite, row.get("question_id"))


def leetcode(row: Row) -> Task:
    if "query" in row:
        tests = {"type": "assert", "code": row["test"]}
        problem, name = LEETCODE + row["query"].strip(), row["task_id"]
    else:
        tests, problem, name = row["tests"], str(row["question"]), row.get("problem_id")
    suite = read_answer({"tests": tests, "entry_point": row["entry_point"].strip()}, "tests", ALL)
    return Task(problem, problem, suite, name)


def codeforces(row: Row) -> Task:
    """The tests of open-r1/codeforces, with its checker, where the row has them; else the samples of the statement."""
    if row.get("official_tests"):
        problem = CODEFORCES.format(
            description=row["description"],
            input=row["input_format"],
            output=row["output_format"],
            tags=row["tags"],
            time_limit_ms=round(1000 * row["time_limit"]),
            memory_limit_mb=round(row["memory_limit"]),
        )
        tests: Any = row["official_tests"]
    elif "examples" in row:
        problem = CODEFORCES.format(**row)
        tests = [{"input": given, "output": out} for given, out in row["examples"]]
    else:
        problem, tests = str(row["question"]), row["tests"]
    suite = read_answer({"tests": tests, "generated_checker": row.get("generated_checker")}, "tests", ALL)
    return Task(problem, problem, suite, str(row.get("problem_id") or row.get("id")).replace("/", ""))


def humanevalplus(row: Row, box: Box, arguments: ProblemArguments) -> Task:
    tests = row["test"] if "test" in row else row["tests"]["code"]
    limits = replace(limits_of(arguments), output=LARGEST_RESULT)
    suite = humaneval_suite(tests, row["entry_point"], box, limits)
    problem = row["prompt"] if "prompt" in row else row["question"]
    return Task(problem, problem, replace(suite, cases=suite.chosen(ALL)).as_text(), row.get("task_id"))


READERS: dict[str, Callable[[Row], Task]] = {
    "livecodebench": livecodebench,
    "leetcode": leetcode,
    "codeforces": codeforces,
}


def read_tasks(name: str, source: Dataset, arguments: ProblemArguments, window: Window) -> tuple[Dataset, str]:
    """The problems of a benchmark, as `make_problems` describes them, with the column `problem_id`; and their title.

    Raises:
        ValueError: rows cannot be used, more than `max_unusable` of them; or HumanEval+'s references cannot be run
            safely on this machine.
    """
    title = name
    if name == "livecodebench":
        since, until = window.since, window.until
        source = source.filter(_is_between, input_columns=["contest_date"], fn_kwargs={"since": since, "until": until})
        title += str(window)
    if len(source) == 0:
        raise ValueError(f"{title}: there are no problems")
    if name == "codeforces" and not all(source["official_tests"] if "official_tests" in source.features else [0]):
        title += f"-{SAMPLES_ONLY}"
    if name in READERS:
        tasks = source.map(
            _read,
            remove_columns=source.column_names,
            features=FEATURES,
            writer_batch_size=ROWS,
            fn_kwargs={"name": name},
            desc=f"Reading {name}",
        )
    else:
        try:
            isolation = choose(unprotected=arguments.run_programs_unprotected)
        except SandboxError as error:
            raise ValueError(f"{error}; {name} runs reference programs") from error
        with Box(isolation) as box:
            rows = [
                _columns(lambda row: humanevalplus(row, box, arguments), row) for row in tqdm(source, f"Reading {name}")
            ]
        tasks = Dataset.from_list(rows, features=FEATURES)
    return _usable(tasks, title, arguments.max_unusable), title


def _is_between(day: Any, since: str, until: str) -> bool:
    return since <= str(day)[:10] < until


def _read(row: Row, name: str) -> dict[str, Any]:
    return _columns(READERS[name], row)


def _columns(read: Callable[[Row], Task], row: Row) -> dict[str, Any]:
    """Our columns of a row; `fault` says what is wrong with it."""
    try:
        task = read(row)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return {"problem": "", "prompt": [], "answers": [], "problem_id": None, "fault": said}
    return {
        "problem": task.problem,
        "prompt": [{"role": "user", "content": task.asked}],
        "answers": [task.suite],
        "problem_id": task.problem_id,
        "fault": "",
    }


def _usable(tasks: Dataset, title: str, max_unusable: float) -> Dataset:
    faults = {row: fault for row, fault in enumerate(tasks["fault"]) if fault}
    if not faults:
        return tasks.remove_columns("fault")
    named = "; ".join(f"row {row}: {fault}" for row, fault in list(faults.items())[:3])
    counted = f"{title}: {len(faults)} of {len(tasks)} rows cannot be used ({named})"
    if len(faults) > max_unusable * len(tasks):
        raise ValueError(f"{counted}; max_unusable is {max_unusable:g}")
    logger.warning("%s; they are left out", counted)
    return tasks.select([row for row in range(len(tasks)) if row not in faults]).remove_columns("fault")
