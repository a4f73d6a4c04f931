r"""Grades mathematics: the last box of a solution, read and compared by math-verify.

What a policy writes is hostile input: `\boxed{9^{9^{9^{9}}}}` costs a computer algebra system hours, or all memory. It
is read in processes that can be killed. And a box must hold an answer, not a question. Where the accepted answer is
made of numbers, `\boxed{10.2 + 8.6}` is unevaluated, not correct. Where it is an expression, equality stands:
`\arctan(1)` is right for `\frac{\pi}{4}`; only an integral, sum, product, limit or derivative that the accepted answer
does not have is unevaluated. Knows nothing about rewards, tokens or `</think>`: the caller hands over the solution
segment only.
"""

import contextlib
import logging
import re
from collections.abc import Sequence
from fractions import Fraction
from types import TracebackType
from typing import ClassVar

import sympy
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from math_verify.grader import is_equation, take_last_relation
from math_verify.parser import NormalizationConfig, normalize_latex

from e1_trl.grading.grade import Grade, Outcome
from e1_trl.grading.numerals import only_numbers, terms
from e1_trl.grading.workers import Failure, Workers

BOX_OPENING = re.compile(r"\\(?:boxed|fbox)\s*\{")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # `\\.` swallows `\{` and `\}`, which group nothing
BETWEEN_BOXES = re.compile(r"(?:\s|[$,;{}]|\\[()\[\],;: ]|\\q?quad|\\text|and|or)*")
LONGEST_BETWEEN_BOXES = 70  # characters, as in math-verify

E_NOTATION = re.compile(r"(?<=[0-9])[eE]([-+]?[0-9]+)(?![0-9.])")  # math-verify takes the e for Euler's number
MATH_DELIMITER = re.compile(
    r"(?<!\\)\\[\[\]()]"
)  # a box is in mathematics already: math-verify can not read `\[ 98 \]`
DECIMAL = re.compile(r"[0-9]+\.[0-9]+(?:e[-+]?[0-9]{1,3}(?![0-9]))?")  # as sympy writes it
TINY = 1e-3  # numbers below it are compared by their ratio, too
TINY_TOLERANCE = 1e-2

TO_COMPUTE = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Derivative, sympy.Limit)

# Units and words are left in, so that a second number among them is seen.
AS_WRITTEN = NormalizationConfig(units=False, malformed_operators=True, nits=False, boxed="none")

Forms = list[sympy.Basic | sympy.MatrixBase | str]  # what math-verify read: the expression if it could, then the text


def boxed_answer(text: str) -> str | None:
    r"""Content of the last `\boxed{}` or `\fbox{}` in the text, or None if there is none or it never closes.

    Boxes in a row with nothing but commas, "and", "or" and markup between them are one answer, as they are in
    math-verify: `\boxed{2}` and `\boxed{3}` gives `2,3`. Takes time linear in the text, so it is safe in the parent.
    """
    contents: list[str] = []
    next_start = len(text)
    for opening in reversed(list(BOX_OPENING.finditer(text))):
        end = _closing_brace(text, opening.end(), next_start)
        if end is None:
            break
        between = text[end + 1 : next_start]
        if contents and not (len(between) < LONGEST_BETWEEN_BOXES and BETWEEN_BOXES.fullmatch(between)):
            break
        content = text[opening.end() : end].strip()
        if not contents or contents[-1] != content:
            contents.append(content)
        next_start = opening.start()
    return ",".join(reversed(contents)) if contents else None


def _closing_brace(text: str, start: int, stop: int) -> int | None:
    """Position in [start, stop) of the brace that closes the group open at `start`."""
    depth = 1
    for brace in BRACE.finditer(text, start, stop):
        if brace[0] == "{":
            depth += 1
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                return brace.start()
    return None


class MathematicsGrader:
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

    def __enter__(self) -> "MathematicsGrader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes. A later `grade` starts new ones."""
        self.processes.close()

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
            Grade(Outcome(grade), box) if isinstance(grade, Failure) else grade
            for grade, box in zip(grades, boxes, strict=True)
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
    gold = _read(reference)
    if not _equal(gold, forms):
        return Outcome.WRONG
    if _asks(gold, forms[0]):
        return Outcome.UNEVALUATED
    gold_numbers = only_numbers(_as_written(reference))
    if gold_numbers is None or not _equal(gold, _read(gold_numbers)):
        return Outcome.CORRECT  # the accepted answer is an expression: every way to write it is right
    # `\frac{2}{3}` can be given as `\frac{4}{6}`; a decimal or an integer is not given as `\frac{84}{12}`.
    numbers = only_numbers(_as_written(text), terms(gold_numbers))
    if numbers is None or not _equal(gold, answer := _read(numbers)):
        return Outcome.UNEVALUATED
    return Outcome.CORRECT if _as_precise(_read(gold_numbers), answer) else Outcome.WRONG


def _equal(gold: Forms, answer: Forms) -> bool:
    return verify(gold, answer, timeout_seconds=None)


def _asks(gold: Forms, answer: sympy.Basic | sympy.MatrixBase | str) -> bool:
    """Whether an answer that equals the accepted one leaves something to be computed of a kind that is not in that."""
    if isinstance(answer, str) or isinstance(gold[0], str):
        return False
    kinds = [kind for kind in TO_COMPUTE if not gold[0].has(kind)]
    if not answer.has(*kinds):
        return False
    if not is_equation(answer):
        return True
    last = take_last_relation(answer).rhs  # of an equation, the last side may be all of the answer
    return last.has(*kinds) or not _equal(gold, [last])


def _as_precise(gold: Forms, answer: Forms) -> bool:
    r"""False for tiny numbers far apart, which math-verify, comparing six decimals, finds equal (`10^{-9}` and 0)."""
    values = [forms[0].doit() for forms in (gold, answer) if isinstance(forms[0], sympy.Expr)]
    if len(values) < 2 or not all(value.is_number and value.is_real for value in values):
        return True
    expected, given = (float(value.evalf()) for value in values)
    return not 0 < abs(expected) < TINY or abs(given - expected) <= TINY_TOLERANCE * abs(expected)


def _as_written(text: str) -> str:
    return normalize_latex(_readable(text), AS_WRITTEN)


def _readable(text: str) -> str:
    """What math-verify would read wrongly or not at all, written so that it can."""
    return E_NOTATION.sub(r" \\times 10^{\1}", MATH_DELIMITER.sub(" ", text))


def _read(boxed: str) -> Forms:
    """What math-verify reads in a box."""
    # "first_match": when the box can not be read, do not go looking for anything in it that can.
    return parse(
        rf"\boxed{{{_readable(boxed)}}}",
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
