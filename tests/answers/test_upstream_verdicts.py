"""Our verdicts beside those of the graders of LiveCodeBench and EvalPlus, as `upstream/record.py` has recorded them.

docs/results/upstream.md lists every difference with its reason; where there is none any more, a test fails.
"""

import json

import pytest
from boxed import boxed, named
from conftest import ROOT
from upstream.answers import fenced, texts
from upstream.problems import PROBLEMS, Kind

from e1_trl.answers.grade import Outcome
from e1_trl.answers.programs.formats import read_suite
from e1_trl.answers.programs.sandbox.box import Limits
from e1_trl.answers.programs.suite import Rule

DOCUMENT = ROOT / "docs" / "results" / "upstream.md"
RECORDED = json.loads((ROOT / "tests" / "answers" / "upstream" / "verdicts.json").read_text())
LIMITS = Limits(cpu=2.0, wall=60.0, memory=2**32, output=2**20)

# Right here, wrong there.
MORE_LENIENT = {
    "has a real stdin and stdout, with lines, buffer, descriptor; theirs are mocked": (
        "total: the last of readlines",
        "total: iterating stdin",
        "total: open(0)",
        "total: buffer.readline",
        "total: descriptors",
        "total: a descriptor's bytes as lines",
        "total: input, then read",
        "total: stdout by name",
        "total: stdout's buffer",
        "lengths: readlines",
        "accents: bytes",
    ),
    "is a module; theirs becomes a function below imports: `global`, `exec`, guards fail": (
        "total: global",
        "total: a class Solution",
        "total: a guard, reversed",
        "total: a guard, and more",
        "total: globals()",
        "total: exec",
        "total: an import of everything, tried",
        "total: an import from the future",
        "total: a byte order mark",
        "shifted: an import from the future",
    ),
    "is a process for each test: it may end itself, is waited for, and leaves nothing to the next": (
        "total: quit()",
        "total: os._exit(0), flushed",
        "total: a thread that is not joined",
        "count: a default that is kept",
        "count: right in the first call",
        "words: a default that is kept",
    ),
    "may define a function or a method of a class Solution, whatever the tests call": (
        "shifted: a class Solution, and a function beside it",
        "shifted: a class Solution in a comment",
        "middle: a method of Solution",
    ),
    "may return tuples for lists, lists for tuples, and numpy's arrays, at every depth": (
        "shifted: numpy's array",
        "pairs: tuples in a list",
        "thirds: numpy's array",
        "ends: a list",
    ),
    "may return floats within 1e-6 of them, nested and of other types; there 1e-7, flat": (
        "middle: within a millionth",
        "middle: numpy, nearly",
        "thirds: nearly, in a tuple",
        "rows: nearly",
    ),
    "has the names of the usual modules without importing them": (
        "middle: a name without its import",
        "middle: a type without its import",
    ),
    "may recurse 50,000 deep (EvalPlus: 1,000) and write integers of any length": (
        "zeros: an integer",
        "sums: recursion",
        "long: an integer as text",
    ),
    "is the last block that calls itself Python, as Markdown has it: indented, longer and foreign fences": (
        "total, answer: an output below",
        "total, answer: an output below, without a language",
        "total, answer: ticks in the text below",
        "total, answer: a longer fence",
        "total, answer: indented, in a list",
    ),
    "is all of the last block; there, decorators, statements and second definitions are cut": (
        "middle, answer: a longer try, then the answer",
        "middle, answer: defined twice",
        "sums, answer: a cached helper",
        "sums, answer: a table that a loop fills",
        "sums, answer: recursion with a limit",
    ),
}
# Wrong here, right there.
STRICTER = {
    "must be Python by itself, end with status 0, and take at most 4 GiB": (
        "total: a return at the top",
        "accents: an encoding that it is not in",
        "total: sys.exit(1)",
        "total: much memory",
    ),
    "must write numbers in ASCII digits: no `1_0`, and no `Infinity` for `inf`": (
        "total: underscores",
        "total: digits of another script",
        "limits: other letters for infinity",
    ),
    "must return plain values: no Decimal, Fraction or view, no class with an `==` of its own": (
        "shifted: Decimals",
        "shifted: equal to anything",
        "middle: Fraction",
        "letters: the keys of a dictionary",
    ),
    "has one tolerance, for floats; theirs adds two, and after a float takes integers and shapes, too": (
        "small: a little over a millionth away",
        "alike: a column",
        "ratio: a large integer, a little off",
    ),
    "must be in a closed block, the last one, without tests that fail; there, any text does": (
        "middle, answer: no block",
        "middle, answer: never closed",
        "middle, answer: a use of it below",
        "middle, answer: own tests that fail",
    ),
}


@pytest.fixture(scope="module")
def theirs() -> dict[str, bool]:
    return RECORDED["LiveCodeBench"]["verdicts"] | RECORDED["EvalPlus"]["verdicts"]


@pytest.fixture(scope="module")
def ours() -> dict[str, Outcome]:
    solutions, suites = [], []
    for text in texts().values():
        problem = PROBLEMS[text.problem]
        rule = Rule.TOLERANT if problem.kind is Kind.HUMANEVAL else Rule.EXACT
        solutions.append(text.text if text.is_answer else fenced(text.text))
        suites.append(named(read_suite(problem.tests(), rule, problem.call)))
    with boxed(LIMITS) as grader:
        return dict(zip(texts(), (grade.outcome for grade in grader.grade(solutions, suites)), strict=True))


def test_every_program_has_a_verdict_of_theirs(theirs: dict[str, bool]) -> None:
    assert theirs.keys() == texts().keys()


@pytest.mark.slow
def test_our_verdicts_are_theirs_but_for_what_is_listed(ours: dict[str, Outcome], theirs: dict[str, bool]) -> None:
    right = {name: outcome is Outcome.CORRECT for name, outcome in ours.items()}
    found = {name: right[name] for name in right if right[name] is not theirs[name]}
    listed = {name: True for names in MORE_LENIENT.values() for name in names}
    assert found == listed | {name: False for names in STRICTER.values() for name in names}


def test_the_document_tells_the_differences_and_how_many_there_are(theirs: dict[str, bool]) -> None:
    document = DOCUMENT.read_text()
    for reason, names in (MORE_LENIENT | STRICTER).items():
        assert f"| {reason} | {len(names)} |" in document
    more_lenient, stricter = (sum(map(len, table.values())) for table in (MORE_LENIENT, STRICTER))
    agreed = len(theirs) - more_lenient - stricter
    assert (
        f"{agreed} of {len(theirs)} verdicts agree, {more_lenient} are more lenient and {stricter} stricter" in document
    )


@pytest.mark.parametrize("material", ["HumanEval+", "LeetCode"])
def test_the_document_tells_how_often_verdicts_agree_on_real_problems(material: str) -> None:
    (row,) = [line for line in DOCUMENT.read_text().splitlines() if f"| {material}, " in line]
    counted = RECORDED[material]["counted"]
    agreed = {sort: of.get("both right", 0) + of.get("both wrong", 0) for sort, of in counted.items()}
    told = [f"{agreed[sort]} of {sum(of.values())}" for sort, of in counted.items()]
    told.insert(2, str(counted["mutants"]["both right"]))
    assert row.endswith(f"| {' | '.join(told)} |")
    assert not any("only theirs right" in of for of in counted.values())
