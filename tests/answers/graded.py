"""Graders of mathematics, and what they say of solutions."""

from collections.abc import Iterator, Sequence

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
