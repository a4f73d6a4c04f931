"""Where log records go: ours and errors to the terminal, the rest to a file beside the run. Imports no library.

vLLM, PyTorch, Accelerate and Transformers log dozens of lines in every run that say nothing about it. They are shown
where a command fails, and all the time under `E1_DEBUG=1`.
"""

import logging
import os
import sys
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import TextIO

from e1_trl.errors import TROUBLESHOOTING, is_debugging

FILE = "_libraries.log"  # of a run's folder; an upload to the Hub leaves out what begins with _
TAIL = 20  # records that are shown where a command fails
OURS = ("e1_trl", "e1 ")  # how the names of our loggers begin
# Read by libraries when they are imported: records instead of lines on the terminal, where they can be told to.
QUIET = {"VLLM_CONFIGURE_LOGGING": "0", "TORCH_CPP_LOG_LEVEL": "ERROR", "TRL_EXPERIMENTAL_SILENCE": "1"}


class LibraryLog(logging.Handler):
    """Keeps each different record of libraries once: in memory, and in a file as soon as there is a folder for it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter(f"%(asctime)s {os.environ.get('RANK', '0')} %(name)s: %(message)s"))
        self.addFilter(lambda record: not record.name.startswith(OURS))
        self.lines: list[str] = []
        self.path: Path | None = None
        self._file: TextIO | None = None
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message in self._seen:  # vLLM repeats its warnings at every weight sync
            return
        self._seen.add(message)
        self.lines.append(self.format(record))
        if self._file is not None:
            print(self.lines[-1], file=self._file, flush=True)

    def write_to(self, folder: Path) -> None:
        """Append to the log of a folder from now on, what was kept so far first; processes of a run share the file."""
        if self._file is None:
            folder.mkdir(parents=True, exist_ok=True)
            self.path = folder / FILE
            self._file = self.path.open("a")
            print(*self.lines, sep="\n", end="\n" * bool(self.lines), file=self._file, flush=True)


_log = LibraryLog()


def route_logs() -> None:
    """Keep records of libraries off the terminal until the process ends. Call it before they are imported."""
    if is_debugging() or _log in logging.root.handlers:
        return
    os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()})
    terminal = logging.StreamHandler()
    terminal.addFilter(lambda record: record.name.startswith(OURS) or record.levelno >= logging.ERROR)
    logging.root.addHandler(terminal)
    logging.root.addHandler(_log)
    logging.captureWarnings(True)
    sys.excepthook = _show_failure


def write_logs(folder: Path) -> None:
    """Write what libraries log into the folder of a run, which is made if it is not there."""
    if _log not in logging.root.handlers:
        return
    for name in logging.root.manager.loggerDict:
        logger = logging.getLogger(name)
        for handler in [] if name.startswith(OURS) else [*logger.handlers]:
            if type(handler) is logging.StreamHandler:  # which libraries give themselves when they are imported
                logger.removeHandler(handler)
                logger.propagate = True
    _log.write_to(folder)


def _show_failure(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    sys.__excepthook__(kind, error, traceback)
    if _log.lines and not issubclass(kind, KeyboardInterrupt):
        where = "" if _log.path is None else f", all in {_log.path}"
        print(f"what libraries logged last{where}:", *deque(_log.lines, TAIL), sep="\n", file=sys.stderr)
    if not issubclass(kind, KeyboardInterrupt):
        print(f"{TROUBLESHOOTING} lists causes by the words of messages", file=sys.stderr)
