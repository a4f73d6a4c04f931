"""Rewards that a recipe names: ours, TRL's, or those at a dotted path, made with the recipe's arguments."""

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
from e1_trl.errors import UserError
from e1_trl.named import find
from e1_trl.rollout import ThinkingEnd
from e1_trl.training.lengths import LENGTH_REWARDS
from e1_trl.training.rewards import Accuracy, Reward


def format_reward(
    *, solution_text: Sequence[str], thinking_end: Sequence[str], solution_truncated: Sequence[bool], **_: Any
) -> list[float]:
    r"""1.0 for a solution that ended by itself and holds one box, which is closed and not empty, else 0.0."""
    return [
        float(
            end != ThinkingEnd.EOS
            and not truncated
            and len(BOX_OPENING.findall(text)) == 1
            and bool(boxed_answer(text))
        )
        for text, end, truncated in zip(solution_text, thinking_end, solution_truncated, strict=True)
    ]


format_reward.__name__ = "format"  # what TRL logs it under

# The names in TRL's own training script, trl/scripts/grpo.py, with its numbers.
TRLS_REWARDS: dict[str, Reward] = {
    "accuracy_reward": accuracy_reward,
    "reasoning_accuracy_reward": reasoning_accuracy_reward,
    "think_format_reward": think_format_reward,
    "get_soft_overlong_punishment": get_soft_overlong_punishment(max_completion_len=1280, soft_punish_cache=256),
}
# TRL's that take arguments; what makes one has its own name.
TRLS_FACTORIES: dict[str, Callable[..., Reward]] = {
    factory.__name__: factory
    for factory in (get_cosine_scaled_reward, get_repetition_penalty_reward, get_soft_overlong_punishment)
}


def make_rewards(
    specs: Sequence[str | Mapping[str, Any]], weights: Sequence[float] | None, grader: Grader
) -> list[Reward]:
    """The rewards of a recipe, in its order.

    Args:
        specs: each a name, which may be a dotted path to import from, the working directory included; or a mapping of
            `name` and arguments, with which what is named is called, to return the reward, as our length rewards
            (`{name: laser, target: 4096}`) and TRL's factories (`{name: get_cosine_scaled_reward, max_len: 1280}`) do.
        weights: one for each, or None.
        grader: of the reward `accuracy`.

    Raises:
        UserError: a reward is unknown, cannot be imported or made, or there are not as many weights.
    """
    if weights is not None and len(weights) != len(specs):
        raise UserError(
            f"reward_weights has {len(weights)} values for the {len(specs)} rewards {', '.join(map(str, specs))}"
        )
    known: dict[str, Reward] = {"accuracy": Accuracy(grader), "format": format_reward, **TRLS_REWARDS}
    factories = {**LENGTH_REWARDS, **TRLS_FACTORIES}
    rewards = []
    for spec in specs:
        is_named = isinstance(spec, str) and spec not in LENGTH_REWARDS
        found = find(str(spec), {**known, **LENGTH_REWARDS}, "reward") if is_named else type
        # A class, as a `GroupReward` is, is made, with or without arguments.
        rewards.append(make(spec, factories, "reward") if isinstance(found, type) else found)
    return rewards


def make(spec: str | Mapping[str, Any], known: Mapping[str, Any], what: str) -> Any:
    """Call what a name, or the `name` of a mapping, stands for, with the mapping's other entries.

    Raises:
        UserError: there is none, or it cannot be made so; it is neither text nor a mapping.
    """
    if not isinstance(spec, str | Mapping):
        raise UserError(f"{what} is {spec!r}; it must be a name, or a mapping of name and arguments")
    arguments = {} if isinstance(spec, str) else {field: value for field, value in spec.items() if field != "name"}
    name = spec if isinstance(spec, str) else str(spec.get("name"))
    factory = find(name, known, what)
    try:
        return factory(**arguments)
    except Exception as error:  # whatever that does
        raise UserError(f"the {what} {name} cannot be made with {arguments}: {error}") from error
