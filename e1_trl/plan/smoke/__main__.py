"""The first hour on a GPU node: trains a recipe for four steps in several ways, and prints a table of checks.

    make smoke RECIPE=recipes/E1-Math-1.5B.yaml
    python -m e1_trl.plan.smoke RECIPE [--reduced] [--num_processes N] [--FIELD VALUE …]

What is checked, and what to look at where that fails, stands in docs/first-hour.md. The files are made anew in
runs/smoke/RECIPE; the report.md there is for a bug report. Ctrl-C ends it with the table so far.
"""

import argparse
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import yaml

from e1_trl.plan.__main__ import overrides
from e1_trl.plan.smoke.checks import Check, Verdict
from e1_trl.plan.smoke.first_hour import FirstHour
from e1_trl.plan.smoke.report import Report, rows
from e1_trl.plan.smoke.subject import Subject
from e1_trl.recipes import resource
from e1_trl.report.provenance import Provenance
from tests.reduced.__main__ import TOKENIZER, load_tokenizer
from tests.reduced.run import RunError, e1, prepare

RUNS = Path("runs/smoke")
INTERRUPTED = 130  # the exit status


def parser() -> argparse.ArgumentParser:
    """The options; the rest of the line are fields of the recipe."""
    made = argparse.ArgumentParser(
        prog="python -m e1_trl.plan.smoke",
        usage="python -m e1_trl.plan.smoke RECIPE [--reduced] [--accelerate_config NAME] [--num_processes N] "
        "[--tokenizer NAME] [--FIELD VALUE …]",
        description=(__doc__ or "").partition("\n")[0],
        allow_abbrev=False,
    )
    made.add_argument("recipe", metavar="RECIPE", help="a file, or the name of one of our recipes")
    made.add_argument("--reduced", action="store_true", help="at reduced size, on two CPU processes (docs/recipes.md)")
    made.add_argument("--accelerate_config", metavar="NAME", help="unset: the one that the recipe names")
    made.add_argument("--num_processes", type=int, metavar="N", help="unset: those of the Accelerate configuration")
    made.add_argument(
        "--tokenizer", default=TOKENIZER, help=f"for --reduced: a folder, or an id on the Hub ({TOKENIZER})"
    )
    return made


def subject_of(arguments: argparse.Namespace, given: dict[str, Any], folder: Path) -> Subject:
    """What is tried, with all that it needs in the folder.

    Raises:
        ValueError, OSError, RunError: it cannot be tried here.
    """
    if not arguments.reduced:
        subject = Subject.on_gpus(arguments.recipe, arguments.accelerate_config, arguments.num_processes, given)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return subject
    if arguments.num_processes is not None:
        raise ValueError("--num_processes is for GPUs: at reduced size there are two processes")
    subject = Subject.reduced(arguments.recipe, arguments.accelerate_config, given, folder)
    assert subject.case is not None
    prepare(subject.case, load_tokenizer(arguments.tokenizer), folder)
    if subject.setup.programs:
        e1(["validate", "--config", str(subject.case.recipe_file)], folder, folder / "validate.log")
    return subject


def main(argv: list[str] | None = None) -> None:
    """Try a recipe; the exit status is 1 if a check failed."""
    arguments, words = parser().parse_known_args(argv)
    made = Provenance.here([])
    checks: list[Check] = []
    try:
        given = overrides(words)
        folder = RUNS / resource("recipes", arguments.recipe).stem
        subject = subject_of(arguments, given, folder.resolve())
    except (ValueError, OSError, TypeError, KeyError, yaml.YAMLError, RunError) as error:
        sys.exit(f"e1_trl.plan.smoke: {' '.join(str(error).split())}")
    hour = FirstHour(subject, folder.resolve())
    report = Report(subject, given, checks, hour.trainings, made)
    print(f"==> {subject.recipe.stem}, {report.size}", flush=True)
    for ending in (signal.SIGTERM, signal.SIGHUP):  # of a scheduler, or a lost connection: as Ctrl-C, leaves nothing
        signal.signal(ending, signal.default_int_handler)
    interrupted = False
    try:
        for check in hour.checks():
            checks.append(check)
            print(f"{check.verdict:8}{check.name}: {check.measured}", flush=True)
    except KeyboardInterrupt:
        interrupted = True
    report.write(folder)
    print(f"\n{rows(checks)}\n{folder / 'report.md'} is for a bug report.{' Interrupted.' * interrupted}", flush=True)
    if interrupted:
        sys.exit(INTERRUPTED)
    if any(check.verdict is Verdict.FAILED for check in checks):
        sys.exit(1)


if __name__ == "__main__":
    main()
