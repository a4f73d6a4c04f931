"""What training and evaluation are both told about their problems: the fields that their arguments inherit.

Knows nothing about how problems are loaded, and imports nothing heavy, so that `--help` stays quick.
"""

from dataclasses import dataclass, field
from pathlib import Path

GRADERS = ("mathematics", "programs")
TESTS = 15  # of a problem of programs, in the paper's code
PROGRAM_PROMPTS = ("acereason", "deepcoder")


@dataclass
class ProblemArguments:
    """Where the problem and its answer stand, what is added to it, and how answers are checked.

    Raises:
        ValueError: a grader or a prompt for programs is unknown, a number of tests is negative, or programs are to run
            without a sandbox.
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
    instruction: str | None = field(
        default=None,
        metadata={
            "help": "Text added to every problem; unset: the request to think step by step and to box the answer, "
            "where problems are texts, and nothing where they are messages or texts of a column `prompt`, which is "
            'given to the model as it is. "" adds nothing. With programs, it takes the place of `program_prompt`.'
        },
    )
    grader: str = field(
        default="mathematics",
        metadata={
            "help": "What an answer is: mathematics (the last box of a solution, compared with the accepted answers) "
            "or programs (its last Python block, run on tests)."
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
    grading_time_limit: float = field(
        default=5.0,
        metadata={
            "help": "Seconds after which grading an answer is killed, which counts as wrong; of a program, seconds of "
            "CPU time for one test."
        },
    )
    run_programs_unprotected: bool = field(
        default=False,
        metadata={"help": "Refused: programs run in a sandbox or not at all."},
    )

    def __post_init__(self) -> None:
        for name, known in (("grader", GRADERS), ("program_prompt", PROGRAM_PROMPTS)):
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"{name} is {value!r}; it must be {' or '.join(known)}")
        if self.max_tests < 0:
            raise ValueError(f"max_tests is {self.max_tests}; it must be a number of tests, or 0 for all")
        if self.run_programs_unprotected:
            raise ValueError(
                "run_programs_unprotected: programs run in a sandbox or not at all; leave it out. Where there is no "
                "sandbox (python -m e1_trl.answers.programs.sandbox.isolation says what is missing), train in a "
                "container that allows Landlock"
            )
