"""Advantages of other systems in place of GRPO's, each a formula over a group.

A recipe names one as `advantage: lead`, or with arguments, as `advantage: {name: gfpo, keep: 4}`. Each returns a number
for every rollout, or one for its thinking and one for its solution. A token of a forked thought is part of every fork
whose budget reaches it, so it is trained with the sum of these forks' advantages.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean, stdev
from typing import Any

from e1_trl.arguments import find, from_yaml
from e1_trl.errors import UserError, one_line
from e1_trl.problems.prompts import identity
from e1_trl.rollout import ThinkingEnd
from e1_trl.training.budgets import FORMS, nested
from e1_trl.training.config import E1Config
from e1_trl.training.groups import Advantage, Group, advantages_of
from e1_trl.training.rewards import Accuracy, Reward

Rewards = Sequence[float]


def grpo(group: Group, rewards: Rewards) -> list[float]:
    """GRPO as TRL computes it: rewards minus their mean, in standard deviations."""
    graded = [reward for reward in rewards if not math.isnan(reward)]
    spread = stdev(graded) if len(graded) > 1 else 0.0
    return [(reward - fmean(graded)) / (spread + 1e-4) for reward in rewards] if graded else [*rewards]


def lead(group: Group, rewards: Rewards) -> list[float]:
    """GRPO-LEAD (arXiv 2504.09696): larger for the rarer outcome of a group, right among wrong or wrong among right."""

    def weight(share: float) -> float:
        return 0.4 + 1.1 / (1 + math.exp(10 * (share - 0.75)))

    return [z * weight(group.solved if z > 0 else 1 - group.solved) for z in grpo(group, rewards)]


def mgpo(group: Group, rewards: Rewards, weight: float = 1.3) -> list[float]:
    """MGPO (VibeThinker's report, 3.4): smaller for groups whose solve rate is far from one half.

    The weight is unpublished; with 1.3 and eight rollouts, this is 1.87 times GRPO without the standard deviation,
    within 3%.
    """
    entropy = -sum(share * math.log(share) for share in (group.solved, 1 - group.solved) if share > 0)
    return [math.exp(-weight * (math.log(2) - entropy)) * z for z in grpo(group, rewards)]


def gfpo(group: Group, rewards: Rewards, keep: int) -> list[float]:
    """GFPO (arXiv 2508.09726): GRPO among the `keep` shortest rollouts, and 0 for the others."""
    if keep < 2:
        raise ValueError("one rollout has nothing to be compared with; keep two or more")
    graded = [row for row, reward in enumerate(rewards) if not math.isnan(reward)]
    kept = sorted(graded, key=lambda row: group.tokens[row])[:keep]
    found = dict(zip(kept, grpo(group, [rewards[row] for row in kept]), strict=True))
    return [found.get(row, 0.0) for row in range(len(rewards))]


def per_fork(group: Group, rewards: Rewards, thinking: float = 1.0) -> list[tuple[float, float]]:
    """Subtract from each reward the mean over the group's forks at the same place, whose budgets are about equal.

    A fork's thinking gets the share `thinking` of its advantage; if it is 1 / forks, a token that all forks reach gets
    their mean.
    """
    means = [_mean(rewards[fork :: group.forks]) for fork in range(group.forks)]
    found = [reward - means[row % group.forks] for row, reward in enumerate(rewards)]
    return [(thinking * value, value) for value in found]


def brpo(group: Group, rewards: Rewards) -> list[tuple[float, float]]:
    """BRPO of AnytimeReasoner (arXiv 2505.13438), with equal weights of the budgets and one answer at each.

    The advantage of a thinking token is the mean reward at the budgets that reach it, minus a baseline: the group's
    mean there, mixed with the thought's own rewards at smaller budgets, weighted 1, 2, 4 and so on, which count more
    the more there are. Tokens of a thought are trained with the sum over its forks, so each fork gets the difference
    of its segment's advantage and the next one's. If a fork has no reward, the forks' thinking has no advantage.
    """
    forks = group.forks
    means = [_mean(rewards[fork::forks]) for fork in range(forks)]
    known = [not any(map(math.isnan, rewards[start : start + forks])) for start in range(0, len(rewards), forks)]
    rewards = [means[row % forks] if math.isnan(reward) else reward for row, reward in enumerate(rewards)]
    thoughts = [rewards[start : start + forks] for start in range(0, len(rewards), forks)]
    later = [[sum(thought[at:]) / forks for thought in thoughts] for at in range(forks)]
    found: list[tuple[float, float]] = []
    for thought, adds_up in zip(thoughts, known, strict=True):
        segments = [0.0] * (forks + 1)
        for at in range(forks):
            own = sum(2**before * thought[before] for before in range(at)) / max(2**at - 1, 1) * (forks - at) / forks
            baseline = (at * own + (forks - at) * fmean(later[at])) / forks
            segments[at] = sum(thought[at:]) / forks - baseline
        for at, reward in enumerate(thought):
            found.append(((segments[at] - segments[at + 1]) * adds_up, reward - means[at]))
    return found


def s_grpo(group: Group, rewards: Rewards) -> list[float]:
    """S-GRPO (arXiv 2505.07686): a thought's first right exit gets 1, the next 1/2 and so on, minus their mean.

    These values replace the rewards.
    """
    found: list[float] = []
    for start in range(0, len(rewards), group.forks):
        right = 0
        values = []
        for correct in group.correct[start : start + group.forks]:
            values.append(math.nan if correct is None else 0.5**right * correct)
            right += bool(correct)
        found += [0.0 if math.isnan(value) else value - _mean(values) for value in values]
    return found


def _mean(rewards: Rewards) -> float:
    graded = [reward for reward in rewards if not math.isnan(reward)]
    return fmean(graded) if graded else 0.0


BY_FORK = (per_fork, brpo, s_grpo)  # compare the forks of a thought
BY_GRADE = (lead, mgpo, s_grpo)  # look at which answers are right
DIVIDING = (gfpo, lead, mgpo)  # by the spread of a group's rewards, as `grpo` does
UNEQUAL = ("grpo", "sapo", "bnpo")  # losses that divide by the length of a row, or of a micro-batch's rows
ADVANTAGES: dict[str, Callable[..., Any]] = {each.__name__: each for each in (gfpo, *BY_GRADE, *BY_FORK)}


def make_advantage(spec: Any, args: E1Config) -> Advantage | None:
    """Make the advantage that a recipe names: one of `ADVANTAGES`, or the user's at a dotted path; `None` is TRL's.

    `spec` is a name, or a mapping of `name` and arguments (YAML text if it comes from a command line). An advantage
    that fails with these arguments is refused.
    """
    if (said := from_yaml("advantage", spec)) is None:
        return None
    options = dict(said) if isinstance(said, Mapping) else {"name": said}
    name = str(options.pop("name", ""))
    function = find(name, ADVANTAGES, "advantage")
    forks = args.budgets.forks
    rows = 4 * forks
    tokens = [*range(1, rows + 1)]
    correct = [(True, False, None, False)[(row // forks + row % forks) % 4] for row in range(rows)]  # no thoughts alike
    ends = [(ThinkingEnd.CLOSED, ThinkingEnd.FORCED)[row % 2] for row in range(rows)]
    flags = ([True] * rows, [False] * rows)
    tried = Group(identity(""), correct, tokens, tokens, *flags, 1, [*tokens], forks, ends)
    try:
        made = partial(function, **options)
        pairs = advantages_of([tried], [math.nan if right is None else float(right) for right in correct], made)
    except Exception as error:  # whatever a function of the user's raises
        raise UserError(f"the advantage {name} fails with {options}: {one_line(error)}") from error
    if args.importance_sampling_level == "sequence" and any(thinking != solution for thinking, solution in pairs):
        raise UserError(f"importance_sampling_level sequence would average the two advantages of {name}; use token")
    return made


def _check(advantage: Advantage, args: E1Config, rewards: Sequence[Reward]) -> None:
    """Raise a `UserError` if one of our advantages would learn something other than its formula."""
    function: Any = getattr(advantage, "func", advantage)
    said = f"the advantage {function.__name__}"
    forks = args.budgets.forks
    if function is gfpo and not 2 <= (keep := getattr(advantage, "keywords", {}).get("keep", 0)) < args.num_generations:
        raise UserError(f"{said} keeps {keep} of num_generations {args.num_generations}; keep 2 or more, but not all")
    if function in BY_FORK and forks == 1:
        raise UserError(f"{said} compares forks of a thought; set thinking_budget: {FORMS[nested]}")
    if function in (per_fork, brpo) and args.num_generations < 2 * forks:
        needed = f"{forks} forks need num_generations {2 * forks} or more; it is {args.num_generations}"
        raise UserError(f"{said} compares thoughts, of which a group has one: {needed}")
    unequal = [f"loss_type {args.loss_type}"] * (args.loss_type in UNEQUAL)
    unequal += ["mask_truncated_completions"] * args.mask_truncated_completions
    corrected = args.vllm_importance_sampling_mode if args.vllm_importance_sampling_correction else ""
    unequal += [f"vllm_importance_sampling_mode {corrected}"] * corrected.startswith("sequence")
    unequal += ["importance_sampling_level sequence"] * (args.importance_sampling_level == "sequence")
    unequal += ["top_entropy_quantile"] * (args.top_entropy_quantile < 1)
    unequal += ["trained_close all"] * (args.trained_close == "all")
    # Ratios would be clipped by the signs of the differences; and forks of a thought would be in different steps.
    unequal += ["a second step"] * (args.steps_per_generation * args.num_iterations > args.gradient_accumulation_steps)
    if function is brpo and unequal:
        needed = "loss_type dr_grpo or dapo, ratios of tokens, sampled closes and one optimizer step per generation"
        raise UserError(f"{said} is a sum over forks, which {unequal[0]} weighs unequally; use {needed}")
    if function is gfpo and forks > 1:
        raise UserError(f"{said} keeps the shortest rollouts, which are the forks of the smallest budgets; remove them")
    if function in BY_GRADE and not any(isinstance(reward, Accuracy) for reward in rewards):
        raise UserError(f"{said} must know which answers are right; add accuracy to reward_funcs")
    if function is s_grpo and len(rewards) > 1:
        raise UserError(f"{said} reads which answers are right, and no other reward; name accuracy alone")


for each in ADVANTAGES.values():  # for trainers that are given the function itself
    setattr(each, "check_settings", _check)  # noqa: B010  mypy knows no attributes of functions
