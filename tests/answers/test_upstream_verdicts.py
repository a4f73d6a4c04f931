"""Our verdicts compared with those of the graders of LiveCodeBench and EvalPlus, recorded by `upstream/record.py`.

docs/results/upstream.md lists every difference with its reason; a test fails where a listed one is gone.
"""

import json

import pytest
from boxed import boxed, named
from conftest import ROOT
from tables import read_table
from upstream.answers import fenced, texts
from upstream.problems import PROBLEMS, Kind

from e1_trl.answers.programs.rows import read_suite
from e1_trl.answers.programs.sandbox.process import Limits
from e1_trl.answers.programs.suite import Rule

DOCUMENT = ROOT / "docs" / "results" / "upstream.md"
RECORDED = json.loads((ROOT / "tests" / "answers" / "upstream" / "verdicts.json").read_text())
LIMITS = Limits(cpu=2.0, wall=60.0, memory=2**32, output=2**20)

# Right here, wrong there.
MORE_LENIENT = """
has a real stdin and stdout, with lines, buffer, descriptor; theirs are mocked
    total: the last of readlines | iterating stdin | open(0) | buffer.readline | descriptors
        a descriptor's bytes as lines | input, then read | stdout by name | stdout's buffer
    lengths: readlines
    accents: bytes
is a module; theirs becomes a function below imports: `global`, `exec`, guards fail
    total: global | a class Solution | a guard, reversed | a guard, and more | globals() | exec
        an import of everything, tried | an import from the future | a byte order mark
    shifted: an import from the future
is begun anew for each test: it may end itself, is waited for, and leaves nothing to the next
    total: quit() | os._exit(0), flushed | a thread that is not joined
    count: a default that is kept | right in the first call
    words: a default that is kept
may define a function or a method of a class Solution, whatever the tests call
    shifted: a class Solution, and a function beside it | a class Solution in a comment
    middle: a method of Solution
may return tuples for lists, lists for tuples, and numpy's arrays, at every depth
    shifted: numpy's array
    pairs: tuples in a list
    thirds: numpy's array
    ends: a list
may return floats within 1e-6 of them, nested and of other types; there 1e-7, flat
    middle: within a millionth | numpy, nearly
    thirds: nearly, in a tuple
    rows: nearly
has the names of the usual modules without importing them
    middle: a name without its import | a type without its import
may recurse 50,000 deep (EvalPlus: 1,000) and write integers of any length
    zeros: an integer
    sums: recursion
    long: an integer as text
is the last block that calls itself Python, as Markdown has it: indented, longer and foreign fences
    total, answer: an output below | an output below, without a language | ticks in the text below | a longer fence
        indented, in a list
is all of the last block; there, decorators, statements and second definitions are cut
    middle, answer: a longer try, then the answer | defined twice
    sums, answer: a cached helper | a table that a loop fills | recursion with a limit
"""
# Wrong here, right there.
STRICTER = """
must be Python by itself, end with status 0, and take at most 4 GiB
    total: a return at the top | sys.exit(1) | much memory
    accents: an encoding that it is not in
must write numbers in ASCII digits: no `1_0`, and no `Infinity` for `inf`
    total: underscores | digits of another script
    limits: other letters for infinity
must return plain values: no Decimal, Fraction or view, no class with an `==` of its own
    shifted: Decimals | equal to anything
    middle: Fraction
    letters: the keys of a dictionary
has one tolerance, for floats; theirs adds two, and after a float takes integers and shapes, too
    small: a little over a millionth away
    alike: a column
    ratio: a large integer, a little off
must be in a closed block, the last one, without tests that fail; there, any text does
    middle, answer: no block | never closed | a use of it below | own tests that fail
"""


def listed(differences: str) -> dict[str, list[str]]:
    """Return the names of verdicts by reason."""
    return {
        reason: [f"{problem}: {title}" for problem, titles in problems.items() for title in titles]
        for reason, problems in read_table(differences).items()
    }


LENIENT_NAMES = listed(MORE_LENIENT)
STRICT_NAMES = listed(STRICTER)
THEIRS = RECORDED["LiveCodeBench"]["verdicts"] | RECORDED["EvalPlus"]["verdicts"]


def test_every_program_has_a_verdict_of_theirs() -> None:
    assert THEIRS.keys() == texts().keys()


@pytest.mark.slow
def test_our_verdicts_are_theirs_but_for_what_is_listed() -> None:
    solutions = []
    suites = []
    for text in texts().values():
        problem = PROBLEMS[text.problem]
        rule = Rule.TOLERANT if problem.kind is Kind.HUMANEVAL else Rule.EXACT
        solutions.append(text.text if text.is_answer else fenced(text.text))
        suites.append(named(read_suite(problem.tests(), rule, problem.call)))
    with boxed(LIMITS) as grader:
        ours = dict(zip(texts(), (grade.correct for grade in grader.grade(solutions, suites)), strict=True))
    differing = {name: right for name, right in ours.items() if right is not THEIRS[name]}
    expected = {name: True for names in LENIENT_NAMES.values() for name in names}
    assert differing == expected | {name: False for names in STRICT_NAMES.values() for name in names}


def test_the_document_tells_the_differences_and_how_many_there_are() -> None:
    document = DOCUMENT.read_text()
    for reason, names in (LENIENT_NAMES | STRICT_NAMES).items():
        assert f"| {reason} | {len(names)} |" in document
    more_lenient, stricter = (sum(map(len, names.values())) for names in (LENIENT_NAMES, STRICT_NAMES))
    agreed = len(THEIRS) - more_lenient - stricter
    told = f"{agreed} of {len(THEIRS)} verdicts agree, {more_lenient} are more lenient and {stricter} stricter"
    assert told in document
