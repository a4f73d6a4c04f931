"""Faults of the graders of the paper's code and of the benchmarks that ours does not share: forged verdicts.

Faults of comparing and reading are in `test_suite.py` and `tests/problems/test_suites.py`, those of running, and of
what functions return, in `test_programs.py` and `sandbox/`.
"""

import pytest
from boxed import opened, outcome

from e1_trl.answers.grade import Outcome
from e1_trl.answers.programs.grader import ProgramGrader

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
# Lists in `found` where it sees the mark, in frames, objects and descriptors; its own copy is backwards.
LOOKING = f"""
import gc, os, sys
backwards, seen, frame = {MARK[::-1]!r}, [], sys._getframe()
while frame:
    seen += [*frame.f_locals.values(), *frame.f_globals.values()]
    frame = frame.f_back
for held in gc.get_objects():
    seen += gc.get_referents(held)
for descriptor in range(3, 64):
    try: seen.append(os.read(descriptor, 10**6))
    except OSError: pass
texts = [item if type(item) is str else item.decode("latin-1") for item in seen if type(item) in (str, bytes)]
found = [text[-99:] for text in texts if backwards in text[::-1]]
"""


def test_the_expected_output_is_nowhere_in_the_program(grader: ProgramGrader) -> None:
    on_stdin = {"inputs": ["1"], "outputs": [MARK]}
    assert outcome(grader, f"print({MARK!r})", on_stdin) is Outcome.CORRECT
    assert outcome(grader, LOOKING + "print(*found, sep='')", on_stdin) is Outcome.WRONG
    assert outcome(grader, LOOKING + "assert found", on_stdin) is Outcome.CRASHED
    function = {"fn_name": "f", "inputs": [[1]], "outputs": [MARK]}
    looking = "def f(n):\n" + "".join(f"    {line}\n" for line in LOOKING.splitlines()) + "    return ''.join(found)"
    assert outcome(grader, looking, function) is Outcome.WRONG
