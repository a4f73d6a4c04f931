"""Datasets as they are, from files or the Hub. Knows nothing about what a problem is."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset, load_dataset
from datasets.exceptions import DatasetGenerationError

from e1_trl.errors import UserError

FORMATS = {".jsonl": "json", ".json": "json", ".jsonl.gz": "json", ".json.gz": "json", ".parquet": "parquet"}
# What datasets raises. StopIteration: the file is empty; EOFError: its end is missing; RuntimeError: the repository has
# a loading script; OSError: the Hub has no such dataset, or cannot be reached.
UNREADABLE = (ValueError, DatasetGenerationError, StopIteration, EOFError, RuntimeError, OSError)


def load_source(name: str, split: str, config: str | None = None, files: Sequence[str] | None = None) -> Dataset:
    """Load one split of a dataset as it is.

    The name is a local file with a suffix of `FORMATS`, which is any one split; a local folder with files named after
    splits; or an id on the Hub. `files` are JSON lines of a repository on the Hub, to read instead of the split.
    """
    suffix = file_suffix(name)
    if suffix and not Path(name).is_file():
        raise UserError(f"no file {name} (in {Path.cwd()}); give an existing file, a folder or a Hub id")
    if not suffix and Path(name).is_file():
        raise UserError(
            f"{name} has none of the suffixes {', '.join(FORMATS)}; convert it, or give a folder that holds it as "
            f"{whole(split)}{''.join(Path(name).suffixes[-1:])}"
        )
    try:
        if suffix:
            with Path(name).open("rb") as file:  # datasets would tell contents apart by their times alone
                content = hashlib.file_digest(file, "sha256").hexdigest()[:16]
            return load_dataset(FORMATS[suffix], content, data_files={whole(split): name}, split=split)
        if files is not None:  # by their addresses: a repository with a loading script is refused as a whole
            return load_dataset("json", data_files=[f"hf://datasets/{name}/{file}" for file in files], split="train")
        return load_dataset(name, config, split=split)
    except UNREADABLE as error:
        reason = str(error.__cause__ or error) or "it holds no row"
        raise UserError(f"{name}, split {split}: {reason}") from error


def file_suffix(name: str) -> str | None:
    """Suffix of a dataset that is named like a file; `None` for a folder and for an id on the Hub."""
    return next((suffix for suffix in FORMATS if name.endswith(suffix)), None)


def whole(split: str) -> str:
    """Return the split that a slice is taken from."""
    return split.partition("[")[0]
