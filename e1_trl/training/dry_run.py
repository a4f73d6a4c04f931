"""Dry run of a recipe: prints what it would train on, for a person to read before hours are spent. Loads no model."""

import asyncio
import inspect
import math
from array import array
from dataclasses import astuple
from typing import Any

from datasets import Dataset
from torch import nn
from transformers import TrainerState

from e1_trl.errors import UserError
from e1_trl.problems.prompts import tokenize
from e1_trl.problems.selection import SHORT, explain_loss
from e1_trl.problems.trials import TRIED, Trials, describe_prompt
from e1_trl.rollout import Completion, ThinkingEnd
from e1_trl.training.budgets import RolloutKey, key_of
from e1_trl.training.config import E1Config
from e1_trl.training.groups import GroupReward
from e1_trl.training.progress import columns_of
from e1_trl.training.recipe_as_run import Recipe
from e1_trl.training.rewards import name_of


def show(recipe: Recipe) -> None:
    """Print what would be trained on, then try the first prompts, accepted answers and rewards."""
    trials = Trials.run(recipe.problems, recipe.kind, recipe.grader)
    print(describe(recipe, trials), flush=True)
    tokenizer = recipe.facts.tokenizer
    for at in range(min(TRIED, len(recipe.problems))):
        prompt = recipe.problems[at]["prompt"]
        ids = tokenize(tokenizer, prompt, recipe.args.chat_template_kwargs or {})
        if lost := explain_loss(tokenizer, prompt, ids):
            raise UserError(f"problem {at}: {lost}")
    trials.check()
    print(f"they give        {try_rewards(recipe, trials)}", flush=True)


def try_rewards(recipe: Recipe, trials: Trials) -> str:
    """Call the rewards as a training does, and say what each gives the first problem's trials, else an empty solution.

    The thinking in front of the trials is empty, and closed by the model. Reward models and group rewards are skipped.
    """
    args = recipe.args
    tokenizer = recipe.facts.tokenizer
    row = recipe.problems[0]
    solutions = [trial.solution for trial in trials.of_first] or [""]
    close = recipe.facts.thinking_close.marker.ids
    completions = []
    for solution in solutions:
        ids = tokenizer.encode(solution, add_special_tokens=False)
        ended = (ThinkingEnd.CLOSED, len(close), 0, 0, len(ids), False)
        completions.append(Completion(array("i", [*close, *ids]), *ended))
    budget = args.budgets.at(RolloutKey(args.seed, (True, 0, 1), key_of(row), 0))
    columns: dict[str, Any] = {name: [value] * len(solutions) for name, value in row.items()}
    columns |= {"solution_text": solutions, **columns_of(completions, [budget] * len(solutions))}
    completion_ids = [each.token_ids.tolist() for each in completions]
    texts = tokenizer.batch_decode(completion_ids)
    is_chat = not isinstance(row["prompt"], str)
    columns["completions"] = [[{"role": "assistant", "content": text}] for text in texts] if is_chat else texts
    columns |= {"prompts": columns.pop("prompt"), "completion_ids": completion_ids, "trainer_state": TrainerState()}
    columns |= {"log_extra": lambda *_: None, "log_metric": lambda *_: None}
    found = []
    for reward in recipe.rewards:
        if isinstance(reward, str | nn.Module | GroupReward):
            found.append(f"{reward if isinstance(reward, str) else name_of(reward)} is not tried")
            continue
        values = reward(**columns)
        values = list(asyncio.run(values) if inspect.iscoroutine(values) else values)
        if len(values) != len(solutions) or not all(each is None or hasattr(each, "__float__") for each in values):
            raise UserError(
                f"the reward {name_of(reward)} gives {SHORT.repr(values)} for {len(solutions)} completions; it must "
                "give a number, or None, for each"
            )
        found.append(f"{name_of(reward)} {', '.join('none' if each is None else f'{each:g}' for each in values)}")
    sizes = " and ".join(str(each.solution_tokens) for each in completions)
    return f"{'; '.join(found)} ({sizes} solution tokens, no thinking)"


def steps_of(args: E1Config, prompts: int) -> int:
    """Return the optimizer steps of a training on this number of prompts; TRL drops a last partial generation."""
    if args.max_steps > 0:
        return args.max_steps
    generations = prompts // (args.generation_batch_size // args.num_generations)
    batches = generations * args.num_iterations * args.steps_per_generation
    steps_per_epoch = max(1, math.ceil(batches / args.gradient_accumulation_steps))
    return math.ceil(args.num_train_epochs * steps_per_epoch)


def at_steps(args: E1Config, problems: Dataset) -> str:
    """Format a scheduled budget, of each fork, at the first, middle and last step, over the first problems."""
    steps = steps_of(args, len(problems))
    budgets = args.budgets
    keys = [key_of(row) for row in problems.select(range(min(TRIED, len(problems))))]

    def at(step: int, fork: int) -> str:
        rows = range(fork, len(keys) * budgets.forks, budgets.forks)
        found = {
            budgets.at(RolloutKey(args.seed, (True, step, 1), key, row)) for key, row in zip(keys, rows, strict=True)
        }
        ends = sorted(found, key=lambda budget: [math.inf if part is None else part for part in astuple(budget)])
        return " to ".join(dict.fromkeys(map(str, (ends[0], ends[-1]))))

    shown = dict.fromkeys((0, steps // 2, steps - 1))
    return ", ".join(
        f"{' and '.join(at(step, fork) for fork in range(budgets.forks))} at step {step}" for step in shown
    )


def describe(recipe: Recipe, trials: Trials) -> str:
    """Describe first prompt, marker, budgets, rewards, grades of the first trials, and the size of the training."""
    args = recipe.args
    facts = recipe.facts
    problems = recipe.problems
    ids = tokenize(facts.tokenizer, problems[0]["prompt"], args.chat_template_kwargs or {})
    rollouts = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
    names = [reward if isinstance(reward, str) else name_of(reward) for reward in recipe.rewards]
    evaluated = "none" if recipe.evaluation is None else f"{len(recipe.evaluation)} prompts"
    return "\n".join(
        [
            *describe_prompt(facts.tokenizer.decode, ids, facts.thinking_close.marker, recipe.kind),
            f"budget           {args.budgets} tokens: completions of up to {facts.completion}",
            *([] if args.budgets.fixed else [f"of a rollout     {at_steps(args, problems)}"]),
            f"context          {facts.thinking_close.context} tokens, with prompts of up to {args.max_prompt_length}",
            *trials.describe(),
            f"rewards          {', '.join(map('{} x {:g}'.format, names, args.reward_weights or [1.0] * len(names)))}",
            *([] if recipe.advantage is None else [f"advantage        {name_of(recipe.advantage)}"]),
            f"training         {len(problems)} prompts, {steps_of(args, len(problems))} steps",
            f"a step           {rollouts} rollouts: {args.per_device_train_batch_size} per device x "
            f"{args.gradient_accumulation_steps} accumulated x {args.world_size} processes",
            f"a generation     {args.generation_batch_size // args.num_generations} prompts x {args.num_generations} "
            f"rollouts, for {args.generation_batch_size * args.num_iterations / rollouts:g} steps",
            f"evaluation       {evaluated}" + "".join(f", {budget}" for budget in args.evaluation_budgets),
        ]
    )
