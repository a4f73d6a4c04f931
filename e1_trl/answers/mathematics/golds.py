r"""Accepted answers of mathematics as datasets hold them: an answer, or a worked solution that nobody puts in a box.

Knows nothing about what is equal. Imports neither math-verify nor sympy, since it looks at every row of a dataset.
"""

import re

from e1_trl.answers.mathematics.boxes import boxed_answer
from e1_trl.answers.mathematics.spellings import readable

MOST_WORDS = 15  # of an answer; of those of ten public sets, the longest has 12
FEW_WORDS = 2  # of an answer that is as good as its number, as `5 apples`
COMMAND = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}|\\[a-zA-Z]+")
WORD = re.compile(r"[\u3040-\u9fff]|[^\W\d_]{2,}")  # a Chinese or Japanese sign; or letters, more than a variable's one
CONCLUSION = re.compile(r"####|\banswer\s*(?:is\b|[:=])", re.IGNORECASE)
NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


def answer_of(gold: str) -> str:
    r"""What is compared of an accepted answer: the content of its last `\boxed{}`, if it has one."""
    return boxed_answer(gold) or gold


def is_worked_solution(gold: str) -> bool:
    """Whether an accepted answer is no formula, number or few words: more than `MOST_WORDS`, or "The answer is"."""
    answer = answer_of(gold)
    if _count_words(answer) > MOST_WORDS:
        return True
    return bool(CONCLUSION.search(answer) and CONCLUSION.search(readable(answer)))  # which leaves out "The answer is:"


def last_number(gold: str) -> str | None:
    """The last number of an accepted answer that has more than `FEW_WORDS`; `None` where it has no more, or no number.

    In a sentence it is the answer, most often: `So there are 72 of them.`
    """
    answer = answer_of(gold)
    numbers = NUMBER.findall(answer)
    return numbers[-1] if numbers and _count_words(answer) > FEW_WORDS else None


def _count_words(text: str) -> int:
    return len(WORD.findall(COMMAND.sub(" ", text)))
