"""Arguments about problems, which those of training and evaluation inherit. Imports nothing heavy, for `--help`."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from e1_trl.answers.arguments import GradingArguments
from e1_trl.arguments import Fraction, option


@dataclass
class ProblemArguments(GradingArguments):
    """Arguments of problems: their columns, what is added to them, which are left out; then those of grading."""

    GROUP: ClassVar[str] = "problems"

    problem_column: str | None = option(
        None,
        "Column that holds the problem, as text or as messages. Default: the first that exists of prompt, problem, "
        "question.",
    )
    answer_column: str | None = option(
        None,
        "Column that holds the answer, or a list of accepted answers. Default: the first that exists of answers, "
        "answer, solution; for programs, tests.",
    )
    answer_after: str | None = option(
        None,
        "Text that precedes the answer in an answer column that holds a whole solution, as '####'; the answer is "
        "what follows its last occurrence. Unset: the whole column.",
    )
    instruction: str | None = option(
        None,
        "Text added to every problem; an empty text adds nothing. Default: the request to think step by step and to "
        "box the answer where problems are texts, and nothing where they are messages or stand in a column `prompt`, "
        "which the model gets unchanged. For programs it replaces `program_prompt`.",
    )
    exclude: str | None = option(
        None,
        "File of problems that are left out and counted: JSON lines with the field `id`, as `e1 validate` writes them; "
        '"" leaves none out.',
    )
    max_unusable: Fraction = option(
        0.01,
        "Largest share of rows, from 0 to 1, that are dropped because their problem or answer is unusable; a larger "
        "share is an error.",
    )
    local_benchmarks: Path | None = option(None, "Folder that holds benchmarks as files. Default: the Hub.")
