"""Run of one case: trained for a step, resumed for another, saved, loaded in vLLM.

    <folder>/agentica-org/…      the stand-ins, under the names that the recipe gives
    <folder>/accelerate.yaml     the Accelerate configuration, with its substitutions
    <folder>/runs/…              output of the recipe

The folder is the working directory of every command, and each is a command of users.
"""

import re
import shutil
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from e1_trl import processes
from e1_trl.answers.programs.sandbox.isolation import choose
from e1_trl.budget import Budget
from e1_trl.errors import UserError
from e1_trl.plan.architecture import KNOWN
from experiments.families.models import write_torchvision
from tests.reduced import stand_ins, substitutions
from tests.reduced.case import ROOT, Case
from tests.reduced.found import Found

ACCELERATE = "accelerate.yaml"
LONGEST = 900  # seconds that a command may take
(MERGE,) = re.findall(r"<!-- merge.py -->\n```python\n(.*?)```", (ROOT / "docs/sharing.md").read_text(), re.DOTALL)
QUIET = {"VLLM_LOGGING_LEVEL": "WARNING", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}


def run(case: Case, folder: Path, log: Path) -> Found:
    """Run a case in a new folder, with the output of its commands in a new log."""
    started = time.monotonic()
    recipe = case.fields
    overrides = case.overrides
    runs_programs = recipe.get("grader") == "programs"
    isolation = str(choose()) if runs_programs else None
    prepare(case, folder)
    log.write_text("")
    if runs_programs:
        e1(["validate", "--config", str(case.recipe_file)], folder, log)
    train(case, folder, log, max_steps=1)
    train(case, folder, log, resume_from_checkpoint="true")
    budget = Budget(overrides["thinking_budget"], overrides["solution_budget"])
    model = recipe["output_dir"]
    if recipe.get("use_peft") and "num_experts_per_tok" in KNOWN[recipe["model_name_or_path"]]:
        # vLLM's kernels for experts beside an adapter need a GPU.
        model = "merged"
        merge = [sys.executable, "-c", MERGE, recipe["output_dir"], model]
        if fault := processes.run(merge, log, environment(folder), LONGEST, folder):
            raise UserError(f"the script of docs/sharing.md: {fault}; see {log}")
    saved = ["--model", model, "--budgets", str(budget), "--output", "evaluation"]
    asked = ["--dataset_name", stand_ins.MATHEMATICS, "--dataset_split", "train", "--methods", "separate"]
    engine = ["--enforce_eager", "true", "--max_model_length", "512", "--top_p", str(recipe.get("top_p", 1.0))]
    e1(["eval", *saved, *asked, *engine], folder, log)
    found = Found.read(
        base=folder / recipe["model_name_or_path"],
        output=folder / recipe["output_dir"],
        evaluation=folder / "evaluation",
        isolation=isolation,
        seconds=round(time.monotonic() - started, 1),
    )
    if faults := list(found.faults(budget, "eval_budgets" in recipe)):
        raise UserError(f"{'; '.join(faults)}; see {log}")
    return found


def prepare(case: Case, folder: Path) -> None:
    """Make a new folder of a run, with the stand-ins and the Accelerate configuration; raises as `Words.load` does."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    name = case.fields["model_name_or_path"]
    stand_ins.make_model(KNOWN[name], case.fields.get("vllm_tensor_parallel_size", 1), folder / name)
    stand_ins.make_datasets(folder)
    if "text_config" in KNOWN[name] and find_spec("torchvision") is None:  # which vLLM's code for images imports
        write_torchvision(folder / substitutions.STAND_IN)
    (folder / ACCELERATE).write_text(yaml.safe_dump(case.reduced_accelerate()))


def train(case: Case, folder: Path, log: Path, variables: Mapping[str, str] | None = None, **more: Any) -> None:
    """Train the case in its folder, with `more` fields of the recipe, and more environment variables."""
    processes.forget_killed()
    e1(case.command(Path(ACCELERATE), **more), folder, log, variables)


def e1(words: list[str], folder: Path, log: Path, variables: Mapping[str, str] | None = None) -> None:
    """Run a command of `e1` in the folder, with more environment variables; leaves no processes."""
    started = time.monotonic()
    with log.open("a") as printed:
        print("$ e1", *words, file=printed, flush=True)
    line = [sys.executable, "-m", "e1_trl.cli", *words]
    if fault := processes.run(line, log, {**environment(folder), **(variables or {})}, LONGEST, folder):
        raise UserError(f"`e1 {words[0]}`: {fault}; see {log}")
    print(f"    e1 {words[0]}: {time.monotonic() - started:.0f} s", flush=True)


def environment(folder: Path) -> dict[str, str]:
    """Return this process's environment with the substitutions, without variables of a group that it may belong to."""
    return {**processes.alone(), **QUIET, **substitutions.environment(folder.resolve(), ROOT)}
