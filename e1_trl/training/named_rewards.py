"""Rewards by name: ours, TRL's, and the user's at a dotted path, made with a recipe's arguments."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trl.rewards import (
    accuracy_reward,
    get_cosine_scaled_reward,
    get_repetition_penalty_reward,
    get_soft_overlong_punishment,
    reasoning_accuracy_reward,
    think_format_reward,
)

from e1_trl.answers.grade import Grader
from e1_trl.answers.mathematics.boxes import BOX_OPENING, boxed_answer
from e1_trl.arguments import find
from e1_trl.errors import UserError, one_line
from e1_trl.rollout import ThinkingEnd
from e1_trl.training.lengths import LENGTH_REWARDS
from e1_trl.training.rewards import Accuracy, Reward


def format_reward(
    *, solution_text: Sequence[str], thinking_end: Sequence[str], solution_truncated: Sequence[bool], **_: Any
) -> list[float]:
    r"""1.0 for a finished solution with exactly one box, which is closed and not empty, else 0.0."""
    return [
        float(
            end != ThinkingEnd.EOS
            and not truncated
            and len(BOX_OPENING.findall(text)) == 1
            and bool(boxed_answer(text))
        )
        for text, end, truncated in zip(solution_text, thinking_end, solution_truncated, strict=True)
    ]


format_reward.__name__ = "format"  # TRL logs it under this name

# Names and numbers of TRL's own training script, trl/scripts/grpo.py.
TRLS_REWARDS: dict[str, Reward] = {
    "accuracy_reward": accuracy_reward,
    "reasoning_accuracy_reward": reasoning_accuracy_reward,
    "think_format_reward": think_format_reward,
    "get_soft_overlong_punishment": get_soft_overlong_punishment(max_completion_len=1280, soft_punish_cache=256),
}
TRLS_FACTORIES: dict[str, Callable[..., Reward]] = {
    factory.__name__: factory
    for factory in (get_cosine_scaled_reward, get_repetition_penalty_reward, get_soft_overlong_punishment)
}


def make_rewards(
    specs: Sequence[str | Mapping[str, Any]], weights: Sequence[float] | None, grader: Grader
) -> list[Reward]:
    """Make the rewards of a recipe, in its order.

    Args:
        specs: names or dotted paths, or mappings of `name` and arguments, with which the named object is called to
            return the reward (`{name: laser, target: 4096}`). Classes are called in any case.
        weights: one for each, or None.
        grader: grades for the reward `accuracy`.
    """
    if weights is not None and len(weights) != len(specs):
        raise UserError(
            f"reward_weights has {len(weights)} values for the {len(specs)} rewards {', '.join(map(str, specs))}"
        )
    ready = {"accuracy": Accuracy(grader), "format": format_reward, **TRLS_REWARDS, **LENGTH_REWARDS}
    factories = {**LENGTH_REWARDS, **TRLS_FACTORIES}
    rewards = []
    for spec in specs:
        arguments = {"name": spec} if isinstance(spec, str) else dict(spec)
        if "name" not in arguments:
            raise UserError(f"the reward {spec} has no name; write {{name: my_rewards.short, tokens: 256}}")
        name = str(arguments.pop("name"))
        found: Any = find(name, ready if isinstance(spec, str) else factories, "reward")
        if isinstance(spec, Mapping) or name in LENGTH_REWARDS or isinstance(found, type):
            try:
                found = found(**arguments)
            except Exception as error:  # whatever a factory of the user's raises
                raise UserError(f"the reward {name} cannot be made with {arguments}: {one_line(error)}") from error
        rewards.append(found)
    return rewards
