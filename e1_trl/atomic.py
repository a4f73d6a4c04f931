"""A file takes its place in one step, or not at all: what a killed process leaves behind is whole.

Knows nothing of what is written.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


class StoreError(Exception):
    """A result folder cannot be read, used or written to; one line that says why."""


def write_atomically(file: Path, write: Callable[[Path], object]) -> None:
    """Let `write(temporary_path)` write a file that then takes its place in one step, or not at all.

    Raises:
        StoreError: it could not be written, as on a full disk.
    """
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        write(temporary)
        temporary.replace(file)
    except OSError as error:
        raise StoreError(
            f"cannot write {file}: {error.strerror or error}; what was written before is safe, run again to resume"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_table(table: pa.Table, file: Path) -> None:
    """Write Parquet whose pages carry checksums.

    Raises:
        StoreError: it could not be written, as on a full disk.
    """
    write_atomically(file, lambda path: pq.write_table(table, path, compression="zstd", write_page_checksum=True))
