"""Atomic writes: a killed process or a crashed node leaves the old file or the new one, whole."""

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from e1_trl.checkout import check_committed
from e1_trl.errors import UserError

logger = logging.getLogger(__name__)


class StoreError(UserError):
    """A result folder cannot be read, used or written to; one line that says why."""


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, unless they exist; raise a `StoreError` if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the folder {folder} cannot be made: {error.strerror or error}") from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder of an evaluation against all other processes; raise a `StoreError` if one uses it."""
    with (folder / ".in_use").open("w") as in_use:
        try:
            fcntl.flock(in_use, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(f"another process evaluates into {folder}; wait for it, or name another folder") from error
        except OSError as error:  # ENOLCK, ENOSYS
            raise StoreError(
                f"{folder} lies on a file system without locks ({error.strerror}); name a folder on another one"
            ) from error
        yield


def claim(output: Path) -> int:
    """Lock the folder of a training; raise a `UserError` if another process has locked it.

    The lock is of this process alone: processes that it forked, and that outlive it, do not hold it. It ends with the
    process, or as soon as this process closes the returned descriptor, or any other of the file `_in_use`.
    """
    make_folder(output)
    file = os.open(output / "_in_use", os.O_RDWR | os.O_CREAT, 0o644)  # no upload takes it
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UserError(f"another training writes into {output}; wait for it, or name another output_dir") from error
    except OSError as error:  # ENOLCK, ENOSYS
        logger.warning("%s has no locks (%s): no other training may write into it", output, error.strerror)
    return file


def write_atomically(file: Path, content: str | Callable[[Path], object]) -> None:
    """Write a file atomically; `content` is its text, or a function that writes to the temporary path that it gets.

    The content is on disk before the file gets its name, and the name is on disk before this returns.

    Raises:
        StoreError: the file could not be written, as on a full disk.
        UserError: the file is in docs/, and code has uncommitted changes.
    """
    check_committed(file)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        if isinstance(content, str):
            temporary.write_text(content, encoding="utf-8")
        else:
            content(temporary)
        _sync(temporary)
        temporary.replace(file)
        with contextlib.suppress(OSError):  # some file systems cannot sync a folder
            _sync(file.parent)
    except OSError as error:
        raise StoreError(
            f"cannot write {file}: {error.strerror or error}; what was written before is safe, run again to resume"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
