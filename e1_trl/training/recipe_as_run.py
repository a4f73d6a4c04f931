"""The recipe as it is run: its file and base, with the fields that the command line overrides.

`E1ScriptArguments` has the fields that neither `E1Config` nor the model's records have, and a `Recipe` everything that
is made from them.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments

from e1_trl.answers.grade import Grader
from e1_trl.answers.kinds import AnswerType
from e1_trl.arguments import SECRETS, read_value
from e1_trl.checkpoints.model_card import BaseModel
from e1_trl.command_line import CommandParser, hints_of, names_in, read_entries
from e1_trl.errors import UserError, user_errors
from e1_trl.recipes import base_of, fields_of, override, processes_of
from e1_trl.training.config import E1Config, ModelFacts
from e1_trl.training.groups import Advantage
from e1_trl.training.launch import PASSES
from e1_trl.training.recipe_arguments import RecipeArguments
from e1_trl.training.rewards import Reward

# Fields that are not published: `env` may hold keys, whoever repeats a training neither resumes nor uploads it, and
# folders and files are of this machine.
OWN = {"env", "resume_from_checkpoint", "push_to_hub", "dry_run", "output_dir", "exclude", "local_benchmarks"}


@dataclass
class E1ScriptArguments(RecipeArguments, ScriptArguments):
    """Fields of a recipe about problems, rewards, and how it is launched.

    `dataset_name` is a Hub id, a local file or a folder, see `e1_trl.problems.load`; TRL's `datasets:` mixes several.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.answer_type.boxed and "format" in self.reward_funcs:
            raise UserError(
                f"the reward format looks for a box, which no answer of {self.grader} has; remove it from reward_funcs"
            )


@dataclass(frozen=True)
class Recipe:
    """A checked recipe, with everything that is made from it before the model is loaded."""

    args: E1Config
    model: ModelConfig
    adapter: Any  # PEFT's configuration, if one is trained
    facts: ModelFacts
    problems: Dataset  # to train on
    evaluation: Dataset | None
    kind: AnswerType
    grader: Grader
    rewards: list[Reward]
    advantage: Advantage | None  # in place of TRL's
    checkpoint: str | None  # to resume from
    origin: BaseModel  # for the model card


RECORDS = (E1ScriptArguments, E1Config, ModelConfig, DatasetMixtureConfig)  # of all fields of a recipe


def parse_recipe(
    argv: Sequence[str], records: Sequence[type] = RECORDS, whole: bool = True, prog: str = "e1 train"
) -> tuple[Any, ...]:
    """Read a recipe, its base and its command line into records, with all types checked.

    A field of the file that no record has is an error if the recipe is read as a `whole`. Errors name `prog`.
    """
    if any(word.partition("=")[0] == "--base" for word in argv):
        raise UserError("base stands in a recipe's file; on the command line name the recipe itself as --config")
    parser = CommandParser(prog, "", "")
    if prog == "e1 train":
        parser.help_option = "--help_all"
    parser.add_argument("--config", help="Recipe.", hint=Path)
    for record in records:
        parser.add_record(record)
    line = vars(parser.parse_args(argv))
    file = line.pop("config")
    given = line if file is None else override(_read_file(file, records, whole), line)
    try:
        with user_errors("the recipe", ValueError, TypeError):  # of TRL's and Transformers' own fields
            return tuple(
                record(**{each.name: given[each.name] for each in fields(record) if each.name in given})
                for record in records
            )
    except UserError as error:
        files = [str(each) for each in (file, line.get("accelerate_config")) if each is not None]
        raise UserError(f"{' with '.join(files)}: {error}" if files else str(error)) from error


def _read_file(file: Path, records: Sequence[type], whole: bool) -> dict[str, Any]:
    """Read a recipe's file and its base, and set the environment variables of both fields `env`."""
    given = fields_of(file)
    for environment in (base_of(file).get("env"), given.pop("env", None)):
        variables = read_value(f"{file}: env", environment or {}, dict)
        os.environ.update({name: str(value) for name, value in variables.items()})
    return read_entries(file, given, hints_of(*records), whole)


def fields_of_config(argv: Sequence[str]) -> dict[str, Any]:
    """Return the fields of the recipe's file that a command line names as --config, and of its base."""
    parser = CommandParser("e1 train", "", "")
    parser.add_argument("--config", help="Recipe.", hint=Path)
    file = parser.parse_known_args(argv)[0].config
    return {} if file is None else fields_of(file)


def resolved(argv: Sequence[str], parsed: Iterable[Any]) -> dict[str, Any]:
    """Collect the fields that a recipe's file or its command line sets, as they are run (`parsed`) and published."""
    recipe = fields_of_config(argv)
    for record in parsed:
        recipe = override(recipe, {name: getattr(record, name) for name in names_in(argv) if hasattr(record, name)})
        if isinstance(record, E1Config):
            recipe |= _batch_as_meant(recipe, record.world_size)
    return _published({name: value for name, value in recipe.items() if name not in OWN and name[:4] != "hub_"})


def _batch_as_meant(recipe: Mapping[str, Any], processes: int) -> dict[str, Any]:
    """Return the fields with which a recipe's Accelerate configuration keeps the batch that `processes` trained."""
    meant = processes_of(recipe, processes)
    scaled = {name: recipe[name] * processes / meant for name in PASSES if recipe.get(name)}
    if meant == processes:
        return {}
    if PASSES[0] not in scaled or not all(each.is_integer() for each in scaled.values()):
        return {"accelerate_config": None}
    return {name: int(each) for name, each in scaled.items()}


def _published(value: Any) -> Any:
    """Return a value for YAML without secrets, and only the last part of a path on this machine."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {name: _published(held) for name, held in value.items() if name not in SECRETS}
    if isinstance(value, list | tuple):
        return [_published(each) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return Path(text).name if os.path.exists(text) else re.sub(r"(?<=://)[^/@\s]+@", "", text)  # name and password
