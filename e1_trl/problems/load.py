"""Problems in: what is asked, and what counts as right, from the Hub, from files, or from TRL's datasets.

The rows of a source (`problems.source`) become problems, here or, for the benchmarks of programs, in
`problems.program_benchmarks`; then unusable and excluded ones are left out.
"""

import logging
import reprlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset, Features, List, Value

from e1_trl.answers.grade import grader_version
from e1_trl.answers.kinds import KINDS, PROGRAMS
from e1_trl.answers.programs.livecodebench import PAPERS_WINDOW, Window
from e1_trl.errors import UserError
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.benchmarks import find_benchmark, find_file
from e1_trl.problems.program_benchmarks import NAMES as PROGRAM_BENCHMARKS
from e1_trl.problems.program_benchmarks import read_tasks
from e1_trl.problems.prompts import Prompt, identity, last_question, last_user_message, problem_of
from e1_trl.problems.selection import exclude
from e1_trl.problems.source import load_source

logger = logging.getLogger(__name__)

CODE = Path(__file__).parent
SHOWN = 3  # faults of rows in a message
PROBLEM_COLUMNS = ("prompt", "problem", "question")
COLUMNS = {
    "problem": Value("string"),
    "prompt": List({"role": Value("string"), "content": Value("string")}),
    "answers": List(Value("string")),
    "key": Value("string"),
}


def compose(prompt: Prompt, addition: str) -> Prompt:
    """Add a text to a prompt, or to its last user message, after a space; "" adds nothing."""
    content = last_question(prompt) + f" {addition}" * bool(addition)
    if isinstance(prompt, str):
        return content
    last = last_user_message(prompt)
    return [*prompt[:last], {**prompt[last], "content": content}, *prompt[last + 1 :]]


def load_problems(
    name: str, split: str, arguments: ProblemArguments, config: str | None = None, need_answers: bool = True
) -> Dataset:
    """Load a source and make problems of its rows, as `load_source` and `make_problems` do."""
    return make_problems(load_source(name, split, config), f"{name}, split {split}", arguments, need_answers)


def load_benchmark(
    name: str, arguments: ProblemArguments, window: Sequence[str] = PAPERS_WINDOW
) -> tuple[Dataset, str]:
    """Load the problems of a benchmark, as `make_problems` describes them, with the title that a report gives it.

    With `local_benchmarks`, they are read from that folder's file `<name>*.jsonl`, `.jsonl.gz` or `.parquet`: of
    mathematics with the columns `problem`, and `answer` or (several accepted ones) `answers`; of programs with those of
    the dataset on the Hub.

    Of the arguments, columns, grader and prompts of programs are the benchmark's own; the window is LiveCodeBench's.
    """
    benchmark = find_benchmark(name)
    folder = arguments.local_benchmarks
    place = benchmark.hub_id if folder is None else find_file(folder, name)
    if name in PROGRAM_BENCHMARKS:
        days = Window(*window)
        files = days.files if name == "livecodebench" else None
        source = load_source(place, benchmark.split, benchmark.config, files)
        rows, faults, title = read_tasks(name, source, arguments.instruction, days)
        total = len(rows) + len(faults)
        check_unusable(name, total, len(faults), faults[:SHOWN], arguments.max_unusable, PROGRAMS.wanted)
        return Dataset.from_list(rows, features=Features(COLUMNS)), title
    own = replace(
        arguments,
        grader=benchmark.grader,
        max_tests=benchmark.max_tests,
        exclude=None,
        problem_column=benchmark.problem_column if folder is None else "problem",
        answer_column=benchmark.answer_column if folder is None else None,
        answer_after=benchmark.answer_after,
    )
    problems = load_problems(place, benchmark.split, own, benchmark.config)
    if benchmark.all_required and folder is None:
        problems = problems.map(lambda answers: {"answers": [", ".join(answers)]}, input_columns=["answers"])
    return problems, name


def make_problems(source: Dataset, where: str, arguments: ProblemArguments, need_answers: bool = True) -> Dataset:
    """Make problems of a dataset: its rows in their order and its columns, with four of ours, which replace any there.

    - `problem` (str): the text of the problem; of a conversation, all that its user says.
    - `prompt` (list of messages, or str): what is asked, instruction included. A text is one user message; of a
      conversation, all turns are kept; and the texts of a column named `prompt` stay texts, which a model is given
      without a chat template, as TRL does.
    - `answers` (list of str): the accepted answers, as they stand in the source, labels by their names; where programs
      are the answers, the name of their tests (`e1_trl.answers.programs.suite`), in place of the column that they came
      from.
    - `key` (str): name of the problem wherever it stands, `prompts.identity` of its text.

    Rows are left out where the problem is empty, or neither a text nor messages of text, or where the answer cannot be
    read or graded against (`check_unusable`); then the problems that `exclude` names.

    `where` names the source in messages. Unless `need_answers`, a row may have no answer, and the source no column.
    """
    reading = _settle(source, where, arguments, need_answers)
    answer_type = reading.answer_type
    column = str(reading.answer_column)
    if isinstance(label := source.features.get(column), ClassLabel):
        features = Features({**source.features, column: Value("string")})
        names = dict(enumerate(label.names))
        source = source.map(lambda index: {column: names.get(index)}, input_columns=[column], features=features)
    problems = _read(source, where, reading)
    unusable = {
        number: reading.answer_column if problem else reading.problem_column
        for number, (problem, answers) in enumerate(zip(problems["problem"], problems["answers"], strict=True))
        if not problem or (need_answers and not (answers and answer_type.fault(answers) is None))
    }
    faults = [
        f"row {number}, {_describe(source[number], str(column), reading)}"
        for number, column in islice(unusable.items(), SHOWN)
    ]
    wanted = f"a problem must be a text, or messages without an answer, an answer {answer_type.wanted}"
    check_unusable(where, len(problems), len(unusable), faults, arguments.max_unusable, wanted)
    if unusable:
        problems = problems.select([number for number in range(len(problems)) if number not in unusable])
    return exclude(problems, Path(arguments.exclude)) if arguments.exclude else problems


def check_unusable(where: str, total: int, unusable: int, faults: Sequence[str], share: float, wanted: str) -> None:
    """Warn of rows that cannot be used and are left out, naming the first faults."""
    said = f"{where}: {unusable} of {total} rows cannot be used ({'; '.join(faults)}{'; …' * (unusable > len(faults))})"
    if unusable == total or unusable > share * total:
        raise UserError(f"{said}; max_unusable is {share:g}; {wanted}")
    if unusable:
        logger.warning("%s; they are left out", said)


def _settle(source: Dataset, where: str, arguments: ProblemArguments, need_answers: bool) -> ProblemArguments:
    """Return the arguments that decide how a row is read, with the columns: the named or first usual ones that exist.

    Other arguments are left out, since datasets hashes these to find its cache again.
    """

    def find(field: str, named: str | None, usual: tuple[str, ...]) -> str:
        columns = source.column_names
        for column in (named,) if named else usual:
            if column in columns:
                return column
        missing = repr(named) if named else " or ".join(usual)
        raise UserError(f"{where}: no column {missing}; the columns are {', '.join(columns)}; name one as {field}")

    usual = arguments.answer_type.columns
    if arguments.answer_column is None and {"answers", "answer"} <= {*source.column_names}:
        logger.warning("%s: all of the column answers is accepted; --answer_column answer reads the other one", where)
    has_answers = need_answers or arguments.answer_column or set(usual) & set(source.column_names)
    return ProblemArguments(
        grader=arguments.grader,
        max_tests=arguments.max_tests,
        program_prompt=arguments.program_prompt,
        problem_column=find("problem_column", arguments.problem_column, PROBLEM_COLUMNS),
        answer_column=find("answer_column", arguments.answer_column, usual) if has_answers else None,
        answer_after=arguments.answer_after,
        instruction=arguments.instruction,
    )


def _read(source: Dataset, where: str, reading: ProblemArguments) -> Dataset:
    kept = reading.answer_type.kept
    is_raw = reading.problem_column == "prompt" and isinstance(source.features["prompt"], Value)
    features = {**source.features, **COLUMNS, **({"prompt": Value("string")} if is_raw else {})}
    replaced = [reading.answer_column] if kept is not None and reading.answer_column not in (None, *COLUMNS) else []
    read = partial(
        source.map,
        _to_problem,
        features=Features({name: feature for name, feature in features.items() if name not in replaced}),
        remove_columns=replaced,
        fn_kwargs={
            "reading": reading,
            "is_raw": is_raw,
            "version": grader_version("problems", *(file.read_bytes() for file in sorted(CODE.glob("*.py")))),
        },
        desc=f"Reading problems of {where}",
    )
    problems = read() if reading.grader in KINDS else read(load_from_cache_file=False)  # a module may have changed
    if kept is not None and not all(kept(name) for names in problems["answers"] for name in names):
        problems = read(load_from_cache_file=False)  # the cache has names whose files are gone
    return problems


def _describe(row: dict[str, Any], column: str, reading: ProblemArguments) -> str:
    """Show what a row has in place of a problem or an answer, and why the answer cannot be graded."""
    shown = f"column {column!r}: {reprlib.repr(row[column])}"
    if column != reading.answer_column:
        return shown
    try:
        answers = reading.answer_type.read(_cut(row, column, reading.answer_after), column, reading)
        reason = reading.answer_type.fault(answers) if answers else None
    except ValueError as error:
        reason = str(error)
    return shown if reason is None else f"{shown} ({reason})"


def _cut(row: dict[str, Any], column: str, before: str | None) -> dict[str, Any]:
    """Cut texts in the answer column of a row down to what follows the last occurrence of the text `before`."""
    if before is None:
        return row
    found = row[column]
    forms = found if isinstance(found, list) else [found]
    return {**row, column: [form.rpartition(before)[2] if isinstance(form, str) else form for form in forms]}


def _to_problem(row: dict[Any, Any], reading: ProblemArguments, is_raw: bool, version: str) -> dict[str, Any]:
    """Make our columns of a row; `problem` or `answers` is empty where it cannot be used.

    A module function with its settings in `fn_kwargs`, the answer type by its name, so that datasets can hash it and
    find its cache again. It hashes only the name of the function, so `version` stands for the code, and is not read.
    """
    answer_type = reading.answer_type
    column = reading.answer_column
    problem = row[reading.problem_column]
    prompt = request = _to_prompt(problem, is_raw)
    is_task = isinstance(problem, str) and not is_raw  # and says nothing of how it is to be answered
    if prompt and reading.instruction is None and is_task:
        request = _to_prompt(answer_type.ask(problem, row, reading), is_raw)
    elif prompt:
        request = compose(prompt, reading.instruction or "")
    try:
        cut = {} if column is None else _cut(row, column, reading.answer_after)
        answers = [] if column is None else answer_type.read(cut, column, reading)
    except ValueError:
        answers = []
    text = problem_of(prompt)
    return {"problem": text, "prompt": request, "answers": answers, "key": identity(text)}


def _to_prompt(problem: Any, is_raw: bool) -> Prompt:
    """Make a problem a text or a conversation; empty for what is neither, as messages that hold more than text."""
    if is_raw:
        return problem if isinstance(problem, str) and problem.strip() else ""
    if isinstance(problem, str):
        problem = [{"role": "user", "content": problem}]
    if not isinstance(problem, list) or not all(map(_is_message, problem)):
        return []
    messages = [{"role": message["role"], "content": message["content"]} for message in problem]
    asked = [message["content"] for message in messages if message["role"] == "user"]
    if not (asked and asked[-1].strip()) or messages[-1]["role"] == "assistant":  # which holds the answer
        return []
    return messages


def _is_message(message: Any) -> bool:
    if not isinstance(message, dict):
        return False
    content = message.get("content")
    more = any(value for key, value in message.items() if key not in ("role", "content"))  # tool calls, images
    return isinstance(message.get("role"), str) and isinstance(content, str) and not more
