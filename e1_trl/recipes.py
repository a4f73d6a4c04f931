"""The recipes and Accelerate configurations that are shipped, by name."""

from pathlib import Path
from typing import Literal

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
        ValueError: it is neither.
    """
    if Path(name).is_file():
        return Path(name)
    files = shipped(kind)
    if name not in files:
        raise ValueError(f"{name} is neither a file nor one of our {kind}: {', '.join(files)}")
    return files[name]
