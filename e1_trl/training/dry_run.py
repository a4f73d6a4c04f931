"""What a recipe would train on, as text, for a person to read before hours are spent. Loads no model."""

import math

from e1_trl.answers.grade import Grader
from e1_trl.answers.kinds import kind_of
from e1_trl.problems.prompts import tokenize
from e1_trl.training.config import E1Config, ModelFacts
from e1_trl.training.data import Problems


def steps_of(args: E1Config, prompts: int) -> int:
    """Optimizer steps of a training on so many prompts; TRL leaves out a last generation that is not full."""
    if args.max_steps > 0:
        return args.max_steps
    generations = prompts // (args.generation_batch_size // args.num_generations)
    batches = generations * args.num_iterations * args.steps_per_generation
    steps_per_epoch = max(1, math.ceil(batches / args.gradient_accumulation_steps))
    return math.ceil(args.num_train_epochs * steps_per_epoch)


def describe(args: E1Config, kind: str, facts: ModelFacts, problems: Problems, grader: Grader) -> str:
    """The first prompt, the marker, the budgets, a gold answer graded right and wrong, and the size of the training.

    `kind` names what answers are; `grader` grades as the accuracy reward does.
    """
    tokenizer, marker = facts.tokenizer, facts.close.marker
    first = problems.train[0]
    ids = tokenize(tokenizer, first["prompt"], args.chat_template_kwargs or {})
    rollouts = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
    evaluated = "none" if problems.evaluation is None else f"{len(problems.evaluation)} prompts"
    return "\n".join(
        [
            f"first prompt, {len(ids)} tokens, between the lines:",
            "-" * 80,
            tokenizer.decode(ids),
            "-" * 80,
            f"its ids          {ids}",
            f"marker           {marker.text!r} = {list(marker.ids)}",
            f"forced text      {tokenizer.decode(marker.forced_ids)!r} = {list(marker.forced_ids)}, "
            + (f"closed by the first {marker.close_tokens}" if marker.close_tokens else "which holds no marker"),
            f"budget           {args.budgets} tokens: completions of up to {facts.completion}",
            f"context          {facts.close.context} tokens, of which prompts take up to {args.max_prompt_length}",
            *kind_of(kind).show(first, grader),
            f"training         {len(problems.train)} prompts, {steps_of(args, len(problems.train))} steps",
            f"a step           {rollouts} rollouts: {args.per_device_train_batch_size} per device x "
            f"{args.gradient_accumulation_steps} accumulated x {args.world_size} processes",
            f"a generation     {args.generation_batch_size // args.num_generations} prompts x {args.num_generations} "
            f"rollouts, for {args.generation_batch_size * args.num_iterations / rollouts:g} steps",
            f"evaluation       {evaluated}" + "".join(f", {budget}" for budget in args.evaluation_budgets),
        ]
    )
