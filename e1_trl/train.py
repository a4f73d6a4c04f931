"""Entry point of a training process: a recipe in, a checkpoint out.

    accelerate launch --config_file accelerate_configs/zero2.yaml -m e1_trl.train --config recipes/E1-Math-1.5B.yaml

Every field of the recipe can be overridden on the command line (`--learning_rate 5e-7`), and `--dry_run true` only
shows what would be trained on. Recipe, budget, data, rewards and context length are checked before a model is loaded.
"""

from e1_trl.command_line import run_command
from e1_trl.errors import UserError, user_errors
from e1_trl.logs import route_logs, write_logs
from e1_trl.versions import check_versions

if __name__ == "__main__":
    route_logs()  # before the imports, during which libraries log
    run_command("e1 train", check_versions)  # before imports that another TRL may lack

import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig
from trl import DatasetMixtureConfig, ModelConfig, get_peft_config

from e1_trl.answers.kinds import INSTRUCTION, make_grader
from e1_trl.atomic import claim
from e1_trl.checkpoints import hub
from e1_trl.checkpoints.model_card import BaseModel
from e1_trl.command_line import names_in
from e1_trl.cores import cores
from e1_trl.plan.verdict import verdict
from e1_trl.problems.prompts import MEASURED, last_question
from e1_trl.provenance import FILE as PROVENANCE
from e1_trl.provenance import Provenance
from e1_trl.training.advantages import DIVIDING, make_advantage
from e1_trl.training.beforehand import check_advantage, check_precision
from e1_trl.training.cards import write_cards
from e1_trl.training.config import E1Config, ModelFacts
from e1_trl.training.data import load
from e1_trl.training.dry_run import show
from e1_trl.training.launch import check_batch
from e1_trl.training.lengths import warn_of_scaling
from e1_trl.training.named_rewards import make_rewards
from e1_trl.training.recipe_as_run import E1ScriptArguments, Recipe, fields_of_config, parse_recipe, resolved
from e1_trl.training.resumption import check_output, check_same_adapter, check_same_base, find_checkpoint
from e1_trl.training.rewards import Accuracy
from e1_trl.training.trainer import E1Trainer
from e1_trl.training.validation import BestCheckpoint, Validation, describe_measure

MAX_GRADING_WORKERS = 8
ALL_LAYERS = "all-linear"
NOT_OF_TEXT = r"(?!.*\b(language|text)_model\b).*"  # modules outside the text model, where a model also reads images


def prepare(
    script_args: E1ScriptArguments, args: E1Config, model: ModelConfig, mixture: DatasetMixtureConfig
) -> Recipe:
    """Check a recipe, and load everything but the model."""
    if not model.model_name_or_path:
        raise UserError("the recipe must name a model (model_name_or_path)")
    adapter = make_adapter(args, model)
    checkpoint = find_checkpoint(args, script_args.dry_run)
    if checkpoint is None:
        check_output(Path(args.output_dir), script_args.dry_run)
    else:
        check_same_adapter(Path(checkpoint), adapter)
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # of this node
    workers = max(1, min(MAX_GRADING_WORKERS, cores() // processes))
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
    base = BaseModel.of(model.model_name_or_path, args.model_init_kwargs["revision"])
    if checkpoint is not None:
        check_same_base(Path(checkpoint), base)
    check_precision(args, model.model_name_or_path, adapter)
    with args.main_process_first(desc="preparing the prompts"):
        problems, evaluation = load(script_args, mixture, args, facts.tokenizer, rewards)
    if args.push_to_hub and args.process_index == 0 and not script_args.dry_run:
        hub.reserve(
            args.hub_model_id or Path(args.output_dir).absolute().name, args.hub_private_repo, args.hub_revision
        )
    on_gpu = args.device.type == "cuda"
    card = torch.cuda.get_device_properties(args.device).total_memory if on_gpu else None
    # A dry run on CPUs often previews a training on another machine.
    skip = script_args.skip_memory_check or (script_args.dry_run and card is None)
    said = verdict(args, model, card, skip)
    if said and args.process_index == 0:
        print(said, flush=True)
    # With `data_files`, the path of a mixture's dataset is their format, not a name.
    named = [script_args.dataset_name, *(each.path for each in mixture.datasets if not each.data_files)]
    first = problems[0]["prompt"]
    origin = replace(
        base,
        datasets=tuple(name for name in named if name and not Path(name).exists()),  # the Hub refuses others
        conversations=not isinstance(first, str),
        instruction=script_args.instruction or INSTRUCTION * (INSTRUCTION in last_question(first)),
        chat_template_kwargs=args.chat_template_kwargs or {},
    )
    made = (script_args.answer_type, grader, rewards, advantage)
    return Recipe(args, model, adapter, facts, problems, evaluation, *made, checkpoint, origin)


def make_adapter(args: E1Config, model: ModelConfig) -> Any:
    """Make PEFT's configuration of the recipe's adapter, if it trains one."""
    if (Path(str(model.model_name_or_path)) / "adapter_config.json").exists():
        raise UserError(f"{model.model_name_or_path} holds an adapter; merge it into its base first (docs/sharing.md)")
    if model.load_in_4bit or model.load_in_8bit:
        raise UserError("load_in_4bit and load_in_8bit need bitsandbytes, which vLLM no longer has; unset them")
    if args.disable_dropout:
        model.lora_dropout = 0.0  # PEFT takes no other with target_parameters
    adapter = get_peft_config(model)
    if adapter is not None and adapter.target_modules == ALL_LAYERS:
        name = str(model.model_name_or_path)
        hub = {"revision": model.model_revision, "trust_remote_code": args.trust_remote_code}
        with user_errors(f"the model {name}", OSError, ValueError):
            config = AutoConfig.from_pretrained(name, **hub)
        if config.get_text_config() is not config:
            adapter.exclude_modules = NOT_OF_TEXT
    return adapter


def train(recipe: Recipe, written: dict[str, Any]) -> None:
    """Train and save, and upload once if the recipe says so; `written` is the recipe on the card."""
    args = recipe.args
    problems = recipe.problems
    evaluation = recipe.evaluation
    output = Path(args.output_dir)
    lock = None
    if args.process_index == 0:
        lock = claim(output)
        if recipe.checkpoint is None:  # another training may have written since `prepare` looked
            check_output(output)
        elif find_checkpoint(args) != recipe.checkpoint:
            raise UserError(f"another training wrote into {output} in the meantime; start this one again")
        if args.push_to_hub and args.log_completions:
            hub.keep_from_the_hub(output)
    write_logs(output)
    if recipe.advantage is None and all(isinstance(reward, Accuracy) for reward in recipe.rewards):
        # Spares every process from reading, at every step, columns that no reward needs.
        problems = problems.select_columns(["prompt", "answers", "key", MEASURED])
    is_divided = args.scale_rewards == "group" and getattr(recipe.advantage, "func", None) in (None, *DIVIDING)
    warn_of_scaling(recipe.rewards, args.multi_objective_aggregation, is_divided)
    with recipe.grader:
        trainer = E1Trainer(
            model=recipe.model.model_name_or_path,
            reward_funcs=recipe.rewards,
            args=args,
            train_dataset=problems,
            eval_dataset=evaluation if args.eval_strategy != "no" else None,
            processing_class=recipe.facts.tokenizer,
            advantage=recipe.advantage,
            peft_config=recipe.adapter,
        )
        if args.eval_budgets and evaluation is not None:
            trainer.add_callback(
                Validation(trainer, evaluation, args.evaluation_budgets, recipe.grader, args.eval_samples)
            )
        trainer.add_callback(BestCheckpoint(describe_measure(args, evaluation)))
        pinned = {} if recipe.origin.commit is None else {"model_revision": recipe.origin.commit}
        checkpoint = None if recipe.checkpoint is None else Path(recipe.checkpoint)
        write_cards(trainer, recipe.origin, {**written, **pinned}, checkpoint)
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
            command = hub.upload_command(output, trainer.hub_model_id, args.hub_revision)
            raise UserError(f"{error}; the model is whole in {output}: upload it with {command}") from error
    if lock is not None:
        os.close(lock)


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
