"""Answers and what they are compared with, written briefly: `boxed → accepted | boxed → accepted`."""

import re
from collections.abc import Mapping, Sequence

from e1_trl.answers.grade import Grader, Outcome


def outcomes(grader: Grader, *graded: tuple[str, Sequence[str]]) -> list[Outcome]:
    """The verdicts on solutions, each beside its accepted answers."""
    return [grade.outcome for grade in grader.grade([text for text, _ in graded], [answers for _, answers in graded])]


def cases(text: str) -> list[tuple[str, str]]:
    """What is boxed, with the accepted answer."""
    parts = re.split(r"\s+\|\s+", text.strip())
    return [(boxed, accepted) for boxed, accepted in (part.split(" → ") for part in parts)]


def disagreeing(grader: Grader, verdicts: Mapping[Outcome, str]) -> dict[tuple[str, str], Outcome]:
    """Those of the cases under each verdict that get another one, with that."""
    expected = {case: verdict for verdict, text in verdicts.items() for case in cases(text)}
    found = outcomes(grader, *((rf"Thus \boxed{{{boxed}}}.", [accepted]) for boxed, accepted in expected))
    return {case: given for (case, verdict), given in zip(expected.items(), found, strict=True) if given is not verdict}
