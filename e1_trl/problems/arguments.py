"""What training and evaluation are both told about their problems: the fields that their arguments inherit.

Knows nothing about how problems are loaded, and imports nothing heavy, so that `--help` stays quick.
"""

from dataclasses import dataclass, field
from pathlib import Path

from e1_trl.answers.arguments import GradingArguments
from e1_trl.answers.kinds import PROGRAMS, kind_of
from e1_trl.errors import UserError


@dataclass
class ProblemArguments(GradingArguments):
    """Where the problem and its answer stand, and what is added to it; then how answers are checked.

    Raises:
        UserError: the grader is unknown, or its answers are no texts that `answer_after` could stand in; or as
            `GradingArguments` raises it.
    """

    problem_column: str | None = field(
        default=None,
        metadata={
            "help": "Column that holds the problem, as text or as messages; unset: the first there is of prompt, "
            "problem, question."
        },
    )
    answer_column: str | None = field(
        default=None,
        metadata={
            "help": "Column that holds the answer, or a list of accepted ones; unset: the first there is of answers, "
            "answer, solution; of programs, tests."
        },
    )
    answer_after: str | None = field(
        default=None,
        metadata={
            "help": "Text that precedes the answer in an answer column that holds a whole solution, as '####'; the "
            "answer is what follows its last occurrence. Unset: the whole column."
        },
    )
    instruction: str | None = field(
        default=None,
        metadata={
            "help": "Text added to every problem; unset: the request to think step by step and to box the answer, "
            "where problems are texts, and nothing where they are messages or texts of a column `prompt`, which is "
            'given to the model as it is. "" adds nothing. With programs, it takes the place of `program_prompt`.'
        },
    )
    exclude: str | None = field(
        default=None,
        metadata={
            "help": "File of problems that are left out, with a count: JSON lines with the field `id`, as "
            '`e1 validate` and `e1 exclude` write them; "" leaves none out.'
        },
    )
    max_unusable: float = field(
        default=0.01,
        metadata={
            "help": "Rows without a problem or an answer that can be used are dropped, up to this share of all (from 0 "
            "to 1); more is an error."
        },
    )
    local_benchmarks: Path | None = field(default=None, metadata={"help": "Folder that holds benchmarks as files."})

    def __post_init__(self) -> None:
        super().__post_init__()
        if kind_of(self.grader) is PROGRAMS and self.answer_after:
            raise UserError(
                f"answer_after is {self.answer_after!r}, and programs are checked by tests, not by texts; remove it"
            )
