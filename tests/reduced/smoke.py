"""The first hour at reduced size: hands a reduced recipe to `e1 smoke` on two CPU processes.

    make smoke RECIPE=E1-Math-1.5B REDUCED=1
    python -m tests.reduced.smoke RECIPE [--accelerate_config NAME] [OPTIONS of e1 smoke]

Its results are in runs/smoke-reduced/RECIPE.
"""

import os
import sys
from pathlib import Path

import yaml

from e1_trl.command_line import run_command
from e1_trl.plan.setup import Launch, launch_parser
from tests.reduced.case import Case
from tests.reduced.found import LARGEST_GAP
from tests.reduced.run import ACCELERATE, LONGEST, e1, environment, prepare

RUNS = Path("runs/smoke-reduced")


def main(argv: list[str] | None = None) -> None:
    """Make the folder of the recipe, and become `e1 smoke` in it."""
    parser = launch_parser("python -m tests.reduced.smoke", (__doc__ or "").split("\n")[0], "E1-Math-1.5B --beta 0.1")
    arguments, words = parser.parse_known_args(argv)
    launch = Launch.read(arguments.recipe, arguments.accelerate_config, None, [])
    file = launch.recipe.resolve()
    case, folder = Case(str(file), launch.accelerate_config), RUNS.resolve() / file.stem
    fields = {**case.fields, **case.overrides, "accelerate_config": ACCELERATE}
    prepare(case, folder)
    if fields.get("grader") == "programs":
        e1(["validate", "--config", str(file)], folder, folder / "validate.log")
    (folder / file.name).write_text(yaml.safe_dump(fields, sort_keys=False))
    small = ["--cpu", "--largest_gap", str(LARGEST_GAP), "--limit", str(LONGEST)]
    os.chdir(folder)
    line = [sys.executable, "-m", "e1_trl.cli", "smoke", file.name, *small, *words]
    os.execve(sys.executable, line, environment(folder))


if __name__ == "__main__":
    run_command("tests.reduced.smoke", main)
