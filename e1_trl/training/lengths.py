"""Rewards for length: what systems of budget control add to the reward for being right, each a formula of a group.

A recipe names one beside `accuracy`: `reward_funcs: [accuracy, {name: laser, target: 4096, wrong: -0.5}]`. Where a
paper's formula stands in the place of the reward for being right, ours is the difference, so that the sum is that
formula. Lengths are sampled tokens of the whole response, as in all of the papers, or with `of: thinking` of the
thinking; forced tokens never count. docs/systems.md says which paper has which.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean, pstdev
from typing import Any

from e1_trl.errors import UserError
from e1_trl.training.groups import Group, GroupReward

Lengths = Sequence[int]


def l1_exact(group: Group, tokens: Lengths, alpha: float = 0.0003) -> list[float]:
    """L1-Exact (arXiv 2503.04697): `-alpha |target - n|`, right or wrong."""
    return [-alpha * abs(_target(group) - n) for n in tokens]


def l1_max(group: Group, tokens: Lengths, alpha: float = 0.0003, delta: float = 0.5) -> list[float]:
    """L1-Max: `clip(alpha (target - n) + delta, 0, 1)` in the place of 1 for a right answer."""
    kept = [min(max(alpha * (_target(group) - n) + delta, 0.0), 1.0) for n in tokens]
    return [each - 1 if correct else 0.0 for each, correct in zip(kept, group.correct, strict=True)]


def _target(group: Group) -> int:
    if group.target is None:
        raise UserError(f"the problem {group.key} has no target; the recipe must set target and target_prompt")
    return group.target


def laser(group: Group, tokens: Lengths, target: int, bonus: float = 0.5, wrong: float = 0.0) -> list[float]:
    """LASER (arXiv 2505.15612): `bonus` for a right answer within `target` tokens; `wrong` for a wrong one."""
    return [bonus * (n <= target) if correct else wrong for n, correct in zip(tokens, group.correct, strict=True)]


def kimi(group: Group, tokens: Lengths, weight: float = 1.0) -> list[float]:
    """Kimi k1.5 (arXiv 2501.12599): 1/2 for the shortest to -1/2 for the longest of a group; at most 0 if wrong.

    The paper begins with some steps without it.
    """
    least, most = min(tokens), max(tokens)
    terms = [0.5 - (n - least) / (most - least) if most > least else 0.0 for n in tokens]
    return [weight * (term if correct else min(0.0, term)) for term, correct in zip(terms, group.correct, strict=True)]


def arora(group: Group, tokens: Lengths, alpha: float = 0.1) -> list[float]:
    """Arora and Zanette (arXiv 2502.04463): `1 - alpha sigmoid(z)` for a right one, z among the right ones' lengths."""
    right = [n for n, correct in zip(tokens, group.correct, strict=True) if correct]
    mean, spread = (fmean(right), pstdev(right)) if right else (0.0, 0.0)
    shares = [1 / (1 + math.exp(-(n - mean) / (spread + 1e-7))) if n in right else 0.0 for n in tokens]
    return [-alpha * share if correct else 0.0 for share, correct in zip(shares, group.correct, strict=True)]


def alp(group: Group, tokens: Lengths, beta: float = 1e-7) -> list[float]:
    """ALP (arXiv 2506.05256): `-beta n` times the share of the group that is right, at least one rollout's."""
    return [-beta * n * max(group.solved, 1 / len(tokens)) for n in tokens]


def solve_rate(group: Group, tokens: Lengths, weight: float = 0.25) -> list[float]:
    """ALP as prime-rl has it: `-weight n / longest` times the share of the group that is right."""
    return [-weight * group.solved * n / max(max(tokens), 1) for n in tokens]


def cosine(
    group: Group,
    tokens: Lengths,
    longest: int,
    correct: tuple[float, float] = (1.0, 0.5),
    wrong: tuple[float, float] = (-1.0, -0.5),
) -> list[float]:
    """The cosine reward (arXiv 2502.03373) in the place of 1 or 0: from a length of 0 to `longest` and beyond."""
    given = []
    for n, is_right in zip(tokens, group.correct, strict=True):
        first, last = correct if is_right else wrong
        value = last + (first - last) * (1 + math.cos(math.pi * min(n / longest, 1))) / 2
        given.append(value - bool(is_right))
    return given


def overlong(group: Group, tokens: Lengths, longest: int, margin: int) -> list[float]:
    """DAPO's (arXiv 2503.14476): 0 up to `margin` tokens before the longest, then falling to -1."""
    return [-min(max((n - longest + margin) / margin, 0.0), 1.0) for n in tokens]


FORMULAS = {each.__name__: each for each in (l1_exact, l1_max, laser, kimi, arora, alp, solve_rate, cosine, overlong)}


class LengthReward(GroupReward):
    """What a formula gives.

    Args:
        formula: one of `FORMULAS`.
        of: `"response"`, or `"thinking"` alone.
        arguments: of the formula.

    Raises:
        TypeError, ValueError, ArithmeticError: it takes others, or other values; `of` is neither.
    """

    weighs_length = True

    def __init__(self, formula: Callable[..., list[float]], of: str = "response", **arguments: Any):
        if of not in ("response", "thinking"):
            raise UserError(f"of is {of!r}; it must be response or thinking")
        self.formula, self.part, self.arguments = formula, of, arguments
        self.__name__ = formula.__name__  # what TRL logs it under
        flags = [True, False]
        self.of(Group("", [*flags], [1, 2], [2, 3], flags, flags, target=2))  # wrong arguments are found now

    @property
    def needs_target(self) -> bool:
        """Whether prompts must ask for a length."""
        return self.formula in (l1_exact, l1_max)

    @property
    def needs_accuracy(self) -> bool:
        """Whether it must be known which rollouts are right."""
        return self.formula not in (l1_exact, overlong)

    def lengths(self, group: Group) -> list[int]:
        """What counts of each rollout, in tokens."""
        return group.thinking if self.part == "thinking" else group.tokens

    def of(self, group: Group) -> list[float]:
        """See `GroupReward.of`."""
        return self.formula(group, self.lengths(group), **self.arguments)


class Hapo(LengthReward):
    """HAPO (AAAI 2026): the cosine of a length to the problem's shortest right response so far, which is remembered."""

    def __init__(self, weight: float = 1.0, floor: float = -0.7, of: str = "response"):
        self.memory["problems"] = {}
        super().__init__(self.hapo, of, weight=weight, floor=floor)

    def hapo(self, group: Group, tokens: Lengths, weight: float, floor: float) -> list[float]:
        """From `weight` for a length of 0 to `-weight`, at least `floor` where it is right, at most 0 where not."""
        shortest = self.memory["problems"].get(group.key)
        if shortest is None:
            return [0.0] * len(tokens)
        terms = [math.cos(math.pi / 2 * min(n / shortest, 2)) for n in tokens]
        return [
            weight * (max(floor, term) if correct else min(0.0, term))
            for term, correct in zip(terms, group.correct, strict=True)
        ]

    def remember(self, groups: Sequence[Group]) -> None:
        """See `GroupReward.remember`."""
        shortest = self.memory["problems"]
        for group in groups:
            for n, correct in zip(self.lengths(group), group.correct, strict=True):
                if correct:
                    shortest[group.key] = max(min(n, shortest.get(group.key, n)), 1)


class LaserD(LengthReward):
    """LASER-D and, with `longer_wrong`, LASER-DE (arXiv 2505.15612): a target for each of three difficulties.

    That of a problem is the share of its group that is right: from 2/3 on, from 1/3 on, or less. Its target is the
    first of `range(lowest, highest, step)` within which a right response of so many is expected as a group of that
    difficulty has at least. The paper monitors 500 problems every 20 steps; here the last `window` generations that
    were trained on count.
    """

    def __init__(
        self,
        lowest: int,
        highest: int,
        step: int,
        bonus: float = 0.5,
        wrong: float = 0.0,
        longer_wrong: bool = False,
        window: int = 20,
        of: str = "response",
    ):
        if window < 1:
            raise UserError(f"window is {window} generations; it must be 1 or more")
        self.candidates, self.window = [*range(lowest, highest, step), highest], window
        self.sees_repeats = longer_wrong
        self.memory.update(targets=[highest] * 3, generations=[])
        super().__init__(self.laser_d, of, bonus=bonus, wrong=wrong, longer_wrong=longer_wrong)

    def laser_d(self, group: Group, tokens: Lengths, bonus: float, wrong: float, longer_wrong: bool) -> list[float]:
        """`bonus` within the target if right; `wrong` if not, with the bonus for a finished attempt beyond it."""
        target = self.memory["targets"][difficulty(group)]
        tried = [
            longer_wrong and n > target and finished and not repeats
            for n, finished, repeats in zip(tokens, group.finished, group.repeats, strict=True)
        ]
        return [
            bonus * (n <= target) if correct else wrong + bonus * attempt
            for n, correct, attempt in zip(tokens, group.correct, tried, strict=True)
        ]

    def remember(self, groups: Sequence[Group]) -> None:
        """See `GroupReward.remember`."""
        seen: list[dict[str, Any]] = [{"responses": 0, "right": []} for _ in range(3)]
        for group in groups:
            of = seen[difficulty(group)]
            of["responses"] += len(group.tokens)
            of["right"] += [n for n, correct in zip(self.lengths(group), group.correct, strict=True) if correct]
        generations = self.memory["generations"] = [*self.memory["generations"], seen][-self.window :]
        size = len(groups[0].tokens)
        for at, expected in enumerate((1, size // 3, 2 * size // 3)):
            responses = sum(each[at]["responses"] for each in generations)
            right = sorted(n for each in generations for n in each[at]["right"])
            within = (c for c in self.candidates if int(expected * bisect_right(right, c) / max(responses, 1)) >= 1)
            self.memory["targets"][at] = next(within, self.candidates[-1])


def difficulty(group: Group) -> int:
    """0, 1 or 2: less than a third of the group is right, less than two thirds, or more."""
    return (group.solved >= 1 / 3) + (group.solved >= 2 / 3)


LENGTH_REWARDS: dict[str, Callable[..., LengthReward]] = {
    **{name: partial(LengthReward, formula) for name, formula in FORMULAS.items()},
    "hapo": Hapo,
    "laser_d": LaserD,
}
