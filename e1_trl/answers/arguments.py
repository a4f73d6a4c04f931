"""Arguments about answers, which those of training, evaluation and reports inherit.

Imports nothing heavy, so that `--help` stays quick.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from e1_trl.arguments import Natural, Positive, check_fields, option

if TYPE_CHECKING:
    from e1_trl.answers.kinds import AnswerType

TESTS = 15  # of a problem of programs, in the paper's code


@dataclass
class GradingArguments:
    """Arguments of grading: the type of answer, how it is asked for, and how it is checked."""

    GROUP: ClassVar[str] = "grading"

    grader: str = option(
        "mathematics",
        "Kind of answer: mathematics (the last box of a solution, compared with the accepted answers), programs "
        "(the last fenced Python block, run on tests), or your own module that defines a `KIND` "
        "(docs/extend.md).",
    )
    max_tests: Natural = option(
        TESTS,
        "Most tests that a program is run on, the ones with the longest inputs first, as in the paper's code; 0 runs "
        "all. Benchmarks of programs run all.",
    )
    program_prompt: Literal["acereason", "deepcoder"] = option(
        "acereason",
        "Prompt that asks for a program where problems are texts: acereason (requests a Python block, with the "
        "function header in the column `starter_code`, if any) or deepcoder (the problem alone; with a column "
        "`starter_code`, LiveCodeBench's template).",
    )
    grading_time_limit: Positive = option(
        5.0,
        "Seconds after which grading an answer is stopped, which counts as wrong; for programs, seconds of CPU time "
        "per test.",
    )

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def answer_type(self) -> "AnswerType":
        """Type of the answers, resolved from the name `grader`: resolve it once and hand it along.

        No cached property, since datasets hashes these arguments to find its cache again.
        """
        from e1_trl.answers.kinds import kind_of

        return kind_of(self.grader)
