"""User errors, and the one place where they become a line. Imports nothing of the package.

A `UserError` is for what its reader can mend: an option, a file, a server that is not there. Every other exception is
a bug, or a failure that needs its traceback, and keeps it.
"""

import os
import sys
from collections.abc import Callable

DEBUG = "E1_DEBUG"  # environment variable; any value but the empty one and 0 shows tracebacks and all logs


class UserError(ValueError):
    """Something that the user can fix: what was expected, what was found, and where, in one line.

    It is raised before anything expensive starts, as far as it can be known then.
    """


def is_debugging() -> bool:
    """Whether the environment asks for tracebacks and the logs of all libraries (`E1_DEBUG=1`)."""
    return os.environ.get(DEBUG, "0") not in ("", "0")


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
        sys.exit(f"{name}: {' '.join(str(error).split())}")
