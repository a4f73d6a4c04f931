"""Recipes and Accelerate configurations by name or file."""

import reprlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from e1_trl.errors import UserError, user_errors

ResourceKind = Literal["recipes", "accelerate_configs"]
# Fields about data, and those that they replace in a recipe.
REPLACED = {"dataset_name": ("datasets", "test_split_size"), "datasets": ("dataset_name", "dataset_config")}


class OnceLoader(yaml.SafeLoader):
    """YAML loader that refuses a field that is set twice; PyYAML would take the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        counts = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if twice := [name for name, count in counts.items() if count > 1]:
            raise UserError(f"{node.start_mark.name}: {twice[0]} is set twice")
        return super().construct_mapping(node, deep)


def shipped(kind: ResourceKind) -> dict[str, Path]:
    """List shipped files by name: those of the installed package, or of a clone, with the recipes of experiments."""
    package = Path(__file__).parent
    folder = package / kind if (package / kind).is_dir() else package.parent / kind
    files = {file.stem: file for file in sorted(folder.glob("*.yaml"))}
    if kind == "recipes":
        files |= {file.parent.name: file for file in sorted(package.parent.glob("experiments/*/recipe.yaml"))}
    return files


def resource(kind: ResourceKind, name: str) -> Path:
    """Return the YAML file at the path `name`, or the shipped one of this name."""
    if Path(name).is_file():
        return Path(name)
    files = shipped(kind)
    if name not in files:
        raise UserError(f"{name} is neither a file nor one of our {kind}: {', '.join(files)}")
    return files[name]


def fields_of(file: Path) -> dict[str, Any]:
    """Read the fields of a recipe: its own, which override those of its `base`."""
    own = {name: value for name, value in read_mapping(file).items() if name != "base"}
    return override(base_of(file), own)


def override(recipe: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's fields overridden by others, of which data replace all data of the recipe."""
    replaced = {other for name, others in REPLACED.items() if own.get(name) for other in others}
    return {**{name: value for name, value in recipe.items() if name not in replaced}, **own}


def base_of(file: Path) -> dict[str, Any]:
    """Read the fields of a recipe's `base`: a file, relative to the recipe's folder, or a shipped recipe."""
    if (base := read_mapping(file).get("base")) is None:
        return {}
    neighbour = file.parent / str(base)
    fields = read_mapping(neighbour if neighbour.is_file() else resource("recipes", str(base)))
    if further := fields.get("base"):
        raise UserError(f"{file}: its base {base} has a base itself, {further}; a recipe has one base at most")
    return fields


def processes_of(recipe: Mapping[str, Any], processes: int) -> int:
    """Return the number of processes that a recipe is made for; `processes` if it does not say."""
    own = recipe.get("accelerate_config")
    return int(read_mapping(resource("accelerate_configs", own)).get("num_processes", 1)) if own else processes


def read_mapping(file: Path) -> dict[str, Any]:
    """Read a YAML file of lines `field: value`."""
    with user_errors(f"{file} cannot be read", OSError, UnicodeDecodeError, yaml.YAMLError), file.open() as text:
        fields = yaml.load(text, OnceLoader)
    if not isinstance(fields, dict):
        raise UserError(f"{file} must be a YAML file of lines `field: value`; it holds {reprlib.repr(fields)}")
    return fields
