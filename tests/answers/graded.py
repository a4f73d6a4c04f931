"""Graders of mathematics, and tables of cases for them: `boxed → accepted | boxed → accepted`, by verdict."""

import re
from collections.abc import Iterator, Mapping, Sequence

from e1_trl.answers.grade import Grader, Outcome
from e1_trl.answers.mathematics.grader import MathematicsGrader

C = Outcome.CORRECT
W = Outcome.WRONG
U = Outcome.UNEVALUATED


def patient() -> Iterator[MathematicsGrader]:
    """Yield a grader for answers that must be graded, however busy the machine is."""
    with MathematicsGrader(time_limit=60, workers=2) as grader:
        yield grader


def outcomes(grader: Grader, *graded: tuple[str, Sequence[str]]) -> list[Outcome]:
    """Grade solutions, each with its accepted answers."""
    return [grade.outcome for grade in grader.grade([text for text, _ in graded], [answers for _, answers in graded])]


def disagreeing(grader: Grader, verdicts: Mapping[Outcome, str]) -> dict[tuple[str, str], Outcome]:
    """Return the cases that get another verdict than the table says, with that verdict."""
    expected = dict[tuple[str, str], Outcome]()
    for verdict, text in verdicts.items():
        for case in re.split(r"\s+\|\s+", text.strip()):
            boxed, accepted = case.split(" → ")
            expected[boxed, accepted] = verdict
    found = outcomes(grader, *((rf"Thus \boxed{{{boxed}}}.", [accepted]) for boxed, accepted in expected))
    return {case: given for (case, verdict), given in zip(expected.items(), found, strict=True) if given is not verdict}
