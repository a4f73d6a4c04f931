"""The entry point: a recipe in, a checkpoint out.

    accelerate launch --config_file accelerate_configs/zero2.yaml -m e1_trl.train --config recipes/E1-Math-1.5B.yaml

Every field of the recipe can be overridden on the command line (`--learning_rate 5e-7`), and `--dry_run true` only
shows what would be trained on. Recipe, budget, data, rewards and context length are checked before a model is loaded;
what is wrong is said in one line.
"""

import logging
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from datasets import Dataset
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import DatasetMixtureConfig, ModelConfig, TrlParser, get_peft_config, get_quantization_config

from e1_trl.answers.grade import Grader
from e1_trl.answers.kinds import INSTRUCTION, make_grader
from e1_trl.checkpoints import hub
from e1_trl.plan.verdict import verdict
from e1_trl.problems.prompts import last_question
from e1_trl.provenance import FILE as PROVENANCE
from e1_trl.provenance import Provenance
from e1_trl.training.config import E1Config, E1ScriptArguments, Settled, settle
from e1_trl.training.data import Problems, check_columns, check_size, load
from e1_trl.training.dry_run import describe
from e1_trl.training.recipe_as_run import resolved
from e1_trl.training.rewards import Accuracy, Reward, make_rewards
from e1_trl.training.trainer import E1Trainer
from e1_trl.training.validation import BudgetEvaluation

MAX_GRADING_WORKERS = 8
OTHERS_WAIT = 30  # seconds


@dataclass(frozen=True)
class Recipe:
    """A recipe with everything that can be known of it before the model is loaded."""

    args: E1Config
    model: ModelConfig
    settled: Settled
    problems: Problems
    grader: Grader
    rewards: list[Reward]
    checkpoint: str | None  # to resume from
    datasets: tuple[str, ...]  # on the Hub, for the model card
    instruction: str  # that follows every problem, for the card, too


def prepare(
    script_args: E1ScriptArguments, args: E1Config, model: ModelConfig, mixture: DatasetMixtureConfig
) -> Recipe:
    """Check a recipe, and read all of it but the model.

    Raises:
        ValueError, OSError: one line about what is wrong, where, and what would be right.
    """
    if not model.model_name_or_path:
        raise ValueError("the recipe must name a model (model_name_or_path)")
    checkpoint = find_checkpoint(args)
    workers = max(1, min(MAX_GRADING_WORKERS, len(os.sched_getaffinity(0)) // args.world_size))
    grader = make_grader(script_args, workers)
    rewards = make_rewards(script_args.reward_funcs, args.reward_weights, grader)
    args.model_init_kwargs = {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **(args.model_init_kwargs or {}),
    }
    settled = settle(args, model.model_name_or_path)
    with args.main_process_first(desc="preparing the prompts"):
        problems = load(script_args, mixture, args, settled.tokenizer)
    for dataset in (problems.train, problems.evaluation):
        if dataset is not None:
            check_columns(dataset, rewards, args)
    check_size(problems.train, args)
    if args.push_to_hub and args.process_index == 0:
        hub.reserve(args.hub_model_id or Path(args.output_dir).resolve().name, args.hub_private_repo, args.hub_revision)
    if torch.cuda.is_available():
        memory = torch.cuda.get_device_properties(args.device).total_memory
        said = verdict(args, model, memory, script_args.skip_memory_check)
        if args.process_index == 0:
            print(said, flush=True)
    named = [script_args.dataset_name, *(each.path for each in mixture.datasets)]
    first = last_question(problems.train[0]["prompt"])
    return Recipe(
        args=args,
        model=model,
        settled=settled,
        problems=problems,
        grader=grader,
        rewards=rewards,
        checkpoint=checkpoint,
        datasets=tuple(name for name in named if name and not Path(name).exists()),  # the Hub refuses others
        instruction=script_args.instruction or (INSTRUCTION if first.endswith(INSTRUCTION) else ""),
    )


def find_checkpoint(args: E1Config) -> str | None:
    """The folder to resume from, if the recipe asks for that.

    Raises:
        ValueError: there is no whole checkpoint.
    """
    # The parser knows only texts; `true` is the last checkpoint in `output_dir`, as in any Trainer, that is whole.
    named = str(args.resume_from_checkpoint)
    if named.lower() in ("none", "false"):
        return None
    if named.lower() != "true":
        if not whole(Path(named)):
            raise ValueError(f"{named} holds no whole checkpoint (no {TRAINER_STATE_NAME}); resume from another one")
        return named
    folders = Path(args.output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*")
    found = [folder for folder in folders if folder.name.rpartition("-")[2].isdecimal() and whole(folder)]
    if not found:
        raise ValueError(f"there is no whole checkpoint in {args.output_dir} to resume from")
    return str(max(found, key=lambda folder: int(folder.name.rpartition("-")[2])))


def whole(checkpoint: Path) -> bool:
    """Whether a run had time to write all of a checkpoint, of which the trainer's state is the last."""
    try:
        TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
    except (OSError, ValueError, TypeError):  # the last of another version's
        return False
    return True


def lean(problems: Dataset, rewards: list[Reward]) -> Dataset:
    """The problems without the columns that no reward looks at, which every process would read at every step."""
    if not all(isinstance(reward, Accuracy) for reward in rewards):
        return problems
    return problems.select_columns(["prompt", "answers", "key", "prompt_tokens"])


def train(recipe: Recipe, written: dict[str, Any]) -> None:
    """Train, save, and upload once if the recipe says so, with a card that has the recipe as `written`.

    Raises:
        SystemExit: the upload failed; one line, which says where the model is.
    """
    args, evaluation = recipe.args, recipe.problems.evaluation
    output = Path(args.output_dir)
    if args.push_to_hub and args.log_completions and args.process_index == 0:
        hub.keep_from_the_hub(output)
    with recipe.grader:
        trainer = E1Trainer(
            model=recipe.model.model_name_or_path,
            reward_funcs=recipe.rewards,
            args=args,
            train_dataset=lean(recipe.problems.train, recipe.rewards),
            eval_dataset=evaluation if args.eval_strategy != "no" else None,
            processing_class=recipe.settled.tokenizer,
            quantization_config=get_quantization_config(recipe.model),
            peft_config=get_peft_config(recipe.model),
        )
        if args.eval_budgets and evaluation is not None:
            budgets, samples = args.evaluation_budgets, args.eval_samples
            trainer.add_callback(BudgetEvaluation(trainer, evaluation, budgets, recipe.grader, samples))
        origin = replace(
            trainer.details.origin,
            datasets=recipe.datasets,
            instruction=recipe.instruction,
            conversations=not isinstance(recipe.problems.train[0]["prompt"], str),
            chat_template_kwargs=args.chat_template_kwargs or {},
        )
        pinned = {} if origin.commit is None else {"model_revision": origin.commit}
        trainer.details = replace(trainer.details, origin=origin, recipe={**written, **pinned})
        trainer.create_model_card()  # before PEFT saves one of its own
        resumed = recipe.checkpoint is not None and (output / PROVENANCE).exists()
        if trainer.is_world_process_zero() and not resumed:  # which may train nothing, and only upload
            Provenance.here([args.seed]).write(output)
        trainer.train(resume_from_checkpoint=recipe.checkpoint)
    trainer.save_state()
    trainer.save_model(_internal_call=True)  # which leaves the upload to us
    trainer.create_model_card()
    if args.push_to_hub and trainer.is_world_process_zero():
        try:
            hub.push(output, trainer.hub_model_id, args.hub_revision)
        except ValueError as error:
            sys.exit(
                f"e1_trl.train: {error}; the model is whole in {output}: the same command with "
                "--resume_from_checkpoint true uploads it, without training"
            )


def main(argv: list[str] | None = None) -> None:
    """Train the recipe that the arguments (unset: the command line's) name."""
    parser = TrlParser((E1ScriptArguments, E1Config, ModelConfig, DatasetMixtureConfig))
    try:
        script_args, args, model, mixture = parser.parse_args_and_config(argv)
        if args.process_index != 0:
            logging.getLogger("e1_trl").setLevel(logging.ERROR)  # the main process warns for all
        recipe = prepare(script_args, args, model, mixture)
    except (ValueError, OSError, yaml.YAMLError) as error:
        if os.environ.get("LOCAL_RANK", "0") != "0":
            # The first process of the machine says it for all. The launcher ends the others as soon as one has ended,
            # so the others leave it the time to.
            time.sleep(OTHERS_WAIT)
            sys.exit(1)
        sys.exit(f"e1_trl.train: {' '.join(str(error).split())}")
    if script_args.dry_run:
        with recipe.grader:
            if args.process_index == 0:
                print(describe(args, script_args.grader, recipe.settled, recipe.problems, recipe.grader))
        return
    records = (script_args, args, model, mixture)
    train(recipe, resolved(sys.argv[1:] if argv is None else argv, records))


if __name__ == "__main__":
    main()
