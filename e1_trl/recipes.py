"""The recipes and Accelerate configurations that are shipped, by name."""

from pathlib import Path
from typing import Any, Literal

import yaml

from e1_trl.errors import UserError

Kind = Literal["recipes", "accelerate_configs"]


def shipped(kind: Kind) -> dict[str, Path]:
    """The files of a kind by name: inside the installed package, or beside it in a clone, with the experiments'."""
    package = Path(__file__).parent
    folder = package / kind if (package / kind).is_dir() else package.parent / kind
    files = {file.stem: file for file in sorted(folder.glob("*.yaml"))}
    if kind == "recipes":
        files |= {file.parent.name: file for file in sorted(package.parent.glob("experiments/*/recipe.yaml"))}
    return files


def resource(kind: Kind, name: str) -> Path:
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
        OSError, yaml.YAMLError: it cannot be read.
    """
    own = {name: value for name, value in _read(file).items() if name != "base"}
    return {**base_of(file), **own}


def base_of(file: Path) -> dict[str, Any]:
    """The fields of a recipe's `base`, a file that is named from the recipe's folder on, or a recipe that is shipped.

    Raises:
        UserError: there is no such recipe, or it has a base itself.
        OSError, yaml.YAMLError: one of them cannot be read.
    """
    if (base := _read(file).get("base")) is None:
        return {}
    beside = file.parent / str(base)
    fields = _read(beside if beside.is_file() else resource("recipes", str(base)))
    if further := fields.get("base"):
        raise UserError(f"{file}: its base {base} has a base itself, {further}; a recipe has one base at most")
    return fields


def _read(file: Path) -> dict[str, Any]:
    fields = yaml.safe_load(file.read_text())
    if not isinstance(fields, dict):
        raise UserError(f"{file} is no recipe, which is a YAML file of lines `field: value`")
    return fields
