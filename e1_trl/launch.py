"""`e1 train`: resolves the names of a recipe and of an Accelerate configuration, and becomes `accelerate launch`.

Knows nothing about training: of a recipe it reads the key `accelerate_config` only, the rest is for `e1_trl.train`.
"""

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import yaml

Kind = Literal["recipes", "accelerate_configs"]


def _shipped(kind: Kind) -> dict[str, Path]:
    """The files of a kind by name: inside the installed package, or beside it in a clone."""
    package = Path(__file__).parent
    folder = package / kind if (package / kind).is_dir() else package.parent / kind
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def resource(kind: Kind, name: str) -> Path:
    """The YAML file that `name` means: a file's path, or the name of one that is shipped.

    Raises:
        ValueError: it is neither.
    """
    if Path(name).is_file():
        return Path(name)
    shipped = _shipped(kind)
    if name not in shipped:
        raise ValueError(f"{name} is neither a file nor one of our {kind}: {', '.join(shipped)}")
    return shipped[name]


def _configured(recipe: Path) -> str | None:
    """The Accelerate configuration that a recipe names."""
    settings = yaml.safe_load(recipe.read_text())
    if not isinstance(settings, dict):
        raise ValueError(f"{recipe} is no recipe, which is a YAML file of lines `field: value`")
    return settings.get("accelerate_config")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="e1 train",
        usage="e1 train [--config RECIPE] [--accelerate_config NAME] [--num_processes N] [--FIELD VALUE ...]",
        description="Train a recipe through `accelerate launch`; any field of it can be overridden on the line.",
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument("-h", "--help", action="store_true", help="list these options and every field of a recipe")
    parser.add_argument("--config", metavar="RECIPE", help=f"a file, or one of {', '.join(_shipped('recipes'))}")
    parser.add_argument(
        "--accelerate_config",
        metavar="NAME",
        help=f"a file, or one of {', '.join(_shipped('accelerate_configs'))}; unset: the recipe's `accelerate_config`, "
        "or else what `accelerate config` has set up on this machine",
    )
    parser.add_argument("--num_processes", type=int, metavar="N", help="unset: the Accelerate configuration's")
    return parser


def command(argv: list[str]) -> list[str]:
    """The command line that trains: Python, `accelerate launch` with its options, `e1_trl.train` with its own.

    Raises:
        ValueError: a recipe or Accelerate configuration that does not exist, or a recipe that is none.
        OSError, yaml.YAMLError: a recipe that cannot be read.
    """
    options, overrides = _parser().parse_known_args(argv)
    recipe = None if options.config is None else resource("recipes", options.config)
    accelerate_config = options.accelerate_config or (recipe and _configured(recipe))
    launch = [sys.executable, "-m", "accelerate.commands.launch"]
    if accelerate_config:
        launch += ["--config_file", str(resource("accelerate_configs", accelerate_config))]
    if options.num_processes is not None:
        launch += ["--num_processes", str(options.num_processes)]
    return [*launch, "-m", "e1_trl.train", *([] if recipe is None else ["--config", str(recipe)]), *overrides]


def main(argv: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if argv is None else argv
    asks_for_help = not arguments or _parser().parse_known_args(arguments)[0].help
    if asks_for_help:
        _parser().print_help()
    if find_spec("trl") is None or find_spec("accelerate") is None:
        sys.exit("e1 train: TRL is not installed; pip install 'e1-trl[train]' brings it, 'e1-trl[gpu]' also vLLM")
    if asks_for_help:
        print("\nFields of a recipe:\n", flush=True)
        os.execv(sys.executable, [sys.executable, "-m", "e1_trl.train", "--help"])
    try:
        line = command(arguments)
    except (ValueError, OSError, yaml.YAMLError) as error:
        sys.exit(f"e1 train: {' '.join(str(error).split())}")
    os.execv(line[0], line)
