"""The first hour on a GPU node: trains a recipe for four steps in several ways, and prints a table of checks.

    e1 smoke E1-Math-1.5B [--num_processes N] [--FIELD VALUE …]

What is checked, and what to look at where that fails, stands in docs/first-hour.md. The files are made anew in
runs/smoke/RECIPE; the report.md there is for a bug report. Ctrl-C ends it with the table so far.
"""

import argparse
import shutil
import signal
import sys
from pathlib import Path

import yaml

from e1_trl.plan.__main__ import overrides
from e1_trl.plan.smoke.checks import Check, Verdict
from e1_trl.plan.smoke.first_hour import FirstHour, Subject, report, rows
from e1_trl.recipes import resource

RUNS = Path("runs/smoke")
INTERRUPTED = 130  # the exit status
LIMIT = 3600.0  # seconds; a training may download its model first


def parser() -> argparse.ArgumentParser:
    """The options; the rest of the line are fields of the recipe."""
    made = argparse.ArgumentParser(
        prog="e1 smoke",
        usage="e1 smoke RECIPE [--accelerate_config NAME] [--num_processes N] [--cpu] [--largest_gap NATS] "
        "[--limit SECONDS] [--FIELD VALUE …]",
        description=(__doc__ or "").partition("\n")[0],
        allow_abbrev=False,
    )
    made.add_argument("recipe", metavar="RECIPE", help="a file, or the name of one of our recipes")
    made.add_argument("--accelerate_config", metavar="NAME", help="unset: the one that the recipe names")
    made.add_argument("--num_processes", type=int, metavar="N", help="unset: those of the Accelerate configuration")
    made.add_argument("--cpu", action="store_true", help="train without GPUs; what only they have is not checked")
    made.add_argument(
        "--largest_gap",
        type=float,
        metavar="NATS",
        help="between vLLM's and the trainer's log-probabilities; unset: what the trainer warns of",
    )
    made.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="that one training may take (3600)")
    return made


def main(argv: list[str] | None = None) -> None:
    """Try a recipe; the exit status is 1 if a check failed."""
    arguments, words = parser().parse_known_args(argv)
    try:
        folder = RUNS / resource("recipes", arguments.recipe).stem
        subject = Subject.of(
            arguments.recipe,
            arguments.accelerate_config,
            arguments.num_processes,
            overrides(words),
            on_cpu=arguments.cpu,
        )
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    except (ValueError, OSError, TypeError, KeyError, yaml.YAMLError) as error:
        sys.exit(f"e1 smoke: {' '.join(str(error).split())}")
    hour = FirstHour(subject, folder.resolve(), arguments.limit, arguments.largest_gap)
    print(f"==> {subject.recipe.stem}, {subject.size}", flush=True)
    for ending in (signal.SIGTERM, signal.SIGHUP):  # of a scheduler, or a lost connection: as Ctrl-C, leaves nothing
        signal.signal(ending, signal.default_int_handler)
    checks: list[Check] = []
    interrupted = False
    try:
        for check in hour.checks():
            checks.append(check)
            print(f"{check.verdict:8}{check.name}: {check.measured}", flush=True)
    except KeyboardInterrupt:
        interrupted = True
    file = folder / "report.md"
    file.write_text(report(subject, checks, hour.trainings))
    print(f"\n{rows(checks)}\n{file} is for a bug report.{' Interrupted.' * interrupted}", flush=True)
    if interrupted:
        sys.exit(INTERRUPTED)
    if any(check.verdict is Verdict.FAILED for check in checks):
        sys.exit(1)


if __name__ == "__main__":
    main()
