"""A program file in a forked process, as `python FILE …` runs it, with the libraries imported; `e1 …`, too."""

import multiprocessing
import runpy
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, TextIO, cast

from e1_trl import cli

start = subprocess.run


def run(command: Sequence[Any], **options: Any) -> "subprocess.CompletedProcess[Any]":
    """Run a command as `subprocess.run` does, but `e1` in a process that is forked from this one."""
    if command[0] != "e1":
        return start(command, **options)
    process = multiprocessing.get_context("fork").Process(target=cli.main, args=([str(word) for word in command[1:]],))
    process.start()
    process.join()
    assert process.exitcode == 0, f"{command} ended with status {process.exitcode}"
    return subprocess.CompletedProcess(command, 0)


def main(argv: Sequence[str]) -> None:
    """Run the file that comes first, with the other words as its arguments."""
    cast(TextIO, sys.stdout).reconfigure(line_buffering=True)  # lines of several processes stay whole in their file
    sys.argv = list(argv)
    subprocess.run = run  # type: ignore[assignment]
    runpy.run_path(argv[0], run_name="__main__")
