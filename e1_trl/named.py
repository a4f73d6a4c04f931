"""Records and functions by name: ours, or a user's at a dotted path."""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from e1_trl.errors import UserError, one_line


def import_own(module: str) -> ModuleType:
    """Import a module, also from the working directory; raises whatever the module raises."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return import_module(module)


def find(name: str, known: Mapping[str, Any], what: str) -> Any:
    """Look a name up among the known ones, or import the object at a dotted path, also from the working directory.

    Raises:
        UserError: the name is unknown, or cannot be imported; `what` names its role.
    """
    if name in known:
        return known[name]
    module, _, attribute = name.rpartition(".")
    if not module:
        available = ", ".join([*known, "a dotted path to your own"])
        raise UserError(f"unknown {what} {name!r}; available are {available}")
    try:
        return getattr(import_own(module), attribute)
    except Exception as error:  # whatever that module raises
        raise UserError(f"the {what} {name!r} cannot be imported: {one_line(error)}") from error
