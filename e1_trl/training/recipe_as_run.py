"""The recipe as it is run: what its file and its base say, with what the command line overrode.

`E1ScriptArguments` has the fields that neither `E1Config` nor the model's have.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

from trl import ScriptArguments, TrlParser

from e1_trl.arguments import describe_unknown, read_value
from e1_trl.errors import UserError, user_errors
from e1_trl.recipes import base_of, fields_of
from e1_trl.training.arguments import SECRETS
from e1_trl.training.recipe_arguments import RecipeArguments

# Nobody else's: `env` may hold keys of services, and who repeats a training neither resumes nor uploads this one.
OWN = frozenset(["env", "resume_from_checkpoint", "push_to_hub", "dry_run"])


@dataclass
class E1ScriptArguments(RecipeArguments, ScriptArguments):
    """What a recipe says besides `E1Config` and the model: problems, rewards, and how it is launched.

    `dataset_name` is a Hub id, a local file or a folder, see `e1_trl.problems.load`; TRL's `datasets:` mixes several.

    Raises:
        UserError: a field of TRL's that has no effect here is set.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if folders := " ".join([self.solve_rates] if isinstance(self.solve_rates, str) else self.solve_rates or []):
            raise UserError(
                f"solve_rates is {folders}; remove it, run `e1 exclude {folders} --budget THINKING+SOLUTION --output "
                "FILE`, and name FILE as exclude"
            )
        if not self.answer_type.boxed and "format" in self.reward_funcs:
            raise UserError(
                f"the reward format looks for a box, which no answer of {self.grader} has; remove it from reward_funcs"
            )
        if self.dataset_streaming:
            raise UserError("dataset_streaming is true; problems are checked before training, so they must be loaded")
        if self.ignore_bias_buffers:
            raise UserError("ignore_bias_buffers is true; it has no effect on GRPO, remove it")


class _RecipeParser(TrlParser):
    """TRL's parser, which says in one line what is wrong, without the usage of some hundred fields."""

    def error(self, message: str) -> Any:
        raise UserError(message)


def parse_recipe(records: Sequence[type], argv: Sequence[str], whole: bool = True) -> tuple[Any, ...]:
    """Read a recipe, its base and its command line as `TrlParser` does, with all types checked.

    Args:
        records: the dataclasses that have its fields.
        argv: the command line.
        whole: whether a field that none of them has is an error.

    Raises:
        UserError: one line about what is wrong with a field, or with the base.
    """
    words = list(argv)
    if any(word.partition("=")[0] == "--base" for word in words):
        raise UserError("base stands in a recipe's file; on the command line name the recipe itself as --config")
    hints: dict[str, Any] = {}
    for record in records:
        annotated = get_type_hints(record, include_extras=True)
        hints |= {each.name: annotated[each.name] for each in fields(record)}
    parser = _RecipeParser(records, prog="e1 train", allow_abbrev=False)
    if "--config" in words[:-1]:
        at = words.index("--config")
        file = Path(words[at + 1])
        del words[at : at + 2]
        given = fields_of(file)
        for environment in (base_of(file).get("env"), given.pop("env", None)):
            variables = read_value(f"{file}: env", environment or {}, dict)
            os.environ.update({name: str(value) for name, value in variables.items()})
        if whole and (strange := given.keys() - hints.keys()):
            raise UserError(f"{file}: {describe_unknown(min(map(str, strange)), hints)}")
        known = {
            name: read_value(f"{file}: {name}", given[name], hint) for name, hint in hints.items() if name in given
        }
        parser.set_defaults_with_config(**known)
    try:
        with user_errors("the recipe", ValueError):  # of TRL's and Transformers' own fields
            *parsed, rest = parser.parse_args_into_dataclasses(
                words, return_remaining_strings=True, look_for_args_file=False
            )
    except UserError as error:
        files = [argv[argv.index(option) + 1] for option in ("--config", "--accelerate_config") if option in argv[:-1]]
        raise UserError(f"{' with '.join(files)}: {error}" if files else str(error)) from error
    if rest:
        raise UserError(describe_unknown(rest[0], ["--config", *(f"--{name}" for name in hints)]))
    return tuple(parsed)


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
