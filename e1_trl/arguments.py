"""Types and limits of arguments, and how a text or what YAML holds is read as them.

An annotation is the type, and `Annotated[int, Within(1)]` adds limits. Imports nothing heavy.
"""

import json
import math
import numbers
import re
import reprlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from e1_trl.errors import UserError

TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
WORDS = {bool: "true or false", int: "a whole number", float: "a number", dict: "a mapping", Path: "a path"}
WORDS |= {str: "a text", NoneType: "null"}


@dataclass(frozen=True)
class Within:
    """Limits of a number, which it may reach; with `above`, it must be larger than the lower one."""

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
    """The limit of a text that is the address of a server."""

    def __contains__(self, text: str) -> bool:
        return re.fullmatch(r"https?://[^\s/]+.*", text) is not None

    def __str__(self) -> str:
        return "as http://host:8000/v1"


Limits = Within | Address
Count = Annotated[int, Within(1)]
Natural = Annotated[int, Within(0)]
Positive = Annotated[float, Within(0, above=True)]
Fraction = Annotated[float, Within(0, 1)]
Share = Annotated[float, Within(0, 1, above=True)]
Url = Annotated[str, Address()]


def read_value(name: str, value: Any, hint: Any) -> Any:
    """Read a value as an annotation has it: a text as it stands on a command line, anything else as YAML has it.

    Args:
        name: what an error calls it, as "FILE: samples".
        value: as it was written, or of the right type already.
        hint: an annotation; what it says beside builtin types, paths and choices is not checked.

    Raises:
        UserError: the value is of another type, or beyond a limit.
    """
    try:
        return _convert(value, hint)
    except ValueError:
        raise UserError(f"{name} is {reprlib.repr(value)}; it must be {_describe_type(hint)}") from None


def _convert(value: Any, hint: Any) -> Any:
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is Annotated:
        limits = [each for each in parts[1:] if isinstance(each, Limits)]
        read = _convert(value, Union[(parts[0], *(each for each in parts[1:] if each not in limits))])
        if all(read in each for each in limits):
            return read
    elif kind in (Union, UnionType):
        for part in sorted(parts, key=lambda part: part is not type(value)):
            with suppress(ValueError):
                return _convert(value, part)
    elif kind is list and not isinstance(value, dict):
        return [_convert(each, *parts) for each in (value if isinstance(value, list | tuple) else [value])]
    elif kind is Literal and value in parts:
        return value
    elif kind is bool and (isinstance(value, bool) or str(value).lower() in TRUTH):
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
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is Annotated:
        return ", ".join([_describe_type(parts[0]), *(str(each) for each in parts[1:] if isinstance(each, Limits))])
    if kind in (Union, UnionType):
        return " or ".join(dict.fromkeys(_describe_type(each) for each in parts if each is not NoneType))
    if kind is list:
        return f"a list, each entry {_describe_type(*parts)}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"one of {', '.join(str(each.value) for each in kind)}"
    return f"one of {', '.join(map(str, parts))}" if kind is Literal else WORDS.get(kind, str(kind))


def option(default: Any, help: str, **metadata: str) -> Any:
    """Make a field of a dataclass of arguments; `MISSING` as its default makes it required.

    Its `metadata` may set a `metavar`, and the `group` of options that begins with it.
    """
    described = {"help": help, **metadata}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=described)
    return field(default=default, metadata=described)


def check_fields(record: Any, *kinds: type) -> None:
    """Read the fields of a dataclass as they are annotated there, or in other `kinds` that share some with it.

    Raises:
        UserError: as `read_value` does.
    """
    for kind in kinds or (type(record),):
        hints = get_type_hints(kind, include_extras=True)
        for name in (each.name for each in fields(kind) if hasattr(record, each.name)):
            setattr(record, name, read_value(name, getattr(record, name), hints[name]))


def describe_unknown(name: str, known: Iterable[str]) -> str:
    """Say that there is no such name, and which one is nearest."""
    nearest = get_close_matches(name, known, 1)
    return f"{name} is unknown" + "".join(f"; did you mean {each}?" for each in nearest)


def from_yaml(name: str, value: Any) -> Any:
    """Read a text of a command line as YAML; a value that is no text has been read already.

    Raises:
        UserError: the text is not YAML.
    """
    try:
        return yaml.safe_load(value) if isinstance(value, str) else value
    except yaml.YAMLError as error:
        raise UserError(f"{name} is {value!r}, which is not YAML") from error


def json_object(name: str, text: str) -> dict[str, Any]:
    """The object that an argument holds as JSON.

    Raises:
        UserError: it holds none.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UserError(f"{name} is {text!r}, which is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise UserError(f"{name} is {text!r}; it must be a JSON object, as '{{\"key\": 1}}'")
    return value
