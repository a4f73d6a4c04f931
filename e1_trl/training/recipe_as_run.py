"""The recipe as it is run: what its file and its base say, with what the command line overrode."""

import os
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from trl import TrlParser

from e1_trl.errors import UserError
from e1_trl.recipes import base_of, fields_of

# Nobody else's: `env` may hold keys of services, and who repeats a training neither resumes nor uploads this one.
OWN = frozenset(["env", "resume_from_checkpoint", "push_to_hub", "dry_run"])
SECRETS = frozenset(["token", "hub_token", "push_to_hub_token", "use_auth_token", "api_key", "password", "secret"])


def parse_recipe(records: Sequence[type], argv: Sequence[str], whole: bool = True) -> tuple[Any, ...]:
    """What `TrlParser` makes of a recipe and its command line, with what the recipe's base says.

    Args:
        records: the dataclasses that have its fields.
        argv: the command line.
        whole: whether a field that none of them has is an error.

    Raises:
        UserError: one line about what is wrong with a field, or with the base.
        OSError, yaml.YAMLError: a file cannot be read.
    """
    parser = TrlParser(records)
    if any(word.partition("=")[0] == "--base" for word in argv):
        raise UserError("base stands in a recipe's file; on the command line name the recipe itself as --config")
    if "--config" in argv[:-1]:
        base = base_of(Path(argv[argv.index("--config") + 1]))
        os.environ.update({name: str(value) for name, value in (base.pop("env", None) or {}).items()})
        unknown = parser.set_defaults_with_config(**base)
        if unknown and whole:
            raise UserError(f"the recipe's base has fields that there are not: {' '.join(unknown[::2])}")
    try:
        return tuple(parser.parse_args_and_config(argv, fail_with_unknown_args=whole))
    except UserError as error:
        files = [argv[argv.index(option) + 1] for option in ("--config", "--accelerate_config") if option in argv[:-1]]
        raise UserError(f"{' with '.join(files)}: {error}" if files else str(error)) from None


def resolved(argv: Sequence[str], parsed: Iterable[Any]) -> dict[str, Any]:
    """The fields that a recipe's file or its command line name.

    Args:
        argv: the command line, as `TrlParser` has read it.
        parsed: what it has made of it.
    """
    recipe: dict[str, Any] = {}
    if "--config" in argv:
        recipe = fields_of(Path(argv[argv.index("--config") + 1]))
    named = [word.partition("=")[0].removeprefix("--").replace("-", "_") for word in argv if word.startswith("--")]
    for record in parsed:
        for name in named:
            field = name if hasattr(record, name) else name.removeprefix("no_")
            if hasattr(record, field):
                recipe[field] = _plain(getattr(record, field))
    return _without_secrets({name: value for name, value in recipe.items() if name not in OWN and name[:4] != "hub_"})


def secrets_in(value: Any) -> list[str]:
    """The names of fields, at any depth, that hold a secret."""
    if isinstance(value, dict):
        own = [str(name) for name, held in value.items() if name in SECRETS and isinstance(held, str)]
        return own + secrets_in(list(value.values()))
    return [name for held in value for name in secrets_in(held)] if isinstance(value, list) else []


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_secrets(held) for name, held in value.items() if name not in SECRETS}
    return [_without_secrets(held) for held in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """A value as YAML has it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | dict | None) else str(value)
