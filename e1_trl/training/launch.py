"""`e1 train`: resolves the names of a recipe and of an Accelerate configuration, and runs `accelerate launch`.

Knows nothing about training: of a recipe it reads the key `accelerate_config` only, the rest is for `e1_trl.train`.
"""

import argparse
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import MISSING, fields
from importlib.util import find_spec

import yaml

from e1_trl.recipes import fields_of, resource, shipped
from e1_trl.training.arguments import BudgetedTraining, RecipeArguments
from e1_trl.training.versions import warn_of_versions

LAUNCHER = (sys.executable, "-m", "accelerate.commands.launch")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="e1 train",
        usage="e1 train [--config RECIPE] [--accelerate_config NAME] [--num_processes N] [--FIELD VALUE ...]",
        description="Train a recipe through `accelerate launch`; any field of it can be overridden on the line.",
        epilog="All other fields are TRL's: --help_all lists them.",
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument("-h", "--help", action="store_true", help="list these options and our own fields of a recipe")
    parser.add_argument("--help_all", action="store_true", help="list TRL's and Transformers' fields as well")
    parser.add_argument("--config", metavar="RECIPE", help=f"a file, or one of {', '.join(shipped('recipes'))}")
    parser.add_argument(
        "--accelerate_config",
        metavar="NAME",
        help=f"a file, or one of {', '.join(shipped('accelerate_configs'))}; unset: the recipe's `accelerate_config`, "
        "or else what `accelerate config` has set up on this machine",
    )
    parser.add_argument("--num_processes", type=int, metavar="N", help="unset: the Accelerate configuration's")
    return parser


def print_help() -> None:
    """Print our options, and our own fields of a recipe."""
    parser = _parser()
    group = parser.add_argument_group("our own fields of a recipe")
    for field in (*fields(BudgetedTraining), *fields(RecipeArguments)):
        if field.name != "accelerate_config":  # which is an option of the launcher
            default = "" if field.default in (None, MISSING) else f" ({field.default})"
            described = f"{field.metadata['help']}{default}".replace("%", "%%")
            group.add_argument(f"--{field.name}", metavar="VALUE", help=described)
    parser.print_help()


def command(argv: Sequence[str]) -> list[str]:
    """The command line that trains: Python, `accelerate launch` with its options, `e1_trl.train` with its own.

    Raises:
        ValueError: a recipe or Accelerate configuration that does not exist, or a recipe that is none.
        OSError, yaml.YAMLError: a recipe that cannot be read.
    """
    options, overrides = _parser().parse_known_args(argv)
    accelerate_config, recipe = options.accelerate_config, []
    if options.config is not None:
        file = resource("recipes", options.config)
        accelerate_config = accelerate_config or fields_of(file).get("accelerate_config")
        recipe = ["--config", str(file)]
    launch = [*LAUNCHER]
    if accelerate_config:
        launch += ["--config_file", str(resource("accelerate_configs", accelerate_config))]
        recipe += ["--accelerate_config", accelerate_config]  # which errors name
    if options.num_processes is not None:
        launch += ["--num_processes", str(options.num_processes)]
    return [*launch, "-m", "e1_trl.train", *recipe, *overrides]


def _launch(words: Sequence[str]) -> None:
    """Run `accelerate launch`, without its tracebacks: a process that ends with an error has said which.

    Raises:
        SystemExit: a process ended with an error, or was killed, which is said in one line.
    """
    from accelerate.commands.launch import launch_command, launch_command_parser
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        launch_command(launch_command_parser().parse_args(words))
        return
    except subprocess.CalledProcessError as error:
        rank, status = 0, error.returncode
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        status = failure.exitcode
    if status >= 0:
        sys.exit(status)
    name = signal.Signals(-status).name
    sys.exit(f"e1 train: process {rank} was killed by {name}" + ", as where memory runs out" * (name == "SIGKILL"))


def main(argv: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if argv is None else argv
    options = _parser().parse_known_args(arguments)[0]
    if not arguments or options.help:
        print_help()
        return
    if find_spec("trl") is None or find_spec("accelerate") is None:
        sys.exit("e1 train: TRL is not installed; pip install 'e1-trl[train]' brings it, 'e1-trl[gpu]' also vLLM")
    warn_of_versions()
    if options.help_all:
        os.execv(sys.executable, [sys.executable, "-m", "e1_trl.train", "--help"])
    try:
        line = command(arguments)
    except (ValueError, OSError, yaml.YAMLError) as error:
        sys.exit(f"e1 train: {' '.join(str(error).split())}")
    _launch(line[len(LAUNCHER) :])
