"""The shapes in which datasets have the tests of programs."""

import json
from typing import Any

import pytest

from e1_trl.grading.suite import Rule, Suite
from e1_trl.problems.suites import read_suite

SHAPES: dict[str, Any] = {
    "taco": {"inputs": ["1\n", "2\n"], "outputs": ["2\n", "3\n"]},
    "taco, lines": {"inputs": [["1"], ["2"]], "outputs": [["2"], ["3"]]},
    "primeintellect": [
        {"type": "stdin_stdout", "input": "1\n", "output": "2\n"},
        {"type": "stdin_stdout", "input": "2\n", "output": "3\n"},
    ],
    "livecodebench": [
        {"testtype": "stdin", "input": "1\n", "output": "2\n", "metadata": {"func_name": None}},
        {"testtype": "stdin", "input": "2\n", "output": "3\n", "metadata": {}},
    ],
    "codeforces": [{"input": "1\n", "output": "2\n"}, {"input": "2\n", "output": "3\n"}],
}
CALLS: dict[str, Any] = {
    "taco": {"fn_name": "f", "inputs": [[1, [2]]], "outputs": [[3]]},
    "primeintellect": [{"type": "function_call", "fn_name": "f", "input": [1, [2]], "output": [3]}],
    "livecodebench": [
        {"testtype": "functional", "input": "1\n[2]", "output": "3", "metadata": {"func_name": "f"}},
    ],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_programs_on_stdin(shape: str) -> None:
    for tests in (SHAPES[shape], json.dumps(SHAPES[shape])):
        suite = read_suite(tests, Rule.EXACT)
        assert suite.call is None
        assert [(case.input.strip(), [text.strip() for text in case.expected]) for case in suite.cases] == [
            ("1", ["2"]),
            ("2", ["3"]),
        ]


@pytest.mark.parametrize("shape", CALLS)
def test_functions_with_arguments(shape: str) -> None:
    suite = read_suite(CALLS[shape], Rule.EXACT)
    (case,) = suite.cases
    assert suite.call == "f"
    assert json.loads(case.input) == {"positional": [1, [2]], "named": {"dict": []}}
    assert "3" in case.expected
    assert suite.accepts(case, b"", b"3") and not suite.accepts(case, b"3", b"4")


def test_a_name_survives_more_than_fifteen_tests() -> None:
    suite = read_suite(
        {"fn_name": "f", "inputs": [[i] for i in range(20)], "outputs": [[i] for i in range(20)]}, Rule.EXACT
    )
    assert suite.call == "f" and len(suite.chosen(15)) == 15


def test_assertions_are_read_and_never_run() -> None:
    code = (
        "def check(candidate):\n"
        "    assert candidate(a = (1, 2), b = {3: 'x'}) == [1]\n"
        "    assert candidate([1]) == (2,)\n"
    )
    suite = read_suite({"type": "assert", "code": code}, Rule.EXACT, call="Solution().f")
    assert suite.call == "f"
    assert [json.loads(case.input) for case in suite.cases] == [
        {"positional": [], "named": {"dict": [["a", {"tuple": [1, 2]}], ["b", {"dict": [[3, "x"]]}]]}},
        {"positional": [[1]], "named": {"dict": []}},
    ]
    assert [case.expected for case in suite.cases] == [("[1]",), ("[2]",)]


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ("not JSON", "."),
        ("[]", "no tests"),
        ({"inputs": [], "outputs": []}, "no tests"),
        ({"inputs": ["1"], "outputs": []}, "."),
        ({"inputs": ["1"]}, "unknown shape"),
        ({}, "unknown shape"),
        (3, "unknown shape"),
        ([3], "unknown shape"),
        ([{"input": "1"}], "unknown shape"),
        ([{"input": 1, "output": "1"}], "unknown shape"),
        ([{"type": "interactive", "input": "1", "output": "1"}], "unknown kind: interactive"),
        ([{"type": "stdin_stdout", "input": "1", "output": "1"}, {"type": "function_call"}], "several kinds"),
        ([{"testtype": "functional", "input": "1", "output": "1", "metadata": {}}], "do not name one function"),
        ({"type": "assert", "code": "def check(candidate): assert candidate(1) == open('x')"}, "."),
        ({"type": "assert", "code": "def check("}, "unknown shape"),
        ({"type": "assert", "code": "pass"}, "no tests"),
        ({"type": "assert", "code": "def check(candidate):\n    assert not candidate(1)"}, "line 2: an assertion"),
        (
            {"type": "assert", "code": "def check(candidate):\n    assert abs(candidate(1) - 2) < 1"},
            "line 2: an assertion",
        ),
        ({"type": "assert", "code": "def check(candidate):\n    assert candidate(**{'n': 6}) == 1"}, "unpacked"),
        ([{"type": "function_call", "fn_name": None, "input": [1], "output": 1}], "without a name"),
    ],
)
def test_what_is_no_suite_is_one_line(tests: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        read_suite(tests, Rule.EXACT, call="f" if isinstance(tests, dict) else None)
    assert "\n" not in str(error.value)


def test_nothing_is_unpickled_or_evaluated() -> None:
    code = "def check(candidate):\n    assert candidate(__import__('os').system('true')) == 0\n"
    with pytest.raises(ValueError):
        read_suite({"type": "assert", "code": code}, Rule.EXACT, call="f")


def test_every_shape_takes_a_checker() -> None:
    for tests in (*SHAPES.values(), *CALLS.values()):
        assert read_suite(tests, Rule.EXACT, checker="print(1)").checker == "print(1)"
        assert read_suite(tests, Rule.EXACT).checker is None
    with pytest.raises(ValueError, match="the checker is empty"):
        read_suite(SHAPES["codeforces"], Rule.EXACT, checker="")


def test_a_suite_is_its_own_text() -> None:
    suite = read_suite(SHAPES["taco"], Rule.TOLERANT)
    assert Suite.from_text(suite.as_text()) == suite
