"""Programs graded by running them: outcomes, real reference solutions, and what other graders get wrong."""

import pickle
import threading
import time
from collections import Counter
from concurrent.futures import wait
from typing import Any

import pytest
from boxed import boxed, fenced, named, opened, outcome
from tables import read_rows

from e1_trl.answers.grade import Outcome
from e1_trl.answers.programs.grader import ProgramGrader, program
from e1_trl.answers.programs.rows import read_suite
from e1_trl.answers.programs.sandbox.box import Box
from e1_trl.answers.programs.sandbox.command import SandboxError
from e1_trl.answers.programs.sandbox.process import Limits, Process
from e1_trl.answers.programs.suite import Case, Rule, Suite, Suites

BLOCKS = [
    ("```python\nprint(1)\n```", "print(1)"),
    ("```Python3\nprint(1)\n```", "print(1)"),
    ("```\nprint(1)\n```", "print(1)"),
    ("```python\n1\n```\n```c++\n2\n```", "1"),
    ("1. So:\n   ```python\n   if x:\n       y\n   ```", "if x:\n    y"),
    ("1. ```python\nprint(1)\n```", "print(1)"),
    ("> - ```python\n>   if x:\n>       y\n>   ```", "if x:\n    y"),
    ("````python\n'''\n```\n'''\n````", "'''\n```\n'''"),
    ("```python\n1\n```\nand then\n```python\nprint(", None),
    ("```python\n1\n```\nOutput:\n```\n42\n```", "1"),
    ("```\n42\n```\n```python\n1\n```", "1"),
    ("```\n1\n```\n```\n2\n```", "2"),
    ("```python\n1\n```\n```", "1"),
    ("```python\n1\n```\n```\nOutput: 4", "1"),
    ("```\n1\n```\n```\n2", None),
    ("```python # solution\n1\n```", "1"),
    ("```{python}\n1\n```", "1"),
    ("> ```python\n> if x:\n>     y\n>\n> ```", "if x:\n    y\n"),
    ("```python\n1\n```\n```pythonic\n2\n```", "1"),
    ("```python\n1", None),
    ("`print(1)`", None),
    ("", None),
    ("```python\n```", ""),
    ("```x = 1``` is inline\n```python\n1\n```", "1"),
    ("```python\na = '\x0c'\n```", "a = '\x0c'"),
    ("```python\r\nprint(1)\r\n```", "print(1)"),
    # Fences with text in their line.
    ("```python\n1\n```</answer>", "1"),
    ("```python\n1\n``` prints `1`.\nOutput:\n```\n42\n```", "1"),
    ("```\n1\n```.", "1"),
    ("````python\n1\n```.\n2\n````.", "1\n```.\n2"),
    ("Here is the code: ```python\n1\n```", "1"),
    ("Its `f` is: ```python\n1\n```", None),
    ("```python\n1\n# end ```\n2\n```", "1\n# end ```\n2"),
    ("```python\n1\n```\n\nThis uses ```python\n", "1"),
    ("> So: ```py\n> 1\n> ```", "1"),
    ("Here is the code: ```text\n1\n```", None),
    ("```python\nif 1:\n    print(2)```", "if 1:\n    print(2)"),
    ("```text\nprint(2)```\n```\n```python\n1\n```", "1"),
    ("```python\n1\n```python\n2\n```", "2"),
    ("```python\n1\n```\n```\nBetter:\n```Python3\n2\n```", "2"),
    ("```python\n1\n```Python is", "1"),
    # A program that prints Markdown.
    ("```python\nprint('''```\n1\n```''')\n```", "print('''```\n1\n```''')"),
    ('```python\na = """\n```python\n1\n"""\n```', 'a = """\n```python\n1\n"""'),
    ("```python\nprint('```')  # `x`, ```x```\n```", "print('```')  # `x`, ```x```"),
    # Of every line, what its fence is indented by is no part of the program; all else is.
    ("```python\nx = '''\n   \n\t\n'''\n```", "x = '''\n   \n\t\n'''"),
    ("  ```python\n  x = '''\n     \n \n\n  '''\n  ```", "x = '''\n   \n\n\n'''"),
    ("   ```python\n  a\n    b\n   ```", "a\n b"),
    ("\t```python\n\tif a:\n\t\tb\n\t```", "if a:\n\tb"),
    ("\t```python\n    if a:\n        b\n\t```", "if a:\n    b"),
    ("   ```python\n\tif a:\n\t\tb\n   ```", "if a:\n\tb"),
]


@pytest.mark.parametrize(("solution", "expected"), BLOCKS)
def test_the_program_is_the_last_closed_block_of_python(solution: str, expected: str | None) -> None:
    assert program(solution) == expected


grader = pytest.fixture(scope="module")(opened)


INCREMENT = {"inputs": ["1\n", "22\n", "333\n"], "outputs": ["2\n", "23\n", "334\n"]}
# Of more tests than one process takes.
FUNCTION = {"fn_name": "f", "inputs": [[i] for i in range(20)], "outputs": [[i + 1] for i in range(20)]}
INTEGER_KEYS = {"fn_name": "f", "inputs": [[{"1": 5, "2": 6}]], "outputs": [{"5": 1, "6": 1}]}


@pytest.mark.parametrize(
    ("tests", "source", "expected"),
    [
        (INCREMENT, "print(int(input()) + 1)", Outcome.CORRECT),
        (INCREMENT, "print(int(input()) + 2)", Outcome.WRONG),
        (INCREMENT, "import sys; sys.exit(0)", Outcome.WRONG),
        (INCREMENT, "pass", Outcome.WRONG),
        (INCREMENT, "print(int(input()) + 1); 1 / 0", Outcome.CRASHED),
        (INCREMENT, "x = bytearray(1 << 33)", Outcome.OUT_OF_MEMORY),
        (INCREMENT, "while True: print(1)", Outcome.TOO_MUCH_OUTPUT),
        (INCREMENT, "def f(", Outcome.CRASHED),
        (FUNCTION, "def f(n): return n + 1", Outcome.CORRECT),
        (FUNCTION, "class Solution:\n    def f(self, n): return n + 1", Outcome.CORRECT),
        (FUNCTION, "def f(n): print(n); return n + 1", Outcome.CORRECT),
        (FUNCTION, "import numpy\ndef f(n): return numpy.int64(n + 1)", Outcome.CORRECT),
        (FUNCTION, "def f(n): return [n + 1]", Outcome.CORRECT),  # as the data has it: in a list of its own, or not
        (FUNCTION, "def f(n): return n", Outcome.WRONG),
        (FUNCTION, "def f(n): import sys; return sys._getframe(1).f_locals.get('expected')", Outcome.WRONG),
        (FUNCTION, "seen = [0]\ndef f(n): seen[0] += 1; assert seen[0] == 1; return n + 1", Outcome.CORRECT),
        (FUNCTION, "import os\ndef f(n): os.write(3, str(n + 1).encode()); os._exit(0)", Outcome.CORRECT),  # an answer
        (FUNCTION, "import os\ndef f(n): os.write(3, b'1'); return n + 1", Outcome.WRONG),
        (FUNCTION, "def g(n): return n + 1", Outcome.NOT_CALLABLE),
        (FUNCTION, "f = 3", Outcome.NOT_CALLABLE),
        (FUNCTION, "class Solution:\n    f = 1", Outcome.NOT_CALLABLE),
        (FUNCTION, "print(int(input()) + 1)", Outcome.CRASHED),
        (INTEGER_KEYS, "def f(d): return Counter([d[1], d[2]])", Outcome.CORRECT),
        (INTEGER_KEYS, "def f(d): return {str(d[1]): 1, '6': 1}", Outcome.CORRECT),
        (INTEGER_KEYS, "def f(d): return {d[1]: 1, 6: 2}", Outcome.WRONG),
    ],
)
def test_outcomes_of_programs_and_functions(grader: ProgramGrader, tests: Any, source: str, expected: Outcome) -> None:
    assert outcome(grader, source, tests) is expected


def test_a_program_in_the_thinking_or_the_free_text_is_none(grader: ProgramGrader) -> None:
    suite = named(read_suite(INCREMENT, Rule.EXACT))
    right = fenced("print(int(input()) + 1)")
    cut = "```python\nprint(int(input())"
    grades = grader.grade(["", "just words", right, right + cut], [suite] * 4, [right] * 4)
    none = Outcome.NO_PROGRAM
    assert [grade.outcome for grade in grades] == [none, none, Outcome.CORRECT, none]
    assert grades[2].answer == "print(int(input()) + 1)"


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


def test_equal_programs_are_run_once(grader: ProgramGrader, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: Counter[str] = Counter()
    start = Box.start

    def counted(box: Box, source: bytes, *rest: Any) -> Any:
        runs[source.decode()] += 1
        return start(box, source, *rest)

    suite = named(read_suite(INCREMENT, Rule.EXACT))
    grader.grade([fenced("pass")], [suite])  # with the first one, an isolation is chosen, by running programs
    monkeypatch.setattr(Box, "start", counted)
    wrong = [fenced("print(0)")] * 8
    assert {grade.outcome for grade in grader.grade(wrong, [suite] * 8)} == {Outcome.WRONG}
    assert runs == {"print(0)": 1}  # and stopped at the first failure
    for text in (wrong[0], "words, then\n" + wrong[0], "no program", fenced("print(1)")):
        grader.begin(text, suite)
    wait(grader._begun.values())
    assert (runs["print(0)"], runs["print(1)"]) == (2, 1)  # before anybody asks for grades
    right = fenced("print(int(input()) + 1)")
    found = [grade.outcome for grade in grader.grade([*wrong, right, "no program"], [suite] * 10)]
    assert found == [*[Outcome.WRONG] * 8, Outcome.CORRECT, Outcome.NO_PROGRAM]
    # Of those begun, one that nobody asked for any more; of a right one, a test is drawn and run again.
    assert runs["print(0)"] == 2 and runs["print(int(input()) + 1)"] == 2
    assert grader.grade(wrong[:1], [suite])[0].outcome is Outcome.WRONG
    assert runs["print(0)"] == 3


def test_a_grader_that_is_closed_runs_no_more_tests_of_what_has_begun(
    grader: ProgramGrader, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = named(read_suite(INCREMENT, Rule.EXACT))
    grader.grade([fenced("pass")], [suite])  # with the first one, an isolation is chosen, by running programs
    run = Process.run
    runs = list[Limits]()
    running = threading.Event()
    go_on = threading.Event()

    def waiting(process: Process, limits: Limits) -> Any:
        runs.append(limits)
        running.set()
        assert go_on.wait(60)
        return run(process, limits)

    monkeypatch.setattr(Process, "run", waiting)
    grader.begin(fenced("print(int(input()) + 1)"), suite)
    boxes = grader._boxes
    assert running.wait(60) and boxes is not None
    closing = threading.Thread(target=grader.close)
    closing.start()
    while not boxes.closed:
        time.sleep(0.01)
    go_on.set()
    closing.join(60)
    assert len([limits for limits in runs if limits.cpu]) == 1  # of three tests; the other limits end the process


def test_a_box_that_breaks_is_no_fault_of_the_program(grader: ProgramGrader, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = named(read_suite(INCREMENT, Rule.EXACT))
    right = [fenced("print(int(input()) + 1)")]
    run = Process.run
    broken = [1]

    def breaking(process: Process, limits: Limits) -> Any:
        if broken and broken.pop() == 1:
            raise SandboxError("a box has died")
        return run(process, limits)

    monkeypatch.setattr(Process, "run", breaking)
    assert grader.grade(right, [suite])[0].outcome is Outcome.CORRECT
    broken[:] = [1] * 1000
    assert grader.grade(right, [suite])[0].outcome is Outcome.UNGRADED
    broken.clear()
    assert grader.grade(right, [suite])[0].outcome is Outcome.CORRECT


def test_no_suite_is_an_error(grader: ProgramGrader) -> None:
    for name in ("42", "sha256:0123456789abcdef", "suite:0123456789abcdef"):
        with pytest.raises(ValueError, match=f"'{name}' names no tests in .*again: it reads them") as error:
            grader.grade([fenced("pass")], [[name]])
        assert "\n" not in str(error.value)
        grader.begin(fenced("pass"), [name])  # is no error for an engine that samples
        with pytest.raises(ValueError, match=f"'{name}' names no tests"):
            grader.grade([fenced("pass")], [[name]])


def test_a_suite_is_kept_once_under_its_digest(datasets_cache: None) -> None:
    suites = Suites()
    suite = read_suite(FUNCTION, Rule.TOLERANT)
    name = suites.add(suite)
    assert suites.add(suite) == name != suites.add(suite.chosen(3)) and suites[name] == suite
    assert len(list(suites.folder.iterdir())) == 2
    assert name in suites and "suite:" + "0" * 16 not in suites
    assert suites.add(Suite((Case("1", ("2",)),))) == "suite:26a3049eee6e03fa"  # as in existing tables


def test_it_is_pickled_by_its_settings(grader: ProgramGrader) -> None:
    with pickle.loads(pickle.dumps(grader)) as copy:
        assert outcome(copy, "print(int(input()) + 1)", INCREMENT) is Outcome.CORRECT


@pytest.mark.slow
def test_every_reference_of_leetcode_passes(grader: ProgramGrader) -> None:
    rows = read_rows("code/leetcode_test.jsonl")
    solutions = [fenced(row["reference"]) for row in rows]
    suites = [named(read_suite(row["tests"], Rule.EXACT, row["entry_point"])) for row in rows]
    grades = grader.grade(solutions, suites)
    assert len(rows) == 200
    assert not [number for number, grade in enumerate(grades) if not grade.correct]
    # And none passes the tests of its neighbour, unless that is a harder version of the same problem.
    swapped = grader.grade(solutions, [*suites[1:], suites[0]])
    passed = [number for number, grade in enumerate(swapped) if grade.correct]
    assert all(rows[number]["entry_point"] == rows[(number + 1) % 200]["entry_point"] for number in passed)
    assert len(passed) < 15


@pytest.mark.slow
def test_a_busy_machine_fails_no_program_that_computes() -> None:
    slowed = """
import time
end = time.process_time() + 0.2
while time.process_time() < end: pass
time.sleep(0.4)
print(1)
"""
    limits = Limits(cpu=0.6, wall=3.0, memory=2**29, output=2**20)
    tests = {"inputs": [str(n) for n in range(15)], "outputs": ["1"] * 15}
    with boxed(limits) as grader:
        assert outcome(grader, slowed, tests) is Outcome.CORRECT


@pytest.mark.slow
def test_one_that_sleeps_has_the_wall_time_of_one_test_for_all_of_them() -> None:
    limits = Limits(cpu=1.0, wall=10.0, memory=2**29, output=2**20)
    tests = {"inputs": [str(n) for n in range(15)], "outputs": ["1"] * 15}
    with boxed(limits) as grader:
        assert outcome(grader, "print(1)", tests) is Outcome.CORRECT
        assert outcome(grader, "import time; time.sleep(1); print(1)", tests) is Outcome.TIMED_OUT
