"""A small language of real Python functions: described in English, planned in order, written as a program.

A function does three to six things to a list, a number or a text. The description names what each makes, in any order;
the thinking puts them into the order in which they must be done, and the solution is the program:

    problem    Write f(xs). b is the sum of e. d is xs in order. e is the squares of d. Return b.
    thinking   d is xs in order. e is the squares of d. Wait e is the squares of d. b is the sum of e.
    solution   ```python
               def f(xs):
                   y = sorted(xs)
                   y = [x * x for x in y]
                   y = sum(y)
                   return y
               ```
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from experiments.pretraining import rechecked

NAMES = "abcdeghk"
DIGITS = range(2, 10)
CALLS = 5  # hidden tests of a function, at least
DIFFERENT = 3  # results among them, at least
TRIES = 60  # calls of which the tests are chosen
FENCE = "```"
CHUNK = re.compile(r"\n +|\n|```python|```| ?[A-Za-z]+| ?[^\sA-Za-z]")  # what is one token


@dataclass(frozen=True)
class Operation:
    """One thing to do: what it takes and gives, its English and its Python; `{v}` is a value, `{k}` a digit."""

    takes: str
    gives: str
    phrase: str
    code: str


OPERATIONS = tuple(
    Operation(*parts)
    for parts in (
        ("list", "list", "the even numbers in {v}", "[x for x in {v} if x % 2 == 0]"),
        ("list", "list", "the odd numbers in {v}", "[x for x in {v} if x % 2 == 1]"),
        ("list", "list", "the numbers in {v} above {k}", "[x for x in {v} if x > {k}]"),
        ("list", "list", "the numbers in {v} below {k}", "[x for x in {v} if x < {k}]"),
        ("list", "list", "the squares of {v}", "[x * x for x in {v}]"),
        ("list", "list", "{v} with {k} added to each", "[x + {k} for x in {v}]"),
        ("list", "list", "{v} with each times {k}", "[x * {k} for x in {v}]"),
        ("list", "list", "{v} from the back", "{v}[::-1]"),
        ("list", "list", "{v} in order", "sorted({v})"),
        ("list", "list", "{v} without its first {k}", "{v}[{k}:]"),
        ("list", "list", "the first {k} of {v}", "{v}[:{k}]"),
        ("list", "number", "the sum of {v}", "sum({v})"),
        ("list", "number", "the size of {v}", "len({v})"),
        ("list", "number", "the largest of {v} or 0", "max({v}, default=0)"),
        ("list", "number", "the smallest of {v} or 0", "min({v}, default=0)"),
        ("number", "number", "{v} plus {k}", "{v} + {k}"),
        ("number", "number", "{v} minus {k}", "{v} - {k}"),
        ("number", "number", "{k} times {v}", "{k} * {v}"),
        ("number", "number", "the remainder of {v} by {k}", "{v} % {k}"),
        ("number", "number", "half of {v} if it is even, else {v} plus {k}", "{v} // 2 if {v} % 2 == 0 else {v} + {k}"),
        ("number", "number", "{v} but at most {k}", "min({v}, {k})"),
        ("number", "number", "{v} without its sign", "abs({v})"),
        ("number", "text", "{v} written out", "str({v})"),
        ("text", "text", "{v} in capitals", "{v}.upper()"),
        ("text", "text", "{v} from the back", "{v}[::-1]"),
        ("text", "text", "{v} without its first {k}", "{v}[{k}:]"),
        ("text", "text", "{v} written {k} times", "{v} * {k}"),
        ("text", "text", "{v} with dots for spaces", "{v}.replace(' ', '.')"),
        ("text", "number", "the length of {v}", "len({v})"),
        ("text", "list", "the lengths of the words of {v}", "[len(x) for x in {v}.split()]"),
    )
)
ARGUMENTS = {"list": "xs", "number": "n", "text": "s"}
WORDS = ("some", "Red", "a", "tiny", "horse", "in", "Snow", "and", "bread", "of", "Clay")


@dataclass(frozen=True)
class Function:
    """A function of the language: what it is given, and what it does, first thing first."""

    given: str
    operations: tuple[Operation, ...]
    digits: tuple[int, ...]
    names: tuple[str, ...]  # of what each operation makes
    order: tuple[int, ...]  # in which the description names them

    @classmethod
    def sample(cls, rng: random.Random, fewest: int, most: int) -> "Function":
        """A random function of so many operations."""
        count = rng.randint(fewest, most)
        given = kind = rng.choice(sorted(ARGUMENTS))
        operations = []
        for _ in range(count):
            operation = rng.choice([each for each in OPERATIONS if each.takes == kind])
            operations.append(operation)
            kind = operation.gives
        digits = tuple(rng.choice(DIGITS) for _ in range(count))
        order = rng.sample(range(count), count)
        return cls(given, tuple(operations), digits, tuple(rng.sample(NAMES, count)), tuple(order))

    @property
    def steps(self) -> list[str]:
        """Results of the operations in the order of their execution: the concise plan."""
        values = (ARGUMENTS[self.given], *self.names)
        parts = zip(self.operations, self.digits, values, self.names, strict=False)
        return [f"{name} is {operation.phrase.format(v=value, k=digit)}. " for operation, digit, value, name in parts]

    @property
    def problem(self) -> str:
        steps = self.steps
        described = "".join(steps[position] for position in self.order)
        return f"Write f({ARGUMENTS[self.given]}). {described}Return {self.names[-1]}."

    def thinking(self, rng: random.Random) -> str:
        """The plan, with steps rechecked."""
        return rechecked(self.steps, rng).rstrip()

    @property
    def program(self) -> str:
        argument = ARGUMENTS[self.given]
        values = (argument, *("y" for _ in self.operations))
        parts = zip(self.operations, self.digits, values, strict=False)
        lines = [f"    y = {operation.code.format(v=value, k=digit)}\n" for operation, digit, value in parts]
        return f"def f({argument}):\n{''.join(lines)}    return y\n"

    @property
    def solution(self) -> str:
        return f"{FENCE}python\n{self.program}{FENCE}"

    def without(self, position: int) -> "Function":
        """The function that leaves one thing out; its types need not fit."""

        def others(values: tuple[Any, ...]) -> tuple[Any, ...]:
            return (*values[:position], *values[position + 1 :])

        order = tuple(range(len(self.operations) - 1))
        return Function(self.given, others(self.operations), others(self.digits), others(self.names), order)

    def slips(self) -> "Iterator[Function]":
        """The functions that take a digit for another one that stands near it."""
        for position, operation in enumerate(self.operations):
            if "{k}" not in operation.phrase:
                continue
            for digit in {*self.digits, self.digits[position] - 1} - {self.digits[position]}:
                digits = (*self.digits[:position], digit, *self.digits[position + 1 :])
                yield replace(self, digits=digits)

    def tests(self, rng: random.Random) -> list[tuple[Any, Any]] | None:
        """Arguments with what is expected, which tell the function from each that leaves one thing out, from a
        constant, and from slips that one of the arguments tried can tell; None where they cannot."""
        call = made(self.program)
        tried = [(given, call(given)) for given in (argument(self.program, rng) for _ in range(TRIES))]
        shorter = [made(self.without(position).program) for position in range(len(self.operations))]
        open_ = [*shorter, *(made(slip.program) for slip in self.slips())]
        chosen: list[tuple[Any, Any]] = []
        for given, expected in tried:
            caught = [other for other in open_ if other(given) != expected]
            if caught:
                chosen.append((given, expected))
                open_ = [other for other in open_ if other not in caught]
        seen = {json.dumps(expected) for _, expected in chosen}
        for given, expected in tried:
            if len(chosen) < CALLS and json.dumps(expected) not in seen:
                chosen.append((given, expected))
                seen.add(json.dumps(expected))
        missed = any(other in open_ for other in shorter)
        return None if missed or len(chosen) < CALLS or len(seen) < DIFFERENT else chosen


def made(program: str) -> Callable[[Any], Any]:
    """The function f that a program of our own making defines; it returns None where it fails."""
    defined: dict[str, Any] = {}
    exec(program, defined)

    def call(argument: Any) -> Any:
        try:
            return defined["f"](argument)
        except (TypeError, ValueError, AttributeError):
            return None

    return call


def argument(program: str, rng: random.Random) -> Any:
    """Something to call the function of a program with."""
    if program.startswith("def f(xs)"):
        return [rng.randint(-9, 20) for _ in range(rng.randint(4, 12))]
    if program.startswith("def f(n)"):
        return rng.randint(-60, 60)
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(2, 6)))


def chunks(text: str) -> list[str]:
    """The tokens of a text of the language, as text."""
    return CHUNK.findall(text)


def vocabulary() -> list[str]:
    """All tokens that the language needs."""
    found = dict.fromkeys(chunks(" ".join(["Write f(). Return.", "Wait", "is", *ARGUMENTS.values(), *NAMES])))
    for start in ("", " "):
        for word in ("Write", "Wait", *ARGUMENTS.values(), *NAMES, *map(str, range(10)), "y", "is", "Return"):
            found[start + word] = None
    for operation in OPERATIONS:
        for value in ("xs", "n", "s", "y", *NAMES):
            for digit in DIGITS:
                for text in (operation.phrase, f" {operation.phrase}. ", operation.code, f" {operation.code}\n    y"):
                    found |= dict.fromkeys(chunks(text.format(v=value, k=digit)))
    found |= dict.fromkeys(chunks(f"{FENCE}python\ndef f(xs):\n    y = xs\n    return y\n{FENCE}"))
    return sorted(found)


def problems(seed: str, fewest: int, most: int, without: set[str]) -> Iterator[dict[str, Any]]:
    """Different problems with their tests, as LeetCode has them, and none whose description is in `without`."""
    rng = random.Random(seed)
    while True:
        function = Function.sample(rng, fewest, most)
        tests = function.tests(rng)
        if tests is None or function.problem in without:
            continue
        without.add(function.problem)
        lines = "".join(f"    assert candidate({given!r}) == {expected!r}\n" for given, expected in tests)
        yield {
            "problem": function.problem,
            "tests": json.dumps({"type": "assert", "code": f"def check(candidate):\n{lines}"}),
            "entry_point": "f",
            "solutions": [function.program],
        }
