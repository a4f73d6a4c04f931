"""Length rewards of other systems of budget control, each a formula of a group.

A recipe names a length reward next to `accuracy`: `reward_funcs: [accuracy, {name: laser, target: 4096, wrong: -0.5}]`.
Where a paper's formula replaces the reward for a right answer, ours is the difference, so that both add up to the
formula. Lengths are sampled tokens of the whole response, as in all of the papers; forced tokens do not count.
docs/policies.md lists the papers.
"""

import logging
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean, pstdev
from typing import Any

from e1_trl.errors import UserError
from e1_trl.rollout import ThinkingEnd
from e1_trl.training.groups import Group, GroupReward

logger = logging.getLogger(__name__)


def l1_exact(group: Group, alpha: float = 0.0003) -> list[float]:
    """L1-Exact (arXiv 2503.04697): `-alpha |target - n|`, right or wrong."""
    return [-alpha * abs(_target(group) - n) for n in group.tokens]


def l1_max(group: Group, alpha: float = 0.0003, delta: float = 0.5) -> list[float]:
    """L1-Max: `clip(alpha (target - n) + delta, 0, 1)` in place of 1 for a right answer."""
    kept = [min(max(alpha * (_target(group) - n) + delta, 0.0), 1.0) for n in group.tokens]
    return [each - 1 if correct else 0.0 for each, correct in zip(kept, group.correct, strict=True)]


def _target(group: Group) -> int:
    if group.target is None:
        raise UserError(f"problem {group.key} has no target; set target and target_prompt in the recipe")
    return group.target


def laser(group: Group, target: int, bonus: float = 0.5, wrong: float = 0.0) -> list[float]:
    """LASER (arXiv 2505.15612): `bonus` for a right answer within `target` tokens; `wrong` for a wrong one."""
    return [bonus * (n <= target) if correct else wrong for n, correct in group.graded()]


def kimi(group: Group, weight: float = 1.0) -> list[float]:
    """Kimi k1.5 (arXiv 2501.12599): 1/2 for the shortest to -1/2 for the longest of a group; at most 0 if wrong.

    The paper leaves it out in its first steps.
    """
    least = min(group.tokens)
    most = max(group.tokens)
    terms = [0.5 - (n - least) / (most - least) if most > least else 0.0 for n in group.tokens]
    return [weight * (term if correct else min(0.0, term)) for term, correct in zip(terms, group.correct, strict=True)]


def arora(group: Group, alpha: float = 0.1) -> list[float]:
    """Arora and Zanette (arXiv 2502.04463): `1 - alpha sigmoid(z)` if right; z standardizes right answers' lengths."""
    right = [n for n, correct in group.graded() if correct]
    if not right:
        return [0.0] * len(group.tokens)
    mean = fmean(right)
    spread = pstdev(right) + 1e-7
    return [-alpha * (1 / (1 + math.exp(-(n - mean) / spread))) if correct else 0.0 for n, correct in group.graded()]


def lead(group: Group, alpha: float = 0.05, from_tokens: int = 4000) -> list[float]:
    """GRPO-LEAD (arXiv 2504.09696): `exp(-alpha z)` in place of 1, unless the three shortest are short already.

    z standardizes the lengths of right answers; the mean of the three shortest must exceed `from_tokens`.
    """
    right = sorted(n for n, correct in group.graded() if correct)
    if not right or fmean(right[:3]) <= from_tokens:
        return [0.0] * len(group.tokens)
    mean = fmean(right)
    spread = pstdev(right) + 1e-7
    return [math.exp(-alpha * (n - mean) / spread) - 1 if correct else 0.0 for n, correct in group.graded()]


def alp(group: Group, beta: float = 1e-7) -> list[float]:
    """ALP (arXiv 2506.05256): `-beta n` times the share of the group that is right, at least one rollout's."""
    return [-beta * n * max(group.solved, 1 / len(group.tokens)) for n in group.tokens]


def solve_rate(group: Group, weight: float = 0.25) -> list[float]:
    """ALP as prime-rl has it: `-weight n / longest` times the share of the group that is right."""
    return [-weight * group.solved * n / max(max(group.tokens), 1) for n in group.tokens]


def cosine(
    group: Group,
    longest: int,
    correct: tuple[float, float] = (1.0, 0.5),
    wrong: tuple[float, float] = (-1.0, -0.5),
) -> list[float]:
    """Cosine reward (arXiv 2502.03373) in place of 1 or 0, from a length of 0 to `longest`, then constant."""
    rewards = []
    for n, is_right in group.graded():
        first, last = correct if is_right else wrong
        value = last + (first - last) * (1 + math.cos(math.pi * min(n / longest, 1))) / 2
        rewards.append(value - bool(is_right))
    return rewards


def overlong(group: Group, longest: int, margin: int) -> list[float]:
    """DAPO (arXiv 2503.14476): 0 up to `margin` tokens before `longest`, then falling to -1 there."""
    return [-min(max((n - longest + margin) / margin, 0.0), 1.0) for n in group.tokens]


FORMULAS = (l1_exact, l1_max, laser, kimi, arora, lead, alp, solve_rate, cosine, overlong)


class LengthReward(GroupReward):
    """Reward that a formula gives. Raises what the formula raises if it does not take these arguments."""

    def __init__(self, formula: Callable[..., list[float]], **arguments: Any):
        self.formula = formula
        self.arguments = arguments
        self.needs_accuracy = formula not in (l1_exact, overlong)
        self.needs_target = formula in (l1_exact, l1_max)  # whether prompts must ask for a length
        self.__name__ = formula.__name__  # TRL logs the reward under it
        flags = [True, False]
        tokens = [10**6, 2 * 10**6]  # so long that every term counts
        tried = self.of(Group("", [*flags], tokens, tokens, flags, flags, target=2))
        math.fsum(tried)  # raises, as `of` does, if the arguments are wrong

    def of(self, group: Group) -> list[float]:
        return self.formula(group, **self.arguments)


class Hapo(LengthReward):
    """HAPO (AAAI 2026): cosine of a length relative to the problem's shortest right response so far."""

    def __init__(self, **terms: Any):
        self.memory["problems"] = {"": 1}  # of the group that tries the arguments
        super().__init__(self.hapo, **terms)
        self.memory["problems"] = {}

    def hapo(self, group: Group, weight: float = 1.0, floor: float = -0.7) -> list[float]:
        """Return `weight` at length 0, falling to `-weight`; at least `weight * floor` if right, at most 0 if not."""
        shortest = self.memory["problems"].get(group.key)
        if shortest is None:
            return [0.0] * len(group.tokens)
        rewards = []
        for n, correct in group.graded():
            term = math.cos(math.pi / 2 * min(n / shortest, 2))
            rewards.append(weight * (max(floor, term) if correct else min(0.0, term)))
        return rewards

    def remember(self, groups: Sequence[Group]) -> None:
        shortest = self.memory["problems"]
        for group in groups:
            for (n, correct), end in zip(group.graded(), group.ends, strict=True):
                if correct and end != ThinkingEnd.FORCED:  # what a budget cut is not the policy's length
                    shortest[group.key] = max(min(n, shortest.get(group.key, n)), 1)


class LaserD(LengthReward):
    """LASER-D and, with `longer_wrong`, LASER-DE (arXiv 2505.15612): a target for each of three difficulties.

    A difficulty's target is the first length of `range(lowest, highest, step)` at which the share of its responses that
    are right within that length, times a group's least right answers, reaches 1; else `highest`, as for the middle
    difficulty if groups have fewer than six rollouts. The paper monitors 500 problems every 20 steps; here the last
    `window` generations that were trained on count.
    """

    def __init__(self, lowest: int, highest: int, step: int, window: int = 20, **terms: Any):
        if window < 1:
            raise UserError(f"window is {window} generations; it must be 1 or more")
        self.candidates = [*range(lowest, highest, step), highest]
        self.window = window
        self.sees_repeats = terms.get("longer_wrong", False)
        self.memory.update(targets=[highest] * 3, generations=[])
        super().__init__(self.laser_d, **terms)

    def laser_d(self, group: Group, bonus: float = 0.5, wrong: float = 0.0, longer_wrong: bool = False) -> list[float]:
        """Return `bonus` within the target if right; `wrong` if not, plus `bonus` for a finished attempt beyond it."""
        target = self.memory["targets"][difficulty(group)]
        rewards = []
        for (n, correct), finished, repeats in zip(group.graded(), group.finished, group.repeats, strict=True):
            is_attempt = longer_wrong and n > target and finished and not repeats
            rewards.append(bonus * (n <= target) if correct else wrong + bonus * is_attempt)
        return rewards

    def remember(self, groups: Sequence[Group]) -> None:
        seen: list[dict[str, Any]] = [{"responses": 0, "right": []} for _ in range(3)]
        for group in groups:
            alike = seen[difficulty(group)]
            alike["responses"] += len(group.tokens)
            alike["right"] += [n for n, correct in group.graded() if correct]
        generations = self.memory["generations"] = [*self.memory["generations"], seen][-self.window :]
        size = len(groups[0].tokens)
        for at, expected in enumerate((1, size // 3, 2 * size // 3)):
            responses = sum(each[at]["responses"] for each in generations)
            right = sorted(n for each in generations for n in each[at]["right"])
            within = (c for c in self.candidates if int(expected * bisect_right(right, c) / max(responses, 1)) >= 1)
            self.memory["targets"][at] = next(within, self.candidates[-1])


def difficulty(group: Group) -> int:
    """Return 0, 1 or 2: less than a third of the group is right, less than two thirds, or more."""
    return (group.solved >= 1 / 3) + (group.solved >= 2 / 3)


LENGTH_REWARDS: dict[str, Callable[..., LengthReward]] = {
    **{formula.__name__: partial(LengthReward, formula) for formula in FORMULAS},
    "hapo": Hapo,
    "laser_d": LaserD,
}


def warn_of_scaling(rewards: Sequence[Any], aggregation: str, is_divided: bool) -> None:
    """Warn if a division by the spread of a reward or of a group's rewards cancels the weight of a length reward."""
    where = "" if aggregation == "normalize_then_sum" else " in groups that are all right or all wrong"
    if any(isinstance(reward, LengthReward) for reward in rewards) and (not where or is_divided):
        logger.warning(
            "rewards are divided by their spread, so that a length reward pushes about equally hard at any weight%s; "
            "sum_then_normalize with scale_rewards none keeps the weight, without advantage lead, mgpo or gfpo",
            where,
        )
