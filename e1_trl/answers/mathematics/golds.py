r"""Accepted answers of mathematics as datasets hold them: an answer, or a worked solution that no box can match.

Imports neither math-verify nor sympy, so that checking every row of a dataset starts quickly.
"""

import re

from e1_trl.answers.mathematics.boxes import boxed_answer
from e1_trl.answers.mathematics.spellings import readable

MOST_WORDS = 15  # of an answer; the longest in ten public sets has 12
FEW_WORDS = 2  # of an answer that equals its number, such as `5 apples`
COMMAND = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}|\\[a-zA-Z]+")
WORD = re.compile(r"[\u3040-\u9fff]|[^\W\d_]{2,}")  # a Chinese or Japanese sign, or several letters: one is a variable
CONCLUSION = re.compile(r"####|\banswer\s*(?:is\b|[:=])", re.IGNORECASE)
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


def answer_of(gold: str) -> str:
    r"""Return the part of an accepted answer to compare: the content of its last `\boxed{}`, if any, or all of it."""
    return boxed_answer(gold) or gold


def is_worked_solution(gold: str) -> bool:
    """Return whether an accepted answer has more than `MOST_WORDS` words, or a conclusion such as "the answer is"."""
    answer = answer_of(gold)
    if _count_words(answer) > MOST_WORDS:
        return True
    # `readable` drops "The answer is:" in front of an answer.
    return bool(CONCLUSION.search(answer) and CONCLUSION.search(readable(answer)))


def last_number(gold: str) -> str | None:
    """Return the last number of an accepted answer of more than `FEW_WORDS` words, or None.

    In a sentence it usually is the answer: `So there are 72 of them.`
    """
    answer = answer_of(gold)
    numbers = NUMBER.findall(answer)
    return numbers[-1] if numbers and _count_words(answer) > FEW_WORDS else None


def _count_words(text: str) -> int:
    return len(WORD.findall(COMMAND.sub(" ", text)))
