"""What is tried: a recipe as it is, on this node's GPUs, or at reduced size, on two CPU processes. Runs nothing."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e1_trl.plan.setup import Setup
from e1_trl.recipes import resource
from tests.reduced.case import ROOT, Case
from tests.reduced.run import ACCELERATE, LONGEST, alone, environment

MIB = 2**20
ON_GPUS = 3600  # seconds that one training may take, from its start to its end; it may download its model first


@dataclass(frozen=True)
class Card:
    """A GPU of this node."""

    name: str
    bytes: int
    driver: str


def cards() -> list[Card]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` leaves of this node's; none without NVIDIA's driver."""
    return [Card(name, int(mib) * MIB, driver) for name, mib, driver in _ask("name,memory.total,driver_version")]


def used() -> int:
    """Bytes in use on the fullest of them, by whomever."""
    return max((int(mib) * MIB for (mib,) in _ask("memory.used")), default=0)


def _ask(query: str) -> list[list[str]]:
    """What the driver says of each visible GPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    words = [f"--query-gpu={query}", "--format=csv,noheader,nounits", *([] if visible is None else ["-i", visible])]
    try:
        said = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [line.split(", ") for line in said.splitlines()]


@dataclass(frozen=True)
class Subject:
    """A recipe, and how it is trained here.

    Attributes:
        recipe: its file.
        fields: the recipe's, with all that is given another value here.
        accelerate: the Accelerate configuration's, likewise.
        words: the arguments of `e1 train` that every run has.
        cwd: the working directory of every run.
        environment: the variables of every run.
        limit: seconds that a run may take.
        setup: what the plan reads of the fields.
        cards: the GPUs; none at reduced size.
        case: at reduced size, what is reduced.
    """

    recipe: Path
    fields: Mapping[str, Any]
    accelerate: Mapping[str, Any]
    words: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]
    limit: float
    setup: Setup
    cards: tuple[Card, ...] = ()
    case: Case | None = None

    @property
    def generation(self) -> int:
        """Optimizer steps that are learned from one generation."""
        return max(1, round(self.setup.steps))

    @classmethod
    def on_gpus(
        cls, recipe: str, accelerate_config: str | None, processes: int | None, given: dict[str, Any]
    ) -> "Subject":
        """A recipe with `given` fields, and else unchanged.

        Raises:
            ValueError, OSError: the recipe, or what launches it, is not there or cannot be planned for, or there are
                too few GPUs.
        """
        file = resource("recipes", recipe)
        fields = {**yaml.safe_load(file.read_text()), **given}
        name = accelerate_config or fields.get("accelerate_config")
        if name is None:
            raise ValueError(f"{recipe} names no accelerate_config: name one")
        accelerate = yaml.safe_load(resource("accelerate_configs", name).read_text())
        accelerate["num_processes"] = processes or accelerate["num_processes"]
        found = cards()
        if len(found) < accelerate["num_processes"]:
            raise ValueError(
                f"{name} starts {accelerate['num_processes']} processes, and there are {len(found)} GPUs here: pass "
                "--num_processes, and with it --gradient_accumulation_steps so that per device x GPUs x accumulation "
                "stays; or --reduced, on two CPU processes"
            )
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        launcher = ("--accelerate_config", name, "--num_processes", str(accelerate["num_processes"]))
        return cls(
            recipe=file,
            fields=fields,
            accelerate=accelerate,
            words=("--config", str(file), *launcher, *(word for pair in given.items() for word in _option(*pair))),
            cwd=Path.cwd(),
            # vLLM says at this level when it falls asleep, and what that freed.
            environment={**alone(), "VLLM_LOGGING_LEVEL": "INFO", "PYTHONPATH": path},
            limit=ON_GPUS,
            setup=Setup.of(fields, accelerate),
            cards=tuple(found[: accelerate["num_processes"]]),
        )

    @classmethod
    def reduced(cls, recipe: str, accelerate_config: str | None, given: dict[str, Any], folder: Path) -> "Subject":
        """A recipe with the substitutions of docs/recipes.md and `given` fields, in the folder of its stand-ins.

        Raises:
            ValueError, OSError: the recipe, or what launches it, is not there or cannot be reduced.
        """
        file = resource("recipes", recipe)
        name = accelerate_config or yaml.safe_load(file.read_text()).get("accelerate_config")
        if name is None:
            raise ValueError(f"{recipe} names no accelerate_config: name one")
        case = Case(str(file.resolve()), name)
        fields, accelerate = {**case.fields, **case.overrides, **given}, case.reduced_accelerate()
        return cls(
            recipe=file,
            fields=fields,
            accelerate=accelerate,
            words=tuple(case.command(folder / ACCELERATE, **given)[1:]),
            cwd=folder,
            environment=environment(folder),
            limit=LONGEST,
            setup=Setup.of(fields, accelerate),
            case=case,
        )


def _option(name: str, value: Any) -> list[str]:
    return [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
