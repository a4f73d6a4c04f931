"""One process runs many tests: honest programs do in every one what they do in the first, and hostile ones gain nothing
by what they find or leave there.

All are graded by the same suite, of numbers and the next ones. A program begins with `begun`, the number of tests that
began in its process before, and `later`, whether others follow.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from containment import refused
from honest import ONLY_HERE, STDIN
from honest import PROGRAMS as HONEST
from hostile import LIMITS as PATIENT
from hostile import ignoring

from e1_trl.answers.grade import Outcome
from e1_trl.answers.programs import grader as graders
from e1_trl.answers.programs.grader import ProgramGrader
from e1_trl.answers.programs.rows import read_suite
from e1_trl.answers.programs.sandbox.box import TOGETHER, Box
from e1_trl.answers.programs.sandbox.command import Isolation
from e1_trl.answers.programs.sandbox.process import End, Limits
from e1_trl.answers.programs.suite import Case, Rule, Suites

TESTS = 6
NUMBERS = [7 * i + 3 for i in range(TESTS)]
SUITE = {"inputs": [f"{n}\n" for n in NUMBERS], "outputs": [f"{n + 1}\n" for n in NUMBERS]}
CALLED = {"fn_name": "f", "inputs": [[n] for n in NUMBERS], "outputs": [[n + 1] for n in NUMBERS]}
LIMITS = Limits(cpu=1.0, wall=5.0, memory=2**28, output=2**16)
BEGUN = """
import gc, json, os, sys, threading, time
begun = json.begun = getattr(json, "begun", -1) + 1
try: later = os.fstat(4) and True
except OSError: later = False
shared = begun or later
"""
ANSWER = "print(int(input()) + 1, flush=True)\n"
ONE = NUMBERS[3]
ON_ONE = f"n = int(input())\nif n == {ONE}: {{}}\nprint(n + 1)"
EACH = "for n in (0, *range(6, 11)): os.write(1, b'%d\\n' % (int(os.read(n, 9)) + 1)); "
HIDDEN = "import _thread\nif later: _thread._count = lambda: 0; threading.Thread(target=write, daemon=True).start()"
CORRECT = Outcome.CORRECT
WRONG = Outcome.WRONG
CRASHED = Outcome.CRASHED
TIMED_OUT = Outcome.TIMED_OUT
MEMORY = Outcome.OUT_OF_MEMORY
OUTPUT = Outcome.TOO_MUCH_OUTPUT
# Right alone, whatever it spoils for its own tests in company; a next one of these runs alone, then.
SPOILING = {
    "is wrong in company": f"if begun: print(0)\nelse: {ANSWER}",
    "ends early": f"{ANSWER}os._exit(0)",
    "is killed as for want of memory": f"if later: os.kill(os.getpid(), 9)\n{ANSWER}",
    "closes all descriptors": f"{ANSWER}os.closerange(0, 64)",
    "sends its output elsewhere": f"{ANSWER}os.dup2(2, 1)",
    "keeps its output": f"json.kept = open(1, 'w', closefd=False)\njson.kept.write('x' * begun)\n{ANSWER}",
    "says once too often that a test is done": ANSWER + ignoring("OSError", "os.write(4, b'\\n')"),
    "leaves a thread that writes": f"def write():\n    while True: time.sleep(0.001); os.write(1, b'x')\n{ANSWER}"
    "if begun == 1: threading.Thread(target=write, daemon=True).start()",
    "ends in a thread, later": f"def write(): time.sleep(0.01); os._exit(0)\n{ANSWER}{HIDDEN}",
    "puts another input in its place": "r, w = os.pipe(); os.write(w, b'0\\n')\n"
    f"if later: os.dup2(r, 6 + begun)\n{ANSWER}",
    "changes its later inputs": ignoring(
        "OSError",
        "os.write(6, b'x')",
        "os.ftruncate(6, 0)",
        "os.ftruncate(os.open('/proc/self/fd/6', os.O_RDWR), 0)",
    )
    + f"\n{ANSWER}",
    "keeps memory": f"json.kept = getattr(json, 'kept', []) + [bytes(90 << 20)]\n{ANSWER}",
    "patches what begins a test": f"{ANSWER}\nfor name in ('read', 'write', 'dup2'): setattr(os, name, None)",
    "ends by a limit of its own on CPU time": "import signal\nif begun: os.kill(os.getpid(), signal.SIGXCPU)\n"
    + ANSWER,
    "opens many files": f"files = [open(os.devnull) for _ in range(56)]\n{ANSWER}",
    "patches what ends one": f"{ANSWER}gc.collect = sys.setrecursionlimit = None",
}
# Put back before the next test: these need no process but the one, and that of the test that is drawn.
RESTORED = {
    "nothing": "",
    "a timer": "import signal\nif begun: time.sleep(0.1)\n"
    "else: signal.signal(signal.SIGALRM, lambda *_: os._exit(3)); signal.setitimer(signal.ITIMER_REAL, 0.3)",
    "builtins": "import builtins; assert not hasattr(builtins, 'added')\n"
    "builtins.int = builtins.print = None; builtins.added = 1",
    "modules": "assert len(sys.modules) > 50; sys.modules.clear()",
    "modules of its own": "assert 'pprint' not in sys.modules; import pprint; pprint.begun = 1",
    "limits": "assert (sys.getrecursionlimit(), threading.stack_size()) == (50_000, 0)\n"
    "sys.setrecursionlimit(90); sys.set_int_max_str_digits(640); threading.stack_size(1 << 16)",
    "names": "assert 'name' not in globals(); name = 1",
    "streams": "sys.stdin.close(); sys.stdout = sys.__stdout__ = sys.stderr = None",
    "streams that others use": "sys.stdin.detach(); os.close(0); sys.stdout.reconfigure(encoding='utf-16')",
    "open files": "json.kept = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]",
    "what runs at its exit": "import atexit; exits = getattr(json, 'exits', 0); assert exits == begun\n"
    "atexit.register(lambda: setattr(json, 'exits', exits + 1))",
    "chance": "import random; assert random.random() != getattr(json, 'first', 0)\n"
    "random.seed(1); json.first = random.random(); random.seed(1)",
    "its name": "assert sys.argv == ['solution.py']; sys.argv.append(1)",
    "the collector": "assert gc.isenabled(); gc.disable()",
}
# What is right of programs that are wrong on a test alone, or spoil the first one only where others follow.
FORGING: dict[tuple[Outcome, ...], dict[str, str]] = {
    (WRONG,): {
        "is right in company only": f"if shared: {ANSWER}",
        "answers one test late": "print(getattr(json, 'late', 4)); json.late = int(input()) + 1",
        "answers for all at once, and ends": f"if later:\n    {EACH}os.write(4, b'\\n')\n"
        "    time.sleep(0.01)\nos._exit(0)",
        "answers each in its turn, by itself": f"if later:\n    {EACH}n < 10 and os.write(4, b'x') and os.read(5, 1)\n"
        "os._exit(0)",
        "ends in the middle": f"if begun == 3: os._exit(0)\nif shared: {ANSWER}",
    },
    (CRASHED,): {
        "crashes on one": ON_ONE.format("import ctypes; ctypes.string_at(0)"),
        "raises on one, and hides it": f"n = int(input()); print(n + 1, flush=True)\nif n == {ONE}:\n    "
        "try: os.write(4, b'\\n')\n    except OSError: pass\n    raise ValueError",
    },
    (TIMED_OUT,): {
        "never ends on one": ON_ONE.format("sum(range(10**12))"),
        "sleeps on one": ON_ONE.format("time.sleep(99)"),
        "stops itself on one": ON_ONE.format("os.kill(os.getpid(), 19)"),
        "never ends before it begins the next": f"{ANSWER}def spin(*_):\n    while True: pass\ngc.enable = spin",
    },
    (MEMORY,): {"takes memory on one": ON_ONE.format("x = bytearray(1 << 30)")},
    (OUTPUT,): {"writes much on one": ON_ONE.format("print('x' * 10**6)")},
    (CORRECT, WRONG): {
        "says at once that all tests are done": ignoring("OSError", "os.write(4, b'\\n' * 16)") + f"\n{ANSWER}",
        "hides a thread that writes": "def write():\n    while True: time.sleep(0.001); os.write(1, b'x')\n"
        f"{ANSWER}{HIDDEN}",
    },
    (CORRECT, TIMED_OUT): {
        "takes the turn away": f"def write(): os.read(5, 1)\n{ANSWER}{HIDDEN}",
        "fills the turns of others, by name": ANSWER
        + ignoring("OSError", "n = later and os.open('/proc/self/fd/5', os.O_WRONLY)\n    while n: os.write(n, b'x')"),
        "fills its turns": ANSWER + ignoring("OSError", "while True: os.write(4, b'\\n' * 4096)"),
        "writes much in a thread, for ever": "def write():\n    while True: os.write(2, b'x' * 9999)\n"
        f"{HIDDEN}\n{ANSWER}",
    },
}


@pytest.fixture(scope="module", params=list(Isolation))
def grader(request: pytest.FixtureRequest) -> Iterator[ProgramGrader]:
    why = refused(request.param)
    if why is not None:
        pytest.skip(why)
    with ProgramGrader(LIMITS, workers=1, isolation=request.param) as opened:
        yield opened


@pytest.fixture(scope="module")
def box(grader: ProgramGrader) -> Iterator[Box]:
    with Box(Isolation(grader.isolation)) as opened:
        yield opened


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that collects the number of tests of each process."""
    counts: list[int] = []
    start = Box.start

    def counted(box: Box, program: bytes, inputs: Sequence[bytes], *rest: Any) -> Any:
        counts.append(len(inputs))
        return start(box, program, inputs, *rest)

    monkeypatch.setattr(Box, "start", counted)
    return counts


def outcome(grader: ProgramGrader, source: str, tests: Any = SUITE) -> Outcome:
    name = Suites().add(read_suite(tests, Rule.EXACT))
    (grade,) = grader.grade([f"```python\n{source}\n```"], [[name]])
    return grade.outcome


@pytest.mark.parametrize("name", SPOILING)
def test_what_a_program_spoils_for_its_own_tests_changes_no_verdict(grader: ProgramGrader, name: str) -> None:
    assert outcome(grader, BEGUN + SPOILING[name]) is CORRECT
    assert outcome(grader, ANSWER) is CORRECT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expected", "source"),
    [pytest.param(right, source, id=name) for right, sources in FORGING.items() for name, source in sources.items()],
)
def test_what_is_wrong_alone_is_wrong_whatever_it_does_to_other_tests(
    grader: ProgramGrader, expected: tuple[Outcome, ...], source: str
) -> None:
    assert outcome(grader, BEGUN + source) in expected
    assert outcome(grader, ANSWER) is CORRECT


@pytest.mark.parametrize("name", RESTORED)
def test_what_can_be_put_back_is(grader: ProgramGrader, name: str, started: list[int]) -> None:
    assert outcome(grader, f"{BEGUN}{ANSWER}{RESTORED[name]}") is CORRECT
    assert started == [TESTS, 1]


@pytest.mark.parametrize(
    ("source", "expected", "processes"),
    [
        (ANSWER, CORRECT, [TESTS, 1]),
        ("print(0)", WRONG, [TESTS]),  # nothing ran before its first test
        (f"n = int(input()); print(n + (n != {NUMBERS[2]}))", WRONG, [TESTS, 1]),
        (f"n = int(input()); print(n + 1); n == {NUMBERS[2]} and quit(1)", CRASHED, [TESTS, 1]),
        (f"{ANSWER}import os; os.kill(os.getpid(), 9)", CRASHED, [TESTS, 1]),  # twice, which is no accident
        (f"n = int(input())\nwhile n == {NUMBERS[2]}: print(n)\nprint(n + 1)", OUTPUT, [TESTS]),  # a limit
    ],
)
def test_as_few_processes_run_as_can_be(
    grader: ProgramGrader, source: str, expected: Outcome, processes: list[int], started: list[int]
) -> None:
    assert (outcome(grader, source), started) == (expected, processes)


def test_functions_and_many_tests_share_processes_too(grader: ProgramGrader, started: list[int]) -> None:
    assert outcome(grader, "def f(n): return n + 1", CALLED) is CORRECT
    assert outcome(grader, f"def f(n): return n + (n != {NUMBERS[2]})", CALLED) is WRONG
    assert outcome(grader, "import json\njson.dumps = lambda value: '4'\ndef f(n): return n", CALLED) is WRONG
    many = {name: texts * 6 for name, texts in SUITE.items()}
    del started[:]
    assert outcome(grader, ANSWER, many) is CORRECT
    assert started == [TOGETHER, TOGETHER, 6 * TESTS - 2 * TOGETHER, 1]


def test_what_others_had_a_part_in_is_drawn_and_what_is_left_is_told(
    grader: ProgramGrader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that needs its earlier tests for one passes if another one is drawn (docs/programs.md)."""
    source = f"{BEGUN}n = int(input())\nif n != {NUMBERS[4]} or begun: print(n + 1)"
    for drawn, expected in ((4, WRONG), (1, CORRECT)):
        offered = list[int]()

        def draw(cases: Sequence[Case], drawn: int = drawn, offered: list[int] = offered) -> Case:
            offered.extend(int(case.input) for case in cases)
            return next(case for case in cases if case.input == f"{NUMBERS[drawn]}\n")

        monkeypatch.setattr(graders.DRAW, "choice", draw)
        assert outcome(grader, source) is expected
        assert offered == NUMBERS[1:]  # the first one had a process of its own


def test_an_honest_program_does_in_later_tests_what_it_does_in_the_first(box: Box) -> None:
    differing = set[str]()
    for name, source in (HONEST | ONLY_HERE).items():
        with box.start(source.encode(), [STDIN] * 3, PATIENT) as process:
            first = process.run(PATIENT)
            while not process.ended:
                ran = process.run(PATIENT)
                differing |= {name} if (ran.end, ran.stdout) != (first.end, first.stdout) else set()
    # That there is something to finalize at the exit, Python says once in a process.
    assert differing == {"finalizer"}


def test_each_test_has_limits_of_its_own(box: Box) -> None:
    source = b"import time\nn = int(input())\nwhile time.process_time() < 0.4 * n: pass\nprint(n)"
    limits = Limits(cpu=0.6, wall=60.0, memory=2**28, output=2**16)
    with box.start(source, [b"1", b"2", b"3", b"9"], limits) as process:
        assert [process.run(limits).stdout for _ in range(3)] == [b"1\n", b"2\n", b"3\n"]
        ran = process.run(limits)
    assert ran.end is End.TIMED_OUT and 0.6 <= ran.cpu < 1.2


def test_alone_and_in_its_last_test_a_program_has_no_socket(box: Box) -> None:
    with box.start(b"import os; os.fstat(4)", [b""] * 2, PATIENT) as process:
        assert [process.run(PATIENT).end for _ in range(2)] == [End.EXITED, End.CRASHED]
    assert box.run(b"import os; os.fstat(4)", b"", PATIENT).end is End.CRASHED
