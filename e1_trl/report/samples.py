"""The table of answers, one row an answer: its columns, reading, writing and grading it.

`samples.parquet` in the folder of an evaluation is derived: the segments that are stored beside it, and the list of
what was asked, determine it. It is made in parts, since all answers at once may be more than the memory holds. Knows
nothing of engines, tokenizers or of how answers are graded.
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
from e1_trl.atomic import StoreError, write_atomically
from e1_trl.budget import Budget
from e1_trl.errors import UserError

if TYPE_CHECKING:
    from e1_trl.answers.grade import Grade, Grader
    from e1_trl.answers.kinds import AnswerType

FILE = "samples.parquet"
SEGMENTS = "segments.sqlite"  # what an evaluation writes first
READ_AT_A_TIME = 1000  # answers

ASKED = [
    pa.field("model", pa.string(), nullable=False),
    pa.field("benchmark", pa.string(), nullable=False),
    pa.field("grader", pa.string(), nullable=False),  # what its answers are: mathematics, programs
    pa.field("seed", pa.int64(), nullable=False),
    pa.field("commit", pa.string(), nullable=False),  # that finished sampling the method at the budget
    pa.field("method", pa.string(), nullable=False),
    pa.field("thinking_budget", pa.int64()),  # tokens; null: unlimited
    pa.field("solution_budget", pa.int64()),
    pa.field("conditions", pa.dictionary(pa.int32(), pa.string()), nullable=False),  # `Conditions.as_text`
    pa.field("asked_problems", pa.int32(), nullable=False),  # of the method at the budget, those left out included
    pa.field("problem", pa.int32(), nullable=False),  # its index in the benchmark
    pa.field("problem_id", pa.string()),  # what the benchmark calls it, or the key of its text
    pa.field("sample", pa.int32(), nullable=False),
    pa.field("answers", pa.list_(pa.string()), nullable=False),  # those accepted; of programs the name of a suite
]
TEXTS = [
    pa.field("prompt", pa.string(), nullable=False),
    # The completion in three parts: the thinking, what was forced to close it, and the solution, which is graded.
    pa.field("thinking", pa.string(), nullable=False),
    pa.field("close", pa.string(), nullable=False),
    pa.field("solution", pa.string(), nullable=False),
    pa.field("free_text", pa.string()),  # where an answer is read without a box, if the solution has none
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
    pa.field("answer", pa.string()),  # what was read; null: nothing
    pa.field("value", pa.string()),  # of that answer, however it is spelled
    pa.field("unboxed", pa.bool_(), nullable=False),  # it was read from free_text
    pa.field("graded_by", pa.string(), nullable=False),  # the grader's version
]
BEFORE = {"thinking_end": {"cut": "total"}}  # what earlier versions called otherwise
SCHEMA = pa.schema([*ASKED, *TEXTS, *SPENT, *GRADED])
FIGURES = [field.name for field in (*ASKED, *SPENT, *GRADED)]  # all that statistics are made of
ROW = ["model", "benchmark", "method", "thinking_budget", "solution_budget"]  # what a row of a report has its own of


def read(
    folder: Path, columns: Sequence[str] | None = None, where: Sequence[tuple[str, str, Any]] | None = None
) -> pd.DataFrame:
    """The answers of a finished evaluation, or some of their columns (`FIGURES` is a small part of the bytes), or rows.

    Raises:
        StoreError: there are none, they cannot be read, or another version wrote them in another layout.
    """
    file = folder / FILE
    try:
        written = pq.read_schema(file)
        if not written.equals(SCHEMA):
            other = ", ".join(sorted({*written.names} ^ {*SCHEMA.names})) or "types of columns"
            raise StoreError(
                f"{file} has the layout of another version of e1_trl, which differs in {other}; the `e1 eval` that "
                "made it makes it anew, and samples nothing; or report on it with that version"
            )
        table = pq.read_table(file, columns=columns, filters=where, schema=SCHEMA, page_checksum_verification=True)
    except FileNotFoundError as error:
        raise StoreError(_without_answers(folder)) from error
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"cannot read {file} ({str(error).splitlines()[0]}); delete it and run the evaluation again, which resumes "
            "and writes it anew"
        ) from error
    return _as_pandas(table)


def _without_answers(folder: Path) -> str:
    """Why there is no table of answers in a folder, and what to do."""
    if not folder.is_dir():
        return f"there is no folder {folder}; name the output of an `e1 eval`"
    if inside := sorted(str(file.parent) for file in folder.glob(f"*/{FILE}")):
        return f"{folder} is no evaluation, and holds {len(inside)}; name them: {' '.join(inside)}"
    if (folder / SEGMENTS).exists():
        return f"{folder} is an evaluation without {FILE}; run it again, it resumes"
    return f"{folder} is no evaluation, and holds none; name the output of an `e1 eval`"


def _as_pandas(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get).replace(BEFORE)


def write(parts: pd.DataFrame | Iterable[pd.DataFrame], folder: Path) -> None:
    """Write graded answers, a part after the other.

    Raises:
        StoreError: they could not be written, as on a full disk.
        KeyError, ValueError, pa.ArrowException: a column is missing, or holds what `SCHEMA` does not allow.
    """

    def write_parts(path: Path) -> None:
        with pq.ParquetWriter(path, SCHEMA, compression="zstd", write_page_checksum=True) as file:
            for part in [parts] if isinstance(parts, pd.DataFrame) else parts:
                file.write_table(pa.Table.from_pandas(part, schema=SCHEMA, preserve_index=False))

    write_atomically(folder / FILE, write_parts)


def regrade(folder: Path, grader: "Grader") -> None:
    """Grade the answers of a finished evaluation anew, by the accepted answers in the table.

    Raises:
        StoreError: they could not be written, as on a full disk.
        UserError: the grader cannot read an accepted answer.
    """
    with pq.ParquetFile(folder / FILE, page_checksum_verification=True) as file:
        parts = (_as_pandas(pa.Table.from_batches([batch])) for batch in file.iter_batches(READ_AT_A_TIME))
        write(graded(parts, file.metadata.num_rows, grader), folder)


class Known(Protocol):
    """Grades of earlier, by a key of the answer, the accepted answers and the grader."""

    def grades(self, keys: Iterable[str]) -> dict[str, "Grade"]: ...

    def keep(self, grades: Mapping[str, "Grade"]) -> None: ...


def graded(
    parts: Iterable[pd.DataFrame], answers: int, grader: "Grader", known: Known | None = None
) -> Iterator[pd.DataFrame]:
    """Each part as `grade` returns it, while a bar shows how many of all answers that were."""
    with tqdm(total=answers, desc="grading", unit="answer") as progress:
        for part in parts:
            yield grade(part, grader, known)
            progress.update(len(part))


def grade(table: pd.DataFrame, grader: "Grader", known: Known | None = None) -> pd.DataFrame:
    """Answers with the columns of `GRADED` filled in or replaced; `known` has the grades of those that need none."""
    version, columns = grader.version, (table["answers"].map(list), table["solution"], texts(table["free_text"]))
    facts = [json.dumps([version, *answer]) for answer in zip(*columns, strict=True)]
    keys = [hashlib.sha256(each.encode()).hexdigest() for each in facts]
    grades = {} if known is None else known.grades(set(keys))
    new = {key: position for position, key in enumerate(keys) if key not in grades}
    if new:
        part = table.iloc[list(new.values())]
        found = grader.grade(part["solution"].tolist(), part["answers"].map(list).tolist(), texts(part["free_text"]))
        given = dict(zip(new, found, strict=True))
        grades |= given
        if known is not None:
            known.keep(given)
    ordered = [grades[key] for key in keys]
    return table.assign(
        outcome=[str(grade.outcome) for grade in ordered],
        answer=pd.Series([grade.answer for grade in ordered], index=table.index, dtype=object),
        value=pd.Series([grade.value or grade.answer for grade in ordered], index=table.index, dtype=object),
        unboxed=[grade.unboxed for grade in ordered],
        graded_by=version,
    )


def answer_type(answers: pd.DataFrame) -> "AnswerType":
    """Type of the answers in a table, which has one grader."""
    return GradingArguments(grader=str(answers["grader"].iloc[0])).answer_type


def budget_of(answer: "pd.Series[Any]") -> Budget:
    """The budget of an answer."""
    parts = (answer["thinking_budget"], answer["solution_budget"])
    return Budget(*(None if pd.isna(part) else int(part) for part in parts))


def texts(column: "pd.Series[str]") -> list[str | None]:
    """The texts of a column; `None` where there is none, which pandas stores as NaN."""
    return [None if pd.isna(text) else str(text) for text in column]


def join(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The answers of several evaluations as one table.

    Raises:
        UserError: they are of several benchmarks, or two have answers under the same name.
    """
    table = pd.concat(tables, ignore_index=True)
    if len(benchmarks := table["benchmark"].unique()) > 1:
        raise UserError(f"a report is on one benchmark, and these answers are of {', '.join(benchmarks)}")
    twice = table[table.duplicated([*ROW, "problem", "sample"])]
    if len(twice):
        first = twice.iloc[0]
        raise UserError(
            f"two evaluations answer problem {first['problem']}, sample {first['sample']} with {first['method']} under "
            f"the name {first['model']!r}; evaluate with another --name, or leave one of them out"
        )
    return table
