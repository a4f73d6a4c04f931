"""Problems in: what is asked, and what counts as right, from the Hub, from files, or from TRL's datasets.

Knows nothing about tokenizers, budgets, or how answers are graded.
"""

import logging
import math
import re
import reprlib
import unicodedata
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, List, Value, load_dataset
from datasets.exceptions import DatasetGenerationError

from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.prompts import INSTRUCTION, Prompt, compose, shown

logger = logging.getLogger(__name__)

FORMATS = {".jsonl": "json", ".json": "json", ".jsonl.gz": "json", ".parquet": "parquet"}
PROBLEM_COLUMNS = ("prompt", "problem", "question")
ANSWER_COLUMNS = ("answers", "answer", "solution")  # the last is TRL's name for the gold answer
COLUMNS = {
    "problem": Value("string"),
    "prompt": List({"role": Value("string"), "content": Value("string")}),
    "answers": List(Value("string")),
}
# What LaTeX writes in several ways, or for the eye alone. Operators stay: they tell 2 - 3 from 2 + 3.
STYLE = re.compile(
    r"""\\(?:left|right|q?quad|displaystyle|limits|mbox|text(?:bf|it|rm)?|math(?:bf|it|rm))(?![a-z]) | \\!
    | (?<=\\)[dtcl](?=frac|dots)         # \dfrac is \frac, \ldots is \dots
    | (?<=\\[lg]e)q(?:slant)?(?![a-z])   # \leqslant is \le
    | \[/?[bi]\]                         # italics on forums
    | (?<!\d)\.|\.(?!\d)                # a full stop, no decimal point
    | [\s$&,;:?'"`‘’“”~{}()\[\]\\]
    """,
    re.VERBOSE,
)


def load_problems(
    name: str, split: str, arguments: ProblemArguments, config: str | None = None, need_answers: bool = True
) -> Dataset:
    """`make_problems` of what `load_source` loads; their arguments and errors."""
    return make_problems(load_source(name, split, config), f"{name}, split {split}", arguments, need_answers)


def load_source(name: str, split: str, config: str | None = None) -> Dataset:
    """One split of a dataset, as it is.

    Args:
        name: a local `.jsonl`, `.json`, `.jsonl.gz` or `.parquet` file, whose one split is "train"; a local folder
            with files named after splits; or an id on the Hub.
        split: the split to load; `datasets`' slices ("train[:100]") work too.
        config: the configuration of a dataset on the Hub that has several.

    Raises:
        FileNotFoundError: a local file does not exist.
        ValueError: there is no such split, no row, or one that cannot be read.
    """
    suffix = next((suffix for suffix in FORMATS if name.endswith(suffix)), None)
    if suffix and not Path(name).is_file():
        raise FileNotFoundError(f"no file {name} (in {Path.cwd()}); give an existing file, a folder or a Hub id")
    try:
        if suffix:
            return load_dataset(FORMATS[suffix], data_files=name, split=split)
        return load_dataset(name, config, split=split)
    except (ValueError, DatasetGenerationError, StopIteration) as error:  # StopIteration: the file has no byte in it
        reason = str(error.__cause__ or error) or "no data"
        raise ValueError(f"{name}, split {split}: {reason}; it must hold at least one row with a problem") from error


def make_problems(source: Dataset, where: str, arguments: ProblemArguments, need_answers: bool = True) -> Dataset:
    """The problems of a dataset: its rows in their order and its columns, with three of ours, which replace any there.

    - `problem` (str): the text of the problem; of a conversation, its last user message.
    - `prompt` (list of messages, or str): what is asked, instruction included. A text is one user message; of a
      conversation, all turns are kept; and the texts of a column named `prompt` stay texts, which a model is given
      without a chat template, as TRL does.
    - `answers` (list of str): the accepted answers, as they stand in the source.

    Rows that cannot be used are dropped, with a warning that counts them and names the first three: the problem is
    empty, or neither a text nor messages of text; the answer is empty, or neither a text, a number nor a list of them.

    Args:
        source: one split, loaded by `load_source`, `datasets` or `trl.get_dataset`.
        where: what messages call it.
        arguments: columns, instruction and the share of rows that may be dropped.
        need_answers: whether a row must have an answer. If not, `answers` may be empty, and the source needs no column
            for it.

    Raises:
        ValueError: a column is missing, more than `max_unusable` of the rows cannot be used, or all of them.
    """
    problem_column = _resolve(source, where, arguments.problem_column, "problem_column", PROBLEM_COLUMNS)
    if need_answers or arguments.answer_column or set(ANSWER_COLUMNS) & set(source.column_names):
        answer_column = _resolve(source, where, arguments.answer_column, "answer_column", ANSWER_COLUMNS)
    else:
        answer_column = None
    is_raw = problem_column == "prompt" and isinstance(source.features["prompt"], Value)
    prompt_feature = {"prompt": Value("string")} if is_raw else {}
    problems = source.map(
        _to_problem,
        features=Features({**source.features, **COLUMNS, **prompt_feature}),
        fn_kwargs={
            "problem_column": problem_column,
            "answer_column": answer_column,
            "instruction": arguments.instruction,
            "is_raw": is_raw,
        },
        desc=f"Reading problems of {where}",
    )
    asked = [bool(problem) for problem in problems["problem"]]
    answered = [bool(answers) or not need_answers for answers in problems["answers"]]
    usable = [row for row in range(len(problems)) if asked[row] and answered[row]]
    if len(usable) == len(problems) > 0:
        return problems
    unusable = sorted(set(range(len(problems))) - set(usable))
    named = []
    for row in unusable[:3]:
        column = problem_column if not asked[row] else answer_column
        named.append(f"row {row}, column {column!r}: {reprlib.repr(source[row][column])}")
    examples = "; ".join(named) + ("; …" if len(unusable) > len(named) else "")
    if not usable or len(unusable) > arguments.max_unusable * len(problems):
        raise ValueError(
            f"{where}: only {len(usable)} of {len(problems)} rows can be used, max_unusable is "
            f"{arguments.max_unusable:g} ({examples}); a problem must be a text or messages, an answer a text, a "
            "number, or a list of them, none of them empty"
        )
    logger.warning(
        "%s: dropped %d of %d rows without a problem or an answer that can be used (%s)",
        where,
        len(unusable),
        len(problems),
        examples,
    )
    return problems.select(usable)


def decontaminate(problems: Dataset, others: Dataset, name: str) -> Dataset:
    """The problems whose text is not among those of `others`, whatever the case, spacing, punctuation and LaTeX style.

    A warning counts the dropped ones. Rephrased problems are not found.

    Args:
        problems: what is trained on, from `make_problems`.
        others: what is evaluated on, from `make_problems`.
        name: what the messages call `others`.

    Raises:
        ValueError: none is left.
    """
    known = {normalised(problem) for problem in others["problem"]}
    kept = [row for row, problem in enumerate(problems["problem"]) if normalised(problem) not in known]
    if not kept:
        raise ValueError(f"all {len(problems)} training problems occur in {name}; train or evaluate on another dataset")
    if len(kept) == len(problems):
        return problems
    logger.warning(
        "dropped %d of %d training problems: they occur in %s", len(problems) - len(kept), len(problems), name
    )
    return problems.select(kept)


def normalised(text: str) -> str:
    """A text without what two copies of one problem may differ in: case, spacing, punctuation and LaTeX style."""
    return STYLE.sub("", unicodedata.normalize("NFKC", text).casefold())


def _resolve(source: Dataset, where: str, named: str | None, field: str, usual: tuple[str, ...]) -> str:
    """The column that is named, or the first of the usual ones that there is."""
    columns = source.column_names
    found = next((column for column in ((named,) if named else usual) if column in columns), None)
    if found is None:
        missing = repr(named) if named else f"{', '.join(usual[:-1])} or {usual[-1]}"
        raise ValueError(f"{where}: no column {missing}; the columns are {', '.join(columns)}; name one as {field}")
    return found


# A module function with its settings in `fn_kwargs`, so that datasets can hash it and find its cache again.


def _to_problem(
    row: dict[str, Any], problem_column: str, answer_column: str | None, instruction: str | None, is_raw: bool
) -> dict[str, Any]:
    """Our columns of a row; `problem` or `answers` is empty where it cannot be used."""
    prompt = _to_prompt(row[problem_column], is_raw)
    if instruction is None:
        instruction = INSTRUCTION if isinstance(row[problem_column], str) and not is_raw else ""
    return {
        "problem": shown(prompt) if prompt else "",
        "prompt": compose(prompt, instruction) if prompt else prompt,
        "answers": [] if answer_column is None else _to_answers(row[answer_column]),
    }


def _to_prompt(problem: Any, is_raw: bool) -> Prompt:
    """A problem as a text or as a conversation; empty for what cannot be one, as messages that hold more than text."""
    if is_raw:
        return problem if isinstance(problem, str) and problem.strip() else ""
    if isinstance(problem, str):
        problem = [{"role": "user", "content": problem}]
    if not isinstance(problem, list) or not all(map(_is_message, problem)):
        return []
    messages = [{"role": message["role"], "content": message["content"]} for message in problem]
    return messages if any(message["role"] == "user" for message in messages) else []


def _is_message(message: Any) -> bool:
    if not isinstance(message, dict):
        return False
    content = message.get("content")
    more = any(value for key, value in message.items() if key not in ("role", "content"))  # tool calls, images
    return isinstance(message.get("role"), str) and isinstance(content, str) and bool(content.strip()) and not more


def _to_answers(answer: Any) -> list[str]:
    """The accepted answers; none if any of them cannot be used."""
    answers = [_to_text(form) for form in (answer if isinstance(answer, list) else [answer])]
    return answers if all(answers) else []


def _to_text(answer: Any) -> str:
    """An answer as text; "" for what cannot be one."""
    if isinstance(answer, bool) or not isinstance(answer, (str, int, float)):
        return ""
    if isinstance(answer, float) and math.isnan(answer):
        return ""
    if isinstance(answer, float) and answer.is_integer():
        return str(int(answer))  # JSON readers make a whole column of integers float if one row is null or 0.5
    return str(answer).strip()
