"""Which trainings are made of a subject, and which checks of each; a check that fails hides none of the others."""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from e1_trl.plan.smoke import checks
from e1_trl.plan.smoke.checks import PHASES, Check
from e1_trl.plan.smoke.subject import Subject
from e1_trl.plan.smoke.training import SAVED, STATE, Training, train
from e1_trl.training.logprob_gap import GROSS
from tests.reduced.found import LARGEST_GAP, largest_change

BASE, RESUMED, PARALLEL, ATTENTION = "base run", "kill -9 and resume", "tensor parallel", "flash attention"
FLASH = "flash_attention_2"


class FirstHour:
    """The trainings of one subject, in a folder of their own.

    Attributes:
        trainings: those that were made, by name.
    """

    def __init__(self, subject: Subject, folder: Path):
        self.trainings: dict[str, Training] = {}
        self._subject = subject
        self._folder = folder
        bound = (GROSS, "warned of by the trainer") if subject.case is None else (LARGEST_GAP, "that of `make recipes`")
        self._gap = {"generation": subject.generation, "bound": bound[0], "source": bound[1]}

    def checks(self) -> Iterator[Check]:
        """Every check, as soon as it has been made."""
        for name, made in (
            (BASE, self._base),
            (RESUMED, self._resumed),
            (PARALLEL, self._parallel),
            (ATTENTION, self._attention),
        ):
            try:
                yield from made(name)
            except (OSError, ValueError, KeyError) as error:
                yield Check.of(name, False, f"{type(error).__name__}: {' '.join(str(error).split())}", "")
            finally:
                for output in self._folder.glob("output-*"):
                    shutil.rmtree(output)  # checkpoints: gigabytes

    def _train(self, name: str, output: Path, stop: Callable[[], bool] | None = None, **more: Any) -> Training:
        print(f"    {name} …", flush=True)
        self.trainings[name] = train(self._subject, self._folder, name, output, stop, **more)
        return self.trainings[name]

    def _output(self, name: str) -> Path:
        return self._folder / f"output-{name}"

    def _base(self, name: str) -> Iterator[Check]:
        subject, output = self._subject, self._output("base")
        training = self._train("base", output)
        yield checks.ran(name, training)
        of_log = {"training": training, "generation": subject.generation}
        of_node = {"setup": subject.setup, "cards": subject.cards}
        asked: dict[str, Callable[[str], Check]] = {
            "losses and gradients": partial(checks.finite, training=training),
            "weights moved": lambda name: checks.moved(name, largest_change(output / f"checkpoint-{SAVED}", output)),
            "log-probability gap": partial(checks.gap, training=training, **self._gap),
            "weights in the engine": partial(checks.weights, **of_log),
            "peak memory": partial(checks.peak, training=training, **of_node),
            "sleep and wake": partial(checks.sleep, **of_log, **of_node),
            **{f"seconds of {phase}": partial(checks.seconds, phase=phase, **of_log, **of_node) for phase in PHASES},
        }
        for question, answer in asked.items():
            yield Check.not_run(question, f"the {name} failed") if training.fault else answer(question)

    def _resumed(self, name: str) -> Iterator[Check]:
        output = self._output("killed")
        whole = output / f"checkpoint-{SAVED}" / STATE
        killed = self._train("killed", output, whole.is_file)
        if not whole.is_file():
            yield Check.of(name, False, f"no checkpoint to resume from: {killed.fault}", f"one after step {SAVED}")
            return
        yield checks.resumed(name, killed, self._train("resumed", output, resume_from_checkpoint="true"))

    def _parallel(self, name: str) -> Iterator[Check]:
        setup = self._subject.setup
        if setup.tensor_parallel > 1:
            yield Check.not_run(name, f"the {BASE} has vllm_tensor_parallel_size {setup.tensor_parallel} already")
        elif setup.gpus % 2:
            yield Check.not_run(name, f"needs an even number of processes, there are {setup.gpus}")
        else:
            yield self._compared(f"{name} 2", "tensor-parallel", vllm_tensor_parallel_size=2)

    def _attention(self, name: str) -> Iterator[Check]:
        own = self._subject.fields.get("attn_implementation") or "sdpa"  # Transformers' default
        other = FLASH if own == "sdpa" else "sdpa"
        if not self._subject.cards:
            yield Check.not_run(name, f"{checks.ON_CPU}: flash attention needs a GPU")
        elif other == FLASH and not any(map(find_spec, ("flash_attn", "kernels"))):
            yield Check.not_run(name, "not installed: pip install 'e1-trl[flash]' (or flash-attn)")
        else:
            yield self._compared(f"attention {other}, not {own}", "attention", attn_implementation=other)

    def _compared(self, name: str, short: str, **more: Any) -> Check:
        """A training with another value of a field, beside the base."""
        training = self._train(short, self._output(short), **more)
        return checks.compared(name, training, self.trainings["base"], **self._gap)
