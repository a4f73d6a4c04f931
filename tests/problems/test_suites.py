"""The shapes in which datasets have the tests of programs."""

import json
from typing import Any

import pytest

from e1_trl.answers.programs.rows import read_suite
from e1_trl.answers.programs.sandbox.inside.values import rebuilt
from e1_trl.answers.programs.suite import Rule

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
    "from Arrow": [{"input": text, "output": f"{n}\n", "type": None, "testtype": None} for text, n in ("12", "23")],
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
    suite = read_suite(SHAPES[shape], Rule.EXACT)
    assert suite.call is None
    cases = [(case.input.strip(), [text.strip() for text in case.expected]) for case in suite.cases]
    assert cases == [("1", ["2"]), ("2", ["3"])]


@pytest.mark.parametrize("shape", CALLS)
def test_functions_with_arguments(shape: str) -> None:
    suite = read_suite(CALLS[shape], Rule.EXACT)
    (case,) = suite.cases
    assert suite.call == "f"
    assert json.loads(case.input) == {"positional": [1, [2]], "named": {"dict": []}}
    assert suite.accepts(case, b"", b"3") and not suite.accepts(case, b"3", b"4")


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
        ("no JSON", "unknown shape"),
        ([], "no tests"),
        ({"inputs": [], "outputs": []}, "no tests"),
        ({"inputs": ["1"], "outputs": []}, "."),
        ([{"input": "1"}], "unknown shape"),
        ([{"input": 1, "output": "1"}], "unknown shape"),
        ([{"type": "interactive", "input": "1", "output": "1"}], "unknown kind: interactive"),
        ([{"type": "stdin_stdout", "input": "1", "output": "1"}, {"type": "function_call"}], "several kinds"),
        ([{"testtype": "functional", "input": "1", "output": "1", "metadata": {}}], "do not name one function"),
        ({"type": "assert", "code": "assert candidate(1) == open('x')"}, r"line 1: \"open\('x'\)\" is no literal"),
        ({"type": "assert", "code": "assert candidate(1) == 2\nx = candidate(2)\nassert x == 3"}, "line 2: a call"),
        ({"type": "assert", "code": "def check("}, "unknown shape"),
        ({"type": "assert", "code": "def check(candidate):\n    assert not candidate(1)"}, "line 2: a call"),
        ({"type": "assert", "code": "def check(candidate):\n    assert candidate(**{'n': 6}) == 1"}, "unpacked"),
        ([{"type": "function_call", "fn_name": None, "input": [1], "output": 1}], "do not name one function"),
    ],
)
def test_what_is_no_suite_is_one_line(tests: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        read_suite(tests, Rule.EXACT, call="f" if isinstance(tests, dict) else None)
    assert "\n" not in str(error.value)


def called(given: list[Any], returns: Any) -> tuple[Any, list[Any]]:
    """The first argument and the accepted values that a suite makes of a call."""
    (case,) = read_suite({"fn_name": "f", "inputs": [given], "outputs": [returns]}, Rule.TOLERANT).cases
    return rebuilt(json.loads(case.input)["positional"][0]), [rebuilt(json.loads(text)) for text in case.expected]


def test_keys_that_json_made_texts_of_integers_are_integers() -> None:
    assert called([{"1": "a", "-20": "b"}], {"1": 2}) == ({1: "a", -20: "b"}, [{"1": 2}, {1: 2}])
    assert called([1], [{"3": 4}])[1] == [[{"3": 4}], {"3": 4}, {3: 4}]
    for kept in ({"1": 1, "a": 2}, {"01": 1}, {}, {"9" * 5000: 1}, {"1.0": 1}):
        assert called([kept], kept) == (kept, [kept])


# The shape of HumanEval+'s tests.
HELPED = """
def assertion(out, exp, atol):
    {compares}

def check(candidate):
    inputs = [[1], [2]]
    results = [[1, 2], [2, 3]]
    for inp, exp in zip(inputs, results):
        assertion({compared}, exp, 0)
"""
PLAIN = "same = out == exp; assert same or np.allclose(out, exp, atol=atol)"


@pytest.mark.parametrize(
    ("compares", "compared"),
    [
        ("assert set(out) == set(exp)", "candidate(*inp)"),
        ("assert exp == (out is not None)", "candidate(*inp)"),
        ("assert out != exp", "candidate(*inp)"),
        ("exp = set(exp); assert out == exp", "candidate(*inp)"),
        (PLAIN, "set(candidate(*inp))"),
        (PLAIN, "len(str(candidate(*inp)))"),
    ],
)
def test_a_helper_must_compare_by_value(compares: str, compared: str) -> None:
    code = HELPED.format(compares=PLAIN, compared="candidate(*inp)")
    assert len(read_suite({"type": "assert", "code": code}, Rule.TOLERANT, "f").cases) == 2
    code = HELPED.format(compares=compares, compared=compared)
    for tests in (code, code.replace("def assertion", "def other")):
        with pytest.raises(ValueError, match=r"compares otherwise|no helper") as error:
            read_suite({"type": "assert", "code": tests}, Rule.TOLERANT, "f")
        assert "\n" not in str(error.value)
