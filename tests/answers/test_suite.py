"""The rules by which an output is right, and faults of other graders."""

import json
import math
from typing import Any

import pytest

from e1_trl.answers.programs.sandbox.inside.values import plain
from e1_trl.answers.programs.suite import Case, Rule, Suite, same_text, same_value
from e1_trl.errors import UserError

E = Rule.EXACT
T = Rule.TOLERANT


@pytest.mark.parametrize(
    ("written", "expected", "rules"),
    [
        ("1 2\n3\n", "1 2\n3", {E, T}),
        ("  1 2  \n3\n\n", "1 2\n3", {E, T}),
        ("1 2\r\n3\r\n", "1 2\n3", {E, T}),
        ("1.0 2\n3", "1 2\n3", {E, T}),
        ("1.0000005", "1.0", {T}),
        ("1000000.5", "1000000.0", {T}),
        ("", "", {E, T}),
        ("1000000000", "1000000007", set()),
        ("1", "1.0", {E, T}),
        ("1.0000000001", "1", set()),
        ("1\n2", "1\n2\n3", set()),
        ("2\n1 2\n0\n\n2\n1 2\n", "2\n1 2\n0\n2\n1 2\n", {T}),
        ("2\n1 2\n0\n2\n1 2\n", "2\n1 2\n0\n \r\n2\n1 2\n", {T}),
        ("1 10", "01 010", {E}),
        ("-07", "-7", {E}),
        ("01 0", "01 0.0", {E, T}),
        ("3\n2\n1", "1\n2\n3", set()),
        ("yes\nNO", "YES\nnO", {T}),
        ("yes", "NO", set()),
        ("alice", "Alice", set()),
        ("1 2 3", "1 2", set()),
        ("nan", "0.5", set()),
        ("inf", "1e400", set()),
        ("1e400", "1e401", set()),
        ("1e999999999", "1.5", set()),
        ("-0.0", "0.0", {E, T}),
        ("1_000", "1000", set()),
        ("\u0661", "1", set()),
        ("1\x0b2", "1\x0b2", {E, T}),
        ("a\u2028b", "a\u2028b", {E, T}),
        ("a\u2028b", "a\nb", set()),
        ("\ufffd", "\ufffd", {E, T}),
        ("9" * 10**6, "8" + "9" * (10**6 - 1), set()),
    ],
)
def test_a_text_is_right_under_these_rules(written: str, expected: str, rules: set[Rule]) -> None:
    assert {rule for rule in (E, T) if same_text(written, expected, rule)} == rules


def test_a_program_that_does_nothing_passes_no_suite() -> None:
    for expected, call in (("\n", None), ("null", "f")):
        with pytest.raises(UserError, match="no test expects anything"):
            Suite((Case("1", (expected,)), Case("2", (expected,))), call)
    assert Suite((Case("1", ("",)), Case("2", ("3",))))


@pytest.mark.parametrize(
    ("returned", "expected", "rules"),
    [
        (True, 1, {E, T}),
        (1.0, 1, {E, T}),
        (0.1 + 0.2, 0.3, {T}),
        (1, 1.0000001, {T}),
        ("1", 1, set()),
        (None, None, {E, T}),
        (None, 0, set()),
        ([1, [2]], (1, (2,)), {E, T}),
        ([1, 2], [2, 1], set()),
        ({1: "a", 2: "b"}, {2: "b", 1: "a"}, {E, T}),
        ({1: "a"}, {"1": "a"}, set()),
        ({1, 2}, {2, 1}, {E, T}),
        ({1.0, 2}, {2, 1}, {E, T}),
        ([1, 2], {1, 2}, set()),
        (math.nan, math.nan, set()),
        (math.inf, math.inf, {E, T}),
        (math.inf, 1.5, set()),
        (1.5, math.inf, set()),
        (10**400, 1.5, set()),
        (set(), {}, set()),
    ],
)
def test_a_value_is_right_under_these_rules(returned: Any, expected: Any, rules: set[Rule]) -> None:
    ours = json.loads(json.dumps(plain(returned)))
    theirs = json.loads(json.dumps(plain(expected)))
    assert {rule for rule in (E, T) if same_value(ours, theirs, rule)} == rules


FORGED = [b"", b"1 1", b"[" * 10**6, b"9" * 10**7, b"NaN", b"\xff"]
FORGED += [b'{"dict": [[1, 1]], "set": [1]}', b'{"set": {"a": 1}}', b'{"dict": 1}']


@pytest.mark.parametrize("answer", FORGED, ids=lambda answer: repr(answer[:40]))
def test_a_forged_answer_is_wrong_and_harmless(answer: bytes) -> None:
    for expected in ("1", "[1]", '{"set": [1]}', '{"dict": [[1, 1]]}'):
        suite = Suite((Case("", (expected,)),), call="f", rule=T)
        assert not suite.accepts(suite.cases[0], b"1", answer)


def test_integers_too_long_to_be_read_are_compared() -> None:
    long = "1" * 10**6
    for expected, answer, right in (
        (long, long, True),
        (long, "1" * (10**6 - 1) + "2", False),
        (long, long + "0", False),
        (long, "-" + long, False),
        (long, f'"{long}"', False),
        (long, "1.5", False),
        ("1.5", long, False),
        ("1", long, False),
        (f"[{long}]", f"[{long}]", True),
        (f'{{"set": [1, {long}]}}', f'{{"set": [{long}, 1.0]}}', True),
        (f'{{"set": [{long}]}}', f'{{"set": ["{long}"]}}', False),
    ):
        for rule in (E, T):
            suite = Suite((Case("", (expected,)),), call="f", rule=rule)
            assert suite.accepts(suite.cases[0], b"", answer.encode()) is right


def test_a_constant_does_not_pass_for_want_of_another_answer_among_the_longest() -> None:
    cases = tuple(Case("x" * n, ("no",) if n > 3 else ("yes",)) for n in range(1, 30))
    chosen = Suite(cases).chosen(15).cases
    assert [len(case.input) for case in chosen] == [3, *range(16, 30)]
    assert {case.expected for case in chosen} == {("yes",), ("no",)}
    assert [len(case.input) for case in Suite(cases[3:]).chosen(3).cases] == [27, 28, 29]  # there is no other answer
    mixed = (Case("xx", ("1",)), Case("xxx", ("2",)), Case("x", ("3",)))
    assert [case.expected for case in Suite(mixed).chosen(2).cases] == [("1",), ("2",)]
