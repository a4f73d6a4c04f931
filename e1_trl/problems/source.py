"""Datasets as they are, from files or the Hub, and which line is at fault where one cannot be read.

Readers of tables settle a column's type by the first megabytes, and say neither where another value stands nor how to
mend it. Knows nothing about what a problem is.
"""

import contextlib
import gzip
import json
import reprlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset
from datasets.exceptions import DatasetGenerationError

from e1_trl.errors import UserError

FORMATS = {".jsonl": "json", ".json": "json", ".jsonl.gz": "json", ".parquet": "parquet"}
NO_ROW = "no data"  # the words of datasets
KINDS = {bool: "true or false", int: "numbers", float: "numbers", str: "texts", dict: "objects"}


def load_source(name: str, split: str, config: str | None = None, files: Sequence[str] | None = None) -> Dataset:
    """Load one split of a dataset as it is.

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
    # StopIteration: the file is empty; EOFError: its end is missing; RuntimeError: the repository has a loading
    # script; OSError: the Hub has no such dataset, or cannot be reached.
    except (ValueError, DatasetGenerationError, StopIteration, EOFError, RuntimeError, OSError) as error:
        reason = str(error.__cause__ or error) or NO_ROW
        if NO_ROW in reason:
            reason += "; it must hold at least one row with a problem"
        elif isinstance(error, DatasetGenerationError):
            with contextlib.suppress(OSError, EOFError):
                reason = find_fault(Path(name)) or reason
        raise UserError(f"{name}, split {split}: {reason}") from error


def file_suffix(name: str) -> str | None:
    """Suffix of a dataset that is named like a file; `None` for a folder and for an id on the Hub."""
    return next((suffix for suffix in FORMATS if name.endswith(suffix)), None)


def whole(split: str) -> str:
    """Return the split that a slice is taken from."""
    return split.partition("[")[0]


def find_fault(place: Path) -> str | None:
    """Say why a local file of JSON lines, or the first such file of a folder, cannot be read; `None` if unknown."""
    files = sorted(place.iterdir()) if place.is_dir() else [place] * place.is_file()
    faults = ((file, _json_fault(file)) for file in files if FORMATS.get(file_suffix(file.name) or "") == "json")
    return next((f"{file.name}, {fault}" if place.is_dir() else fault for file, fault in faults if fault), None)


def _json_fault(file: Path) -> str | None:
    """Name the first line that is no JSON object, else the first value of another kind than those above it.

    `None` if there is no such line, as in a file that is one list of rows (`.json`), or that is at fault otherwise.
    """
    misfit = None
    columns = dict[str, tuple[str, int]]()
    for number, line in _lines(file):
        try:
            row = json.loads(line.decode())
        except UnicodeDecodeError as error:
            return f"line {number} is not in UTF-8 ({error.reason} at byte {error.start})"
        except json.JSONDecodeError as error:
            return None if file.suffix == ".json" else f"line {number} is no JSON: {error.msg}, character {error.colno}"
        if not isinstance(row, dict):
            return None if file.suffix == ".json" else f"line {number} is no JSON object: {reprlib.repr(row)}"
        for column, value in row.items():
            kind = _kind(value)
            if misfit is not None or kind is None:
                continue
            known, first = columns.setdefault(column, (kind, number))
            if known != kind:
                same = "lists of texts" if "lists" in known + kind else "texts"
                misfit = (
                    f"line {number}, column {column!r}: expected {known}, as in line {first}, found "
                    f"{reprlib.repr(value)}; write all of that column as {same}"
                )
    return misfit


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers from 1."""
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line


def _kind(value: Any) -> str | None:
    """Kind of a value, as readers of tables tell them apart; `None` for null, which goes with every kind."""
    if isinstance(value, list):
        inner = next(filter(None, map(_kind, value)), None)
        return None if inner is None else f"lists of {inner}"
    return KINDS.get(type(value))
