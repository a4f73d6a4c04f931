"""Types and limits of arguments, and values read from a command line or YAML.

An annotation is the type, and `Annotated[int, Within(1)]` adds limits. Imports nothing heavy.
"""

import math
import numbers
import os
import re
import reprlib
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from e1_trl.errors import UserError, one_line, user_errors

Found = TypeVar("Found")
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
WORDS = {bool: "true or false", int: "a whole number", float: "a number", dict: "a mapping", Path: "a path"}
WORDS |= {str: "a string", NoneType: "null"}


def option(default: Any, help: str, **metadata: str) -> Any:
    """Make a field of a dataclass of arguments; with the default `MISSING` it is required.

    `metadata` may set the field's `metavar`, and the `group` of options that begins with this field.
    """
    described = {"help": help, **metadata}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=described)
    return field(default=default, metadata=described)


SECRETS = {"token", "hf_token", "hub_token", "push_to_hub_token", "use_auth_token", "api_key", "password", "secret"}
# Values of `init_lora_weights` that leave the base unchanged; all others move a part of the base into the adapter.
OF_A_WHOLE_BASE = ("true", "false", "none", "gaussian", "orthogonal", "eva", "mica")


@dataclass(frozen=True)
class Within:
    """Limits of a number, both inclusive; with `above`, the lower one is exclusive."""

    low: float
    high: float = math.inf
    above: bool = False

    def __contains__(self, number: float) -> bool:
        return (self.low < number if self.above else self.low <= number) and number <= self.high

    def __str__(self) -> str:
        if self.above:
            return f"above {self.low:g}" + f" and at most {self.high:g}" * (self.high < math.inf)
        return f"{self.low:g} or more" if self.high == math.inf else f"from {self.low:g} to {self.high:g}"


class Address:
    """Limit of a text: a server's address."""

    def __contains__(self, text: str) -> bool:
        return re.fullmatch(r"https?://[^\s/]+.*", text) is not None

    def __str__(self) -> str:
        return "such as http://host:8000/v1"


Count = Annotated[int, Within(1)]
Natural = Annotated[int, Within(0)]
Positive = Annotated[float, Within(0, above=True)]
Fraction = Annotated[float, Within(0, 1)]
Share = Annotated[float, Within(0, 1, above=True)]
Url = Annotated[str, Address()]


def read_value(name: str, value: Any, hint: Any) -> Any:
    """Convert a value of YAML or a command line to the type that an annotation names; errors call the value `name`.

    Only builtin types, paths and choices are checked.
    """
    try:
        return _convert(value, hint)
    except ValueError:
        raise UserError(f"{name} is {reprlib.repr(value)}; it must be {_describe_type(hint)}") from None


def _convert(value: Any, hint: Any) -> Any:
    kind = get_origin(hint) or hint
    parts = get_args(hint)
    if kind is Annotated:
        read = _convert(value, parts[0])
        if all(read in limit for limit in parts[1:]):
            return read
    elif kind in (Union, UnionType):
        for part in sorted(parts, key=lambda part: part is not type(value)):
            with suppress(ValueError):
                return _convert(value, part)
    elif kind is list and not isinstance(value, dict):
        return [_convert(each, *parts) for each in (value if isinstance(value, list | tuple) else [value])]
    elif kind is Literal and value in parts:
        return value
    elif kind is bool and str(value).lower() in TRUTH:
        return TRUTH[str(value).lower()]
    elif kind in (int, float):
        if isinstance(value, str):
            return kind(value)
        if isinstance(value, numbers.Integral if kind is int else numbers.Real) and not isinstance(value, bool):
            return value
    elif kind is str and isinstance(value, bool | int | float):
        return str(value)
    elif kind is Path and isinstance(value, str):
        return Path(value)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        kind(value)
        return value
    elif kind not in (*WORDS, list, Literal) or (isinstance(kind, type) and isinstance(value, kind)):
        return value
    raise ValueError


def _describe_type(hint: Any) -> str:
    kind = get_origin(hint) or hint
    parts = get_args(hint)
    if kind is Annotated:
        return ", ".join([_describe_type(parts[0]), *map(str, parts[1:])])
    if kind in (Union, UnionType):
        return " or ".join(dict.fromkeys(_describe_type(each) for each in parts if each is not NoneType))
    if kind is list:
        return f"a list, each entry {_describe_type(*parts)}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"one of {', '.join(str(each.value) for each in kind)}"
    return f"one of {', '.join(map(str, parts))}" if kind is Literal else WORDS.get(kind, str(kind))


def check_fields(record: Any, *kinds: type) -> None:
    """Convert a dataclass's fields to the types that its class, or `kinds` that share fields with it, annotate."""
    for kind in kinds or (type(record),):
        hints = get_type_hints(kind, include_extras=True)
        for name in (each.name for each in fields(kind) if hasattr(record, each.name)):
            setattr(record, name, read_value(name, getattr(record, name), hints[name]))


def from_yaml(name: str, value: Any) -> Any:
    """Read text of a command line as YAML, and leave other values as they are."""
    with user_errors(f"{name} is {value!r}, which is not YAML", yaml.YAMLError):
        return yaml.safe_load(value) if isinstance(value, str) else value


def find(name: str, known: Mapping[str, Found], what: str, kind: type[Found] | None = None) -> Found:
    """Look a name up among the known ones, or import the object at a dotted path, also from the working directory."""
    if name in known:
        return known[name]
    module, _, attribute = name.rpartition(".")
    if not module:
        available = ", ".join([*known, "a dotted path to your own"])
        raise UserError(f"unknown {what} {name!r}; available are {available}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Found = getattr(import_module(module), attribute)
    except Exception as error:  # whatever that module raises
        raise UserError(f"the {what} {name!r} cannot be imported: {one_line(error)}") from error
    if kind is not None and not isinstance(found, kind):
        expected = f"{kind.__module__}.{kind.__qualname__}"
        raise UserError(f"the {what} {name!r} is of type {type(found).__name__}; expected {expected}")
    return found


def secrets_in(value: Any) -> list[str]:
    """Return the names of fields, at any depth, that hold a secret."""
    if isinstance(value, dict):
        own = [str(name) for name, held in value.items() if name in SECRETS and isinstance(held, str)]
        return own + secrets_in(list(value.values()))
    return [name for held in value for name in secrets_in(held)] if isinstance(value, list) else []
