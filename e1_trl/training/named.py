"""What a recipe calls by its name: ours, or what lies at a dotted path, made with the recipe's arguments."""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from e1_trl.errors import UserError


def find(name: str, known: Mapping[str, Any], what: str) -> Any:
    """What is known by a name, or lies at a dotted path, the working directory included.

    Raises:
        UserError: there is none; `what` says of what.
    """
    if name in known:
        return known[name]
    module, _, function = name.rpartition(".")
    if not module:
        available = ", ".join([*known, "a dotted path to your own"])
        raise UserError(f"unknown {what} {name!r}; available are {available}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(import_module(module), function)
    except Exception as error:  # whatever that module does
        raise UserError(f"the {what} {name!r} cannot be imported: {error}") from error


def make(spec: str | Mapping[str, Any], known: Mapping[str, Any], what: str) -> Any:
    """Call what a name, or the `name` of a mapping, stands for, with the mapping's other entries.

    Raises:
        UserError: there is none, or it cannot be made so; it is neither text nor a mapping.
    """
    if not isinstance(spec, str | Mapping):
        raise UserError(f"{what} is {spec!r}; it must be a name, or a mapping of name and arguments")
    arguments = {} if isinstance(spec, str) else {field: value for field, value in spec.items() if field != "name"}
    name = spec if isinstance(spec, str) else str(spec.get("name"))
    factory = find(name, known, what)
    try:
        return factory(**arguments)
    except Exception as error:  # whatever that does
        raise UserError(f"the {what} {name} cannot be made with {arguments}: {error}") from error
