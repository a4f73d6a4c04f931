"""The recipe as it is run, for whoever repeats it: what its file says, with what the command line overrode."""

from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

SECRET = frozenset(["env", "hub_token", "push_to_hub_token"])  # `env` may hold keys of services


def resolved(argv: Sequence[str], parsed: Iterable[Any]) -> dict[str, Any]:
    """The fields that a recipe's file or its command line name.

    Args:
        argv: the command line, as `TrlParser` has read it.
        parsed: what it has made of it.
    """
    words = [word.partition("=") for word in argv if word.startswith("--")]
    named = [name.removeprefix("--").replace("-", "_") for name, _, _ in words]
    written = [value for name, _, value in words if name == "--config" and value]
    written += [after for word, after in pairwise(argv) if word == "--config"]
    recipe: dict[str, Any] = yaml.safe_load(Path(written[-1]).read_text()) if written else {}
    for record in parsed:
        for name in named:
            field = name if hasattr(record, name) else name.removeprefix("no_")
            if hasattr(record, field):
                recipe[field] = _plain(getattr(record, field))
    return {name: value for name, value in recipe.items() if name not in SECRET}


def _plain(value: Any) -> Any:
    """A value as YAML has it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | dict | None) else str(value)
