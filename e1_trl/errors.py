"""User errors, which `command_line.run_command` prints as one line. Imports nothing of the package.

A `UserError` is for mistakes that its reader can fix: in an option, a file, an address. Every other exception is a bug,
or a failure that needs its traceback, and keeps it.
"""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEBUG = "E1_DEBUG"  # environment variable; any value except 0 and the empty one shows tracebacks and all logs
TROUBLESHOOTING = "docs/troubleshooting.md"
INSTALL = "pip install '.[gpu]' in the checkout of e1_trl (without a GPU '.[cpu]')"  # adds what the base lacks
PACKAGE = Path(__file__).parent


class UserError(ValueError):
    """A mistake that the user can fix: what was expected, what was found and where, in one line."""


def is_debugging() -> bool:
    """Return whether the environment asks for tracebacks and the logs of all libraries (`E1_DEBUG=1`)."""
    return os.environ.get(DEBUG, "0") not in ("", "0")


def one_line(error: BaseException) -> str:
    """Format an error's message as one line; the name of its type if the message is empty."""
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def user_errors(about: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn a library's error about a user's name or value into a `UserError`: `about`, then the library's message.

    An error raised by a line of this package, or by C code that the line calls, is a bug and propagates unchanged.
    """
    try:
        yield
    except kinds as error:
        if Path(traceback.extract_tb(error.__traceback__)[-1].filename).is_relative_to(PACKAGE):
            raise
        raise UserError(f"{about}: {one_line(error)}") from error
