"""The benchmarks whose answers are programs: each reads its own rows, as the Hub or a file of them has them.

All tests of a problem are run, as in these benchmarks' own graders. Problems are put as the paper's authors put them:
as they are, but for LiveCodeBench, which has a template.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from datasets import Dataset, Features, List, Value
from tqdm import tqdm

from e1_trl.answers.programs.asking import STARTER, ask_program
from e1_trl.answers.programs.humanevalplus import humaneval_suite
from e1_trl.answers.programs.livecodebench import Window
from e1_trl.answers.programs.rows import read_answer
from e1_trl.answers.programs.sandbox.box import Box, Limits
from e1_trl.answers.programs.sandbox.command import SandboxError
from e1_trl.answers.programs.sandbox.isolation import choose
from e1_trl.answers.programs.suites import Suites
from e1_trl.problems.arguments import ProblemArguments

logger = logging.getLogger(__name__)

Row = Mapping[str, Any]

ALL = 0  # tests
# Of HumanEval+'s reference functions, whose results are what is expected: what is larger is left out on every machine,
# whatever programs are allowed.
REFERENCE_LIMITS = Limits(cpu=4.0, wall=120.0, memory=2**32, output=2**19)
FEATURES = Features(
    {
        "problem": Value("string"),
        "prompt": List({"role": Value("string"), "content": Value("string")}),
        "answers": List(Value("string")),
        "problem_id": Value("string"),
        "source": Value("string"),
        "fault": Value("string"),
    }
)
# The authors' data preparation, of rows of Qwen/CodeElo and of newfacade/LeetCodeDataset.
CODEFORCES = (
    "\n{description}\n\nInput Format:\n{input}\n\nOutput Format:\n{output}\n\nTags:\n{tags}\n\n"
    "Time Limit: {time_limit_ms} ms\nMemory Limit: {memory_limit_mb} MB\n"
)
LEETCODE = "Please solve the programming task below using a self-contained code snippet in a markdown code block.\n\n"
SAMPLE_TESTS, OFFICIAL_TESTS = "sample-tests", "official-tests"  # which a report on Codeforces is called by


@dataclass(frozen=True)
class Task:
    """A problem, how it is asked for, its suite as text, its name in the benchmark, and the header that it asks for.

    `source` is what the tests are of, where that is not always the same.
    """

    problem: str
    asked: str
    suite: str
    problem_id: str | None
    header: str = ""
    source: str = ""


def livecodebench(row: Row) -> Task:
    suite = read_answer(row, "private_test_cases", ALL)
    problem, starter = str(row["question_content"]), row[STARTER] or ""
    return Task(problem, ask_program(problem, starter, "deepcoder"), suite, row.get("question_id"), starter)


def leetcode(row: Row) -> Task:
    if "query" in row:
        tests: Any = {"type": "assert", "code": row["test"]}
        problem, name = row["query"].strip(), row["task_id"]
        asked = LEETCODE + problem
    else:
        tests, problem, name = row["tests"], str(row["question"]), row.get("problem_id")
        asked = problem
    suite = read_answer({"tests": tests, "entry_point": row["entry_point"].strip()}, "tests", ALL)
    return Task(problem, asked, suite, name)


def codeforces(row: Row) -> Task:
    """Of open-r1/codeforces the official tests, with the checker, where they are whole; else the statement's samples.

    Raises:
        ValueError: there is no statement, or the program would not read stdin.
    """
    tests: Any
    if "question" in row:  # asked for already
        problem = asked = str(row["question"])
        tests, source = row["tests"], SAMPLE_TESTS
    else:
        if not row["description"]:
            raise ValueError("there is no statement")
        if row.get("input_mode") not in (None, "stdio"):
            raise ValueError(f"input_mode is {row['input_mode']!r}, and programs read stdin here")
        problem = str(row["description"])
        is_open_r1 = "input_format" in row
        asked = CODEFORCES.format(
            description=problem,
            input=(row["input_format"] if is_open_r1 else row["input"]) or "",
            output=(row["output_format"] if is_open_r1 else row["output"]) or "",
            tags=row["tags"] or [],
            time_limit_ms=round(1000 * row["time_limit"]) if is_open_r1 else row["time_limit_ms"],
            memory_limit_mb=round(row["memory_limit"]) if is_open_r1 else row["memory_limit_mb"],
        )
        if row.get("official_tests") and row.get("official_tests_complete"):
            tests, source = row["official_tests"], OFFICIAL_TESTS
        else:
            samples = row["examples"] or []
            pairs = [(each["input"], each["output"]) if isinstance(each, Mapping) else each for each in samples]
            tests, source = [{"input": given, "output": out} for given, out in pairs], SAMPLE_TESTS
    suite = read_answer({"tests": tests, "generated_checker": row.get("generated_checker")}, "tests", ALL)
    name = row.get("problem_id") or row.get("id")
    return Task(problem, asked, suite, name and str(name).replace("/", ""), source=source)


def humanevalplus(row: Row, box: Box) -> Task:
    tests = row["test"] if "test" in row else row["tests"]["code"]
    suite = humaneval_suite(tests, row["entry_point"], box, REFERENCE_LIMITS)
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
            on this machine.
    """
    title = name
    if name == "livecodebench":
        since, until = window.since, window.until
        source = source.filter(_is_between, input_columns=["contest_date"], fn_kwargs={"since": since, "until": until})
        title += str(window)
    if len(source) == 0:
        raise ValueError(f"{title}: there are no problems")
    if name in READERS:
        tasks = source.map(
            _read,
            remove_columns=source.column_names,
            features=FEATURES,
            load_from_cache_file=False,  # it outlives changes of the functions here
            fn_kwargs={"name": name, "instruction": arguments.instruction},
            desc=f"Reading {name}",
        )
    else:
        try:
            with Box(choose()) as box:
                read = partial(humanevalplus, box=box)
                rows = [_columns(read, row, arguments.instruction) for row in tqdm(source, f"Reading {name}")]
        except SandboxError as error:
            raise ValueError(f"{error}; {name} runs reference programs") from error
        tasks = Dataset.from_list(rows, features=FEATURES)
    tasks = _usable(tasks, title, arguments.max_unusable)
    # One name for all of them: the weakest tests decide.
    sources = set(tasks["source"]) - {""}
    return tasks.remove_columns("source"), "-".join([title, max(sources)] if sources else [title])


def _is_between(day: Any, since: str, until: str) -> bool:
    return since <= str(day)[:10] < until


def _read(row: Row, name: str, instruction: str | None) -> dict[str, Any]:
    return _columns(READERS[name], row, instruction)


def _columns(read: Callable[[Row], Task], row: Row, instruction: str | None) -> dict[str, Any]:
    """Our columns of a row; `fault` says what is wrong with it. An instruction takes the place of what the benchmark
    adds to the problem."""
    try:
        task = read(row)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return {"problem": "", "prompt": [], "answers": [], "problem_id": None, "source": "", "fault": said}
    asked = task.asked
    if instruction is not None:
        asked = " ".join(filter(None, ["\n\n".join(filter(None, [task.problem, task.header])), instruction]))
    return {
        "problem": task.problem,
        "prompt": [{"role": "user", "content": asked}],
        "answers": [Suites().add(task.suite)],
        "problem_id": task.problem_id,
        "source": task.source,
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
