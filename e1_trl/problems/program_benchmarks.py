"""Benchmarks whose answers are programs: each reads its own rows, as the Hub or a file of them has them.

All tests of a problem are run, as in these benchmarks' own graders. Problems are put as the paper's authors put them:
as they are, but for LiveCodeBench, which has a template.

157 of HumanEval+'s 164 problems write down the expected results. Six (14, 15, 83, 100, 130 and 139) have a reference
function instead: it runs here once, in a box, so that grading needs only its results. One (32, `find_zero`) accepts any
root of a polynomial. Its own test cannot pass, since it unpacks a number, so it is graded by EvalPlus's rule.
"""

import ast
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from datasets import Dataset
from tqdm import tqdm

from e1_trl.answers.kinds import Row
from e1_trl.answers.programs.asking import STARTER, ask_program
from e1_trl.answers.programs.livecodebench import Window
from e1_trl.answers.programs.rows import CHECKER, arguments, as_json, check_helper, read_answer, read_suite
from e1_trl.answers.programs.sandbox.box import Box
from e1_trl.answers.programs.sandbox.command import SandboxError
from e1_trl.answers.programs.sandbox.isolation import choose
from e1_trl.answers.programs.sandbox.process import End, Limits
from e1_trl.answers.programs.suite import Case, Rule, Suite, Suites
from e1_trl.errors import UserError, one_line
from e1_trl.problems.prompts import identity

logger = logging.getLogger(__name__)

ALL = 0  # tests
REFERENCE = "ref_func"  # the function in HumanEval+'s tests that computes the expected results
ROOT = "find_zero"  # its problem 32
# Ends of a reference that is right, but slow or long; its test is left out.
OVER_THE_LIMITS = {End.TIMED_OUT, End.OUT_OF_MEMORY, End.TOO_MUCH_OUTPUT}
# Limits of HumanEval+'s reference functions, whose results are expected: a larger result is left out on every machine,
# whatever programs are allowed.
REFERENCE_LIMITS = Limits(cpu=4.0, wall=120.0, memory=2**32, output=2**19)
# The authors' data preparation, of rows of Qwen/CodeElo and of newfacade/LeetCodeDataset.
CODEFORCES = (
    "\n{description}\n\nInput Format:\n{input}\n\nOutput Format:\n{output}\n\nTags:\n{tags}\n\n"
    "Time Limit: {time_limit_ms} ms\nMemory Limit: {memory_limit_mb} MB\n"
)
LEETCODE = "Please solve the programming task below using a self-contained code snippet in a markdown code block.\n\n"
# Parts of the title of a report on Codeforces.
SAMPLE_TESTS = "sample-tests"
OFFICIAL_TESTS = "official-tests"


@dataclass(frozen=True)
class Task:
    """A problem, the text that asks for it, its suite, and its name in the benchmark.

    `header` is that of the function to write; `source` says where the tests come from, where that differs by problem.
    """

    problem: str
    request: str
    suite: Suite
    name: str | None
    header: str = ""
    source: str = ""

    def prompt(self, instruction: str | None) -> str:
        """Ask for the problem; an instruction replaces what the benchmark adds to it, but for the header."""
        if instruction is None:
            return self.request
        return " ".join(filter(None, ["\n\n".join(filter(None, [self.problem, self.header])), instruction]))


def livecodebench(row: Row) -> Task:
    suite = read_answer(row, "private_test_cases", ALL)
    problem = str(row["question_content"])
    starter = row[STARTER] or ""
    return Task(problem, ask_program(problem, starter, "deepcoder"), suite, row.get("question_id"), starter)


def leetcode(row: Row) -> Task:
    tests = {"type": "assert", "code": row["test"]}
    problem = row["query"].strip()
    suite = read_answer({"tests": tests, "entry_point": row["entry_point"].strip()}, "tests", ALL)
    return Task(problem, LEETCODE + problem, suite, row["task_id"])


def codeforces(row: Row) -> Task:
    """Read a row: of open-r1/codeforces the official tests where they are whole; else the statement's samples."""
    if not row["description"]:
        raise UserError("there is no statement")
    if row.get("input_mode") not in (None, "stdio"):
        raise UserError(f"input_mode is {row['input_mode']!r}, and programs read stdin here")
    problem = str(row["description"])
    is_open_r1 = "input_format" in row
    request = CODEFORCES.format(
        description=problem,
        input=(row["input_format"] if is_open_r1 else row["input"]) or "",
        output=(row["output_format"] if is_open_r1 else row["output"]) or "",
        tags=row["tags"] or [],
        time_limit_ms=round(1000 * row["time_limit"]) if is_open_r1 else row["time_limit_ms"],
        memory_limit_mb=round(row["memory_limit"]) if is_open_r1 else row["memory_limit_mb"],
    )
    if row.get("official_tests") and row.get("official_tests_complete"):
        tests = row["official_tests"]
        source = OFFICIAL_TESTS
    else:
        samples = row["examples"] or []
        pairs = [(each["input"], each["output"]) if isinstance(each, Mapping) else each for each in samples]
        tests = [{"input": given, "output": out} for given, out in pairs]
        source = SAMPLE_TESTS
    suite = read_answer({"tests": tests, CHECKER: row.get(CHECKER)}, "tests", ALL)
    name = row.get("problem_id") or row.get("id")
    return Task(problem, request, suite, name and str(name).replace("/", ""), source=source)


def humanevalplus(row: Row, box: Box) -> Task:
    suite = humaneval_suite(row["test"], row["entry_point"], box, REFERENCE_LIMITS)
    return Task(row["prompt"], row["prompt"], suite.chosen(ALL), row.get("task_id"))


def humaneval_suite(code: str, name: str, box: Box, limits: Limits) -> Suite:
    """Return the suite of a problem: the tests in `code`, a function `check` with its helpers, of the function `name`.

    Tests that a reference function does not pass within the limits are left out with a warning: some results have a
    million digits or items. With `limits.output` at 2**19 bytes and some seconds of CPU time, the same 39 of 1,503 are
    left out on every machine; without a limit, the suite of problem 15 alone has 147 MB.

    Raises:
        UserError: the tests are malformed, or the reference fails.
        SandboxError: the box broke.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UserError(f"the tests are no Python ({type(error).__name__}): {code[:80]!r}") from error
    if name == ROOT:
        pairs = zip(_literal(tree, "inputs"), _literal(tree, "results"), strict=True)
        cases = tuple(Case(arguments(given), (as_json(result),)) for given, result in pairs)
        return Suite(cases, name, Rule.ROOT)
    if any(isinstance(node, ast.FunctionDef) and node.name == REFERENCE for node in tree.body):
        check_helper(tree)
        return Suite(_by_reference(tree, name, box, limits), name, Rule.TOLERANT)
    return read_suite({"type": "assert", "code": code}, Rule.TOLERANT, name)


def _by_reference(tree: ast.Module, name: str, box: Box, limits: Limits) -> tuple[Case, ...]:
    """Return the cases whose results the reference function computes."""
    inputs = _literal(tree, "inputs")
    # Without `check`, which holds the inputs, and without its call.
    kept = [node for node in tree.body if not isinstance(node, ast.Expr) and getattr(node, "name", "") != "check"]
    source = ast.unparse(ast.Module(kept, [])).encode()
    cases: list[Case] = []
    for given in map(arguments, inputs):
        run = box.run(source, given.encode(), limits, call=REFERENCE)
        if run.end is End.EXITED and run.answer:
            cases.append(Case(given, (run.answer.decode(),)))
        elif run.end not in OVER_THE_LIMITS:
            raise UserError(f"the reference of {name} {run.end} with {given[:80]}: {run.said}")
    if left_out := len(inputs) - len(cases):
        logger.warning("%s: %d of %d tests are over the limits and left out", name, left_out, len(inputs))
    return tuple(cases)


def _literal(tree: ast.Module, name: str) -> list[Any]:
    """Return the list literal that is assigned to this name."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(found)], value=ast.List() as value) if found == name:
                return list(ast.literal_eval(value))
    raise UserError(f"the tests have no list {name!r}")


READERS: dict[str, Callable[[Row], Task]] = {
    "livecodebench": livecodebench,
    "leetcode": leetcode,
    "codeforces": codeforces,
}
NAMES = (*READERS, "humanevalplus")


def read_tasks(
    name: str, source: Dataset, instruction: str | None, window: Window
) -> tuple[list[dict[str, Any]], list[str], str]:
    """Read the problems of a benchmark; their `key` is the benchmark's own name of them, if there is one.

    Returns rows with our columns (`load.COLUMNS`), the faults of all others, and the title that a report gives them.
    """
    title = name
    if name == "livecodebench":
        source = source.filter(lambda day: window.since <= str(day)[:10] < window.until, input_columns=["contest_date"])
        title += str(window)
    if len(source) == 0:
        raise UserError(f"{title}: there are no problems")
    rows = list[dict[str, Any]]()
    faults = list[str]()
    origins = {""}
    suites = Suites()
    try:
        with ExitStack() as opened:
            read = READERS.get(name) or partial(humanevalplus, box=opened.enter_context(Box(choose())))
            for number, row in enumerate(tqdm(source, f"Reading {name}")):
                try:
                    task = read(row)
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
                    fault = f"{kind}{one_line(error)}"[:200]
                    faults.append(f"row {number}: {fault}")
                    continue
                rows.append(
                    {
                        "problem": task.problem,
                        "prompt": [{"role": "user", "content": task.prompt(instruction)}],
                        "answers": [suites.add(task.suite)],
                        "key": str(task.name or identity(task.problem)),
                    }
                )
                origins.add(task.source)
    except SandboxError as error:
        raise UserError(f"{error}; {name} runs reference programs") from error
    # One title for all of them: the weakest tests decide.
    return rows, faults, "-".join(filter(None, [title, max(origins)]))
