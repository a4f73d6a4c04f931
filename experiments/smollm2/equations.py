"""Equations of word problems: found by search over the numbers in the text, worked in steps, put on other numbers.

MAWPS and SVAMP as they are here have none. What is found is the shortest arithmetic on numbers of the problem that
gives its answer. Where another of that length or one step longer does, as 4/2 beside 4-2, none is: 5 of 30 that were
read were right by accident when longer ones were not looked at.
"""

import operator
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from experiments.real.problems import Problem

NUMBER = re.compile(r"(?<![\d.,/])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\d/]|[.,]\d)")
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
MOST_NUMBERS = 5  # in a problem
MOST_STEPS = 3
MOST_DECIMALS = 2  # more is a fraction in disguise, as 0.8333333
TRIES = 300
APART = (10007, 20011, 40009, 80021, 160001)  # two equations that agree on these are the same


@dataclass(frozen=True)
class Step:
    """An operation on two values: those in the text count from 0 on, and the results of earlier steps follow them."""

    left: int
    operation: str
    right: int


Equation = tuple[Step, ...]


@dataclass(frozen=True)
class Worked:
    """A problem and an equation that gives its answer."""

    problem: Problem
    equation: Equation

    @property
    def numbers(self) -> list[str]:
        """All numbers of the problem, as the steps write them."""
        return [as_digits(value) for value in numbers_in(self.problem.text)]

    @property
    def steps(self) -> list[str]:
        """Each step with its value: `7-3=4`."""
        values = numbers_in(self.problem.text)
        values += work_out(self.equation, values)
        written = [as_digits(value) for value in values]
        results = written[-len(self.equation) :]
        return [
            f"{written[step.left]}{step.operation}{written[step.right]}={result}"
            for step, result in zip(self.equation, results, strict=True)
        ]

    @property
    def answer(self) -> str:
        """The value of the last step."""
        return self.steps[-1].rpartition("=")[2]

    def on_other_numbers(self, rng: random.Random) -> "Worked":
        """The same problem on other numbers of the same kind; itself where none come out as evenly in `TRIES` tries."""
        before = work_out(self.equation, numbers_in(self.problem.text))
        for _ in range(TRIES):
            text = NUMBER.sub(lambda found: _other(found[0], rng), self.problem.text)
            after = work_out(self.equation, numbers_in(text))
            if all(new > 0 and _decimals(new) <= _decimals(old) for new, old in zip(after, before, strict=True)):
                return Worked(Problem(text, as_digits(after[-1])), self.equation)
        return self


def numbers_in(text: str) -> list[Fraction]:
    """The numbers that a text writes as digits, in their order."""
    return [Fraction(number.replace(",", "")) for number in NUMBER.findall(text)]


def find(problem: Problem) -> Worked | None:
    """The problem with its equation; `None` if none gives the answer, or several of about the same length do."""
    numbers, answer = numbers_in(problem.text), Fraction(problem.answer.replace(",", ""))
    if len(numbers) > MOST_NUMBERS or any(_decimals(value) > MOST_DECIMALS for value in (*numbers, answer)):
        return None
    found = dict[Fraction, Equation]()
    for steps in range(1, MOST_STEPS + 1):
        last = bool(found)
        for equation in _equations(numbers, range(len(numbers)), steps, answer):
            found.setdefault(work_out(equation, [Fraction(value) for value in APART[: len(numbers)]])[-1], equation)
        if last:
            break
    return Worked(problem, next(iter(found.values()))) if len(found) == 1 else None


def _equations(values: Sequence[Fraction], unused: Sequence[int], steps: int, answer: Fraction) -> Iterator[Equation]:
    """All that give the answer in so many steps, of values that are each used once; every value positive and even."""
    for one, other in ((one, other) for one in unused for other in unused if one != other):
        for operation in OPERATIONS:
            if operation == "/" and not values[other]:
                continue
            step, value = Step(one, operation, other), OPERATIONS[operation](values[one], values[other])
            if value <= 0 or _decimals(value) > MOST_DECIMALS:
                continue
            if steps == 1 and value == answer:
                yield (step,)
            elif steps > 1:
                # A result comes before the numbers of the text, as it would be written.
                rest = [len(values), *(index for index in unused if index not in (one, other))]
                for equation in _equations([*values, value], rest, steps - 1, answer):
                    yield (step, *equation)


def work_out(equation: Equation, numbers: Sequence[Fraction]) -> list[Fraction]:
    """The value of each step."""
    values = list(numbers)
    for step in equation:
        values.append(OPERATIONS[step.operation](values[step.left], values[step.right]))
    return values[len(numbers) :]


def as_digits(value: Fraction) -> str:
    """A number as digits, of at most `MOST_DECIMALS` decimals."""
    return f"{float(value):.{_decimals(value)}f}"


def _decimals(value: Fraction) -> int:
    """Count the decimals of a number; one more than `MOST_DECIMALS` stands for all longer numbers."""
    return next((n for n in range(MOST_DECIMALS + 1) if (value * 10**n).denominator == 1), MOST_DECIMALS + 1)


def _other(number: str, rng: random.Random) -> str:
    """A number of as many decimals, half to twice as large; 0 and 1 stay, since words depend on them."""
    decimals = len(number.partition(".")[2])
    units = int(number.replace(",", "").replace(".", ""))
    if units <= 1:
        return number
    return f"{rng.randint(max(2, units // 2), 2 * units) / 10**decimals:.{decimals}f}"
