"""A program file in a forked process, as `python FILE …` runs it, with the libraries imported."""

import runpy
import sys
from collections.abc import Sequence
from typing import TextIO, cast


def main(argv: Sequence[str]) -> None:
    """Run the file that comes first, with the other words as its arguments."""
    cast(TextIO, sys.stdout).reconfigure(line_buffering=True)  # lines of several processes stay whole in their file
    sys.argv = list(argv)
    runpy.run_path(argv[0], run_name="__main__")
