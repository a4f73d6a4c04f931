"""What training, evaluation and reports are told about answers: fields that their arguments inherit.

Imports nothing heavy, so that `--help` stays quick.
"""

from dataclasses import dataclass, field

from e1_trl.errors import UserError

TESTS = 15  # of a problem of programs, in the paper's code
PROGRAM_PROMPTS = ("acereason", "deepcoder")


@dataclass
class GradingArguments:
    """What answers are, how they are asked for, and how they are checked.

    Raises:
        UserError: a prompt for programs is unknown, or a number of tests is negative.
    """

    grader: str = field(
        default="mathematics",
        metadata={
            "help": "What an answer is: mathematics (the last box of a solution, compared with the accepted answers), "
            "programs (its last Python block, run on tests), or a module of your own whose `KIND` says it "
            "(`e1_trl.answers.kinds`)."
        },
    )
    max_tests: int = field(
        default=TESTS,
        metadata={
            "help": "Tests of a problem that a program is run on, those with the longest inputs, as in the paper's "
            "code; 0 for all. Benchmarks of programs run all."
        },
    )
    program_prompt: str = field(
        default="acereason",
        metadata={
            "help": "How problems that are texts ask for a program: acereason (a request for a Python block, with the "
            "function header in the column `starter_code`, if any) or deepcoder (the problem alone; with a column "
            "`starter_code`, LiveCodeBench's template)."
        },
    )
    grading_time_limit: float = field(
        default=5.0,
        metadata={
            "help": "Seconds after which grading an answer is killed, which counts as wrong; of a program, seconds of "
            "CPU time for one test."
        },
    )

    def __post_init__(self) -> None:
        if self.program_prompt not in PROGRAM_PROMPTS:
            raise UserError(f"program_prompt is {self.program_prompt!r}; it must be {' or '.join(PROGRAM_PROMPTS)}")
        if self.max_tests < 0:
            raise UserError(f"max_tests is {self.max_tests}; it must be a number of tests, or 0 for all")
