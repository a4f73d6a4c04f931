"""What training and evaluation are both told about their problems: the fields that their arguments inherit.

Knows nothing about how problems are loaded, and imports nothing heavy, so that `--help` stays quick.
"""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class ProblemArguments:
    """Where the problem and its answer stand, what is added to it, and how answers are checked."""

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
            "answer, solution."
        },
    )
    instruction: str | None = field(
        default=None,
        metadata={
            "help": "Text added to every problem; unset: the request to think step by step and to box the answer, "
            "where problems are texts, and nothing where they are messages or texts of a column `prompt`, which is "
            'given to the model as it is. "" adds nothing.'
        },
    )
    max_unusable: float = field(
        default=0.01,
        metadata={
            "help": "Rows without a problem or an answer are dropped, up to this share of all (from 0 to 1); more is "
            "an error."
        },
    )
    local_benchmarks: Path | None = field(default=None, metadata={"help": "Folder that holds benchmarks as files."})
    grading_time_limit: float = field(
        default=5.0, metadata={"help": "Seconds after which grading an answer is killed, which counts as wrong."}
    )
