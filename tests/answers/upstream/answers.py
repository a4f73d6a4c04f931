"""Answers to the problems from which a program is to be extracted; and everything that is graded, by name."""

from dataclasses import dataclass

from upstream.programs import PROGRAMS, TOTAL


def fenced(program: str, tag: str = "python", fence: str = "```") -> str:
    return f"{fence}{tag}\n{program.rstrip()}\n{fence}\n"


LONGER = "def middle(xs):\n    if not xs:\n        return 0\n    first = xs[0]\n    return first"
MEAN = "def middle(xs):\n    n = len(xs)\n    return sum(xs) / n"
CACHED = "from functools import cache\n@cache\ndef up(n):\n    return n * (n + 1) // 2\ndef sums(n):\n    return up(n)"
TABLE = "table = {}\nfor n in range(5001):\n    table[n] = n * (n + 1) // 2\ndef sums(n): return table[n]"

# By problem, answers from which a program is to be extracted.
ANSWERS: dict[str, dict[str, str]] = {
    "total": {
        "one block": f"So:\n{fenced(TOTAL)}It adds.",
        "without a language": fenced(TOTAL, ""),
        "a try, then the answer": f"{fenced('print(0)')}No, better:\n{fenced(TOTAL)}",
        "an output below": f"{fenced(TOTAL)}It prints\n{fenced('6', 'text')}",
        "an output below, without a language": f"{fenced(TOTAL)}It prints\n{fenced('6', '')}",
        "ticks in the text below": f"{fenced(TOTAL)}where ```sum``` adds.",
        "a longer fence": f"{fenced(TOTAL + 'note = ' + repr('```'), fence='````')}",
        "indented, in a list": f"1. So:\n   {fenced(TOTAL).rstrip()}\n".replace("\n", "\n   "),
        "never closed": f"```python\n{TOTAL}",
        "closed, then begun anew": f"{fenced(TOTAL)}Or:\n```python\nn = ",
        "no block": TOTAL,
    },
    "middle": {
        "one block": f"So:\n{fenced(MEAN)}It divides.",
        "no block": MEAN,
        "never closed": f"```python\n{MEAN}\n",
        "a use of it below": f"{fenced(MEAN)}For example:\n{fenced('print(middle([1, 2]))')}",
        "a longer try, then the answer": f"{fenced(LONGER)}No:\n{fenced(MEAN)}",
        "own tests that fail": fenced(f"{MEAN}\nassert middle([1]) == 2"),
        "defined twice": fenced(f"def middle(xs): return 0\n{MEAN}"),
    },
    "sums": {
        "a cached helper": fenced(CACHED),
        "a table that a loop fills": fenced(TABLE),
        "recursion with a limit": fenced(PROGRAMS["sums"]["recursion with a limit"]),
    },
}


@dataclass(frozen=True)
class Text:
    """A program, or an answer from which one is to be extracted, for a problem by name."""

    problem: str
    text: str
    is_answer: bool


def texts() -> dict[str, Text]:
    """Return all of them by the names of their verdicts."""
    programs = {
        f"{name}: {title}": Text(name, text, False) for name in PROGRAMS for title, text in PROGRAMS[name].items()
    }
    answers = {
        f"{name}, answer: {title}": Text(name, text, True) for name in ANSWERS for title, text in ANSWERS[name].items()
    }
    return programs | answers
