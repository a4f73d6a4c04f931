r"""Grade satisfiability puzzles: every assignment that satisfies all clauses is right, not just one written answer.

    grader: examples.saturn.clauses        in a recipe; e1 eval takes --grader examples.saturn.clauses

A row has `variables`, their number, and as `problem` clauses such as "A!B & !CD": (A or not B) and (not C or D).
The answer is the last box of the solution, with one digit for each variable in order: \boxed{1010}.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from e1_trl.answers.grade import Grade, Grader, Outcome, Trial
from e1_trl.answers.kinds import AnswerType
from e1_trl.answers.mathematics.boxes import boxed_answer

LITERAL = re.compile(r"(!?)([A-Z])")
QUESTION = r"""Find truth values of the variables {names} that satisfy every clause below. Clauses are joined by &,
which means "and". The literals of a clause stand next to each other and are joined by "or"; ! means "not".
Think step by step, and put one digit for each variable in order, 1 for true and 0 for false, within \boxed{{}}.

{clauses}"""


def satisfies(digits: str, clauses: str) -> bool:
    """Return whether an assignment, with a digit for each variable, makes at least one literal of each clause true."""
    true = {chr(ord("A") + index): digit == "1" for index, digit in enumerate(digits)}
    return all(any(true[name] != bool(no) for no, name in LITERAL.findall(clause)) for clause in clauses.split(" & "))


class Clauses(Grader):
    """Grades assignments. A training logs the shares of the two faults."""

    faults = (Outcome.UNBOXED, Outcome.UNPARSEABLE)
    version = "clauses 1"  # an edit of this file changes it as well

    def grade(
        self, solutions: Sequence[str], references: Sequence[Sequence[str]], free_text: object = None
    ) -> list[Grade]:
        return [self.judge(solution, puzzle) for solution, (puzzle,) in zip(solutions, references, strict=True)]

    def judge(self, solution: str, puzzle: str) -> Grade:
        variables, clauses = puzzle.split(": ")
        answer = boxed_answer(solution)
        if answer is None:
            return Grade(Outcome.UNBOXED, None)
        if not re.fullmatch(f"[01]{{{variables}}}", answer):
            return Grade(Outcome.UNPARSEABLE, answer)
        return Grade(Outcome.CORRECT if satisfies(answer, clauses) else Outcome.WRONG, answer)


def read(row: Mapping[str, Any], column: str, arguments: object) -> list[str]:
    """Return the puzzle as the grader gets it, in place of an accepted answer.

    Raises:
        ValueError: the clauses are malformed, or name a variable that the puzzle does not have.
    """
    clauses = row[column]
    if not re.fullmatch(r"(!?[A-Z])+( & (!?[A-Z])+)*", clauses):
        raise ValueError("expected clauses such as 'A!B & !CD'")
    if max(name for _, name in LITERAL.findall(clauses)) >= chr(ord("A") + row["variables"]):
        raise ValueError(f"a clause names a variable beyond the first {row['variables']}")
    return [f"{row['variables']}: {clauses}"]


def ask(problem: str, row: Mapping[str, Any], arguments: object) -> str:
    names = ", ".join(chr(ord("A") + index) for index in range(row["variables"]))
    return QUESTION.format(names=names, clauses=problem)


def trials(row: Mapping[str, Any]) -> list[Trial]:
    """Return what a dry run grades: the assignment that the puzzle was made from, and an answer that is too short."""
    own = Trial("the generator's assignment", rf"\boxed{{{row['assignment']}}}", right=True)
    return [own, Trial("an empty box", r"\boxed{}", right=False)]


KIND = AnswerType(
    lambda arguments, workers: Clauses(),
    columns=("problem",),
    wanted="a text of clauses such as 'A!B & !CD'",
    read=read,
    ask=ask,
    trials=trials,
    votes=False,  # several assignments may be right, so that a majority means nothing
)
