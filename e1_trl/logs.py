"""Routing of log records: ours and all errors to the terminal, those of libraries to a file in the run's folder.

In every run, libraries log dozens of lines that do not matter. The last ones are shown if a command fails, and all of
them under `E1_DEBUG=1`. Imports no library.
"""

import logging
import os
import sys
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import TextIO

from e1_trl.errors import TROUBLESHOOTING, is_debugging

FILE = "_libraries.log"  # in a run's folder; an upload to the Hub leaves out files that begin with _
TAIL = 20  # records that are shown if a command fails
OURS = ("e1_trl", "e1 ")  # beginnings of our loggers' names
# vLLM logs this error if it finds no model beside an adapter's tokenizer, and goes on. If it cannot go on, it raises,
# and `_show_failure` shows this record, too.
NO_ERROR = "Error parsing config for "
# Variables that libraries read when they are imported, to log records rather than print lines.
QUIET = {"VLLM_CONFIGURE_LOGGING": "0", "TORCH_CPP_LOG_LEVEL": "ERROR", "TRL_EXPERIMENTAL_SILENCE": "1"}


class LibraryLog(logging.Handler):
    """Keeps every distinct record of libraries once: in memory, and in a file once there is a folder."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter(f"%(asctime)s {os.environ.get('RANK', '0')} %(name)s: %(message)s"))
        self.addFilter(lambda record: not record.name.startswith(OURS))
        self.lines: list[str] = []
        self._file: TextIO | None = None
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
            if message in self._seen:  # vLLM repeats its warnings at every weight sync
                return
            self._seen.add(message)
            self.lines.append(self.format(record))
            if self._file is not None:
                print(self.lines[-1], file=self._file, flush=True)
        except Exception:  # a full disk, or a library's own mistake, must not end a training
            self.handleError(record)

    def write_to(self, folder: Path) -> None:
        """Append past and future records to a folder's log, which the processes of a run share."""
        if self._file is None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / FILE).open("a")
            print(*self.lines, sep="\n", end="\n" * bool(self.lines), file=self._file, flush=True)


_log = LibraryLog()


def route_logs() -> None:
    """Keep records of libraries off the terminal; call this before libraries are imported."""
    if is_debugging() or _log in logging.root.handlers:
        return
    os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()})
    terminal = logging.StreamHandler()
    terminal.addFilter(_is_shown)
    logging.root.addHandler(terminal)
    logging.root.addHandler(_log)
    logging.captureWarnings(True)
    sys.excepthook = _show_failure


def _is_shown(record: logging.LogRecord) -> bool:
    """Return whether the terminal shows a record: an error, or one of ours whose logger has no handler of its own."""
    if record.name.startswith(OURS):
        return record.levelno >= logging.ERROR or not logging.getLogger(record.name).handlers
    return record.levelno >= logging.ERROR and not str(record.msg).startswith(NO_ERROR)


def write_logs(folder: Path) -> None:
    """Write records of libraries into the folder of a run, which is created if needed."""
    if _log not in logging.root.handlers:
        return
    for name in logging.root.manager.loggerDict:
        logger = logging.getLogger(name)
        for handler in [] if name.startswith(OURS) else [*logger.handlers]:
            if type(handler) is logging.StreamHandler:  # libraries add them when they are imported
                logger.removeHandler(handler)
                logger.propagate = True
    _log.write_to(folder)


def _show_failure(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    sys.__excepthook__(kind, error, traceback)
    if _log.lines and not issubclass(kind, KeyboardInterrupt):
        where = "" if _log._file is None else f", all in {_log._file.name}"
        print(f"what libraries logged last{where}:", *deque(_log.lines, TAIL), sep="\n", file=sys.stderr)
    if not issubclass(kind, KeyboardInterrupt):
        print(f"{TROUBLESHOOTING} lists causes by the words of messages", file=sys.stderr)
