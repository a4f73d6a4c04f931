"""Dry run of a recipe: prints what it would train on, for a person to read before hours are spent. Loads no model."""

import asyncio
import inspect
import math
from array import array
from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from torch import nn
from transformers import TrainerState

from e1_trl.answers.grade import Grade, Trial
from e1_trl.errors import UserError
from e1_trl.marker import PromptState
from e1_trl.problems.prompts import tokenize
from e1_trl.problems.selection import SHORT, explain_loss
from e1_trl.rollout import Completion, ThinkingEnd
from e1_trl.training.budgets import RolloutKey, key_of
from e1_trl.training.config import E1Config
from e1_trl.training.groups import GroupReward
from e1_trl.training.progress import columns_of
from e1_trl.training.recipe_as_run import Recipe
from e1_trl.training.rewards import name_of

OPENS = {
    PromptState.OPENED: "opened by the prompt",
    PromptState.NOTHING: "opened by the model, if at all",
    PromptState.CLOSED: "closed by the prompt",
}
TRIED = 16  # problems whose prompts and accepted answers are tried

Tried = Sequence[tuple[int, Trial, Grade]]  # number of a problem, trial, and its grade


def show(recipe: Recipe) -> None:
    """Print what would be trained on, then try the first prompts, accepted answers and rewards as is said below."""
    tried = try_answers(recipe)
    print(describe(recipe, tried), flush=True)
    check_prompts(recipe)
    check_answers(recipe, tried)
    if given := try_rewards(recipe, tried):
        print(f"they give        {'; '.join(given)}", flush=True)


def try_answers(recipe: Recipe) -> Tried:
    """Grade trials of the accepted answers of the first problems."""
    problems = recipe.problems
    rows = list(problems.select(range(min(TRIED, len(problems)))))
    trials = [(at, trial) for at, row in enumerate(rows) for trial in recipe.kind.trials(row)]
    grades = recipe.grader.grade([trial.solution for _, trial in trials], [rows[at]["answers"] for at, _ in trials])
    return [(at, trial, grade) for (at, trial), grade in zip(trials, grades, strict=True)]


def try_rewards(recipe: Recipe, tried: Tried) -> list[str]:
    """Call the rewards as a training does, and say what each gives to the first problem's trials, or an empty solution.

    The thinking in front of the trials is empty, and closed by the model. Models and rewards of groups are not called.

    Raises:
        Exception: a reward raised it.
        UserError: a reward does not give a number, or None, for each trial.
    """
    args = recipe.args
    tokenizer = recipe.facts.tokenizer
    row = recipe.problems[0]
    solutions = [trial.solution for at, trial, _ in tried if at == 0] or [""]
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
            continue
        values = reward(**columns)
        values = list(asyncio.run(values) if inspect.iscoroutine(values) else values)
        if len(values) != len(solutions) or not all(each is None or hasattr(each, "__float__") for each in values):
            raise UserError(
                f"the reward {name_of(reward)} gives {SHORT.repr(values)} for {len(solutions)} completions; it must "
                "give a number, or None, for each"
            )
        found.append(f"{name_of(reward)} {', '.join('none' if each is None else f'{each:g}' for each in values)}")
    return found


def check_prompts(recipe: Recipe) -> None:
    """Raise a `UserError` if a first prompt, decoded from its token ids, no longer holds its question."""
    tokenizer = recipe.facts.tokenizer
    problems = recipe.problems
    for at in range(min(TRIED, len(problems))):
        prompt = problems[at]["prompt"]
        ids = tokenize(tokenizer, prompt, recipe.args.chat_template_kwargs or {})
        if lost := explain_loss(tokenizer, prompt, ids):
            raise UserError(f"problem {at}: {lost}")


def check_answers(recipe: Recipe, tried: Tried) -> None:
    """Raise a `UserError` if the first accepted answer is not right for itself, or most trials are graded wrongly."""
    faults = {
        at: f"{trial.name} is {grade.outcome} for {SHORT.repr(recipe.problems[at]['answers'])}"
        for at, trial, grade in tried
        if grade.correct != trial.right
    }
    is_first_wrong = any(trial.right and not grade.correct for _, trial, grade in tried[:1])
    if is_first_wrong or 2 * len(faults) > len({at for at, _, _ in tried}):
        raise UserError(
            f"accepted answers are not graded as they should be: {'; '.join(list(faults.values())[:3])}; one must be "
            f"{recipe.kind.wanted}"
        )


def steps_of(args: E1Config, prompts: int) -> int:
    """Return the optimizer steps of a training on this number of prompts; TRL drops a last partial generation."""
    if args.max_steps > 0:
        return args.max_steps
    generations = prompts // (args.generation_batch_size // args.num_generations)
    batches = generations * args.num_iterations * args.steps_per_generation
    steps_per_epoch = max(1, math.ceil(batches / args.gradient_accumulation_steps))
    return math.ceil(args.num_train_epochs * steps_per_epoch)


def at_steps(args: E1Config, problems: Dataset) -> str:
    """Format a scheduled budget, of each fork, at the first, middle and last step, for the first problem.

    Raises:
        UserError: a schedule of the user's gives no budget at one of these steps.
    """
    steps = steps_of(args, len(problems))
    key = key_of(problems[0])
    budgets = args.budgets

    def forks_at(step: int) -> str:
        keys = [RolloutKey(args.seed, (True, step, 1), key, row) for row in range(budgets.forks)]
        return " and ".join(str(budgets.at(key)) for key in keys)

    return ", ".join(f"{forks_at(step)} at step {step}" for step in dict.fromkeys((0, steps // 2, steps - 1)))


def describe(recipe: Recipe, tried: Tried) -> str:
    """Describe first prompt, marker, budgets, rewards, grades of the first trials, and the size of the training."""
    args = recipe.args
    facts = recipe.facts
    problems = recipe.problems
    tokenizer = facts.tokenizer
    marker = facts.thinking_close.marker
    first = problems[0]
    ids = tokenize(tokenizer, first["prompt"], args.chat_template_kwargs or {})
    rollouts = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
    text = tokenizer.decode(ids)
    asks = [f"asks for a box   {'yes' if 'boxed' in text else 'no'}; only a box is graded"] * recipe.kind.boxed
    graded = [f"{trial.name} is {grade.outcome}{_read_as(grade)}" for at, trial, grade in tried if at == 0]
    names = [reward if isinstance(reward, str) else name_of(reward) for reward in recipe.rewards]
    evaluated = "none" if recipe.evaluation is None else f"{len(recipe.evaluation)} prompts"
    return "\n".join(
        [
            f"first prompt, {len(ids)} tokens, between the lines:",
            "-" * 80,
            text,
            "-" * 80,
            f"its ids          {ids}",
            *asks,
            f"thinking         {OPENS[marker.state_of(ids)]}",
            f"marker           {marker.text!r} = {list(marker.ids)}",
            f"forced text      {tokenizer.decode(marker.forced_ids)!r} = {list(marker.forced_ids)}, "
            + (f"closed by the first {marker.close_tokens}" if marker.close_tokens else "which holds no marker"),
            f"budget           {args.budgets} tokens: completions of up to {facts.completion}",
            *([] if args.budgets.fixed else [f"of a rollout     {at_steps(args, problems)}"]),
            f"context          {facts.thinking_close.context} tokens, with prompts of up to {args.max_prompt_length}",
            recipe.kind.show(first),
            f"graded           {'; '.join(graded) or 'nothing'}",
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


def _read_as(grade: Grade) -> str:
    return "" if grade.value in (None, grade.answer) else f" (read as {grade.value})"
