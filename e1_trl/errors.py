"""User errors, and the one place where they become a line. Imports nothing of the package.

A `UserError` is for mistakes that its reader can fix: in an option, a file, an address. Every other exception is a bug,
or a failure that needs its traceback, and keeps it.
"""

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

DEBUG = "E1_DEBUG"  # environment variable; any value except 0 and the empty one shows tracebacks and all logs
TROUBLESHOOTING = "docs/troubleshooting.md"
INSTALL = "pip install '.[gpu]' in the checkout of e1_trl (without a GPU '.[cpu]')"  # of what a base install lacks
PACKAGE = Path(__file__).parent
OTHERS_WAIT = 30  # seconds that processes of higher rank leave the first one to report


class UserError(ValueError):
    """A mistake that the user can fix: what was expected, what was found and where, in one line.

    Raised before anything expensive starts, as far as possible.
    """


def is_debugging() -> bool:
    """Return whether the environment asks for tracebacks and the logs of all libraries (`E1_DEBUG=1`)."""
    return os.environ.get(DEBUG, "0") not in ("", "0")


def one_line(error: BaseException) -> str:
    """Format an error's message as one line; the name of its type if the message is empty."""
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def user_errors(about: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn a library's error about a name or value of the user's into a `UserError`.

    An error raised by a line of this package, or by C code that it calls, is a bug and propagates unchanged.

    Args:
        about: the first part of the message, as "the recipe FILE cannot be read"; the error's own message follows.
        kinds: the exceptions that the library raises for a wrong name or value.
    """
    try:
        yield
    except kinds as error:
        if Path(traceback.extract_tb(error.__traceback__)[-1].filename).is_relative_to(PACKAGE):
            raise
        raise UserError(f"{about}: {one_line(error)}") from error


def run_command(name: str, command: Callable[[], None]) -> None:
    """Run a command; a `UserError` ends the process with one line, which begins with its name, such as "e1 eval".

    Raises:
        SystemExit: the command raised a `UserError`, whose line is the message.
        Exception: any other exception of the command; with `E1_DEBUG=1` the `UserError` too.
    """
    try:
        command()
    except UserError as error:
        if is_debugging():
            raise
        if os.environ.get("LOCAL_RANK", "0") != "0":
            # All processes of a machine usually find the same mistake, and the first one reports it. The launcher then
            # stops the others, which wait for that.
            time.sleep(OTHERS_WAIT)
        sys.exit(f"{name}: {one_line(error)}")
