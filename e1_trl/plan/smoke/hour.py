"""Parts of the first hour: short runs of one recipe, and the questions that each answers."""

import json
import math
import shutil
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from e1_trl import processes
from e1_trl.errors import UserError, one_line
from e1_trl.plan import estimate
from e1_trl.plan.estimate import Memory, memory
from e1_trl.plan.setup import Launch, Setup
from e1_trl.plan.smoke import checks
from e1_trl.plan.smoke.checks import SAVED, STATE, STEPS, Check, Run
from e1_trl.provenance import machine
from e1_trl.recipes import fields_of, resource
from e1_trl.training.budgets import Budgets
from e1_trl.training.cuda import Card, visible_cards
from e1_trl.training.launch import command

Part = Literal["preflight", "base", "server", "resume", "zero3", "lora", "evaluation"]
PARTS = get_args(Part)
FIELDS: Mapping[str, Any] = {  # of the recipe, overridden in every training
    "max_steps": STEPS,
    "logging_steps": 1,
    "save_strategy": "steps",
    "save_steps": SAVED,
    "save_total_limit": STEPS,  # all, as two of them are compared
    "metric_for_best_model": "",  # none, as its validations may have other steps
    "load_best_model_at_end": False,
    "push_to_hub": False,
    "report_to": "none",
}
LORA = ("use_peft", "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "dtype", "learning_rate")
BRIEF: dict[str, Any] = {"save_strategy": "no", "eval_samples": 1}  # of runs whose model is not needed
# Environment of a run: its log holds the logs of all libraries, with vLLM's facts.
TELLING = {
    "E1_DEBUG": "1",
    "VLLM_CONFIGURE_LOGGING": "1",  # switched off by our own commands
    "VLLM_LOGGING_LEVEL": "INFO",
    "PYTHONUNBUFFERED": "1",
}
OTHERS = 2  # seconds left to the other processes to finish a checkpoint that looks complete


def _word(value: Any) -> str:
    """Return a field's value as a word of a command line."""
    return "" if value is None else json.dumps(value) if isinstance(value, dict) else str(value)


@dataclass(frozen=True)
class Hour:
    """The runs of one recipe, and the questions that they answer."""

    launch: Launch  # the recipe, as trained here
    cards: Sequence[Card]  # GPUs; none on a CPU
    folder: Path  # of outputs, logs and the page
    limit: float  # seconds that one run may take
    largest_gap: float  # nats, accepted between vLLM's and the trainer's log-probabilities
    runs: dict[str, Run] = field(default_factory=dict)  # finished ones, by name

    @property
    def setup(self) -> Setup:
        return self.launch.setup

    @property
    def card(self) -> int:
        """Bytes of the smallest of the cards; 0 on a CPU."""
        return min((card.bytes for card in self.cards), default=0)

    @property
    def taken(self) -> Memory | str:
        """Plan for the smallest card, or one line that says why the model cannot be planned for."""
        try:
            return memory(self.setup, self.card)
        except UserError as error:
            return str(error)

    def checks(self, part: str) -> Iterator[Check]:
        """Make the checks of a part. A failure is a row of its own, so that the other parts still run."""
        output = self._output(part)
        shutil.rmtree(output, ignore_errors=True)
        if why_not := self._why_not(part):
            yield Check(f"{part}: can it be run", None, why_not)
            return
        try:
            yield from getattr(self, f"_{part}")()
        except Exception as error:
            traceback.print_exc()
            yield Check(f"{part}: can it be run", False, f"{type(error).__name__}: {one_line(error)}")
        finally:  # checkpoints take gigabytes; the evaluation needs the base run's model
            for folder in [*output.glob("checkpoint-*")] if part == "base" else [output]:
                shutil.rmtree(folder, ignore_errors=True)

    def _why_not(self, part: str) -> str | None:
        """Say why a part cannot be run with this recipe or on this node; None if it can."""
        setup = self.setup
        base = self.runs.get("base")
        if part in ("resume", "zero3", "lora") and base is not None and base.fault is not None:
            return "the base run has failed; run this part alone with --only"
        if part == "server" and not setup.served:
            return "needs a recipe with vllm_mode: server, and the server that it names"
        if part == "zero3" and (setup.tensor_parallel > 1 or setup.gpus % 2 or setup.served):
            return "needs an even number of processes, and a recipe without tensor parallelism or server"
        if part == "lora" and (setup.rank is not None or setup.served):
            return "the recipe trains an adapter already, or samples at a server"
        if part == "evaluation" and not self.launch.fields.get("eval_benchmark"):
            return "the recipe names no eval_benchmark"
        return None

    def line(self, name: str, config: str | None = None, processes: int | None = None, **fields: Any) -> list[str]:
        """Return the command line of a training into the folder of this name; raises as `command` does."""
        words = ["--config", str(self.launch.recipe), "--accelerate_config", config or self.launch.accelerate_config]
        words += ["--num_processes", str(processes or self.setup.gpus)]
        given = {**self.launch.given, **FIELDS, "output_dir": self._output(name), **fields}
        for option, value in given.items():
            values = value if isinstance(value, list) else [value]
            words += [f"--{option}", *(_word(each) for each in values)]
        return command(words)

    def _output(self, name: str) -> Path:
        return self.folder / "output" / name

    def run(self, name: str, line: Sequence[str], output: Path, stop: Path | None = None) -> Run:
        """Run a command that trains into the folder `output`; kill it by signal 9 once the file `stop` exists."""
        used = [0]

        def is_enough() -> bool:
            known = [card.used for card in visible_cards() if card.bytes]
            used.extend(known[: len(self.cards)])
            if stop is None or not stop.is_file():
                return False
            time.sleep(OTHERS)
            return True

        print(f"    {name} …", flush=True)
        if not self.cards:
            processes.forget_killed()
        log = self.folder / f"{name}.log"
        log.unlink(missing_ok=True)
        began = time.monotonic()
        fault = processes.run(line, log, {**processes.alone(), **TELLING}, self.limit, is_enough=is_enough)
        if fault is None and stop is not None and not stop.is_file():
            fault = "it ended before its checkpoint, at which it was to be killed"
        self.runs[name] = Run.read(fault, max(used), time.monotonic() - began, log, output)
        return self.runs[name]

    def _variant(self, part: str, steps: int = STEPS, **how: Any) -> tuple[Run, Check | None]:
        """Train with other fields; return the run, and a failing check if it has failed."""
        made = self.run(part, self.line(part, **BRIEF, **how), self._output(part))
        whole = checks.ran(f"{part}: does it end", made, steps)
        return made, None if whole.right else whole

    def _preflight(self) -> Iterator[Check]:
        from e1_trl.plan.smoke.preflight import SMALLEST, preflight  # imports PyTorch, which --help does not need

        taken = self.taken
        # Two checkpoints and a model, next to the base run's model.
        needed = SMALLEST if isinstance(taken, str) else 2 * (taken.checkpoint + taken.model)
        yield from preflight(self.setup.gpus, self.folder, needed, bool(self.cards))

    def _base(self) -> Iterator[Check]:
        output = self._output("base")
        made = self.run("base", self.line("base"), output)
        yield checks.ran("does it start and end", made)
        if made.fault is None:
            yield checks.gap("does vLLM sample what is scored", made, checks.beginnings(self.setup), self.largest_gap)
            yield checks.weights(made, self.setup)
            yield checks.moved(checks.largest_change(output / f"checkpoint-{SAVED}", output))
            yield checks.accuracy(made, self.launch.fields["model_name_or_path"])
            taken = self.taken
            if isinstance(taken, str):
                yield Check("are memory and time as planned", None, taken)
            else:
                planned = estimate.seconds(taken, *estimate.read_rows(self.setup, self.launch.fields))
                yield checks.peak(made, taken)
                yield checks.time(made, self.setup, planned, "H100" in machine())
            if self.setup.sleep and self.cards:
                yield checks.slept(made, self.setup, self.card)

    def _server(self) -> Iterator[Check]:
        made, fault = self._variant("server", 6, learning_rate=1e-4, max_steps=6)
        yield fault or checks.gap("does a server take the weights", made, checks.beginnings(self.setup, 6))

    def _resume(self) -> Iterator[Check]:
        name = "does it resume after kill -9"
        output = self._output("resume")
        whole = output / f"checkpoint-{SAVED}" / STATE
        killed = self.run("killed", self.line("resume", eval_samples=1), output, whole)
        if whole.is_file():
            # A run of short steps may have written the next one, or its end, before it was killed.
            for later in {*output.glob("checkpoint-*")} - {whole.parent}:
                shutil.rmtree(later)
            (output / STATE).unlink(missing_ok=True)
            again = self.line("resume", eval_samples=1, resume_from_checkpoint="true")
            yield checks.resumed(name, killed, self.run("resumed", again, output))
        else:
            yield Check(name, False, f"no checkpoint to resume from: {killed.fault}", f"one after step {SAVED}")

    def _zero3(self) -> Iterator[Check]:
        config = "zero3" if self.cards else "cpu_zero3"
        sleeps = bool(self.cards)  # vLLM's build for CPUs cannot sleep
        made, fault = self._variant("zero3", config=config, vllm_enable_sleep_mode=sleeps, vllm_tensor_parallel_size=2)
        name = "do ZeRO-3, sleep and tensor parallelism go together"
        yield fault or checks.gap(name, made, checks.beginnings(self.setup), self.largest_gap)
        if fault is None:
            yield checks.weights(made, self.setup)
            if sleeps:
                yield checks.slept(made, self.setup, self.card)

    def _lora(self) -> Iterator[Check]:
        adapter = fields_of(resource("recipes", "E1-Math-1.5B-24GB"))
        fields = {field: adapter[field] for field in LORA}
        whole = math.lcm(self.launch.fields["num_generations"], self.setup.batch)
        rollouts = whole * math.ceil(self.setup.rollouts / self.setup.gpus / whole)
        if self.setup.passes is None:
            fields["generation_batch_size"] = rollouts
        else:  # the recipe sets them, and TRL takes only one of the two
            fields["steps_per_generation"] = rollouts // self.setup.batch
        fields["gradient_accumulation_steps"] = self.setup.accumulation
        fields["vllm_tensor_parallel_size"] = 1
        fields["vllm_enable_sleep_mode"] = bool(self.cards)
        config = "one_gpu" if self.cards else "cpu"
        one = Setup.of({**self.launch.fields, **fields}, {"distributed_type": "NO", "num_processes": 1})
        planned = self.cards and not isinstance(self.taken, str)
        if problems := memory(one, self.card).problems if planned else []:
            yield Check("lora: can it be run", None, f"one card is too small: {problems[0]}")
            return
        made, fault = self._variant("lora", config=config, processes=1, **fields)
        yield fault or checks.gap("does LoRA train on one card", made, checks.beginnings(self.setup))
        if fault is None:
            yield checks.weights(made, self.setup)

    def _evaluation(self) -> Iterator[Check]:
        fields = self.launch.fields
        trained = self._output("base")
        is_there = any((trained / name).is_file() for name in ("config.json", "adapter_config.json"))
        model = trained if is_there else fields["model_name_or_path"]
        budget = replace(Budgets.of(fields).largest, total=None)  # an evaluation's budgets have none
        budgets = [str(budget), str(replace(budget, thinking=(budget.thinking or 2) // 2))]
        words = ["--model", model, "--benchmark", fields["eval_benchmark"], "--max_problems", 8, "--samples", 1]
        words += ["--methods", "separate", "--budgets", *budgets, "--max_model_length", self.setup.context]
        words += ["--enforce_eager", not self.cards, "--output", self._output("evaluation")]
        line = [sys.executable, "-m", "e1_trl.cli", "eval", *map(str, words)]
        made = self.run("evaluation", line, self._output("evaluation"))
        about = "the trained model" if is_there else "the recipe's model, untrained"
        measured = f"{made.fault or 'status 0'}: {about}, 8 problems at {' and '.join(budgets)}; {made.seconds:.0f} s"
        yield Check("does e1 eval run", made.fault is None, measured, "status 0")
