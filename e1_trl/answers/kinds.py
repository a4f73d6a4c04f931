"""Types of answers: one record says how answers are asked for, read, graded and reported.

Ours are mathematics and programs. Your own is a module with a `KIND`, named as the grader: docs/extend.md has a whole
one. Graders are imported when they are made.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Self, cast

from e1_trl.answers.arguments import GradingArguments
from e1_trl.answers.grade import PROGRAM_FAULTS, Grader, Outcome, Trial
from e1_trl.answers.mathematics.golds import answer_of, is_worked_solution, last_number
from e1_trl.answers.programs.asking import STARTER, ask_program
from e1_trl.answers.programs.rows import SOLUTIONS, in_block, read_answer, references
from e1_trl.answers.programs.suite import Suites
from e1_trl.arguments import find
from e1_trl.cores import cores
from e1_trl.errors import UserError

Row = Mapping[str, Any]  # of a dataset

INSTRUCTION = "Let's think step by step and output the final answer within \\boxed{}."  # the authors' data preparation

# Limits of one program on one test. Wall time ends programs that sleep; on a loaded machine, right programs wait, too.
MEMORY = 2**32  # bytes
OUTPUT = 2**24  # bytes
PATIENCE = 10.0  # seconds of wall time besides the CPU time on a busy machine
MAX_GRADING_WORKERS = 32  # a program may take gigabytes


def grading_workers() -> int:
    """Return the number of processes that grade where nothing else runs: one for each core, up to a limit."""
    return min(MAX_GRADING_WORKERS, cores())


def read_texts(row: Row, column: str, arguments: GradingArguments) -> list[str]:
    """Read the accepted answers in a column: a text, a number, or a list of them; none if one cannot be used."""
    found = row[column]
    answers = [_text(form) for form in (found if isinstance(found, list) else [found])]
    return answers if all(answers) else []


def _text(answer: Any) -> str:
    """Write an answer as text; "" for what cannot be one."""
    if isinstance(answer, bool) or not isinstance(answer, (str, int, float)):
        return ""
    if isinstance(answer, float) and not abs(answer) < 2**53:  # nor NaN; beyond, other integers are read as this one
        return ""
    if isinstance(answer, float) and answer.is_integer():
        return str(int(answer))  # JSON readers make a whole column of integers float if one row is null or 0.5
    return str(answer).strip()


@dataclass(frozen=True)
class AnswerType:
    """Type of the answers to problems.

    Attributes:
        grader: makes the grader, from the arguments and the number of its processes.
        columns: usual columns of the accepted answers; the first that exists is read unless one is named.
        wanted: description of a usable answer, for messages.
        read: reads the accepted answers in a column of a row; an empty list or a ValueError of one line if it cannot be
            used.
        fault: says why answers that could be read cannot be graded against; None if they can.
        ask: writes the message that asks for an answer, from a problem that is a text, and its row.
        show: describes the accepted answers of a row, for a dry run.
        trials: solutions that a dry run grades, to fail where the accepted answers of the first rows are no good.
        remedy: where trials are a row's own solutions, some of which are wrong in honest sets: what finds these.
        faults: outcomes whose shares a report lists; without any, it sums up all that is neither right nor wrong.
        votes: whether the answer of most samples means anything (maj@k).
        boxed: whether an answer stands in a box, which the reward `format` looks for.
        kept: where accepted answers are names of files, says whether one still exists.
    """

    grader: Callable[[GradingArguments, int], Grader]
    columns: tuple[str, ...] = ("answers", "answer", "solution")  # the last is TRL's name for the gold answer
    wanted: str = "a text, a number, or a list of them, none of them empty"
    read: Callable[[Row, str, GradingArguments], list[str]] = read_texts
    fault: Callable[[Sequence[str]], str | None] = lambda answers: None
    ask: Callable[[str, Row, GradingArguments], str] = lambda problem, row, arguments: problem
    show: Callable[[Row], str] = lambda row: f"answers          {row['answers']}"
    trials: Callable[[Row], Sequence[Trial]] = lambda row: ()
    remedy: str | None = None
    faults: tuple[Outcome, ...] = ()
    votes: bool = True
    boxed: bool = True
    kept: Callable[[str], bool] | None = None


def _mathematics_grader(arguments: GradingArguments, workers: int) -> Grader:
    from e1_trl.answers.mathematics.grader import MathematicsGrader

    return MathematicsGrader(arguments.grading_time_limit, workers)


def _try_mathematics(row: Row) -> list[Trial]:
    """Try a gold answer in a box; with a digit appended, which is wrong; and the last number of one in words."""
    if not row["answers"]:
        return []
    answer = answer_of(row["answers"][0])
    tried = {answer: True, f"{answer}1": False}
    if (number := last_number(answer)) is not None:
        tried[number] = True
    return [Trial(box := rf"\boxed{{{content}}}", box, right) for content, right in tried.items()]


def _program_grader(arguments: GradingArguments, workers: int) -> Grader:
    from e1_trl.answers.programs.grader import SLOWED, ProgramGrader
    from e1_trl.answers.programs.sandbox.isolation import choose
    from e1_trl.answers.programs.sandbox.process import Limits

    cpu = arguments.grading_time_limit
    limits = Limits(cpu=cpu, wall=SLOWED * cpu + PATIENCE, memory=MEMORY, output=OUTPUT)
    return ProgramGrader(limits, workers, choose())


def _show_program(row: Row) -> str:
    if not row["answers"]:
        return "tests            none"
    suite = Suites()[row["answers"][0]]
    called = f"calls of {suite.call}" if suite.call else "on stdin"
    return f"tests            {len(suite.cases)} {called}, compared by the rule {suite.rule}"


def _try_program(row: Row) -> list[Trial]:
    """Try a problem's own solution, if it brings one, and a program that does nothing."""
    if not row["answers"]:
        return []
    own = [Trial("its own solution", in_block(program), True) for program in references(row, SOLUTIONS)[:1]]
    return [*own, Trial("a program that does nothing", in_block("pass"), False)]


MATHEMATICS = AnswerType(
    _mathematics_grader,
    wanted="a formula, a number or a few words, or a list of them; where it stands at the end of a longer text, set "
    "answer_after to what precedes it there, as '####'",
    fault=lambda answers: "a worked solution, or a sentence" if all(map(is_worked_solution, answers)) else None,
    ask=lambda problem, row, arguments: f"{problem} {INSTRUCTION}",
    trials=_try_mathematics,
)
PROGRAMS = AnswerType(
    _program_grader,
    columns=("tests",),
    wanted="tests of a known shape",
    read=lambda row, column, arguments: [Suites().add(read_answer(row, column, arguments.max_tests))],
    ask=lambda problem, row, arguments: ask_program(problem, row.get(STARTER), arguments.program_prompt),
    show=_show_program,
    trials=_try_program,
    remedy="`e1 validate` lists the problems whose own solutions fail",
    faults=PROGRAM_FAULTS,
    votes=False,  # no two programs need be the same text
    boxed=False,
    kept=lambda name: name in Suites(),
)
KINDS = {"mathematics": MATHEMATICS, "programs": PROGRAMS}


def kind_of(grader: str) -> AnswerType:
    """Return the type of answers of a grader: one of `KINDS`, or of a module, also in the working directory."""
    if grader in KINDS:
        return KINDS[grader]
    try:
        return find(f"{grader}.KIND", {}, "grader", AnswerType)
    except UserError as error:
        raise UserError(
            f"grader is {grader!r}; it must be {' or '.join(KINDS)}, or a module with a KIND of its own ({error})"
        ) from error


def make_grader(arguments: GradingArguments, workers: int) -> Grader:
    """Make the grader that the arguments name, with this many processes."""
    grader = arguments.answer_type.grader(arguments, workers)
    return grader if arguments.grader in KINDS else cast(Grader, _OfModule(grader, sys.modules[arguments.grader]))


class _OfModule:
    """Grader of a user's module, whose version also changes with the module's file, or with all files of a package.

    Its own version must change with anything else that it imports.
    """

    def __init__(self, grader: Grader, module: ModuleType):
        file = Path(str(module.__file__))
        hashed = hashlib.sha256()
        for each in sorted(file.parent.rglob("*.py")) if hasattr(module, "__path__") else [file]:
            hashed.update(each.read_bytes())
        self._grader = grader
        self.version = f"{grader.version}, {hashed.hexdigest()[:16]}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grader, name)

    def __enter__(self) -> Self:
        self._grader.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._grader.__exit__(*error)
