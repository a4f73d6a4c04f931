r"""Finds arithmetic that an answer does not carry out: tells `6\pi` from `\frac{60}{360} \cdot \pi \cdot 6^2`.

math-verify parses an expression into a tree and evaluates almost none of it, so missing steps are visible: a sum,
product, quotient or power of rational numbers, like terms that were not added up, a function of numbers whose value
needs no function (`\cos\frac{\pi}{3}`). A fraction, a power of ten with or without a factor, and an irrational root are
numbers. Each part of an answer may omit what the same part of the accepted one omits. Algebra is free: `2(x+1)` is
`2x+2`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import sympy
from math_verify.grader import is_relation
from sympy.core.function import Application, AppliedUndef

from e1_trl.answers.mathematics.equality import (
    PERCENT,
    TO_COMPUTE,
    Form,
    are_equal,
    is_unsolved,
    list_parts,
    take_last_side,
)

Kinds: TypeAlias = frozenset[str]
NONE: Kinds = frozenset()

OF_SETS = (sympy.Intersection, sympy.Complement)
LONG = 50  # bits; an accepted number longer than that may be written in any way, since nobody writes it out

# Operations that math-verify carries out while parsing. On matrices:
MATRIX = re.compile(r"\\begin\s*\{\w*(?:matrix|array)\}")
OF_MATRICES = re.compile(
    r"\\begin\s*\{[vV]matrix\}|\\(?:det|xrightarrow|operatorname\*?\s*\{(?:det|trace|tr|rref|norm|rank)\})|\|\s*\\begin"
)
# On numbers: the first pattern if the accepted answer is a number, the second if it has variables.
OF_NUMBERS = re.compile(
    r"\\(?:[dt]?binom|choose|Gamma|gcd|operatorname\s*\{(?:gcd|lcm)\})(?![a-zA-Z])|e\s*\^\s*\{?\s*\\ln|\|\s*_"
)
OF_DIGITS = re.compile(
    r"\\[dt]?binom\s*\{[^{}a-zA-Z]*\}\s*\{[^{}a-zA-Z]*\}|\{[^{}a-zA-Z\\]*\\choose[^{}a-zA-Z]*\}|\|\s*_"
)


def leaves_to_compute(gold: Form, answer: Form) -> bool:
    """Return whether an answer equal to the accepted one, unlike that, is still to be solved, integrated and so on."""
    if isinstance(answer, str) or isinstance(gold, str) or gold == answer:
        return False
    answer = take_last_side(gold, answer)
    if isinstance(gold, sympy.Set):
        unsolved = is_unsolved(answer, frozenset(gold.free_symbols))
    else:
        unsolved = is_relation(gold) and not is_unsolved(gold) and is_unsolved(answer, signed=True)
    return (
        unsolved or any(answer.has(kind) and not gold.has(kind) for kind in TO_COMPUTE) or _leaves_a_set(gold, answer)
    )


def leaves_arithmetic(gold: Form, answer: Form) -> bool:
    """Return whether a part of an answer equal to the accepted one omits arithmetic that the accepted part does not."""
    if isinstance(answer, str) or isinstance(gold, str) or gold == answer:
        return False
    answer = take_last_side(gold, answer)
    asked = [(part, *_evaluate(part)) for part in list_parts(gold)]
    for part in list_parts(answer):
        kinds = _evaluate(part)[1]
        allowed = (one for one, value, own in asked if kinds <= own or _is_long(value))
        if kinds and not any(are_equal([one], [part]) for one in allowed):
            return True
    if not isinstance(gold, sympy.Expr) or not isinstance(answer, sympy.Expr) or gold.is_Symbol or answer.is_Symbol:
        return False
    return bool(answer.free_symbols - gold.free_symbols)  # a variable cancels out: `6\pi + 0x`


def leaves_by_name(text: str, reference: str, gold: Form) -> bool:
    """Return whether an answer, unlike the accepted one, has an operation that math-verify carries out on parsing."""
    of_numbers = OF_NUMBERS if isinstance(gold, str) or not gold.free_symbols else OF_DIGITS
    if any(pattern.search(text) and not pattern.search(reference) for pattern in (OF_MATRICES, of_numbers)):
        return True
    return len(MATRIX.findall(text)) > len(MATRIX.findall(reference))  # a product of matrices, or their determinant


def _leaves_a_set(gold: sympy.Basic, answer: sympy.Basic) -> bool:
    for union in answer.atoms(sympy.Union):
        united = sympy.Union(*union.args)
        if not isinstance(united, sympy.Union) or len(united.args) < len(union.args):
            return True
    left = [found for kind in OF_SETS if not gold.has(kind) for found in answer.atoms(kind)]
    return any(found.args[0].args for found in left)  # unless it is the set of all numbers


def _is_long(value: sympy.Basic) -> bool:
    return any(max(abs(each.p), each.q).bit_length() > LONG for each in value.atoms(sympy.Rational))


def _evaluate(node: sympy.Basic) -> tuple[sympy.Basic, Kinds]:
    """Return the value of an expression and the kinds of arithmetic that it omits."""
    if not node.args or node == PERCENT or isinstance(node, (*TO_COMPUTE, sympy.MatrixExpr)):
        return node, NONE
    if node.is_Mul or (node.is_Pow and node.exp == -1):
        return _evaluate_product(node)
    values, kinds = _evaluate_all(node.args)
    value = node.func(*values)
    if node.is_Add and _adds_up(values):
        kinds |= {"sum"}
    elif node.is_Pow and value.is_number and not value.has(sympy.Pow, sympy.exp) and not _is_power_of_ten(node):
        kinds |= {"power"}
    elif isinstance(node, sympy.UnevaluatedExpr):
        kinds |= {"divisor"}  # the greatest common divisor, or the least common multiple
    elif isinstance(node, Application) and not isinstance(node, AppliedUndef):
        is_left = all(each.is_number for each in values) and not value.has(Application)
        kinds |= {node.func.__name__} if is_left else NONE
    return value, kinds


def _evaluate_all(nodes: Iterable[sympy.Basic]) -> tuple[list[sympy.Basic], Kinds]:
    evaluated = [_evaluate(node) for node in nodes]
    return [value for value, _ in evaluated], NONE.union(*(kinds for _, kinds in evaluated))


def _evaluate_product(node: sympy.Basic) -> tuple[sympy.Basic, Kinds]:
    factors = [(factor, below) for factor, below in _factors(node) if factor not in (sympy.S.One, PERCENT)]
    values, kinds = _evaluate_all(factor for factor, _ in factors)
    numbers = defaultdict[str, list[sympy.Basic]](list)
    others = list[sympy.Basic]()
    for value, (factor, below) in zip(values, factors, strict=True):
        if not _is_rational(value):
            others.append(1 / value if below else value)
        elif below:
            numbers["below"].append(value)
        elif value == -1:
            numbers["sign"].append(value)
        else:
            numbers["power" if _is_power_of_ten(factor) else "above"].append(value)
    if numbers["below"]:
        numbers["above"] += numbers.pop("power", [])
    if any(len(several) > 1 for several in numbers.values()) or _multiplies_out(others):
        kinds |= {"product"}
    elif numbers["below"]:
        (above,) = numbers["above"] or [sympy.S.One]
        (below,) = numbers["below"]
        if not (above.is_Integer and below.is_Integer and above % below != 0):  # an integer, or no fraction of integers
            kinds |= {"quotient"}
    divided = [1 / value for value in numbers.pop("below", [])]
    return sympy.Mul(*others, *divided, *(value for several in numbers.values() for value in several)), kinds


def _factors(node: sympy.Basic, below: bool = False) -> Iterator[tuple[sympy.Basic, bool]]:
    """Yield the factors of nested products and quotients, each with whether it is in the denominator."""
    if node.is_Mul:
        for factor in node.args:
            yield from _factors(factor, below)
    elif node.is_Pow and node.exp == -1:
        yield from _factors(node.base, not below)
    else:
        yield node, below


def _adds_up(values: Sequence[sympy.Basic]) -> bool:
    """Return whether the terms include two numbers, or two multiples of the same expression."""
    like = [sympy.S.One if _is_rational(value) else value.as_coeff_Mul()[1] for value in values]
    return len(set(like)) < len(like)


def _multiplies_out(factors: Sequence[sympy.Basic]) -> bool:
    r"""Return whether irrational factors have a rational factor only together, as `\sqrt{2} \cdot \sqrt{8}` has 4."""
    numbers = [factor for factor in factors if factor.is_number]
    alone = sympy.Mul(*(number.as_coeff_Mul()[0] for number in numbers))
    return len(numbers) > 1 and sympy.expand_mul(sympy.Mul(*numbers)).as_coeff_Mul()[0] != alone


def _is_rational(value: sympy.Basic) -> bool:
    return isinstance(value, (sympy.Rational, sympy.Float))


def _is_power_of_ten(node: sympy.Basic) -> bool:
    return bool(node.is_Pow and node.base == 10 and node.exp.is_Integer)
