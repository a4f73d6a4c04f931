r"""Parses and compares answers: by math-verify, and then exactly.

math-verify ignores differences below 1e-15 in expressions with roots, powers or variables, and so finds `1 - 2^{-100}`
equal to `1 - 2^{-101}`. Here numbers without a decimal point are computed to as many digits as it takes to tell.
"""

import re
from typing import Any, TypeAlias

import sympy
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from math_verify.grader import is_equation, take_last_relation
from math_verify.parser import NormalizationConfig, normalize_latex
from sympy.core.evalf import PrecisionExhausted
from sympy.core.function import AppliedUndef
from sympy.logic.boolalg import Boolean

from e1_trl.answers.mathematics.spellings import LAST_WORDS, keep_text, readable, write_both_signs

Form: TypeAlias = sympy.Basic | sympy.MatrixBase | str
Forms: TypeAlias = list[Form]  # from math-verify: the expression if it could parse one, then the text

# Keeps units and words, so that a second number among them is noticed.
AS_WRITTEN = NormalizationConfig(units=False, malformed_operators=True, nits=False, boxed="none")
VARIABLE = (sympy.Symbol, AppliedUndef)
LAST_SIDE = re.compile(r"[^=,;]*[^=,;<>!]=([^=]*)")
DELIMITERS = re.compile(r"\\?\$|\\[()\[\]]")
TEXTS = re.compile(r"\\(?:text|mbox|math|begin|end)[a-z]*\s*\{[^{}]*\}|\\[a-zA-Z]+|\b(?:and|or)\b")
WORD = re.compile("[a-zA-Z]{2,}")
DIGITS = 1000  # most digits to which the difference of two numbers is computed
TINY = 1e-3  # below it, decimals are also compared by their ratio
TINY_TOLERANCE = 1e-2
PERCENT = sympy.UnevaluatedExpr(sympy.Rational(1, 100))  # as math-verify parses it
IMAGINARY = sympy.Symbol("i", real=False)  # as math-verify parses it
TO_COMPUTE = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Derivative, sympy.Limit)


def as_written(text: str) -> str:
    """Normalize an answer to LaTeX without dropping what math-verify drops."""
    return normalize_latex(readable(text), AS_WRITTEN)


def read(boxed: str, whole: bool = False) -> Forms:
    """Parse the content of a box; as a `whole`, its last letter is a variable, and no unit that would be dropped."""
    latex = readable(boxed)
    latex = "{" + LAST_WORDS.sub("", latex.strip(" $.")).strip(" $.") + "}" if whole else latex
    forms = _read(latex)
    if whole and forms and isinstance(forms[0], sympy.FiniteSet) and len(forms[0].args) == 1:
        inner = forms[0].args[0]  # of the braces
        forms = [inner if isinstance(inner, Boolean) else forms[0], *forms[1:]]
    if not is_read(forms) and (signed := write_both_signs(latex)) != latex:
        return _read(signed)
    if not is_read(forms) and (side := last_side(latex)):  # `P(A \mid B) = \frac{1}{2}`
        return _read(side)
    return forms


def last_side(latex: str) -> str | None:
    """Return what is behind the one equals sign of an answer, if that is in no group."""
    found = LAST_SIDE.fullmatch(latex)
    return found[1] if found and found[1].count("{") == found[1].count("}") else None


def is_read(forms: Forms) -> bool:
    """Return whether math-verify parsed an expression, not only a text."""
    return any(isinstance(form, (sympy.Basic, sympy.MatrixBase)) for form in forms)


def _first_paragraph(text: str) -> str:
    return text.strip().partition("\n\n")[0].replace("**", " ").strip()  # Markdown's bold


def bare_answer(text: str) -> str | None:
    """Return the text directly after "Final Answer:" if it is an answer as a box holds one: no sentence."""
    bare = DELIMITERS.sub("", _first_paragraph(text)).strip().removesuffix(".")
    prose = WORD.findall(TEXTS.sub("", bare))
    return bare if bare and (not prose or bare == prose[0]) else None


def read_unboxed(text: str) -> Forms:
    """Parse what stands in a sentence directly after "Final Answer:"; empty if math-verify finds nothing there."""
    return parse(
        f"Final Answer: {_first_paragraph(text)}",
        [
            LatexExtractionConfig(boxed_match_priority=-1, try_extract_without_anchor=False),
            ExprExtractionConfig(try_extract_without_anchor=False),
        ],
        parsing_timeout=None,
    )


def _read(latex: str) -> Forms:
    # "first_match": if the box as a whole cannot be parsed, do not search it for a part that can.
    return parse(
        rf"\boxed{{{keep_text(latex)}}}",
        [LatexExtractionConfig(boxed_match_priority=0)],
        extraction_mode="first_match",
        parsing_timeout=None,
    )


def are_equal(gold: Forms, answer: Forms) -> bool:
    r"""Return whether an answer equals the accepted one, also where their notations differ.

    An inequality equals its interval, several inequalities the union of theirs, and `e^{i\pi/3}` is a number.
    """
    if gold and answer:
        if points := _read_points(gold, answer[0]):
            return any(_verify([each], answer) for each in points)
        if points := _read_points(answer, gold[0]):
            return any(_verify(gold, [each]) for each in points)
    if _verify(gold, answer):
        return True
    if not (gold and answer) or isinstance(gold[0], str) or isinstance(answer[0], str):
        return False
    asked = _united(gold[0], answer[0])
    given = _united(answer[0], gold[0])
    if asked.has(sympy.exp) or given.has(sympy.exp):
        asked, given = (form.xreplace({IMAGINARY: sympy.I}) for form in (asked, given))
    return (asked, given) != (gold[0], answer[0]) and _verify([asked], [given])


def _verify(gold: Forms, answer: Forms) -> bool:
    return verify(gold, answer, allow_set_relation_comp=True, timeout_seconds=None)


def _read_points(forms: Forms, other: Form) -> list[sympy.Tuple]:
    """Return the points that named values such as `x=1, y=2` may be, if the other form is a point without names.

    Coordinates are in the order of their names, and also as written, unless the names are `x` and `y` or `a` and `b`.
    """
    form = forms[0]
    if not isinstance(form, sympy.FiniteSet) or not isinstance(other, (sympy.Tuple, sympy.Interval)):
        return []
    named = {str(each.lhs): each.rhs for each in form.args if isinstance(each, sympy.Eq) and each.lhs.is_Symbol}
    if not 1 < len(named) == len(form.args) or other.has(sympy.Eq):
        return []
    text = str(forms[-1]).lower()  # math-verify takes some capitals for small letters
    places = {name: re.search(rf"(?<![a-z]){re.escape(name.lower())}\s*=", text) for name in named}
    orders = [sorted(named)]
    if not {*named} <= {"x", "y", "z"} and not {*named} <= {"a", "b", "c"}:
        orders.append(sorted(named, key=lambda name: found.start() if (found := places[name]) else -1))
    return [sympy.Tuple(*(named[name] for name in order)) for order in orders]


def _united(form: sympy.Basic, other: sympy.Basic) -> sympy.Basic:
    r"""Return the union described by inequalities, such as `x < 1 \text{ or } x > 2`, if the other form is a set."""
    if not isinstance(form, sympy.FiniteSet) or isinstance(other, sympy.FiniteSet) or not isinstance(other, sympy.Set):
        return form
    if len(form.free_symbols) != 1 or not all(isinstance(each, Boolean) for each in form.args):
        return form
    union = sympy.Union(*(each.as_set() for each in form.args))
    return union if len(union.args) == len(form.args) else form  # of `x > 1 \text{ and } x < 3` all numbers


def list_parts(form: Form) -> list[sympy.Expr]:
    """Return the expressions in an answer: elements, entries, ends of intervals, sides of relations."""
    if isinstance(form, sympy.MatrixBase):
        return list(form.flat())
    if isinstance(form, sympy.Expr):
        return [form]
    return [] if isinstance(form, str) else [part for each in form.args for part in list_parts(each)]


def take_last_side(gold: Form, answer: sympy.Basic) -> sympy.Basic:
    r"""Return an equation's last side if it is the whole answer, as in `A = \frac{4}{2} = 2`; else the equation."""
    if not is_equation(answer):
        return answer
    last = take_last_relation(answer).rhs
    return last if are_equal([gold], [last]) else answer


def is_unsolved(form: Form, known: frozenset[sympy.Basic] = frozenset(), signed: bool = False) -> bool:
    """Return whether a relation in an answer is about an expression instead of a (`signed`) variable: `x^2 < 4`."""
    relations = set() if isinstance(form, (str, sympy.MatrixBase)) else form.atoms(sympy.Rel)
    sides = {side for relation in relations for side in relation.args if side.free_symbols - known}
    return any(not isinstance(side, VARIABLE) and not (signed and isinstance(-side, VARIABLE)) for side in sides)


def is_exact(gold: Form, answer: Form) -> bool:
    """Return whether each number in an answer equal to the accepted one is exactly one of the accepted numbers."""
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
    """Return whether two equations are equal only because neither has a solution, as `f(1) = 0` and `1 = 0`."""
    if not (isinstance(gold, sympy.Eq) and isinstance(answer, sympy.Eq)):
        return False
    if not all(isinstance(side, sympy.Expr) for side in (*gold.args, *answer.args)):
        return False
    asked = gold.lhs - gold.rhs
    given = answer.lhs - answer.rhs
    return not (are_equal([asked], [given]) or are_equal([asked], [-given]) or sympy.solve(gold, gold.free_symbols))


def _is_compared(part: sympy.Expr) -> bool:
    return not isinstance(part, (*VARIABLE, sympy.MatrixExpr)) and not part.has(*TO_COMPUTE, sympy.oo, -sympy.oo)


def _differ(gold: sympy.Expr, answer: sympy.Expr) -> bool:
    """Return whether two expressions that math-verify finds equal differ."""
    if gold == answer:
        return False
    without_percent: list[dict[Any, Any]] = [{}, {PERCENT: sympy.S.One}]  # 12 is right for 12%, and vice versa
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
        expected = gold.evalf()
        given = answer.evalf()
        return bool(0 < abs(expected) < TINY and abs(given - expected) > TINY_TOLERANCE * abs(expected))
    difference = gold - answer
    symbols = sorted(difference.free_symbols, key=str)
    # At one point: equal expressions are equal everywhere.
    somewhere = {symbol: sympy.Rational(2 * i + 7, i + 2) for i, symbol in enumerate(symbols)}
    try:
        value = difference.subs(somewhere).evalf(3, maxn=DIGITS, strict=True)
    except PrecisionExhausted:
        return False
    return value.is_number and value != 0 and (not somewhere or sympy.simplify(difference) != 0)
