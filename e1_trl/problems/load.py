"""Problems in: what is asked, and what counts as right, from the Hub, from files, or from TRL's datasets.

Knows nothing about tokenizers, budgets, or how answers are graded.
"""

import logging
import reprlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, List, Value, load_dataset
from datasets.exceptions import DatasetGenerationError

from e1_trl.answers.arguments import GradingArguments
from e1_trl.answers.kinds import KINDS, Kind, kind_of
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.prompts import Prompt, compose, shown
from e1_trl.problems.selection import exclude, identity, named_in

logger = logging.getLogger(__name__)

FORMATS = {".jsonl": "json", ".json": "json", ".jsonl.gz": "json", ".parquet": "parquet"}
PROBLEM_COLUMNS = ("prompt", "problem", "question")
COLUMNS = {
    "problem": Value("string"),
    "prompt": List({"role": Value("string"), "content": Value("string")}),
    "answers": List(Value("string")),
    "key": Value("string"),
}


def load_problems(
    name: str, split: str, arguments: ProblemArguments, config: str | None = None, need_answers: bool = True
) -> Dataset:
    """`make_problems` of what `load_source` loads; their arguments and errors."""
    return make_problems(load_source(name, split, config), f"{name}, split {split}", arguments, need_answers)


def load_source(name: str, split: str, config: str | None = None, files: Sequence[str] | None = None) -> Dataset:
    """One split of a dataset, as it is.

    Args:
        name: a local `.jsonl`, `.json`, `.jsonl.gz` or `.parquet` file, which is any one split; a local folder with
            files named after splits; or an id on the Hub.
        split: the split to load; `datasets`' slices ("train[:100]") work too.
        config: the configuration of a dataset on the Hub that has several.
        files: JSON lines of a repository on the Hub, to read instead of the split.

    Raises:
        FileNotFoundError: a local file does not exist.
        ValueError: there is no such split, no row, or one that cannot be read.
    """
    suffix = file_suffix(name)
    if suffix and not Path(name).is_file():
        raise FileNotFoundError(f"no file {name} (in {Path.cwd()}); give an existing file, a folder or a Hub id")
    try:
        if suffix:
            return load_dataset(FORMATS[suffix], data_files={whole(split): name}, split=split)
        if files is not None:  # by their addresses: a repository with a loading script is refused as a whole
            return load_dataset("json", data_files=[f"hf://datasets/{name}/{file}" for file in files], split="train")
        return load_dataset(name, config, split=split)
    # StopIteration: the file has no byte in it; RuntimeError: the repository has a loading script.
    except (ValueError, DatasetGenerationError, StopIteration, RuntimeError) as error:
        reason = str(error.__cause__ or error) or "no data"
        raise ValueError(f"{name}, split {split}: {reason}; it must hold at least one row with a problem") from error


def file_suffix(name: str) -> str | None:
    """The suffix of a dataset that is called like a file; `None` for a folder's name and for an id on the Hub."""
    return next((suffix for suffix in FORMATS if name.endswith(suffix)), None)


def whole(split: str) -> str:
    """The split that a slice is of."""
    return split.partition("[")[0]


def make_problems(source: Dataset, where: str, arguments: ProblemArguments, need_answers: bool = True) -> Dataset:
    """The problems of a dataset: its rows in their order and its columns, with four of ours, which replace any there.

    - `problem` (str): the text of the problem; of a conversation, its last user message.
    - `prompt` (list of messages, or str): what is asked, instruction included. A text is one user message; of a
      conversation, all turns are kept; and the texts of a column named `prompt` stay texts, which a model is given
      without a chat template, as TRL does.
    - `answers` (list of str): the accepted answers, as they stand in the source; where programs are the answers, the
      name of their tests (`e1_trl.answers.programs.suites`), in place of the column that they came from.
    - `key` (str): what names the problem wherever it stands, `selection.identity` of its text.

    Rows that cannot be used are dropped, with a warning that counts them and names the first three: the problem is
    empty, or neither a text nor messages of text; the answer is empty, or neither a text, a number nor a list of them;
    the tests are none, or cannot be read. Problems that `exclude` names are left out after that.

    Args:
        source: one split, loaded by `load_source`, `datasets` or `trl.get_dataset`.
        where: what messages call it.
        arguments: columns, instruction and the share of rows that may be dropped.
        need_answers: whether a row must have an answer. If not, `answers` may be empty, and the source needs no column
            for it.

    Raises:
        ValueError: a column is missing, more than `max_unusable` of the rows cannot be used, or all of them; or what
            `exclude` names cannot be read.
        FileNotFoundError: there is no such file.
    """
    excluded = named_in(Path(arguments.exclude)) if arguments.exclude else frozenset()
    kind = kind_of(arguments.grader)
    problem_column = _resolve(source, where, arguments.problem_column, "problem_column", PROBLEM_COLUMNS)
    if need_answers or arguments.answer_column or set(kind.columns) & set(source.column_names):
        answer_column = _resolve(source, where, arguments.answer_column, "answer_column", kind.columns)
    else:
        answer_column = None
    is_raw = problem_column == "prompt" and isinstance(source.features["prompt"], Value)
    features = {**source.features, **COLUMNS, **({"prompt": Value("string")} if is_raw else {})}
    replaced = [answer_column] if kind.kept is not None and answer_column not in (None, *COLUMNS) else []
    read = partial(
        source.map,
        _to_problem,
        features=Features({name: feature for name, feature in features.items() if name not in replaced}),
        remove_columns=replaced,
        fn_kwargs={
            "problem_column": problem_column,
            "answer_column": answer_column,
            "instruction": arguments.instruction,
            "is_raw": is_raw,
            "grading": GradingArguments(arguments.grader, arguments.max_tests, arguments.program_prompt),
        },
        desc=f"Reading problems of {where}",
    )
    problems = read() if arguments.grader in KINDS else read(load_from_cache_file=False)  # a module may have changed
    if kind.kept is not None and not all(kind.kept(name) for names in problems["answers"] for name in names):
        problems = read(load_from_cache_file=False)  # the cache has the names, and what they name is gone
    asked = [bool(problem) for problem in problems["problem"]]
    answered = [bool(answers) or not need_answers for answers in problems["answers"]]
    usable = [row for row in range(len(problems)) if asked[row] and answered[row]]
    if len(usable) < max(1, len(problems)):
        unusable = sorted(set(range(len(problems))) - set(usable))
        named = [
            f"row {row}, "
            + (
                _wrong_answer(source[row], str(answer_column), kind, arguments)
                if asked[row]
                else _wrong(source[row], problem_column)
            )
            for row in unusable[:3]
        ]
        examples = "; ".join(named) + ("; …" if len(unusable) > len(named) else "")
        if not usable or len(unusable) > arguments.max_unusable * len(problems):
            raise ValueError(
                f"{where}: only {len(usable)} of {len(problems)} rows can be used, max_unusable is "
                f"{arguments.max_unusable:g} ({examples}); a problem must be a text or messages, an answer "
                f"{kind.wanted}"
            )
        logger.warning(
            "%s: dropped %d of %d rows without a problem or an answer that can be used (%s)",
            where,
            len(unusable),
            len(problems),
            examples,
        )
        problems = problems.select(usable)
    return exclude(problems, excluded, str(arguments.exclude))


def _wrong(row: dict[str, Any], column: str) -> str:
    """What a row has where it should have a problem or an answer."""
    return f"column {column!r}: {reprlib.repr(row[column])}"


def _wrong_answer(row: dict[str, Any], column: str, kind: Kind, grading: GradingArguments) -> str:
    try:
        kind.read(row, column, grading)
    except ValueError as error:
        return f"{_wrong(row, column)} ({error})"
    return _wrong(row, column)


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
    row: dict[str, Any],
    problem_column: str,
    answer_column: str | None,
    instruction: str | None,
    is_raw: bool,
    grading: GradingArguments,
) -> dict[str, Any]:
    """Our columns of a row; `problem` or `answers` is empty where it cannot be used."""
    kind, problem = kind_of(grading.grader), row[problem_column]
    prompt = asked = _to_prompt(problem, is_raw)
    is_task = isinstance(problem, str) and not is_raw  # and says nothing of how it is to be answered
    if prompt and instruction is None and is_task:
        asked = _to_prompt(kind.ask(problem, row, grading), is_raw)
    elif prompt:
        asked = compose(prompt, instruction or "")
    try:
        answers = [] if answer_column is None else kind.read(row, answer_column, grading)
    except ValueError:
        answers = []
    text = shown(prompt) if prompt else ""
    return {"problem": text, "prompt": asked, "answers": answers, "key": identity(text)}


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
