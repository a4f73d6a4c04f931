"""Table of answers with one row per answer: its columns, and reading, writing and grading it.

`samples.parquet` in the folder of an evaluation is derived from the segments that are stored next to it and from the
list of requests. It is written in parts, since all answers at once may not fit into memory.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from e1_trl.answers.arguments import GradingArguments
from e1_trl.answers.grade import Outcome
from e1_trl.atomic import StoreError, write_atomically
from e1_trl.budget import Budget
from e1_trl.errors import UserError, one_line
from e1_trl.report.conditions import SAMPLED_BY, Conditions

if TYPE_CHECKING:
    from e1_trl.answers.grade import Grade, Grader
    from e1_trl.answers.kinds import AnswerType

FILE = "samples.parquet"
FACTS = "run.json"  # what determined its samples, as `model`: the weights
READ_AT_A_TIME = 1000  # answers
READABLE = (Outcome.CORRECT, Outcome.WRONG, Outcome.UNEVALUATED)

ASKED = [
    pa.field("model", pa.string(), nullable=False),
    pa.field("benchmark", pa.string(), nullable=False),
    pa.field("grader", pa.string(), nullable=False),  # type of its answers: mathematics, programs
    pa.field("seed", pa.int64(), nullable=False),
    pa.field("commit", pa.string(), nullable=False),  # of e1_trl, that finished this method and budget
    pa.field("method", pa.string(), nullable=False),
    pa.field("thinking_budget", pa.int64()),  # tokens; null: unlimited
    pa.field("solution_budget", pa.int64()),
    pa.field("conditions", pa.dictionary(pa.int32(), pa.string()), nullable=False),  # `Conditions.as_text`
    pa.field("asked_problems", pa.int32(), nullable=False),  # of this method and budget, skipped ones included
    pa.field("problem", pa.int32(), nullable=False),  # index in the benchmark
    pa.field("problem_id", pa.string()),  # the benchmark's name for it, or the key of its text
    pa.field("sample", pa.int32(), nullable=False),
    pa.field("answers", pa.list_(pa.string()), nullable=False),  # accepted answers; for programs, the name of a suite
]
TEXTS = [
    pa.field("prompt", pa.string(), nullable=False),
    # The completion in three parts: the thinking, the text forced to close it, and the solution, which is graded.
    pa.field("thinking", pa.string(), nullable=False),
    pa.field("close", pa.string(), nullable=False),
    pa.field("solution", pa.string(), nullable=False),
    pa.field("free_text", pa.string()),  # read instead if the solution has no box
    pa.field("token_ids", pa.list_(pa.int32()), nullable=False),  # of the whole completion
]
SPENT = [
    pa.field("thinking_end", pa.string(), nullable=False),  # a ThinkingEnd
    pa.field("truncated", pa.bool_(), nullable=False),  # the budget ran out before the end of the sequence
    pa.field("thinking_tokens", pa.int32(), nullable=False),
    pa.field("forced_tokens", pa.int32(), nullable=False),
    pa.field("solution_tokens", pa.int32(), nullable=False),
    pa.field("closes_again", pa.bool_(), nullable=False),  # the solution holds the marker
]
GRADED = [
    pa.field("outcome", pa.string(), nullable=False),  # an Outcome
    pa.field("answer", pa.string()),  # the text that was read; null: none
    pa.field("value", pa.string()),  # value of that answer, the same for all its spellings
    pa.field("unboxed", pa.bool_(), nullable=False),  # it was read from free_text
    pa.field("graded_by", pa.string(), nullable=False),  # the grader's version
]
SCHEMA = pa.schema([*ASKED, *TEXTS, *SPENT, *GRADED])
FIGURES = [field.name for field in (*ASKED, *SPENT, *GRADED)]  # columns that statistics need
ROW = ["model", "benchmark", "method", "thinking_budget", "solution_budget"]  # columns that identify a row of a report
PLACE = ["problem", "sample"]  # columns that identify an answer in a row
EVALUATION = "evaluation"  # column of a joined table


def read(
    folder: Path, columns: Sequence[str] | None = None, where: Sequence[Sequence[Any]] | None = None
) -> pd.DataFrame:
    """Read the answers of a finished evaluation, or some columns or rows; `FIGURES` leaves out texts and token ids.

    Raises a `StoreError` if there are none, if they cannot be read, or if they have other columns than `SCHEMA`.
    """
    file = folder / FILE
    try:
        if not pq.read_schema(file).equals(SCHEMA):
            raise StoreError(
                f"{file} was written by another version of e1_trl; run the same `e1 eval` again, which rewrites the "
                "file without sampling, or report on it with that version"
            )
        table = pq.read_table(file, columns=columns, filters=where, schema=SCHEMA, page_checksum_verification=True)
    except FileNotFoundError as error:
        if inside := sorted(str(file.parent) for file in folder.glob(f"*/{FILE}")):
            raise StoreError(f"{folder} is no evaluation, but contains some; name them: {' '.join(inside)}") from error
        raise StoreError(f"there is no {file}; name the output of an `e1 eval`, or run that again") from error
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"cannot read {file} ({one_line(error)}); delete it and run the evaluation again: it rewrites the "
            "file without sampling"
        ) from error
    return _as_pandas(table)


def _as_pandas(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)


def write(parts: pd.DataFrame | Iterable[pd.DataFrame], folder: Path) -> None:
    """Write graded answers, one part after another; a column that is missing, or is not as `SCHEMA` has it, raises."""

    def write_parts(path: Path) -> None:
        with pq.ParquetWriter(path, SCHEMA, compression="zstd", write_page_checksum=True) as file:
            for part in [parts] if isinstance(parts, pd.DataFrame) else parts:
                file.write_table(pa.Table.from_pandas(part, schema=SCHEMA, preserve_index=False))

    for left in folder.glob(f".{FILE}.*"):  # by one that was killed; the folder is locked
        left.unlink()
    write_atomically(folder / FILE, write_parts)


def regrade(folder: Path, grader: "Grader") -> None:
    """Grade the answers of a finished evaluation again, with the accepted answers in the table."""
    with pq.ParquetFile(folder / FILE, page_checksum_verification=True) as file:
        parts = (_as_pandas(pa.Table.from_batches([batch])) for batch in file.iter_batches(READ_AT_A_TIME))
        write(graded(parts, file.metadata.num_rows, grader), folder)


class Known(Protocol):
    """Store of earlier grades, by a hash of the answer, the accepted answers and the grader's version."""

    def grades(self, keys: Iterable[str]) -> dict[str, "Grade"]: ...

    def keep(self, grades: Mapping[str, "Grade"]) -> None: ...


def graded(
    parts: Iterable[pd.DataFrame], answers: int, grader: "Grader", known: Known | None = None
) -> Iterator[pd.DataFrame]:
    """Grade part after part, and show a progress bar over all answers."""
    with tqdm(total=answers, desc="grading", unit="answer") as progress:
        for part in parts:
            yield grade(part, grader, known)
            progress.update(len(part))


def grade(table: pd.DataFrame, grader: "Grader", known: Known | None = None) -> pd.DataFrame:
    """Return the answers with the columns of `GRADED` filled in; grades that are `known` are not computed again."""
    asked = list(zip(table["answers"].map(list), table["solution"], texts(table["free_text"]), strict=True))
    facts = [json.dumps([grader.version, *each]) for each in asked]
    keys = [hashlib.sha256(each.encode()).hexdigest() for each in facts]
    grades = {} if known is None else known.grades(set(keys))
    if new := {key: each for key, each in zip(keys, asked, strict=True) if key not in grades}:
        accepted, solutions, free_text = map(list, zip(*new.values(), strict=True))
        given = dict(zip(new, grader.grade(solutions, accepted, free_text), strict=True))
        grades |= given
        if known is not None:
            known.keep(given)
    ordered = [grades[key] for key in keys]
    votes = [(each.value or each.answer or None) if each.outcome in READABLE else None for each in ordered]
    return table.assign(
        outcome=[str(grade.outcome) for grade in ordered],
        answer=pd.Series([grade.answer for grade in ordered], index=table.index, dtype=object),
        value=pd.Series(votes, index=table.index, dtype=object),
        unboxed=[grade.unboxed for grade in ordered],
        graded_by=grader.version,
    )


def answer_type(answers: pd.DataFrame) -> "AnswerType":
    """Type of the answers in a table, which has one grader."""
    return GradingArguments(grader=str(answers["grader"].iloc[0])).answer_type


def budget_of(answer: "pd.Series[Any]") -> Budget:
    parts = (answer["thinking_budget"], answer["solution_budget"])
    return Budget(*(None if pd.isna(part) else int(part) for part in parts))


def texts(column: "pd.Series[str]") -> list[str | None]:
    """Return the texts of a column, with None in place of NaN."""
    return [None if pd.isna(text) else str(text) for text in column]


def join(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Join the answers of several evaluations into one table, with their number in the column `EVALUATION`.

    Raises a `UserError` if they are on several benchmarks, or two of one name have the same answers, or were asked or
    sampled differently.
    """
    table = pd.concat([own.assign(**{EVALUATION: at}) for at, own in enumerate(tables)], ignore_index=True)
    s1 = table[table["method"].str.startswith("s1")]  # the methods with options
    for rows in (table, s1):
        for name, own in rows.groupby("model", sort=False)["conditions"]:
            first, *others = map(Conditions.from_text, own.unique())
            compared = SAMPLED_BY.union(first.options if rows is s1 else ())
            found = [each for other in others for each in (*first.unlike(other), *first.engines_unlike(other))]
            if unlike := [each for each in found if each in compared]:
                raise UserError(
                    f"the evaluations of {name!r} differ in {unlike[0].replace('_', ' ')}; evaluate one with another "
                    "--name, or leave it out"
                )
    for name in ("benchmark", "grader"):
        if len(found := table[name].unique()) > 1:
            raise UserError(f"a report is on one {name}, and these answers are of {', '.join(found)}; evaluate alike")
    twice = table[table.duplicated([*ROW, *PLACE])]
    if len(twice):
        first = twice.iloc[0]
        raise UserError(
            f"two evaluations answer problem {first['problem']}, sample {first['sample']} with {first['method']} under "
            f"the name {first['model']!r}; evaluate with another --name, or leave one of them out"
        )
    return table
