"""Checkers in real boxes: what they accept, how they fail, and that nothing of them reaches a program."""

import time
from collections.abc import Iterator

import pytest
from boxed import LIMITS, boxed, isolation, looking_for, outcome

from e1_trl.answers.grade import Outcome
from e1_trl.answers.programs import checkers
from e1_trl.answers.programs.grader import ProgramGrader
from e1_trl.answers.programs.sandbox.box import Box, End, Limits
from e1_trl.answers.programs.suite import Case

# Any two numbers of the given sum.
TESTS = {"inputs": ["10\n", "7\n"], "outputs": ["1 9\n", "3 4\n"]}
CHECKER = """
import sys

def main():
    given, correct, submitted = sys.argv[1:]
    with open(given) as file:
        wanted = int(file.readline())
    with open(correct, encoding="utf-8") as file:
        assert sum(map(int, file.read().split())) == wanted
    with open(submitted, "r") as file:
        lines = [line.split() for line in file if line.strip()]
    try:
        (a, b), = [list(map(int, line)) for line in lines]
    except ValueError:
        print(0)
        return
    print(1 if a + b == wanted else 0)

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def grader() -> Iterator[ProgramGrader]:
    with boxed() as opened:
        yield opened


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("n = int(input()); print(1, n - 1)", Outcome.CORRECT),
        ("n = int(input()); print(n + 5, -5)", Outcome.CORRECT),
        ("n = int(input()); print(n, 1)", Outcome.WRONG),
        ("print(1, 9)", Outcome.WRONG),
        ("print(1)", Outcome.WRONG),
        ("pass", Outcome.WRONG),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\x00 1\\n')", Outcome.WRONG),
        ("n = int(input()); print(1, n - 1); 1 / 0", Outcome.CRASHED),
        ("while True: print(1, 9)", Outcome.TOO_MUCH_OUTPUT),
    ],
)
def test_a_checker_accepts_any_right_output_and_no_wrong_one(
    grader: ProgramGrader, source: str, expected: Outcome
) -> None:
    assert outcome(grader, source, TESTS, checker=CHECKER) is expected


READING = {
    "open": "open({}).read()",
    "binary": "open({}, 'rb').read().decode()",
    "io.open": "__import__('io').open({}, mode='rt', newline=None).read()",
    "read_text": "__import__('pathlib').Path({}).read_text()",
    "read_bytes": "__import__('pathlib').Path({}).read_bytes().decode()",
    "absolute": "open(__import__('os').path.abspath({}), errors='ignore').read()",
    "fileinput": "''.join(__import__('fileinput').input({}))",
    "codecs": "__import__('codecs').open({}, encoding='utf-8').read()",
    "if it exists": "open({0}).read() if __import__('os').path.isfile({0}) else ''",
    "not if it is empty": "open({0}).read() if __import__('os').path.getsize({0}) else ''",
}


@pytest.mark.parametrize("reading", READING.values(), ids=READING.keys())
def test_every_way_of_reading_the_three_files_works(grader: ProgramGrader, reading: str) -> None:
    texts = ", ".join(reading.format(f"sys.argv[{number}]") for number in (1, 2, 3))
    checker = f"import sys\nprint(int(({texts}) == ('é\\n', 'right', 'written\\n')))"
    tests = {"inputs": ["é\n"], "outputs": ["right"]}
    assert outcome(grader, "print('written')", tests, checker=checker) is Outcome.CORRECT
    assert outcome(grader, "print('other')", tests, checker=checker) is Outcome.WRONG


@pytest.mark.parametrize("said", ["print('yes')", "print(0)", "pass", "print(1); print(0)", "print(True)", "print(-1)"])
def test_a_checker_that_says_anything_but_1_says_no(grader: ProgramGrader, said: str) -> None:
    assert outcome(grader, "print(1, 9)", TESTS, checker=said) is Outcome.WRONG


@pytest.mark.parametrize(
    "checker",
    [
        "raise ValueError",
        "print(1); raise ValueError",
        "print(1); import sys; sys.exit(3)",
        "def main(",
        "open('input.txt', 'w').write('1'); print(1)",
        "open('answers.txt').read(); print(1)",
        "print(1)\nx = bytearray(1 << 33)",
        "while True: print(1)",
    ],
)
def test_a_checker_that_fails_grades_nothing(grader: ProgramGrader, checker: str) -> None:
    assert outcome(grader, "n = int(input()); print(1, n - 1)", TESTS, checker=checker) is Outcome.UNGRADED


@pytest.mark.parametrize("checker", ["import sys\nprint(1 if int(open(sys.argv[3]).read()) else 0)"])
def test_what_makes_a_checker_fail_that_accepts_the_expected_output_is_wrong(
    grader: ProgramGrader, checker: str
) -> None:
    tests = {"inputs": ["1\n"], "outputs": ["7\n"]}
    assert outcome(grader, "print(7)", tests, checker=checker) is Outcome.CORRECT
    assert outcome(grader, "print('no number')", tests, checker=checker) is Outcome.WRONG
    unreadable = {"inputs": ["1\n"], "outputs": ["seven\n"]}
    assert outcome(grader, "print('no number')", unreadable, checker=checker) is Outcome.UNGRADED


def test_an_output_that_keeps_a_checker_busy_is_wrong() -> None:
    checker = "import sys\nwhile 'slow' in open(sys.argv[3]).read(): pass\nprint(1)"
    with boxed(Limits(cpu=1.0, wall=4.0, memory=2**28, output=2**16)) as grader:
        assert outcome(grader, "print('slow')", TESTS, checker=checker) is Outcome.WRONG
        assert outcome(grader, "print('fast')", TESTS, checker=checker) is Outcome.CORRECT


@pytest.mark.slow
def test_a_checker_that_does_not_end_grades_nothing_within_its_time() -> None:
    with boxed(Limits(cpu=1.0, wall=2.0, memory=2**28, output=2**16)) as grader:
        before = time.monotonic()
        for endless in ("while True: pass", "import time; print(1, flush=True); time.sleep(1000)"):
            assert outcome(grader, "print(1, 9)", TESTS, checker=endless) is Outcome.UNGRADED
        assert time.monotonic() - before < 30
        assert outcome(grader, "n = int(input()); print(1, n - 1)", TESTS, checker=CHECKER) is Outcome.CORRECT


def test_a_checker_of_a_function_sees_arguments_and_what_was_returned_as_json(grader: ProgramGrader) -> None:
    tests = {"fn_name": "f", "inputs": [[3]], "outputs": [[1, 2]]}
    checker = (
        "import json, sys\n"
        "given, correct, returned = (json.load(open(name)) for name in sys.argv[1:])\n"
        "print(int(given['positional'] == [3] and sorted(returned) == correct))"
    )
    assert outcome(grader, "def f(n): return (2, 1)", tests, checker=checker) is Outcome.CORRECT
    assert outcome(grader, "def f(n): return [2, 2]", tests, checker=checker) is Outcome.WRONG
    assert outcome(grader, "import os\ndef f(n): os._exit(0)", tests, checker=checker) is Outcome.WRONG
    assert outcome(grader, "def f(n): 1 / 0", tests, checker=checker) is Outcome.CRASHED


SECRET = "of-the-checker-17"
LOOKING = looking_for(SECRET) + "print(found or 1)"


def test_a_program_gains_nothing_by_speaking_as_the_checker_or_looking_for_what_it_saw(grader: ProgramGrader) -> None:
    tests = {"inputs": ["1\n", "22\n"], "outputs": [SECRET, SECRET]}
    checker = f"import sys\nprint(int({SECRET!r} == open(sys.argv[3]).read().strip()))"
    assert outcome(grader, f"print({SECRET!r})", tests, checker=checker) is Outcome.CORRECT
    for source in ("print(1)", "print('1\\n1')", LOOKING, f"print({SECRET!r} if input() == '1' else 1)"):
        assert outcome(grader, source, tests, checker=checker) is Outcome.WRONG
    with Box(isolation()) as box:
        request = checkers.request(checker, Case("1", (SECRET,)), SECRET.encode())
        for _ in range(3):
            assert checkers.verdict(box.run(checkers.MAIN, request, LIMITS)) is Outcome.CORRECT
            ran = box.run(LOOKING.encode(), b"", LIMITS)
            assert (ran.end, ran.stdout) == (End.EXITED, b"1\n"), ran
        # It would find it, were it there.
        ran = box.run(f"kept = {SECRET!r}\n{LOOKING}".encode(), b"", LIMITS)
        assert SECRET.encode() in ran.stdout


def test_the_program_is_given_the_input_alone(grader: ProgramGrader) -> None:
    tests = {"inputs": ["1\n"], "outputs": [SECRET]}
    checker = "import sys\nprint(int(open(sys.argv[3]).read() == '1\\n' and len(sys.argv) == 4))"
    assert outcome(grader, "import sys; sys.stdout.write(sys.stdin.read())", tests, checker=checker) is Outcome.CORRECT
