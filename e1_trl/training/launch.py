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

PRECISION = ("bf16", "fp16", "use_cpu")  # fields that say in what a recipe computes
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
        "or else what `accelerate config` has set up on this machine, or cpu without a GPU",
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


def command(argv: Sequence[str], has_gpu: bool | None = None) -> list[str]:
    """The command line that trains: Python, `accelerate launch` with its options, `e1_trl.train` with its own.

    Without a GPU, what neither recipe nor command line says of launcher and precision is what a CPU can do.

    Args:
        argv: of `e1 train`.
        has_gpu: whether this machine has one; unset: as PyTorch finds it.

    Raises:
        ValueError: a recipe or Accelerate configuration that does not exist, or a recipe that is none.
        OSError, yaml.YAMLError: a recipe that cannot be read.
    """
    options, overrides = _parser().parse_known_args(argv)
    accelerate_config, recipe, fields = options.accelerate_config, [], {}
    if options.config is not None:
        file = resource("recipes", options.config)
        fields = fields_of(file)
        accelerate_config = accelerate_config or fields.get("accelerate_config")
        recipe = ["--config", str(file)]
    said = {name for name, value in fields.items() if value is not None}
    said |= {word.removeprefix("--").partition("=")[0] for word in overrides if word.startswith("--")}
    needs_launcher = not accelerate_config and not _is_configured()
    needs_precision = said.isdisjoint(PRECISION)
    if (needs_launcher or needs_precision) and not (_has_gpu() if has_gpu is None else has_gpu):
        if needs_launcher:
            accelerate_config = "cpu"
        if needs_precision:
            overrides += ["--bf16", "false"]
        chosen = ["accelerate_config cpu"] * needs_launcher + ["bf16 false"] * needs_precision
        print(f"e1 train: no GPU here, and none of these is named: {', '.join(chosen)}", flush=True)
    launch = [*LAUNCHER]
    if accelerate_config:
        launch += ["--config_file", str(resource("accelerate_configs", accelerate_config))]
    if options.num_processes is not None:
        launch += ["--num_processes", str(options.num_processes)]
    return [*launch, "-m", "e1_trl.train", *recipe, *overrides]


def _is_configured() -> bool:
    """Whether `accelerate config` has set up this machine."""
    from accelerate.commands.config import default_config_file

    return os.path.isfile(default_config_file)


def _has_gpu() -> bool:
    import torch

    return torch.accelerator.is_available()


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
    if options.help_all:
        os.execv(sys.executable, [sys.executable, "-m", "e1_trl.train", "--help"])
    try:
        line = command(arguments)
    except (ValueError, OSError, yaml.YAMLError) as error:
        sys.exit(f"e1 train: {' '.join(str(error).split())}")
    _launch(line[len(LAUNCHER) :])
