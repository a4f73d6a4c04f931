"""HumanEval+'s tests as suites: results that are written down, that a reference computes, or that are any root."""

import ast
from collections.abc import Iterator

import pytest
from boxed import LIMITS, fenced, isolation, named, opened
from tables import read_rows

from e1_trl.answers.arguments import TESTS
from e1_trl.answers.grade import Outcome
from e1_trl.answers.programs.grader import ProgramGrader
from e1_trl.answers.programs.sandbox.box import Box
from e1_trl.answers.programs.sandbox.process import Limits
from e1_trl.problems.program_benchmarks import humaneval_suite

REFERENCE = """
import numpy as np

def double(n):
    return (n * 2, {n: 0.5})

def assertion(out, exp, atol):
    assert out == exp

def ref_func(n):
    if n > 10**8:
        return "x" * n
    return double(n)

def check(candidate):
    inputs = [[1], [2], [INPUT]]
    for i, inp in enumerate(inputs):
        assertion(candidate(*inp), ref_func(*inp), 0)

check(twice)
"""
ROOT = """
import math

def check(candidate):
    inputs = [[[-6, 11, -6, 1]], [[1, 2]]]
    results = [1.0, -0.5]
    for i, (inp, exp) in enumerate(zip(inputs, results)):
        assert _poly(*candidate(*inp), inp) <= 0.0001
"""


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box(isolation()) as opened:
        yield opened


grader = pytest.fixture(scope="module")(opened)


def test_a_reference_is_run_once_and_its_results_are_what_is_expected(box: Box, grader: ProgramGrader) -> None:
    suite = humaneval_suite(REFERENCE.replace("INPUT", "3"), "twice", box, LIMITS)
    assert [case.expected for case in suite.cases] == [(f'[{2 * n}, {{"dict": [[{n}, 0.5]]}}]',) for n in (1, 2, 3)]
    assert suite.call == "twice" and "ref_func" not in str(suite)
    programs = ("def twice(n): return [2 * n, {n: 0.5000001}]", "def twice(n): return [2 * n, {str(n): 0.5}]")
    grades = grader.grade([fenced(source) for source in programs], [named(suite)] * 2)
    assert [grade.outcome for grade in grades] == [Outcome.CORRECT, Outcome.WRONG]


def test_what_a_reference_cannot_do_within_the_limits_is_no_test(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    strict = Limits(cpu=1.0, wall=5.0, memory=2**28, output=2**16)
    suite = humaneval_suite(REFERENCE.replace("INPUT", "100000001"), "twice", box, strict)
    assert len(suite.cases) == 2
    assert "twice: 1 of 3 tests are over the limits and left out" in caplog.text


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (REFERENCE.replace("INPUT", "'a'"), r"the reference of twice crashed with .*TypeError"),
        (REFERENCE.replace("INPUT", "open('x')"), "."),
        (REFERENCE.replace("inputs = ", "given = "), "no list 'inputs'"),
        (REFERENCE.replace("return double(n)", "import os; os._exit(0)").replace("INPUT", "1"), "twice exited with"),
        (REFERENCE.replace("out == exp", "len(out) == len(exp)").replace("INPUT", "1"), "compares otherwise"),
        ("def check(", "no Python"),
        ("def ref_func(n): return n\ndef check(candidate):\n    inputs = []", "no helper"),
        ("def check(candidate): pass", "no tests"),
    ],
)
def test_tests_that_cannot_be_had_are_one_line(box: Box, code: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        humaneval_suite(code, "twice", box, LIMITS)
    assert "\n" not in str(error.value)


# By the outcome, what a program returns of the first polynomial, which has three roots. The second's root is -0.5.
ROOTS = {
    Outcome.CORRECT: ["1.0", "3", "2.00001", "__import__('numpy').float64(2)"],
    Outcome.WRONG: [
        *("2.01", "float('nan')", "float('inf')", "1e200", "10**10000", "None", "[1.0]", "'1.0'"),
        "__import__('os').write(3, b'[' * 10**6)",
        "__import__('os').write(3, b'\\xff') and __import__('os')._exit(0)",
    ],
    Outcome.CRASHED: ["1 / 0"],
}


def test_any_root_is_right(box: Box, grader: ProgramGrader) -> None:
    suite = named(humaneval_suite(ROOT, "find_zero", box, LIMITS))
    expected = {(first, "-0.5"): outcome for outcome, roots in ROOTS.items() for first in roots}
    expected |= {("1.0", "-0.49999"): Outcome.CORRECT, ("1.0", "-0.6"): Outcome.WRONG}
    sources = [f"def find_zero(xs): return {first} if len(xs) == 4 else {second}" for first, second in expected]
    grades = grader.grade(list(map(fenced, sources)), [suite] * len(sources))
    assert {case: grade.outcome for case, grade in zip(expected, grades, strict=True)} == expected


def shortened(code: str) -> str:
    """The tests of a problem, of a reference function's inputs only the first 40: some take it seconds each."""
    if "ref_func" not in code:
        return code
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List):
            del node.value.elts[40:]
    return ast.unparse(tree)


@pytest.mark.slow
def test_every_reference_of_humaneval_passes(box: Box, grader: ProgramGrader) -> None:
    rows = read_rows("code/humanevalplus.jsonl.gz")
    # Strict, so that numbers of a million digits are no tests.
    limits = Limits(cpu=1.0, wall=30.0, memory=2**28, output=2**16)
    suites = [humaneval_suite(shortened(row["tests"]["code"]), row["entry_point"], box, limits) for row in rows]
    solutions = [fenced(row["question"] + row["reference"]) for row in rows]
    references = [named(suite.chosen(TESTS)) for suite in suites]
    grades = grader.grade(solutions, references)
    assert len(rows) == 164
    failed = [row["task_id"] for row, grade in zip(rows, grades, strict=True) if not grade.correct]
    assert not failed
    # And the tests are real: no program passes them all that returns its argument.
    echoes = [fenced(f"def {row['entry_point']}(x=None, *rest): return x") for row in rows]
    everything = [named(suite) for suite in suites]
    assert not [grade for grade in grader.grade(echoes, everything) if grade.correct]
