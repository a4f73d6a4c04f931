"""`e1 train`: resolves the names of a recipe and of an Accelerate configuration, and runs `accelerate launch`.

Knows nothing about training: of a recipe it reads the key `accelerate_config` only, the rest is for `e1_trl.train`.
"""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from e1_trl.arguments import Count
from e1_trl.command_line import CommandParser
from e1_trl.errors import TROUBLESHOOTING, run_command
from e1_trl.recipes import fields_of, resource, shipped
from e1_trl.training.arguments import BudgetedTraining, RecipeArguments
from e1_trl.training.versions import warn_of_versions

PRECISION = ("bf16", "fp16", "use_cpu")  # fields that say in what a recipe computes
LAUNCHER = (sys.executable, "-m", "accelerate.commands.launch")


USUAL = {
    "model_name_or_path": ("MODEL", "Model to train: checkpoint folder or Hub id."),
    "dataset_name": ("DATA", "Problems to train on: Hub id, file or folder."),
    "output_dir": ("FOLDER", "Folder for checkpoints and the trained model."),
    "num_generations": ("N", "Rollouts per problem, 2 or more (default: 8)."),
    "learning_rate": ("X", "Learning rate (default: 1e-06)."),
}


def _launcher() -> CommandParser:
    """The options that choose what is launched, and how."""
    made = CommandParser(
        "e1 train",
        "[--config RECIPE] [--accelerate_config NAME] [--num_processes N] [--FIELD VALUE …]",
        "Train a recipe through `accelerate launch`. Any field of the recipe can be overridden on the command line:\n\n"
        "  e1 train --config E1-Math-1.5B --learning_rate 5e-7\n"
        "  e1 train --config E1-Math-1.5B --dry_run true      # shows what it would train on, and stops",
    )
    recipes = f"Recipe: a file, or one of {', '.join(shipped('recipes'))}."
    configurations = (
        f"Accelerate configuration: a file, or one of {', '.join(shipped('accelerate_configs'))}. Default: the "
        "recipe's `accelerate_config`, else what `accelerate config` has set up on this machine, or cpu without a GPU."
    )
    made.add_argument("--config", metavar="RECIPE", group="launch", help=recipes)
    made.add_argument("--accelerate_config", metavar="NAME", group="launch", help=configurations)
    processes = "Processes to start, one per GPU. Default: the Accelerate configuration's number."
    made.add_argument("--num_processes", hint=Count, group="launch", help=processes)
    every = "List all fields, those of TRL and Transformers included, and stop."
    made.add_argument("--help_all", action="store_true", group="launch", help=every)
    return made


def make_parser() -> CommandParser:
    """The options of `e1 train`: those of the launcher, the usual fields of TRL, and our own fields."""
    made = _launcher()
    for name, (placeholder, help) in USUAL.items():
        made.add_argument(f"--{name}", metavar=placeholder, group="usual fields of a recipe (TRL's)", help=help)
    made.add_record(BudgetedTraining)
    made.add_record(RecipeArguments)
    made.epilog = "Further fields are TRL's and Transformers': `e1 train --help_all` lists them."
    return made


def print_all_fields() -> None:
    """Print the help with all fields of a recipe, TRL's and Transformers' included."""
    from trl import DatasetMixtureConfig, ModelConfig

    from e1_trl.training.config import E1Config, E1ScriptArguments

    made = make_parser()
    for record in (E1ScriptArguments, DatasetMixtureConfig, ModelConfig, E1Config):
        made.add_record(record)
    made.epilog = None
    made.print_help()


def command(argv: Sequence[str], has_gpu: bool | None = None) -> list[str]:
    """The command line that trains: Python, `accelerate launch` with its options, `e1_trl.train` with its own.

    Without a GPU, what neither recipe nor command line says of launcher and precision is what a CPU can do.

    Args:
        argv: of `e1 train`.
        has_gpu: whether this machine has one; unset: as PyTorch finds it.

    Raises:
        UserError: a recipe or Accelerate configuration does not exist, or cannot be read.
    """
    options, overrides = _launcher().parse_known_args(argv)
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
        recipe += ["--accelerate_config", accelerate_config]  # which errors name
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
    sys.exit(
        f"e1 train: process {rank} was killed by {name}"
        + f", as where memory runs out: {TROUBLESHOOTING}" * (name == "SIGKILL")
    )


def main(argv: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or {"-h", "--help"} & set(arguments):
        make_parser().print_help()
        return
    if find_spec("trl") is None or find_spec("accelerate") is None:
        sys.exit("e1 train: TRL is not installed; pip install 'e1-trl[train]' brings it, 'e1-trl[gpu]' also vLLM")
    if "--help_all" in arguments:
        print_all_fields()
        return
    warn_of_versions()
    _launch(command(arguments)[len(LAUNCHER) :])


if __name__ == "__main__":
    run_command("e1 train", main)
