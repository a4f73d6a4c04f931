r"""Grades mathematics: the last box of a solution, read and compared by math-verify.

What a policy writes is hostile input: `\boxed{9^{9^{9^{9}}}}` costs a computer algebra system hours, or all memory. It
is read in processes that can be killed. And a box must hold an answer, not a question. Where the accepted answer is
made of numbers, `\boxed{10.2 + 8.6}` is unevaluated, not correct. Where it is an expression, equality stands:
`\arctan(1)` is right for `\frac{\pi}{4}`; only an integral, sum, product, limit, derivative or determinant that the
accepted answer does not have is unevaluated. Knows nothing about rewards, tokens or `</think>`: the caller hands over
the solution segment only.
"""

import contextlib
import logging
import re
from collections.abc import Sequence
from fractions import Fraction
from importlib.metadata import version
from typing import ClassVar, TypeAlias

import sympy
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from math_verify.grader import is_equation, is_relation, take_last_relation
from math_verify.parser import NormalizationConfig, normalize_latex
from sympy.core.function import AppliedUndef

from e1_trl.answers.grade import Grade, Grader, Outcome, grader_version
from e1_trl.answers.mathematics.boxes import boxed_answer
from e1_trl.answers.mathematics.numerals import only_numbers, terms
from e1_trl.answers.mathematics.spellings import E_NOTATION, readable, words
from e1_trl.answers.mathematics.workers import Workers

EULERS_NUMBER = re.compile(r"(?<![a-zA-Z\\])e(?![a-zA-Z])")
PERCENT = re.compile(r"\\?%|\\text\s*\{\s*percent\s*\}|percent")
BASE = re.compile(r"(?<=[0-9])_\s*+\{?\s*+([0-9]+)")
MATRIX = re.compile(r"\\begin\s*\{\w*(?:matrix|array)\}")
# What math-verify computes of matrices as it reads them.
OF_MATRICES = re.compile(
    r"\\begin\s*\{[vV]matrix\}|\\(?:det|xrightarrow|operatorname\*?\s*\{(?:det|trace|tr|rref|norm)\})|\|\s*\\begin"
)
DECIMAL = re.compile(r"[0-9]+\.[0-9]+(?:e[-+]?[0-9]{1,3}(?![0-9]))?")  # as sympy writes it
TINY = 1e-3  # numbers below it are compared by their ratio, too
TINY_TOLERANCE = 1e-2

TO_COMPUTE = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Derivative, sympy.Limit)

# Units and words are left in, so that a second number among them is seen.
AS_WRITTEN = NormalizationConfig(units=False, malformed_operators=True, nits=False, boxed="none")

Form: TypeAlias = sympy.Basic | sympy.MatrixBase | str
Forms = list[Form]  # what math-verify read: the expression if it could, then the text


class MathematicsGrader(Grader):
    r"""Grades solutions in `workers` processes, each solution within `time_limit` seconds.

    The processes start at the first call of `grade`; `close` ends them, and so do the end of a `with` block and the
    end of the program. Pickling copies the two settings, not the processes.
    """

    faults: ClassVar[tuple[Outcome, ...]] = (
        Outcome.UNEVALUATED,
        Outcome.TIMED_OUT,
        Outcome.CRASHED,
        Outcome.UNBOXED,
        Outcome.UNPARSEABLE,
    )

    def __init__(self, time_limit: float, workers: int):
        self.processes = Workers(_grade, _warm_up, time_limit, workers)

    @property
    def version(self) -> str:
        """See `Grader`."""
        return grader_version(f"math-verify {version('math-verify')}", self.processes.time_limit)

    def close(self) -> None:
        """End the worker processes. A later `grade` starts new ones."""
        self.processes.close()

    def begin(self, solution: str, references: Sequence[str]) -> None:
        """See `Grader`."""
        if (box := boxed_answer(solution)) is not None:
            self.processes.begin((box, True, tuple(references)))

    def grade(
        self,
        solutions: Sequence[str],
        references: Sequence[Sequence[str]],
        free_text: Sequence[str | None] | None = None,
    ) -> list[Grade]:
        """Grade the last box of each solution against its accepted answers; it is right when it equals any of them.

        `free_text[i]` is what follows "Final Answer:" where an answer may be read without a box; it is read only if
        solution i has no box. What is read there is the first formula or number, in its first paragraph.

        Raises ValueError when the sequences differ in length, and RuntimeError when workers can not be started.
        """
        free_text = [None] * len(solutions) if free_text is None else free_text
        boxes = [boxed_answer(solution) for solution in solutions]
        tasks = [
            (free, False, tuple(accepted)) if box is None and free is not None else (box, True, tuple(accepted))
            for box, accepted, free in zip(boxes, references, free_text, strict=True)
        ]
        results = iter(self.processes.run([task for task in tasks if task[0] is not None]))
        grades = [Grade(Outcome.UNBOXED, None) if text is None else next(results) for text, *_ in tasks]
        return [
            Grade(grade, box) if isinstance(grade, Outcome) else grade for grade, box in zip(grades, boxes, strict=True)
        ]


def _warm_up() -> None:
    logging.disable()  # math-verify warns that its own time limit is off, in every worker
    _grade(r"\frac{1}{2}", True, ("0.5",))  # sympy and the LaTeX grammar build tables at first use


def _grade(text: str, boxed: bool, accepted: tuple[str, ...]) -> Grade:
    """Grade the content of a box, or what follows "Final Answer:". Runs in a worker."""
    if boxed:
        forms = _read(text)
        return Grade(_outcome(forms, text, accepted), text, value=_value(forms))
    forms = _read_unboxed(text)
    if not forms:
        return Grade(Outcome.UNBOXED, None)
    answer = str(forms[-1])
    return Grade(_outcome(forms, answer, accepted), answer, unboxed=True, value=_value(forms))


def _value(forms: Forms) -> str | None:
    r"""A text by which answers vote, the same for `\frac{1}{2}` and `0.5`. Nothing is computed for it."""
    if not forms:
        return None
    form = forms[0]
    if is_equation(form):
        form = take_last_relation(form).rhs
    with contextlib.suppress(ValueError):  # an integer of more digits than Python writes: of `\binom{20000}{10000}`
        return DECIMAL.sub(lambda decimal: str(Fraction(decimal[0])), str(form))
    return None


def _outcome(forms: Forms, text: str, accepted: tuple[str, ...]) -> Outcome:
    unevaluated = False
    for answer in accepted:
        # An accepted answer goes through the same parser in the same box, so an exact copy of it is always right.
        outcome = _compare(forms, text, boxed_answer(answer) or answer)
        if outcome is Outcome.CORRECT:
            return outcome
        unevaluated |= outcome is Outcome.UNEVALUATED
    if unevaluated:
        return Outcome.UNEVALUATED
    readable = any(isinstance(form, (sympy.Basic, sympy.MatrixBase)) for form in forms)
    return Outcome.WRONG if readable else Outcome.UNPARSEABLE


def _compare(forms: Forms, text: str, reference: str) -> Outcome:
    """Whether an answer equals an accepted one, and was computed as far as that is."""
    if EULERS_NUMBER.search(E_NOTATION.sub("", reference)) and E_NOTATION.search(text):
        return _compare(_read(spaced := E_NOTATION.sub(r" e \1", text)), spaced, reference)
    gold = _read(reference)
    if not _equal(gold, forms):
        if asked := words(reference):
            return Outcome.CORRECT if asked == words(text) else Outcome.WRONG
        number, asked = PERCENT.sub("", text), PERCENT.sub("", reference)  # 12.5 is right for 12.5%, and back
        return Outcome.WRONG if (number, asked) == (text, reference) else _compare(_read(number), number, asked)
    if _same_without_solution(gold[0], forms[0]):
        return Outcome.WRONG
    last = text.rpartition("=")[2] if is_equation(forms[0]) and not is_equation(gold[0]) else text
    if _asks(gold, forms[0]) or _asks_of_matrices(last, reference):
        return Outcome.UNEVALUATED
    if (base := BASE.findall(text)) and (asked_base := BASE.findall(reference)) and base != asked_base:
        return Outcome.WRONG  # math-verify drops the index
    gold_numbers = only_numbers(_as_written(reference))
    if gold_numbers is None or not _equal(gold, _read(gold_numbers)):
        # The accepted answer is an expression: every way to write it is right.
        return Outcome.CORRECT if _as_precise(gold, forms) else Outcome.WRONG
    # `\frac{2}{3}` can be given as `\frac{4}{6}`; a decimal or an integer is not given as `\frac{84}{12}`.
    numbers = only_numbers(_as_written(text), terms(gold_numbers))
    if numbers is None or not _equal(gold, answer := _read(numbers)):
        return Outcome.UNEVALUATED
    return Outcome.CORRECT if _as_precise(_read(gold_numbers), answer) else Outcome.WRONG


def _same_without_solution(gold: Form, answer: Form) -> bool:
    """Whether two equations are equal only in that they have no solution, as `f(1) = 0` and `1 = 0` have none."""
    if gold == answer or not (isinstance(gold, sympy.Eq) and isinstance(answer, sympy.Eq)):
        return False
    if not all(isinstance(side, sympy.Expr) for side in (*gold.args, *answer.args)):
        return False
    asked, given = gold.lhs - gold.rhs, answer.lhs - answer.rhs
    return not (_equal([asked], [given]) or _equal([asked], [-given]) or sympy.solve(gold, gold.free_symbols))


def _equal(gold: Forms, answer: Forms) -> bool:
    # An inequality is the interval that it describes, whichever of the two is accepted.
    return verify(gold, answer, allow_set_relation_comp=True, timeout_seconds=None)


def _asks(gold: Forms, answer: Form) -> bool:
    """Whether an answer that equals the accepted one leaves something to be computed of a kind that is not in that."""
    if isinstance(answer, str) or isinstance(gold[0], str) or gold[0] == answer:
        return False
    if isinstance(gold[0], sympy.Set) and is_relation(answer) and not is_equation(answer):
        return _is_unsolved(answer, gold[0].free_symbols)
    if _overlaps(answer) and not _overlaps(gold[0]):
        return True
    kinds = [kind for kind in TO_COMPUTE if not gold[0].has(kind)]
    if not answer.has(*kinds):
        return False
    if not is_equation(answer):
        return True
    last = take_last_relation(answer).rhs  # of an equation, the last side may be all of the answer
    return last.has(*kinds) or not _equal(gold, [last])


def _is_unsolved(inequality: sympy.Basic, known: set[sympy.Basic]) -> bool:
    """Whether an inequality is one of something else than a variable, as `x^2 < 4` is."""
    sides = {side for relation in inequality.atoms(sympy.Rel) for side in relation.args}
    return any(side.free_symbols - known and not isinstance(side, (sympy.Symbol, AppliedUndef)) for side in sides)


def _overlaps(answer: sympy.Basic | sympy.MatrixBase) -> bool:
    """Whether there is a union in an answer of sets that are one set together."""
    for union in answer.atoms(sympy.Union):
        united = sympy.Union(*union.args)
        if not isinstance(united, sympy.Union) or len(united.args) < len(union.args):
            return True
    return False


def _asks_of_matrices(text: str, reference: str) -> bool:
    if OF_MATRICES.search(text) and not OF_MATRICES.search(reference):
        return True
    return len(MATRIX.findall(text)) > len(MATRIX.findall(reference))  # a product, or a number made of them


def _as_precise(gold: Forms, answer: Forms) -> bool:
    r"""False for tiny numbers far apart, which math-verify, comparing six decimals, finds equal (`10^{-9}` and 0)."""
    if gold[0] == answer[0]:
        return True
    values = [forms[0].doit() for forms in (gold, answer) if isinstance(forms[0], sympy.Expr)]
    if len(values) < 2 or not all(value.is_number and value.is_real for value in values):
        return True
    expected, given = (value.evalf() for value in values)
    return bool(not 0 < abs(expected) < TINY or abs(given - expected) <= TINY_TOLERANCE * abs(expected))


def _as_written(text: str) -> str:
    return normalize_latex(readable(text), AS_WRITTEN)


def _read(boxed: str) -> Forms:
    """What math-verify reads in a box."""
    # "first_match": when the box can not be read, do not go looking for anything in it that can.
    return parse(
        rf"\boxed{{{readable(boxed)}}}",
        [LatexExtractionConfig(boxed_match_priority=0)],
        extraction_mode="first_match",
        parsing_timeout=None,
    )


def _read_unboxed(text: str) -> Forms:
    """What math-verify reads directly after "Final Answer:"; empty if there is nothing that it can read."""
    paragraph = text.strip().partition("\n\n")[0].replace("**", " ")  # Markdown's bold
    return parse(
        f"Final Answer: {paragraph}",
        [
            LatexExtractionConfig(boxed_match_priority=-1, try_extract_without_anchor=False),
            ExprExtractionConfig(try_extract_without_anchor=False),
        ],
        parsing_timeout=None,
    )
