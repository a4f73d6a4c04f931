"""What is imported before any program is, what programs have without an import, and what `open` knows."""

import builtins
import contextlib
import importlib
import io
import os
from typing import Any

PRELOADED = (
    *("bisect", "calendar", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions"),
    *("functools", "heapq", "io", "itertools", "json", "math", "operator", "queue", "random", "re", "statistics"),
    *("string", "struct", "textwrap", "time", "traceback", "typing", "sortedcontainers"),
)
# Names that are there without an import, as with LiveCodeBench's grader, whose prompts and data count on them.
STARRED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "typing"),
)


def preload(modules: tuple[str, ...]) -> None:
    """Import those of the modules that are installed."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def star() -> None:
    """Make builtins of the starred modules and their names.

    In the module of every program they would cost it a copy of the memory pages of all that they name.
    """
    vars(builtins).update(_names())


def _names() -> dict[str, Any]:
    """The public names of the starred modules, then the modules themselves; never one that hides a builtin."""
    found: dict[str, Any] = {}
    for module in map(importlib.import_module, STARRED):
        public = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        found.update((name, getattr(module, name)) for name in public)
    found.update((name, importlib.import_module(name)) for name in STARRED)
    return {name: value for name, value in found.items() if not hasattr(builtins, name)}


def name_streams() -> None:
    """Have `open` know the standard streams by their names, which without /proc are no files."""
    opened = builtins.open
    numbers = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}

    def open_named(file: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(file, str | os.PathLike) and os.fspath(file) in numbers:
            file = os.dup(numbers[os.fspath(file)])
        return opened(file, *rest, **named)

    builtins.open = io.open = open_named
