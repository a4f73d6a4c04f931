"""The recipes and Accelerate configurations that are shipped, by name."""

import reprlib
from pathlib import Path
from typing import Any, Literal

import yaml

from e1_trl.errors import UserError, user_errors

ResourceKind = Literal["recipes", "accelerate_configs"]


def shipped(kind: ResourceKind) -> dict[str, Path]:
    """The files of a kind by name: inside the installed package, or beside it in a clone, with the experiments'."""
    package = Path(__file__).parent
    folder = package / kind if (package / kind).is_dir() else package.parent / kind
    files = {file.stem: file for file in sorted(folder.glob("*.yaml"))}
    if kind == "recipes":
        files |= {file.parent.name: file for file in sorted(package.parent.glob("experiments/*/recipe.yaml"))}
    return files


def resource(kind: ResourceKind, name: str) -> Path:
    """The YAML file that `name` means: a file's path, or the name of one that is shipped.

    Raises:
        UserError: it is neither.
    """
    if Path(name).is_file():
        return Path(name)
    files = shipped(kind)
    if name not in files:
        raise UserError(f"{name} is neither a file nor one of our {kind}: {', '.join(files)}")
    return files[name]


def fields_of(file: Path) -> dict[str, Any]:
    """The fields of a recipe: its own, over those of the recipe that it names as its `base`.

    Raises:
        UserError: it is no recipe, or as `base_of` raises it.
    """
    own = {name: value for name, value in read_mapping(file).items() if name != "base"}
    return {**base_of(file), **own}


def base_of(file: Path) -> dict[str, Any]:
    """The fields of a recipe's `base`, a file that is named from the recipe's folder on, or a recipe that is shipped.

    Raises:
        UserError: there is no such recipe, or it has a base itself.
    """
    if (base := read_mapping(file).get("base")) is None:
        return {}
    beside = file.parent / str(base)
    fields = read_mapping(beside if beside.is_file() else resource("recipes", str(base)))
    if further := fields.get("base"):
        raise UserError(f"{file}: its base {base} has a base itself, {further}; a recipe has one base at most")
    return fields


def read_mapping(file: Path) -> dict[str, Any]:
    """Read a YAML file of lines `field: value`.

    Raises:
        UserError: it cannot be read, or holds something else.
    """
    with user_errors(f"{file} cannot be read", OSError, UnicodeDecodeError, yaml.YAMLError):
        fields = yaml.safe_load(file.read_text())
    if not isinstance(fields, dict):
        raise UserError(f"{file} must be a YAML file of lines `field: value`; it holds {reprlib.repr(fields)}")
    return fields
