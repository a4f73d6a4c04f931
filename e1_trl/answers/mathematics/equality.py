r"""Whether two answers are equal: as math-verify finds, and then exactly.

math-verify takes a difference below 1e-15 for none where a root, a power or a variable stands beside it, so that it
finds `1 - 2^{-100}` equal to `1 - 2^{-101}`. Numbers without a decimal point are compared here until they differ.
"""

from typing import Any

import sympy
from math_verify import verify
from math_verify.grader import is_equation, take_last_relation
from sympy.core.evalf import PrecisionExhausted
from sympy.core.function import AppliedUndef
from sympy.logic.boolalg import Boolean

from e1_trl.answers.mathematics.reading import Form, Forms

VARIABLE = (sympy.Symbol, AppliedUndef)
DIGITS = 1000  # to which the difference of two numbers is computed, if need be
TINY = 1e-3  # decimals below it are compared by their ratio, too
TINY_TOLERANCE = 1e-2
PERCENT = sympy.UnevaluatedExpr(sympy.Rational(1, 100))  # as math-verify reads it
IMAGINARY = sympy.Symbol("i", real=False)  # the same
TO_COMPUTE = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Derivative, sympy.Limit)


def are_equal(gold: Forms, answer: Forms) -> bool:
    r"""Whether an answer equals the accepted one, in whichever of two notations either is.

    An inequality is the interval that it describes, several are the union of theirs, and `e^{i\pi/3}` is a number.
    """
    if _verify(gold, answer):
        return True
    if not (gold and answer) or isinstance(gold[0], str) or isinstance(answer[0], str):
        return False
    asked, given = _united(gold[0], answer[0]), _united(answer[0], gold[0])
    if asked.has(sympy.exp) or given.has(sympy.exp):
        asked, given = (form.xreplace({IMAGINARY: sympy.I}) for form in (asked, given))
    return (asked, given) != (gold[0], answer[0]) and _verify([asked], [given])


def _verify(gold: Forms, answer: Forms) -> bool:
    return verify(gold, answer, allow_set_relation_comp=True, timeout_seconds=None)


def _united(form: sympy.Basic, other: sympy.Basic) -> sympy.Basic:
    r"""The union that inequalities describe, as `x < 1 \text{ or } x > 2` does, where the other form is a set."""
    if not isinstance(form, sympy.FiniteSet) or isinstance(other, sympy.FiniteSet) or not isinstance(other, sympy.Set):
        return form
    if len(form.free_symbols) != 1 or not all(isinstance(each, Boolean) for each in form.args):
        return form
    union = sympy.Union(*(each.as_set() for each in form.args))
    return union if len(union.args) == len(form.args) else form  # of `x > 1 \text{ and } x < 3` all numbers


def list_parts(form: Form) -> list[sympy.Expr]:
    """The expressions that an answer is made of: elements, entries, ends of intervals, sides of relations."""
    if isinstance(form, sympy.MatrixBase):
        return list(form.flat())
    if isinstance(form, sympy.Expr):
        return [form]
    return [] if isinstance(form, str) else [part for each in form.args for part in list_parts(each)]


def take_last_side(gold: Form, answer: sympy.Basic) -> sympy.Basic:
    r"""The last side of an equation that has all of the answer there, as in `A = \frac{4}{2} = 2`; else the answer."""
    if not is_equation(answer):
        return answer
    last = take_last_relation(answer).rhs
    return last if are_equal([gold], [last]) else answer


def is_unsolved(form: Form, known: frozenset[sympy.Basic] = frozenset(), signed: bool = False) -> bool:
    """Whether there is a relation in an answer of something else than a variable, `signed` or not, as `x^2 < 4` is."""
    relations = set() if isinstance(form, (str, sympy.MatrixBase)) else form.atoms(sympy.Rel)
    sides = {side for relation in relations for side in relation.args if side.free_symbols - known}
    return any(not isinstance(side, VARIABLE) and not (signed and isinstance(-side, VARIABLE)) for side in sides)


def is_exact(gold: Form, answer: Form) -> bool:
    """Whether each number in an answer that equals the accepted one is a number of that, to the last digit."""
    if gold == answer or isinstance(gold, str) or isinstance(answer, str):
        return True
    if _have_no_solution(gold, answer):
        return False
    answer = take_last_side(gold, answer)
    if is_unsolved(gold) or is_unsolved(answer):
        return True
    asked, given = ([part for part in list_parts(form) if _is_compared(part)] for form in (gold, answer))
    return not asked or all(any(not _differ(one, other) for one in asked) for other in given)


def _have_no_solution(gold: Form, answer: Form) -> bool:
    """Whether two equations are equal only in that they have no solution, as `f(1) = 0` and `1 = 0` have none."""
    if not (isinstance(gold, sympy.Eq) and isinstance(answer, sympy.Eq)):
        return False
    if not all(isinstance(side, sympy.Expr) for side in (*gold.args, *answer.args)):
        return False
    asked, given = gold.lhs - gold.rhs, answer.lhs - answer.rhs
    return not (are_equal([asked], [given]) or are_equal([asked], [-given]) or sympy.solve(gold, gold.free_symbols))


def _is_compared(part: sympy.Expr) -> bool:
    if isinstance(part, (*VARIABLE, sympy.MatrixExpr)):
        return False
    return not part.has(*TO_COMPUTE, sympy.oo, -sympy.oo)


def _differ(gold: sympy.Expr, answer: sympy.Expr) -> bool:
    """Whether two expressions that math-verify finds equal differ."""
    if gold == answer:
        return False
    without_percent: list[dict[Any, Any]] = [{}, {PERCENT: sympy.S.One}]  # 12 is right for 12%, and back
    return all(
        _differ_in_value(gold.xreplace(own), answer.xreplace(other))
        for own in without_percent
        for other in without_percent
        if gold.has(PERCENT) or not own
        if answer.has(PERCENT) or not other
    )


def _differ_in_value(gold: sympy.Expr, answer: sympy.Expr) -> bool:
    gold, answer = (side.xreplace({IMAGINARY: sympy.I}).doit() for side in (gold, answer))
    if gold.has(sympy.Float) or answer.has(sympy.Float):
        if not all(value.is_number and value.is_real for value in (gold, answer)):
            return False
        expected, given = gold.evalf(), answer.evalf()
        return bool(0 < abs(expected) < TINY and abs(given - expected) > TINY_TOLERANCE * abs(expected))
    difference = gold - answer
    # Somewhere: two expressions that are equal are so everywhere.
    somewhere = {symbol: sympy.Rational(2 * i + 7, i + 2) for i, symbol in enumerate(_ordered(difference))}
    try:
        value = difference.subs(somewhere).evalf(3, maxn=DIGITS, strict=True)
    except PrecisionExhausted:
        return False
    return value.is_number and value != 0 and (not somewhere or sympy.simplify(difference) != 0)


def _ordered(expression: sympy.Expr) -> list[sympy.Basic]:
    return sorted(expression.free_symbols, key=str)
