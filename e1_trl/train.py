"""Entry point of a training process: a recipe in, a checkpoint out.

    accelerate launch --config_file accelerate_configs/zero2.yaml -m e1_trl.train --config recipes/E1-Math-1.5B.yaml

Every field of the recipe can be overridden on the command line (`--learning_rate 5e-7`), and `--dry_run true` only
shows what would be trained on. Recipe, budget, data, rewards and context length are checked before a model is loaded.
"""

from e1_trl.errors import UserError, run_command
from e1_trl.logs import route_logs, write_logs
from e1_trl.versions import check_versions

if __name__ == "__main__":
    route_logs()  # in front of imports, during which libraries log
    run_command("e1 train", check_versions)  # in front of those that another TRL may not have

import contextlib
import itertools
import logging
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import requests
import torch
from transformers import TrainerState
from transformers.trainer import SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import DatasetMixtureConfig, ModelConfig, get_peft_config, get_quantization_config

from e1_trl.answers.kinds import INSTRUCTION, make_grader
from e1_trl.checkpoints import hub
from e1_trl.checkpoints.model_card import BaseModel
from e1_trl.command_line import names_in
from e1_trl.plan.verdict import verdict
from e1_trl.problems.prompts import MEASURED, last_question
from e1_trl.provenance import FILE as PROVENANCE
from e1_trl.provenance import Provenance
from e1_trl.training.advantages import make_advantage
from e1_trl.training.beforehand import check_advantage, check_precision
from e1_trl.training.budgets import key_of
from e1_trl.training.callbacks import RewardState
from e1_trl.training.cards import write_cards
from e1_trl.training.config import E1Config, ModelFacts
from e1_trl.training.data import load
from e1_trl.training.dry_run import show
from e1_trl.training.launch import check_batch
from e1_trl.training.lengths import warn_of_scaling
from e1_trl.training.named_rewards import make_rewards
from e1_trl.training.recipe_as_run import E1ScriptArguments, Recipe, fields_of_config, parse_recipe, resolved
from e1_trl.training.rewards import Accuracy
from e1_trl.training.trainer import E1Trainer
from e1_trl.training.validation import BestCheckpoint, Validation

logger = logging.getLogger("e1_trl.train")  # not `__name__`, which is `__main__` in a program

MAX_GRADING_WORKERS = 8


def prepare(
    script_args: E1ScriptArguments, args: E1Config, model: ModelConfig, mixture: DatasetMixtureConfig
) -> Recipe:
    """Check a recipe, and load everything but the model.

    Raises:
        UserError: one line about what is wrong, where, and what would be right.
    """
    if not model.model_name_or_path:
        raise UserError("the recipe must name a model (model_name_or_path)")
    checkpoint = find_checkpoint(args, script_args.dry_run)
    if checkpoint is None:
        check_output(Path(args.output_dir), script_args.dry_run)
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # of this node
    workers = max(1, min(MAX_GRADING_WORKERS, len(os.sched_getaffinity(0)) // processes))
    grader = make_grader(script_args, workers)
    rewards = make_rewards(script_args.reward_funcs, args.reward_weights, grader)
    advantage = make_advantage(script_args.advantage, args)
    check_advantage(args, advantage, rewards)
    args.model_init_kwargs = {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **(args.model_init_kwargs or {}),
    }
    facts = ModelFacts.of(args, model.model_name_or_path)
    check_precision(args, model.model_name_or_path, model.use_peft)
    if args.vllm_mode == "server" and args.process_index == 0:
        find_server(args, model.model_name_or_path, facts.thinking_close.context, script_args.dry_run)
    with args.main_process_first(desc="preparing the prompts"):
        problems, evaluation = load(script_args, mixture, args, facts.tokenizer, rewards)
    if checkpoint is not None:
        RewardState(rewards).check(checkpoint, set(map(key_of, problems)))
    if args.push_to_hub and args.process_index == 0:
        hub.reserve(args.hub_model_id or Path(args.output_dir).resolve().name, args.hub_private_repo, args.hub_revision)
    on_gpu = args.device.type == "cuda"
    card = torch.cuda.get_device_properties(args.device).total_memory if on_gpu else None
    # A dry run on CPUs often stands for a training on another machine.
    skip = script_args.skip_memory_check or (script_args.dry_run and card is None)
    said = verdict(args, model, card, skip)
    if said and args.process_index == 0:
        print(said, flush=True)
    named = [script_args.dataset_name, *(each.path for each in mixture.datasets)]
    first = problems[0]["prompt"]
    origin = replace(
        BaseModel.of(model.model_name_or_path, args.model_init_kwargs["revision"]),
        datasets=tuple(name for name in named if name and not Path(name).exists()),  # the Hub refuses others
        conversations=not isinstance(first, str),
        instruction=script_args.instruction or INSTRUCTION * (INSTRUCTION in last_question(first)),
        chat_template_kwargs=args.chat_template_kwargs or {},
    )
    made = (script_args.answer_type, grader, rewards, advantage)
    return Recipe(args, model, facts, problems, evaluation, *made, checkpoint, origin)


def find_checkpoint(args: E1Config, dry_run: bool = False) -> str | None:
    """Find the whole checkpoint to resume from, named or the last of `output_dir`; `None` to begin anew.

    A dry run may stand for other processes, and a finished training needs no optimizer without DeepSpeed, so neither is
    asked for it.

    Raises:
        UserError: there is no whole checkpoint (but for `auto`), or a later one, or it is not one to resume from with
            these processes.
    """
    named = str(args.resume_from_checkpoint)  # text where it comes from a command line
    if named.lower() in ("none", "false"):
        return None
    numbered = [*Path(args.output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*")]
    whole = [each for each in numbered if each.name.rpartition("-")[2].isdecimal() and step_of(each)]
    last = max(whole, key=step_of, default=None)
    if last is None and named.lower() == "auto":
        return None
    folder = last if named.lower() in ("true", "auto") else Path(named)
    if folder is None or not step_of(folder):
        where = args.output_dir if folder is None else named
        raise UserError(
            f"{where} holds no whole checkpoint (with {TRAINER_STATE_NAME}) to resume from; name another one"
        )
    if last is not None and step_of(last) > step_of(folder):
        raise UserError(
            f"{last} is later than {folder}: go on from it with --resume_from_checkpoint true, or, if it is of an "
            "earlier run, move it away or name another output_dir"
        )
    finished = 0 < args.max_steps <= step_of(folder) and args.deepspeed_plugin is None  # which always loads it
    if not dry_run and not finished:
        check_state(folder, args)
    return str(folder)


def step_of(checkpoint: Path) -> int:
    """Return the steps before a checkpoint, or 0 if it is not whole: a run writes the trainer's state last."""
    with contextlib.suppress(OSError, ValueError, TypeError):  # also that of another version
        return TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME)).global_step
    return 0


def check_state(checkpoint: Path, args: E1Config) -> None:
    """Raise a `UserError` if a checkpoint lacks what a training resumes from.

    That is its optimizer, of as many of DeepSpeed's processes, and the reference model if the recipe moves it.
    """
    if args.sync_ref_model and args.beta:
        raise UserError(
            "sync_ref_model is true: a resumed training would begin again with the base as its reference, since no "
            "checkpoint holds one; train without it, or in one go"
        )
    shares = len([*checkpoint.glob("global_step*/*_optim_states.pt")])
    remedy = "train from its weights as a new model (model_name_or_path)"
    if shares and shares != args.world_size:
        raise UserError(
            f"{checkpoint} is of {shares} processes (its DeepSpeed optimizer states), and {args.world_size} would "
            f"resume it; launch with --num_processes {shares}, or {remedy}"
        )
    needed = ["optimizer*", SCHEDULER_NAME] if args.deepspeed_plugin is None else ["global_step*"]
    if missing := [name for name in needed if not any(checkpoint.glob(name))]:
        raise UserError(
            f"{checkpoint} holds no {missing[0]}, so Adam's moments or the schedule would begin again: it was saved "
            f"with save_only_model, or with{'out' * bool(args.deepspeed_plugin)} DeepSpeed; {remedy}"
        )


def check_output(output: Path, dry_run: bool = False) -> None:
    """Raise a `UserError` if the folder holds the state of a training or checkpoint; warn in a dry run."""
    states = [output / TRAINER_STATE_NAME, *sorted(output.glob(f"{PREFIX_CHECKPOINT_DIR}-*/{TRAINER_STATE_NAME}"))]
    if (found := next((state for state in states if state.exists()), None)) is None:
        return
    said = (
        f"output_dir {output} holds an earlier run ({found.relative_to(output)}): resume it with "
        "--resume_from_checkpoint true, name another output_dir, or remove this one"
    )
    if not dry_run:
        raise UserError(said)
    logger.warning("%s; otherwise no training begins here", said)


def find_server(args: E1Config, model: str, context: int, dry_run: bool) -> None:
    """Wait `vllm_server_timeout` seconds for the server, before anything loads; in a dry run only warn.

    Raises:
        UserError: it does not answer; says how to start it.
    """
    url = args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"
    said = f"no server answers at {url}; start it with: trl vllm-serve --model {model} --max-model-len {context}"
    deadline = time.monotonic() + args.vllm_server_timeout
    for tries in itertools.count():
        with contextlib.suppress(requests.RequestException):  # as TRL asks, with its proxies and certificates
            if requests.get(f"{url}/health", timeout=10).ok:
                return
        if tries == 0:
            logger.warning("%s%s", said, f"; waiting up to {args.vllm_server_timeout:g} s" * (not dry_run))
        if dry_run:
            return
        if time.monotonic() >= deadline:
            raise UserError(said)
        time.sleep(2)


def train(recipe: Recipe, written: dict[str, Any]) -> None:
    """Train, save, and upload once if the recipe says so, with the recipe as `written` on the card.

    Raises:
        UserError: the upload failed; says where the model is.
    """
    args = recipe.args
    problems = recipe.problems
    evaluation = recipe.evaluation
    output = Path(args.output_dir)
    write_logs(output)
    if args.push_to_hub and args.log_completions and args.process_index == 0:
        hub.keep_from_the_hub(output)
    if recipe.advantage is None and all(isinstance(reward, Accuracy) for reward in recipe.rewards):
        # Saves every process from reading columns that no reward needs at every step.
        problems = problems.select_columns(["prompt", "answers", "key", MEASURED])
    if recipe.advantage is None:
        warn_of_scaling(recipe.rewards, args.scale_rewards, args.multi_objective_aggregation)
    with recipe.grader:
        trainer = E1Trainer(
            model=recipe.model.model_name_or_path,
            reward_funcs=recipe.rewards,
            args=args,
            train_dataset=problems,
            eval_dataset=evaluation if args.eval_strategy != "no" else None,
            processing_class=recipe.facts.tokenizer,
            advantage=recipe.advantage,
            quantization_config=get_quantization_config(recipe.model),
            peft_config=get_peft_config(recipe.model),
        )
        if args.eval_budgets and evaluation is not None:
            trainer.add_callback(
                Validation(trainer, evaluation, args.evaluation_budgets, recipe.grader, args.eval_samples)
            )
        trainer.add_callback(BestCheckpoint())
        pinned = {} if recipe.origin.commit is None else {"model_revision": recipe.origin.commit}
        step = 0 if recipe.checkpoint is None else step_of(Path(recipe.checkpoint))
        write_cards(trainer, recipe.origin, {**written, **pinned}, step)
        trainer.create_model_card()  # else PEFT saves one of its own
        resumed = recipe.checkpoint is not None and (output / PROVENANCE).exists()
        if trainer.is_world_process_zero() and not resumed:  # a resumed run may only upload
            Provenance.here([args.seed]).write(output)
        trainer.train(resume_from_checkpoint=recipe.checkpoint)
    trainer.save_state()
    trainer.save_model(_internal_call=True)  # without TRL's upload
    trainer.create_model_card()
    if args.push_to_hub and trainer.is_world_process_zero():
        try:
            hub.push(output, trainer.hub_model_id, args.hub_revision)
        except UserError as error:
            raise UserError(
                f"{error}; the model is whole in {output}: the same command with --resume_from_checkpoint true "
                "uploads it, without training"
            ) from error


def main(argv: list[str] | None = None) -> None:
    """Train the recipe that `argv` (default: the command line) names."""
    argv = sys.argv[1:] if argv is None else argv
    script_args, args, model, mixture = parse_recipe(argv)
    if args.process_index != 0:
        logging.getLogger("e1_trl").setLevel(logging.ERROR)  # the main process warns for all
    if not script_args.dry_run:
        check_batch(fields_of_config(argv), args.world_size, names_in(argv))
    recipe = prepare(script_args, args, model, mixture)
    if script_args.dry_run:
        with recipe.grader:
            if args.process_index == 0:
                show(recipe)
        return
    train(recipe, resolved(argv, (script_args, args, model, mixture)))


if __name__ == "__main__":
    run_command("e1 train", main)
