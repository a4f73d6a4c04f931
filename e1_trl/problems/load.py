"""Problems in: what is asked, and what counts as right, from the Hub, from files, or from TRL's datasets.

Knows nothing about tokenizers, budgets, or how answers are graded.
"""

import contextlib
import logging
import reprlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, List, Value, load_dataset
from datasets.exceptions import DatasetGenerationError

from e1_trl.answers.arguments import GradingArguments
from e1_trl.answers.kinds import KINDS, kind_of
from e1_trl.errors import UserError
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.files import json_fault
from e1_trl.problems.prompts import Prompt, compose, identity, last_question
from e1_trl.problems.selection import exclude, named_in

logger = logging.getLogger(__name__)

FORMATS = {".jsonl": "json", ".json": "json", ".jsonl.gz": "json", ".parquet": "parquet"}
NO_ROW = "no data"  # as datasets calls it, too
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
    where = f"{name}, split {split}"
    try:
        return make_problems(load_source(name, split, config), where, arguments, need_answers)
    except UnicodeDecodeError as error:  # the reader has let it pass
        raise UserError(f"{where}: {_fault_of_file(Path(name)) or f'a text is not in UTF-8 ({error})'}") from error


def load_source(name: str, split: str, config: str | None = None, files: Sequence[str] | None = None) -> Dataset:
    """One split of a dataset, as it is.

    Args:
        name: a local `.jsonl`, `.json`, `.jsonl.gz` or `.parquet` file, which is any one split; a local folder with
            files named after splits; or an id on the Hub.
        split: the split to load; `datasets`' slices ("train[:100]") work too.
        config: the configuration of a dataset on the Hub that has several.
        files: JSON lines of a repository on the Hub, to read instead of the split.

    Raises:
        UserError: there is no such file, dataset or split, no row, or one that cannot be read.
    """
    suffix = file_suffix(name)
    if suffix and not Path(name).is_file():
        raise UserError(f"no file {name} (in {Path.cwd()}); give an existing file, a folder or a Hub id")
    try:
        if suffix:
            return load_dataset(FORMATS[suffix], data_files={whole(split): name}, split=split)
        if files is not None:  # by their addresses: a repository with a loading script is refused as a whole
            return load_dataset("json", data_files=[f"hf://datasets/{name}/{file}" for file in files], split="train")
        return load_dataset(name, config, split=split)
    # StopIteration: the file has no byte in it; EOFError: it lost its end; RuntimeError: the repository has a loading
    # script; OSError: the Hub has no such dataset, or cannot be reached.
    except (ValueError, DatasetGenerationError, StopIteration, EOFError, RuntimeError, OSError) as error:
        reason = str(error.__cause__ or error) or NO_ROW
        if NO_ROW in reason:
            reason += "; it must hold at least one row with a problem"
        elif isinstance(error, DatasetGenerationError):
            with contextlib.suppress(OSError, EOFError):
                reason = _fault_of_file(Path(name)) or reason
        raise UserError(f"{name}, split {split}: {reason}") from error


def _fault_of_file(place: Path) -> str | None:
    """Why a local file of JSON lines, or one of a folder's, cannot be read; `None` if nothing is found."""
    files = sorted(place.iterdir()) if place.is_dir() else [place] * place.is_file()
    faults = ((file, json_fault(file)) for file in files if FORMATS.get(file_suffix(file.name) or "") == "json")
    return next((f"{file.name}, {fault}" if place.is_dir() else fault for file, fault in faults if fault), None)


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
    - `key` (str): what names the problem wherever it stands, `prompts.identity` of its text.

    Rows are left out where the problem is empty, or neither a text nor messages of text, or where the kind of answer
    cannot read the answer, or grade against it (`check_unusable`); then the problems that `exclude` names.

    Args:
        source: one split, loaded by `load_source`, `datasets` or `trl.get_dataset`.
        where: what messages call it.
        arguments: columns, instruction, the share of rows that may be left out, and how answers are read.
        need_answers: whether a row must have an answer, and the source a column for it.

    Raises:
        UserError: a column is missing, too many rows cannot be used, or what `exclude` names is not there, or cannot be
            read.
    """
    excluded = named_in(Path(arguments.exclude)) if arguments.exclude else frozenset()
    problem_column, answer_column = _columns(source, where, arguments, need_answers)
    problems = _read(source, where, arguments, problem_column, answer_column)
    has_problem = [bool(problem) for problem in problems["problem"]]
    fault = kind_of(arguments.grader).fault
    has_answer = [not need_answers or (bool(answers) and fault(answers) is None) for answers in problems["answers"]]
    unusable = [row for row in range(len(problems)) if not (has_problem[row] and has_answer[row])]
    faults = [
        f"row {row}, "
        + (
            _fault(source[row], str(answer_column), arguments)
            if has_problem[row]
            else _fault(source[row], problem_column)
        )
        for row in unusable[:3]
    ]
    wanted = f"a problem must be a text or messages, an answer {kind_of(arguments.grader).wanted}"
    check_unusable(where, len(problems), len(unusable), faults, arguments.max_unusable, wanted)
    if unusable:
        problems = problems.select(sorted(set(range(len(problems))).difference(unusable)))
    return exclude(problems, excluded, str(arguments.exclude))


def check_unusable(where: str, total: int, unusable: int, faults: Sequence[str], share: float, wanted: str) -> None:
    """Warn of rows that cannot be used and are left out, naming the first faults.

    Raises:
        UserError: they are more than this share of all, or all.
    """
    said = f"{where}: {unusable} of {total} rows cannot be used ({'; '.join(faults)}{'; …' * (unusable > len(faults))})"
    if unusable == total or unusable > share * total:
        raise UserError(f"{said}; max_unusable is {share:g}; {wanted}")
    if unusable:
        logger.warning("%s; they are left out", said)


def _columns(source: Dataset, where: str, arguments: ProblemArguments, need_answers: bool) -> tuple[str, str | None]:
    """The columns of problem and answer: the named ones, or the first of the usual ones that there are."""

    def find(field: str, named: str | None, usual: tuple[str, ...]) -> str:
        columns = source.column_names
        for column in (named,) if named else usual:
            if column in columns:
                return column
        missing = repr(named) if named else f"{', '.join(usual[:-1])} or {usual[-1]}"
        raise UserError(f"{where}: no column {missing}; the columns are {', '.join(columns)}; name one as {field}")

    usual = kind_of(arguments.grader).columns
    problem = find("problem_column", arguments.problem_column, PROBLEM_COLUMNS)
    if need_answers or arguments.answer_column or set(usual) & set(source.column_names):
        return problem, find("answer_column", arguments.answer_column, usual)
    return problem, None


def _read(
    source: Dataset, where: str, arguments: ProblemArguments, problem_column: str, answer_column: str | None
) -> Dataset:
    """All rows, with our columns."""
    kind = kind_of(arguments.grader)
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
            "answer_after": arguments.answer_after,
            "instruction": arguments.instruction,
            "is_raw": is_raw,
            "grading": GradingArguments(arguments.grader, arguments.max_tests, arguments.program_prompt),
        },
        desc=f"Reading problems of {where}",
    )
    problems = read() if arguments.grader in KINDS else read(load_from_cache_file=False)  # a module may have changed
    if kind.kept is not None and not all(kind.kept(name) for names in problems["answers"] for name in names):
        problems = read(load_from_cache_file=False)  # the cache has the names, and what they name is gone
    return problems


def _fault(row: dict[str, Any], column: str, arguments: ProblemArguments | None = None) -> str:
    """What a row has where it should have a problem; or an answer, and why it cannot be graded."""
    fault = f"column {column!r}: {reprlib.repr(row[column])}"
    if arguments is None:
        return fault
    kind = kind_of(arguments.grader)
    try:
        answers = kind.read(_cut(row, column, arguments.answer_after), column, arguments)
        why = kind.fault(answers) if answers else None
    except ValueError as error:
        why = str(error)
    return fault if why is None else f"{fault} ({why})"


def _cut(row: dict[str, Any], column: str, before: str | None) -> dict[str, Any]:
    """A row whose answers, where they are texts, begin after the last occurrence of the text `before`."""
    if before is None:
        return row
    found = row[column]
    forms = found if isinstance(found, list) else [found]
    return {**row, column: [form.rpartition(before)[2] if isinstance(form, str) else form for form in forms]}


# A module function with its settings in `fn_kwargs`, so that datasets can hash it and find its cache again.


def _to_problem(
    row: dict[str, Any],
    problem_column: str,
    answer_column: str | None,
    answer_after: str | None,
    instruction: str | None,
    is_raw: bool,
    grading: GradingArguments,
) -> dict[str, Any]:
    """Our columns of a row; `problem` or `answers` is empty where it cannot be used."""
    kind, problem = kind_of(grading.grader), row[problem_column]
    prompt = request = _to_prompt(problem, is_raw)
    is_task = isinstance(problem, str) and not is_raw  # and says nothing of how it is to be answered
    if prompt and instruction is None and is_task:
        request = _to_prompt(kind.ask(problem, row, grading), is_raw)
    elif prompt:
        request = compose(prompt, instruction or "")
    try:
        cut = row if answer_column is None else _cut(row, answer_column, answer_after)
        answers = [] if answer_column is None else kind.read(cut, answer_column, grading)
    except ValueError:
        answers = []
    text = last_question(prompt) if prompt else ""
    return {"problem": text, "prompt": request, "answers": answers, "key": identity(text)}


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
