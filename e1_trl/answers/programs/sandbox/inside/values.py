"""Arguments and return values of functions as JSON. Also used outside the box."""

from collections.abc import Callable
from typing import Any


def plain(value: Any, tuples: bool = False) -> Any:
    """Convert a value to JSON's types; a tuple becomes a list, unless `tuples` are kept apart.

    Subclasses and numpy's values are converted by their content, whatever they claim to be; any other class is a
    TypeError.
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
    for base, items in VIEWS.items():  # a Counter is a dictionary; its own methods are not called
        if issubclass(kind, base):
            return plain(items(value), tuples)
    if kind.__module__ in ("sortedcontainers.sortedlist", "sortedcontainers.sortedset"):
        return plain(set(value) if kind.__name__ == "SortedSet" else list(value), tuples)
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
    """Return the value that `plain` with `tuples` was given."""
    if isinstance(value, list):
        return [rebuilt(item) for item in value]
    if isinstance(value, dict):
        ((kind, items),) = value.items()
        made: type = {"tuple": tuple, "set": set, "dict": dict}[kind]
        return made(rebuilt(items) if kind != "dict" else [(rebuilt(key), rebuilt(item)) for key, item in items])
    return value
