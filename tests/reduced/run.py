"""One case, run: trained for a step, resumed for another, saved, loaded in vLLM.

    <folder>/agentica-org/…      the stand-ins, under the names that the recipe gives
    <folder>/accelerate.yaml     the Accelerate configuration, with its substitutions
    <folder>/runs/…              what the recipe writes

The folder is the working directory of every command, and each is one that a user would give.
"""

import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from transformers import PreTrainedTokenizerBase

from e1_trl import processes
from e1_trl.answers.programs.sandbox.isolation import choose
from e1_trl.budget import Budget
from e1_trl.errors import UserError
from e1_trl.plan.setup import KNOWN
from tests.reduced import stand_ins, substitutions
from tests.reduced.case import ROOT, Case
from tests.reduced.found import Found

ACCELERATE = "accelerate.yaml"
LONGEST = 900  # seconds that a command may take
QUIET = {"VLLM_LOGGING_LEVEL": "WARNING", "TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}


class RunError(UserError):
    """A run failed, or what it left is not what it should be; one line that says how."""


def run(case: Case, tokenizer: PreTrainedTokenizerBase, folder: Path, log: Path) -> Found:
    """Run a case in a folder that is made anew, with what its commands print in a file that is written anew.

    Args:
        case: which recipe, under which Accelerate configuration.
        tokenizer: the real model's.
        folder: of the run.
        log: the file.

    Raises:
        RunError: a command failed, or left something that is not as it should be; names the log.
        ValueError, OSError: the recipe cannot be reduced, or the disk is full.
        SandboxError: programs cannot be run safely here.
    """
    started = time.monotonic()
    recipe, overrides = case.fields, case.overrides
    runs_programs = recipe.get("grader") == "programs"
    isolation = str(choose()) if runs_programs else None
    prepare(case, tokenizer, folder)
    log.write_text("")
    if runs_programs:
        e1(["validate", "--config", str(case.recipe_file)], folder, log)
    train(case, folder, log, max_steps=1)
    train(case, folder, log, resume_from_checkpoint="true")
    budget = Budget(overrides["thinking_budget"], overrides["solution_budget"])
    saved = ["--model", recipe["output_dir"], "--budgets", str(budget), "--output", "evaluation"]
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
        raise RunError(f"{'; '.join(faults)}; see {log}")
    return found


def prepare(case: Case, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Make the folder of a run anew: the stand-ins, and the Accelerate configuration."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    name = case.fields["model_name_or_path"]
    sizes = stand_ins.reduced(KNOWN[name], case.fields.get("vllm_tensor_parallel_size", 1))
    stand_ins.make_model(sizes, tokenizer, folder / name)
    stand_ins.make_datasets(folder)
    (folder / ACCELERATE).write_text(yaml.safe_dump(case.reduced_accelerate()))


def train(case: Case, folder: Path, log: Path, variables: Mapping[str, str] | None = None, **more: Any) -> None:
    """Train the case in its folder, with `more` fields of the recipe, and more environment variables.

    Raises:
        RunError: the training failed; names the log.
    """
    processes.forget_killed()
    e1(case.command(Path(ACCELERATE), **more), folder, log, variables)


def e1(words: list[str], folder: Path, log: Path, variables: Mapping[str, str] | None = None) -> None:
    """Run a command of `e1` in the folder, with more environment variables; no process of it is left.

    Raises:
        RunError: it failed, or took longer than `LONGEST`; names the log.
    """
    started = time.monotonic()
    with log.open("a") as printed:
        print("$ e1", *words, file=printed, flush=True)
    line = [sys.executable, "-m", "e1_trl.cli", *words]
    if fault := processes.run(line, log, {**environment(folder), **(variables or {})}, LONGEST, folder):
        raise RunError(f"`e1 {words[0]}`: {fault}; see {log}")
    print(f"    e1 {words[0]}: {time.monotonic() - started:.0f} s", flush=True)


def environment(folder: Path) -> dict[str, str]:
    """This process's, with the substitutions, and without what belongs to a group of processes that it may be in."""
    return {**processes.alone(), **QUIET, **substitutions.environment(folder.resolve(), ROOT)}
