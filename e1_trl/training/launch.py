"""`e1 train`: resolves the names of a recipe and of an Accelerate configuration, and runs `accelerate launch`.

Knows nothing about training: it reads a recipe's `accelerate_config`, precision and batch; `e1_trl.train` all fields.
"""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NoReturn

from e1_trl.arguments import Count, read_value
from e1_trl.command_line import CommandParser, names_in, run_command
from e1_trl.cores import cores
from e1_trl.errors import INSTALL, TROUBLESHOOTING, UserError
from e1_trl.recipes import fields_of, processes_of, read_mapping, resource, shipped
from e1_trl.training.arguments import BudgetedTraining, TrlFields
from e1_trl.training.cuda import gpu_fault
from e1_trl.training.recipe_arguments import RecipeArguments
from e1_trl.versions import check_versions

PRECISION = {"bf16", "fp16", "use_cpu"}  # fields that set a recipe's precision
# Their product times the number of processes is the rollouts of an optimizer step.
BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps")
PASSES = ("gradient_accumulation_steps", "steps_per_generation")  # more processes need fewer of them
FOR_SEVERAL = "for several, pass --accelerate_config ddp"
LAUNCHER = (sys.executable, "-m", "accelerate.commands.launch")
USUAL = {
    "model_name_or_path": ("MODEL", "Model to train: checkpoint folder or Hub id."),
    "dataset_name": ("DATA", "Problems to train on: Hub id, file or folder."),
    "output_dir": ("FOLDER", "Folder for checkpoints and the trained model."),
    "num_generations": ("N", "Rollouts per problem, 2 or more (default: 8)."),
    "learning_rate": ("X", "Learning rate (default: 1e-06)."),
}


def _launcher() -> CommandParser:
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
        "recipe's `accelerate_config`, else the one that `accelerate config` has set up on this machine, or cpu "
        "without a GPU."
    )
    made.add_argument("--config", metavar="RECIPE", group="launch", help=recipes)
    made.add_argument("--accelerate_config", metavar="NAME", group="launch", help=configurations)
    processes = "Processes to start, one per GPU. Default: the Accelerate configuration's number."
    made.add_argument("--num_processes", hint=Count, group="launch", help=processes)
    every = "List all fields, including those of TRL and Transformers, and stop."
    made.add_argument("--help_all", action="store_true", group="launch", help=every)
    return made


def make_parser(with_all_fields: bool = False) -> CommandParser:
    """Make the parser of `e1 train`: options of the launch, TRL's usual fields and ours, or all fields."""
    made = _launcher()
    for name, (placeholder, help) in USUAL.items():
        made.add_argument(f"--{name}", metavar=placeholder, group="usual fields of a recipe (TRL's)", help=help)
    made.add_record(BudgetedTraining)
    made.add_record(RecipeArguments)
    if with_all_fields:
        from e1_trl.training.recipe_as_run import RECORDS

        for record in RECORDS:
            made.add_record(record)
    else:
        made.epilog = "Further fields are TRL's and Transformers': `e1 train --help_all` lists them."
    return made


def command(argv: Sequence[str], gpus: int | None = None) -> list[str]:
    """Return the command line that trains: Python, `accelerate launch` with its options, `e1_trl.train` with its own.

    Without a GPU (by `gpus`, or as PyTorch counts them), launcher and precision default to those of a CPU if neither
    recipe nor command line sets them; a dry run always takes those of a CPU.
    """
    options, overrides = _launcher().parse_known_args(argv)
    parser = CommandParser("e1 train", "", "")
    for name in ("--dry_run", "--use_cpu"):
        parser.add_argument(name, nargs="?", const=True, hint=bool, help="As in a recipe.")
    for name in PASSES:
        parser.add_argument(f"--{name}", hint=Count, help="As in a recipe.")
    said = {name: value for name, value in vars(parser.parse_known_args(overrides)[0]).items() if value is not None}
    gpus = _count_gpus() if gpus is None else gpus
    fields: dict[str, Any] = {}
    train = []
    if options.config is not None:
        file = resource("recipes", options.config)
        fields = fields_of(file)
        train = ["--config", str(file)]
    accelerate_config = options.accelerate_config or fields.get("accelerate_config")
    given = {*names_in(overrides)}
    is_dry = read_value("dry_run", said.pop("dry_run", fields.get("dry_run") or False), bool)
    processes = options.num_processes
    if not gpus:
        goes_without = is_dry and not options.accelerate_config
        accelerate_config, chosen = _choose_for_cpus(
            accelerate_config, goes_without, {**fields, **said}, given, processes
        )
        processes = None if goes_without else processes
        overrides += [word for name, value in chosen.items() for word in (f"--{name}", value)]
    launch = [*LAUNCHER]
    if accelerate_config:
        file = resource("accelerate_configs", accelerate_config)
        launch += ["--config_file", str(file)]
        train += ["--accelerate_config", accelerate_config]  # for errors
        accelerate = read_mapping(file)
        started = processes or accelerate.get("num_processes", 1)
        check_processes(accelerate_config, accelerate, started, gpus, fields, given, is_dry)
        if accelerate.get("deepspeed_config", {}).get("offload_optimizer_device") == "cpu":
            # Accelerate's default is one thread a process, with which DeepSpeed's Adam for CPUs takes seconds a step.
            threads = max(1, cores() * accelerate.get("num_machines", 1) // started)
            launch += ["--num_cpu_threads_per_process", str(threads)]
    if processes is not None:
        launch += ["--num_processes", str(processes)]
    return [*launch, "-m", "e1_trl.train", *train, *overrides]


def _choose_for_cpus(
    name: str | None, is_dry: bool, recipe: Mapping[str, Any], given: Collection[str], processes: int | None
) -> tuple[str | None, dict[str, str]]:
    """Choose the Accelerate configuration and the fields that recipe and command line leave open, and print them.

    A dry run also replaces a configuration for GPUs. Its one process accumulates the batches of all of their
    processes, so that it shows the steps of the training.
    """
    from accelerate.commands.config import default_config_file  # of `accelerate config`

    chosen = {}
    used = []
    named = read_mapping(resource("accelerate_configs", name)) if name else {"use_cpu": True}
    replaces = is_dry and not named.get("use_cpu")
    if replaces:
        chosen = {"dtype": "float32", "fp16": "false"} if recipe.get("fp16") else {"dtype": "float32"}
    if replaces or (not name and not os.path.isfile(default_config_file)):
        asked = read_value("use_cpu", recipe.get("use_cpu") or False, bool)
        if not (is_dry or asked) and (fault := gpu_fault()) is not None:
            raise UserError(f"{fault}. To train on CPUs all the same, set accelerate_config to cpu")
        name = "cpu"
        used.append("accelerate_config cpu")
    if not PRECISION & {*given} and (replaces or all(recipe.get(each) is None for each in PRECISION)):
        chosen["bf16"] = "false"
    chosen = {field: value for field, value in chosen.items() if field not in given}
    if replaces:
        every = processes or int(named.get("num_processes", 1))
        chosen |= {field: str(count * every) for field, count in _read_passes(recipe).items()}
    used += [f"{field} {value}" for field, value in chosen.items()]
    if used:
        why = "for the dry run" if replaces else "which you did not set"
        print(f"e1 train: no GPU found; using {', '.join(used)}, {why}", flush=True)
    return name, chosen


def starts_one(accelerate: Mapping[str, Any]) -> bool:
    """Return whether Accelerate starts one process under a configuration, whatever number is asked for."""
    return str(accelerate.get("distributed_type", "NO")) == "NO"


def check_processes(
    name: str,
    accelerate: Mapping[str, Any],
    processes: int,
    gpus: int,
    recipe: Mapping[str, Any],
    given: Collection[str],
    is_dry: bool,
) -> None:
    """Refuse processes that would not start, that outnumber the GPUs, or whose number `check_batch` refuses.

    The configuration `accelerate` of this name starts `processes` on all machines together; if this one has no `gpus`,
    they share its CPUs. `given` are the fields on the command line. A dry run may have another batch.
    """
    if processes > 1 and starts_one(accelerate):
        remedy = f"{FOR_SEVERAL} {_keep_batch(recipe, processes)}" if gpus else "remove --num_processes"
        raise UserError(f"{name} trains in one process, not in {processes}; {remedy}")
    here = processes // accelerate.get("num_machines", 1)
    if 0 < gpus < here and not accelerate.get("use_cpu"):
        raise UserError(
            f"{name} starts {here} processes, one per GPU, and this node shows {gpus} (CUDA_VISIBLE_DEVICES, "
            f"nvidia-smi); to keep the recipe's batch, pass {_keep_batch(recipe, gpus, processes)}"
        )
    if not is_dry:
        check_batch(recipe, processes, given)


def check_batch(recipe: Mapping[str, Any], processes: int, given: Collection[str]) -> None:
    """Refuse a number of processes that would silently change the batch of a recipe; see `check_processes`."""
    fields = (read_value(field, recipe.get(field, getattr(TrlFields, field)), Count) for field in BATCH)
    per_device, accumulation = fields
    batch = per_device * accumulation
    meant = processes_of(recipe, processes)
    if processes != meant and not {*BATCH} & {*given}:
        raise UserError(
            f"the recipe's batch is {batch * meant} rollouts a step ({per_device} on each of {meant} processes x "
            f"{accumulation}), and {processes} would make it {batch * processes}; to keep it, pass "
            f"{_keep_batch(recipe, processes)}"
        )


def _read_passes(recipe: Mapping[str, Any]) -> dict[str, int]:
    """Read the fields of `PASSES` that a recipe sets, and the first in any case."""
    given = {field: recipe.get(field, getattr(TrlFields, field)) for field in PASSES}
    return {field: read_value(field, value, Count) for field, value in given.items() if value is not None}


def _keep_batch(recipe: Mapping[str, Any], most: int, processes: int | None = None) -> str:
    """Return the options with which at most `most` processes, in place of `processes`, keep a recipe's batch."""
    passes = _read_passes(recipe)
    meant = processes_of(recipe, processes or most)
    number = max(each for each in range(1, most + 1) if all(count * meant % each == 0 for count in passes.values()))
    options = {"num_processes": number} | {field: count * meant // number for field, count in passes.items()}
    return " ".join(f"--{field} {value}" for field, value in options.items())


def _count_gpus() -> int:
    import torch

    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0


def _launch(words: Sequence[str]) -> None:
    """Run `accelerate launch` without its tracebacks: a process that fails has printed its error.

    Exits with one line if a process was killed, or if a signal ends this one, after its children have ended.
    """
    from accelerate.commands.launch import launch_command, launch_command_parser
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    from e1_trl.processes import end_children, handle_ends

    def end(number: int, frame: object) -> NoReturn:
        raise SignalException("", signal.Signals(number))

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    logging.getLogger("torch.distributed.elastic.agent.server.api").disabled = True  # PyTorch sets its level itself
    handle_ends(end)
    try:
        launch_command(launch_command_parser().parse_args(words))
        return
    except SignalException as error:  # ours or, with several processes, PyTorch's
        for ending in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(ending, signal.SIG_IGN)  # a second one would leave those that are slow to end
        end_children()
        raise UserError(
            f"ended by {error.sigval.name}; the same command with --resume_from_checkpoint auto goes on"
        ) from None
    except subprocess.CalledProcessError as error:
        rank = 0
        status = error.returncode
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        status = failure.exitcode
    if status >= 0:
        sys.exit(status)
    name = signal.Signals(-status).name
    sys.exit(
        f"e1 train: process {rank} was killed by {name}"
        + f", often a sign that memory ran out: {TROUBLESHOOTING}" * (name == "SIGKILL")
    )


def main(argv: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or {"-h", "--help"} & set(arguments):
        make_parser().print_help()
        return
    if find_spec("trl") is None or find_spec("accelerate") is None:
        sys.exit(f"e1 train: TRL is not installed; {INSTALL} brings it and vLLM")
    if "--help_all" in arguments:
        make_parser(with_all_fields=True).print_help()
        return
    check_versions()
    _launch(command(arguments)[len(LAUNCHER) :])


if __name__ == "__main__":
    run_command("e1 train", main)
