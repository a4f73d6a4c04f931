"""Small problems of our own for comparing graders, in the form that each grader takes."""

import enum
import json
from dataclasses import dataclass
from typing import Any


class Kind(enum.StrEnum):
    """Forms of problems, each for one grader."""

    STDIN = "stdin"  # LiveCodeBench's: text in, text out
    FUNCTIONAL = "functional"  # LiveCodeBench's: one argument a line, as JSON, and what is returned, as JSON
    HUMANEVAL = "humaneval"  # EvalPlus's: a list of arguments and what is returned, as literals of Python


@dataclass(frozen=True)
class Problem:
    """The tests of a program: pairs of input and expected output, and the function to call."""

    kind: Kind
    cases: tuple[tuple[str, str], ...]
    call: str | None = None

    def tests(self) -> Any:
        """Return the tests in a shape that `read_suite` reads."""
        if self.kind is Kind.HUMANEVAL:
            inputs, results = self._lists()
            return {
                "type": "assert",
                "code": f"def assertion(out, exp, atol):\n    assert out == exp\n\ndef check(candidate):\n"
                f"    inputs = {inputs}\n    results = {results}\n    for inp, exp in zip(inputs, results):\n"
                "        assertion(candidate(*inp), exp, 0)\n",
            }
        named = {"testtype": self.kind, "metadata": {"func_name": self.call}}
        return [{**named, "input": given, "output": expected} for given, expected in self.cases]

    def sample(self) -> dict[str, str]:
        """Return the problem as LiveCodeBench's grader takes it."""
        inputs, outputs = zip(*self.cases, strict=True)
        return {"input_output": json.dumps({"inputs": inputs, "outputs": outputs, "fn_name": self.call})}

    def literals(self) -> dict[str, Any]:
        """Return the problem as `under_evalplus.py` takes it."""
        inputs, expected = self._lists()
        return {"call": self.call, "inputs": inputs, "expected": expected}

    def _lists(self) -> list[str]:
        return [f"[{', '.join(texts)}]" for texts in zip(*self.cases, strict=True)]


PROBLEMS = {
    "total": Problem(Kind.STDIN, (("3\n1 2 3\n", "6\n"), ("1\n-5\n", "-5\n"), ("4\n10 20 30 40\n", "100\n"))),
    "unended": Problem(Kind.STDIN, (("1\n2\n3", "6"), ("5", "5"))),  # no newline at the end of the input
    "lengths": Problem(Kind.STDIN, (("ab\n\nabc\n", "2\n0\n3\n"),)),  # an empty line in it
    "returns": Problem(Kind.STDIN, (("ab\r\nba\r\n", "abba\n"),)),  # lines that end with a carriage return, too
    "half": Problem(Kind.STDIN, (("4\n", "2\n"), ("3\n", "1.5\n"), ("-1\n", "-0.5\n"))),
    "limits": Problem(Kind.STDIN, (("inf\n", "inf 1\n"), ("nan\n", "nan\n"))),
    "accents": Problem(Kind.STDIN, (("Zoë\n", "Zoë é\n"),)),
    "silence": Problem(Kind.STDIN, (("0\n", ""), ("1\n", "1\n"))),
    "zeros": Problem(Kind.STDIN, (("60000\n", "1" + 60000 * "0" + "\n"),)),
    "answer": Problem(Kind.STDIN, (("level\n", "Yes, it is\n"), ("lever\n", "No\n"))),
    "shifted": Problem(Kind.FUNCTIONAL, (("[1, 2]", "[2, 3]"), ("[5]", "[6]"), ("[]", "[]")), "shifted"),
    "pairs": Problem(Kind.FUNCTIONAL, (("[1, 2]\n[3, 4]", "[[1, 3], [2, 4]]"), ("[7]\n[8]", "[[7, 8]]")), "pairs"),
    "mean": Problem(Kind.FUNCTIONAL, (("[1, 2]", "1.5"), ("[2, 4]", "3.0"), ("[0.1, 0.5]", "0.3")), "mean"),
    "count": Problem(Kind.FUNCTIONAL, (('"abca"\n"a"', "2"), ('"xyz"\n"z"', "1"), ('"xyz"\n"x"', "1")), "count"),
    "tally": Problem(Kind.FUNCTIONAL, (('["a", "b", "a"]', '{"a": 2, "b": 1}'),), "tally"),
    "middle": Problem(Kind.HUMANEVAL, (("[[1.0, 2.0]]", "1.5"), ("[[1000.0, 3000.0]]", "2000.0")), "middle"),
    "small": Problem(Kind.HUMANEVAL, (("[1]", "0.5"),), "small"),
    "thirds": Problem(Kind.HUMANEVAL, (("[[3.0, 1.5]]", "[1.0, 0.5]"), ("[[]]", "[]")), "thirds"),
    "alike": Problem(Kind.HUMANEVAL, (("[2]", "[0.5, 0.5]"),), "alike"),
    "rows": Problem(Kind.HUMANEVAL, (("[[3.0]]", "[[1.0, 3.0]]"),), "rows"),
    "ends": Problem(Kind.HUMANEVAL, (("[[3, 1, 2]]", "(1, 3)"), ("[[]]", "None")), "ends"),
    "ratio": Problem(Kind.HUMANEVAL, (("[1, 2]", "0.5"), ("[3000000000, 1]", "3000000000")), "ratio"),
    "letters": Problem(Kind.HUMANEVAL, (("['abca']", "{'a', 'b', 'c'}"), ("['b']", "{'b'}")), "letters"),
    "words": Problem(Kind.HUMANEVAL, (("['a b']", "['a', 'b']"), ("['']", "[]")), "words"),
    "sums": Problem(Kind.HUMANEVAL, (("[4]", "10"), ("[5000]", "12502500")), "sums"),
    "long": Problem(Kind.HUMANEVAL, (("[5000]", repr("1" + 5000 * "0")),), "long"),
}
