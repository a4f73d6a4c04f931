"""Faults of the graders of the paper's code and of the benchmarks that ours does not share.

Here are programs that forge a verdict, and values that functions may return; faults of comparing and reading are in
`test_suite.py` and `tests/problems/test_suites.py`, those of running in `test_programs.py` and `sandbox/`.
"""

import pytest
from boxed import fenced, looking_for, named, opened, outcome

from e1_trl.answers.grade import Outcome
from e1_trl.answers.programs.grader import ProgramGrader
from e1_trl.answers.programs.rows import arguments
from e1_trl.answers.programs.suite import Case, Suite

grader = pytest.fixture(scope="module")(opened)


CHECK = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == [3]\n"

# Right for exit statuses, for `==` inside the program's process, or for tests that are appended to the program.
PASSED_BY_OTHERS = {
    "exits before the tests": "import sys\ndef f(n): return 0\nsys.exit(0)",
    "exits at once before the tests": "import os\ndef f(n): return 0\nos._exit(0)",
    "exits in the function": "def f(n): raise SystemExit",
    "exits at once in the function": "import os\ndef f(n): os._exit(0)",
    "exits well at the end whatever failed": "import atexit, os\natexit.register(os._exit, 0)\ndef f(n): 1 / 0",
    "excepthook exits well": "import os, sys\nsys.excepthook = lambda *a: os._exit(0)\ndef f(n): 1 / 0",
    "equal to all": "class X:\n    def __eq__(self, other): return True\ndef f(n): return X()",
    "an integer equal to all": "class X(int):\n    def __eq__(self, other): return True\ndef f(n): return X()",
    "a list equal to all": "class X(list):\n    def __eq__(self, other): return True\ndef f(n): return X()",
    "says it is of another class": "class X:\n    __class__ = int\n    def __eq__(self, other): return True\n"
    "def f(n): return X()",
    "numpy by name only": "class X:\n    def tolist(self): return self\nX.__module__ = 'numpy'\ndef f(n): return X()",
    "a list within itself": "def f(n):\n    x = []\n    x.append(x)\n    return x",
    "own check": "def check(candidate): pass\ndef assertion(*a): pass\ndef f(n): return 0",
    "own comparison": "import numpy, json, operator\nnumpy.allclose = operator.eq = lambda *a, **k: True\n"
    "json.loads = lambda *a, **k: 2\ndef f(n): return 0",
    "own serialisation": "import json\njson.dumps = lambda value: '2'\ndef f(n): return 0",
    "no assertions": "import builtins\nbuiltins.AssertionError = type('N', (BaseException,), {})\ndef f(n): return 0",
    "tracing": "import sys\nsys.settrace(lambda *a: None)\n"
    "def f(n):\n    sys._getframe(1).f_locals['value'] = 2\n    return 0",
}


@pytest.mark.parametrize("source", PASSED_BY_OTHERS.values(), ids=PASSED_BY_OTHERS.keys())
def test_a_function_does_not_pass_by(grader: ProgramGrader, source: str) -> None:
    found = outcome(grader, source, {"type": "assert", "code": CHECK}, call="f")
    assert found in (Outcome.WRONG, Outcome.CRASHED)


MARK = "planted-answer-7"
LOOKING = looking_for(MARK)


def test_the_expected_output_is_nowhere_in_the_program(grader: ProgramGrader) -> None:
    on_stdin = {"inputs": ["1"], "outputs": [MARK]}
    assert outcome(grader, f"print({MARK!r})", on_stdin) is Outcome.CORRECT
    assert outcome(grader, LOOKING + "print(*found, sep='')", on_stdin) is Outcome.WRONG
    assert outcome(grader, LOOKING + "assert found", on_stdin) is Outcome.CRASHED
    function = {"fn_name": "f", "inputs": [[1]], "outputs": [MARK]}
    looking = "def f(n):\n" + "".join(f"    {line}\n" for line in LOOKING.splitlines()) + "    return ''.join(found)"
    assert outcome(grader, looking, function) is Outcome.WRONG


# What right functions return where other graders fail them, and as what it is expected.
RETURNED = {
    "numpy's numbers and arrays": ("import numpy as np\ndef f(n): return np.arange(n)[1], np.eye(1)", "[1, [[1.0]]]"),
    "tuples in tuples": ("def f(n): return ((1, (2,)),)", "[[1, [2]]]"),
    "integers as keys": ("def f(n): return {n: 'x'}", '{"dict": [[3, "x"]]}'),
    "what only a fresh module makes": ("seen = []\ndef f(n): seen.append(n); return len(seen)", "1"),
    "a set of long integers": ("def f(n): return {10**5000 + n}", '{"set": [1' + "0" * 4999 + "3]}"),
}


@pytest.mark.parametrize(("source", "expected"), RETURNED.values(), ids=RETURNED.keys())
def test_a_right_function_may_return(grader: ProgramGrader, source: str, expected: str) -> None:
    cases = [Case(arguments([3]), (text,)) for text in (expected, expected, expected.replace("3", "4"))]
    (right,) = grader.grade([fenced(source)], [named(Suite(tuple(cases[:2]), call="f"))])
    assert right.outcome is Outcome.CORRECT
    (either,) = grader.grade([fenced(source)], [named(Suite(tuple(cases), call="f"))])
    assert either.outcome is (Outcome.WRONG if "3" in expected else Outcome.CORRECT)
