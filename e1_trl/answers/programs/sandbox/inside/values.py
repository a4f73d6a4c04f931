"""Values of functions as JSON: what a call is given, and what it returns. Also used outside of the box."""

from collections.abc import Callable
from typing import Any


def plain(value: Any, tuples: bool = False) -> Any:
    """The value in exact types, as JSON can have them; a tuple is a list, unless `tuples` are told apart.

    A subclass, and what numpy made, is what it holds, whatever it says of itself; any other class is a TypeError.
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list or (kind is tuple and not tuples):
        return [plain(item, tuples) for item in value]
    if kind in (tuple, set, frozenset):
        return {"tuple" if kind is tuple else "set": [plain(item, tuples) for item in value]}
    if kind is dict:
        return {"dict": [[plain(key, tuples), plain(item, tuples)] for key, item in value.items()]}
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        return plain(value.tolist(), tuples)
    for base, items in VIEWS.items():  # a Counter is a dictionary; what it says of itself is not asked
        if issubclass(kind, base):
            return plain(items(value), tuples)
    raise TypeError(f"{kind.__name__} is no plain type")


VIEWS: dict[type, Callable[[Any], Any]] = {
    dict: lambda value: dict(dict.items(value)),
    list: lambda value: list(list.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
}


def rebuilt(value: Any) -> Any:
    """What `plain` was made of, tuples told apart."""
    if isinstance(value, list):
        return [rebuilt(item) for item in value]
    if isinstance(value, dict):
        ((kind, items),) = value.items()
        made: type = {"tuple": tuple, "set": set, "dict": dict}[kind]
        return made(rebuilt(items) if kind != "dict" else [(rebuilt(key), rebuilt(item)) for key, item in items])
    return value
