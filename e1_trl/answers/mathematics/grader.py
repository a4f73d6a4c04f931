r"""Grades mathematics: the last box of a solution, parsed and compared by math-verify.

A policy's output is hostile input: `\boxed{9^{9^{9^{9}}}}` costs a computer algebra system hours, or all memory. So it
is parsed in processes that can be killed. And a box must hold an answer, not a question: if the accepted answer is made
of numbers, `\boxed{10.2 + 8.6}` is unevaluated, not correct; if it is an expression, algebra is free, but arithmetic,
integrals, determinants and the like must be carried out unless the accepted answer contains them.
"""

import contextlib
import logging
import re
from collections.abc import Sequence
from fractions import Fraction
from importlib.metadata import version
from typing import ClassVar

import sympy
from math_verify.grader import is_equation, take_last_relation

from e1_trl.answers.grade import Grade, Grader, Outcome, grader_version
from e1_trl.answers.mathematics.arithmetic import leaves_arithmetic, leaves_by_name, leaves_to_compute
from e1_trl.answers.mathematics.boxes import boxed_answer
from e1_trl.answers.mathematics.equality import (
    Forms,
    are_equal,
    as_written,
    bare_answer,
    is_exact,
    is_read,
    last_side,
    read,
    read_unboxed,
)
from e1_trl.answers.mathematics.golds import answer_of
from e1_trl.answers.mathematics.numerals import has_quotient, only_numbers, terms, works_out
from e1_trl.answers.mathematics.spellings import (
    E_NOTATION,
    TEXT,
    differ_as_words,
    find_additions,
    join_thousands,
    read_letter,
    rename_symbols,
    split_choice,
    time_of,
    words,
)
from e1_trl.answers.mathematics.workers import Workers

EULERS_NUMBER = re.compile(r"(?<![a-zA-Z\\])e(?![a-zA-Z])")
PERCENT = re.compile(r"\\?%|\\text\s*\{\s*percent\s*\}|percent")
SCALE = re.compile(
    r"(?<=[0-9])(?:\s|\\[,;: ])*(?:\\(?:text|mathrm)\s*\{)?\s*(thousand|million|billion)s?\s*(?:\}|(?![a-zA-Z]))"
)
ZEROS = {"thousand": 3, "million": 6, "billion": 9}
COMMA = ", "
NUMBERS = re.compile("[0-9]+")
THOUSAND_COMMA = re.compile("(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
RANGE = re.compile(r"[<>]|\\[lg](?:eq?|t|eqslant)(?![a-zA-Z])|\\in\s*(?:\\left)?\s*[(\[]")  # `2 < x < 5` is not 2 or 5
ALTERNATIVE = re.compile(r"\\text\s*\{\s*OR\s*\}")
# A variable at the end, which math-verify takes for a unit.
VARIABLE_LAST = re.compile(r"(?:[0-9}]|(?<![a-zA-Z\\])[a-zA-Z](?=\s))\s*(?:[a-z]|ab|bc|rs)\s*\$?\s*$")
UNIT = re.compile(r"\\(?:text|mathrm|mbox)\s*\{[~\s]*([a-zA-Z]+)\s*\}[\s$]*$")
OPTION = re.compile(r"^(\s*\\(?:text|mathrm)\s*\{)?\s*(?:[Oo]ption|[Cc]hoice|[Aa]nswer):?\s")
BASE = re.compile(r"(?<=[0-9])_\s*+\{?\s*+([0-9]+)")
DECIMAL = re.compile(r"[0-9]+\.[0-9]+(?:e[-+]?[0-9]{1,3}(?![0-9]))?")  # as sympy writes it


class MathematicsGrader(Grader):
    """Grades solutions in `workers` processes, each solution within `time_limit` seconds.

    The processes start at the first `grade`; `close`, the end of a `with` block and the end of the program end them.
    Pickling copies the settings, not the processes.
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
        return grader_version(f"math-verify {version('math-verify')}", self.processes.time_limit)

    def close(self) -> None:
        self.processes.close()

    def begin(self, solution: str, references: Sequence[str]) -> None:
        if (box := boxed_answer(solution)) is not None:
            self.processes.begin((box, True, tuple(references)))

    def works_out(self, answer: str, references: Sequence[str]) -> bool:
        return works_out(answer) and not any(map(works_out, references))

    def grade(
        self,
        solutions: Sequence[str],
        references: Sequence[Sequence[str]],
        free_text: Sequence[str | None] | None = None,
    ) -> list[Grade]:
        """Grade the last box of each solution, which is right if it equals any of the accepted answers.

        If solution i has no box, its answer is the first paragraph of `free_text[i]`, the text after "Final Answer:";
        of a sentence, it is a formula or number in it, of several usually the last.
        """
        boxes = [boxed_answer(solution) for solution in solutions]
        tasks = [
            (free, False, tuple(accepted)) if box is None else (box, True, tuple(accepted))
            for box, accepted, free in zip(boxes, references, free_text or [None] * len(boxes), strict=True)
        ]
        results = iter(self.processes.run([task for task in tasks if task[0] is not None]))
        grades = [Outcome.UNBOXED if text is None else next(results) for text, *_ in tasks]
        return [
            Grade(grade, box) if isinstance(grade, Outcome) else grade for grade, box in zip(grades, boxes, strict=True)
        ]


def _warm_up() -> None:
    logging.disable()  # math-verify warns that its own time limit is off, in every worker
    _grade(r"\frac{1}{2}", True, ("0.5",))  # sympy and the LaTeX grammar build tables at their first use


def _grade(text: str, boxed: bool, accepted: tuple[str, ...]) -> Grade:
    """Grade the content of a box, or the text after "Final Answer:". Runs in a worker."""
    if boxed:
        forms = read(text)
        return Grade(_outcome(forms, text, accepted), text, value=_value(forms))
    if (bare := bare_answer(text)) is not None:
        outcome = _outcome(forms := read(bare), bare, accepted)
        if outcome is not Outcome.UNPARSEABLE:
            return Grade(outcome, bare, unboxed=True, value=_value(forms))
    forms = read_unboxed(text)
    if not forms:
        return Grade(Outcome.UNBOXED, None)
    answer = str(forms[-1])
    return Grade(_outcome(forms, answer, accepted), answer, unboxed=True, value=_value(forms))


def _value(forms: Forms) -> str | None:
    r"""Return a text by which answers vote, equal for `\frac{1}{2}` and `0.5`; nothing is computed for it."""
    if not forms:
        return None
    form = forms[0]
    if is_equation(form):
        form = take_last_relation(form).rhs
    # Python refuses to print integers of too many digits, such as `\binom{20000}{10000}`; sympy has other failures.
    with contextlib.suppress(Exception):
        return DECIMAL.sub(lambda decimal: str(Fraction(decimal[0])), str(form))
    return None


def _outcome(forms: Forms, text: str, accepted: tuple[str, ...]) -> Outcome:
    wholes = [answer_of(answer) for answer in accepted]
    references = dict.fromkeys([*wholes, *(part.strip() for each in wholes for part in ALTERNATIVE.split(each))])
    if text in references:
        return Outcome.CORRECT  # a copy, even if it cannot be parsed
    outcomes = set()
    for reference in references:
        try:
            outcomes.add(_compare(forms, text, reference))
            joined = (join_thousands(text), join_thousands(reference))
            if joined != (text, reference) and Outcome.CORRECT not in outcomes:
                outcomes.add(_compare(read(joined[0]), *joined))
        except Exception:  # sympy raises many types; none may end a training run
            outcomes.add(Outcome.CRASHED)
    for outcome in (Outcome.CORRECT, Outcome.UNEVALUATED, Outcome.CRASHED):
        if outcome in outcomes:
            return outcome
    return Outcome.WRONG if is_read(forms) else Outcome.UNPARSEABLE


def _compare(forms: Forms, text: str, reference: str) -> Outcome:
    """Compare an answer with an accepted one, which says how far it must be computed."""
    if EULERS_NUMBER.search(E_NOTATION.sub("", reference)) and E_NOTATION.search(text):
        return _compare(read(spaced := E_NOTATION.sub(r" e \1", text)), spaced, reference)
    gold = read(reference)
    unit = UNIT.search(text)  # as the accepted answer may have it without a command
    has_variables = bool(gold) and isinstance(gold[0], sympy.Expr) and gold[0].free_symbols
    if not (unit and reference.rstrip(" $").endswith(unit[1])) and (VARIABLE_LAST.search(reference) or has_variables):
        whole = (read(reference, True), read(text, True))
        gold, forms = whole if all(map(is_read, whole)) else (gold, forms)
    says_all = is_read(forms) and (forms[0].rhs if isinstance(forms[0], sympy.Eq) else forms[0]) is sympy.S.Reals
    if says_all and gold and gold[0] == sympy.S.Reals and not re.search(TEXT, text):
        return Outcome.CORRECT  # `\mathbb{R}` and `x\in\mathbb{R}`, which hold no number
    if not are_equal(gold, forms):
        return _compare_otherwise(text, reference)
    if any("\\circ" in each and PERCENT.search(other) for each, other in ((text, reference), (reference, text))):
        return Outcome.WRONG
    is_range = isinstance(gold[0], sympy.FiniteSet) and RANGE.search(text) and not RANGE.search(reference)
    if is_range or differ_as_words(text, reference) or _differ_in_symbols(text, reference):
        return Outcome.WRONG
    is_sided = not is_equation(gold[0]) and (is_equation(forms[0]) or last_side(text) is not None)
    last = text.rpartition("=")[2] if is_sided else text
    if leaves_to_compute(gold[0], forms[0]) or leaves_by_name(last, reference, gold[0]):
        return Outcome.UNEVALUATED
    if not is_exact(gold[0], forms[0]) or _is_of_another_range(text, reference):
        return Outcome.WRONG
    gold_numbers = only_numbers(as_written(reference))
    if gold_numbers is None or not are_equal(gold, read(gold_numbers)) or isinstance(forms[0], sympy.Complement):
        is_left = has_quotient(as_written(last)) and not has_quotient(as_written(reference))
        return Outcome.UNEVALUATED if is_left or leaves_arithmetic(gold[0], forms[0]) else Outcome.CORRECT
    # `\frac{4}{6}` is right for `\frac{2}{3}`, but `\frac{84}{12}` is not for an integer.
    numbers = only_numbers(as_written(text), terms(gold_numbers))
    if numbers is None or not are_equal(gold, answer := read(numbers)):
        return Outcome.UNEVALUATED
    return Outcome.CORRECT if is_exact(read(gold_numbers)[0], answer[0]) else Outcome.WRONG


def _compare_otherwise(text: str, reference: str) -> Outcome:
    """Compare an answer that math-verify finds unequal: it may be the same choice, the same words or percentage."""
    if (time := time_of(reference)) and (told := time_of(text)):
        halves = {time[2], told[2]} - {""}
        return Outcome.CORRECT if time[:2] == told[:2] and len(halves) < 2 else Outcome.WRONG
    given = split_choice(text)
    accepted = split_choice(reference)
    if given and not accepted:
        if asked := read_letter(reference):
            return Outcome.CORRECT if asked == given[0] else Outcome.WRONG
        return _compare(read(given[1]), given[1], reference)
    if accepted and not given:
        return Outcome.CORRECT if read_letter(text) == accepted[0] else _compare(read(text), text, accepted[1])
    if (letter := read_letter(reference)) and letter == read_letter(OPTION.sub("", text)):
        return Outcome.CORRECT
    if asked := words(reference):
        return Outcome.CORRECT if asked == words(text) else Outcome.WRONG
    if COMMA in reference and (spaced := THOUSAND_COMMA.sub(COMMA, text)) != text:
        return _compare(read(spaced), spaced, reference)
    spaced = THOUSAND_COMMA.sub(COMMA, reference)
    is_list = COMMA in text and not re.search(r"[=()\[]", text)
    if is_list and spaced != reference and NUMBERS.findall(text) == NUMBERS.findall(spaced):
        return _compare(read(text), text, spaced)
    scaled = [SCALE.sub(lambda word: rf" \times 10^{{{ZEROS[word[1]]}}}", each) for each in (text, reference)]
    if (scaled[0] == text) != (scaled[1] == reference):
        return _compare(read(scaled[0]), *scaled)
    number = PERCENT.sub("", text)  # 12.5 is right for 12.5%, and vice versa
    asked = PERCENT.sub("", reference)
    return Outcome.WRONG if (number, asked) == (text, reference) else _compare(read(number), number, asked)


def _differ_in_symbols(text: str, reference: str) -> bool:
    """Return whether two equal answers differ if `R` is not `r`, and `x'` not `x`."""
    if "{" in text + reference and (asked := words(reference)) and asked == words(text):
        return False
    if split_choice(reference) or not (renamed := rename_symbols(text, reference)):
        return False
    read_twice = [[read(each, whole) for each in renamed] for whole in (False, True)]
    return not any(are_equal(gold, answer) for answer, gold in read_twice)


def _is_of_another_range(text: str, reference: str) -> bool:
    """Return whether a base, a modulus or a domain differs; math-verify ignores them."""
    (modulus, *asked), (other, *found) = ((*find_additions(each), BASE.findall(each)) for each in (reference, text))
    if modulus and modulus != other:
        return True
    return any(ours and theirs and ours != theirs for ours, theirs in zip(asked, found, strict=True))
