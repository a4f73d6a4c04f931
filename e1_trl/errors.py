"""User errors, and the one place where they become a line. Imports nothing of the package.

A `UserError` is for what its reader can mend: an option, a file, a server that is not there. Every other exception is
a bug, or a failure that needs its traceback, and keeps it.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

DEBUG = "E1_DEBUG"  # environment variable; any value but the empty one and 0 shows tracebacks and all logs
TROUBLESHOOTING = "docs/troubleshooting.md"
PACKAGE = Path(__file__).parent
OTHERS_WAIT = 30  # seconds


class UserError(ValueError):
    """Something that the user can fix: what was expected, what was found, and where, in one line.

    It is raised before anything expensive starts, as far as it can be known then.
    """


def is_debugging() -> bool:
    """Whether the environment asks for tracebacks and the logs of all libraries (`E1_DEBUG=1`)."""
    return os.environ.get(DEBUG, "0") not in ("", "0")


def one_line(error: BaseException) -> str:
    """Write an error's message in one line; its type's name where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def user_errors(about: str, *kinds: type[Exception]) -> Iterator[None]:
    """Raise a `UserError` where a library does not take what the user has named.

    What was raised by this package's own lines, or by what they call in C, is a bug, and stays what it is.

    Args:
        about: what was tried, as "the recipe FILE cannot be read"; the error's own message follows.
        kinds: what the library raises for a wrong name or value.
    """
    try:
        yield
    except kinds as error:
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        if frame is not None and Path(frame.tb_frame.f_code.co_filename).is_relative_to(PACKAGE):
            raise
        raise UserError(f"{about}: {one_line(error)}") from error


def run_command(name: str, command: Callable[[], None]) -> None:
    """Run a command, and end with one line where it raises a `UserError`.

    Args:
        name: stands in front of the line, as "e1 eval".
        command: is called without arguments.

    Raises:
        SystemExit: the command raised a `UserError`; its line is the message.
        Exception: whatever else it raised, and under `E1_DEBUG=1` the `UserError` too.
    """
    try:
        command()
    except UserError as error:
        if is_debugging():
            raise
        if os.environ.get("LOCAL_RANK", "0") != "0":
            # Usually all processes of a machine find the same, and the first one says it. The launcher ends the others
            # as soon as it has ended, so they leave it the time to.
            time.sleep(OTHERS_WAIT)
        sys.exit(f"{name}: {one_line(error)}")
