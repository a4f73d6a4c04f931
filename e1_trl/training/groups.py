"""Groups: the rollouts of one problem, whichever processes sampled them; rewards and advantages that look at them all.

Only this module knows the order in which the rows of all processes are gathered.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from accelerate.utils import gather_object

from e1_trl.errors import UserError
from e1_trl.rollout import ThinkingEnd
from e1_trl.training.budgets import key_of
from e1_trl.training.rewards import name_of


@dataclass(frozen=True)
class Group:
    """The rollouts of one problem in one generation, in order.

    Attributes:
        key: names the problem.
        correct: whether each is right; `None` where its grader failed, or the recipe has no reward `accuracy`.
        thinking, tokens: sampled tokens of each rollout's thinking, and of the whole rollout.
        finished: whether each closed its thinking and ended its solution.
        repeats: whether each has some run of four tokens three times or more; False if no reward looks at this.
        target: tokens that the prompt asks for, if it does.
        budgets: thinking budget of each, in tokens; `None` is unlimited.
        forks: rollouts that share a thought: rollout r is fork r % forks of thought r // forks.
        ends: what ended the thinking of each.
    """

    key: str
    correct: list[bool | None]
    thinking: list[int]
    tokens: list[int]
    finished: list[bool]
    repeats: list[bool]
    target: int | None = None
    budgets: list[int | None] = field(default_factory=list)
    forks: int = 1
    ends: list[ThinkingEnd] = field(default_factory=list)

    def graded(self) -> Iterator[tuple[int, bool | None]]:
        """Pair the tokens of each rollout with whether it is right."""
        return zip(self.tokens, self.correct, strict=True)

    @property
    def solved(self) -> float:
        """Share of right rollouts among the graded ones."""
        graded = [each for each in self.correct if each is not None]
        return sum(graded) / max(len(graded), 1)


# Maps a group and its rewards (NaN: not graded) to the advantage of each rollout: one number, or a pair, for its
# thinking and its solution.
Advantage = Callable[[Group, Sequence[float]], Sequence[float | tuple[float, float]]]


class GroupReward(ABC):
    """Reward that compares a rollout with the others of its group, for example for being the shortest right one.

    A recipe names a subclass with its arguments, if it takes any: `{name: my_rewards.Shortest}`. A subclass that
    remembers past generations does so in `memory`, which only `remember` changes after `__init__`; checkpoints save it.

    Attributes:
        memory: JSON values by name, the same in all processes. Its `problems`, if any, map problems' keys to values.
    """

    sees_repeats = False  # whether it looks at `Group.repeats`, which costs time
    needs_accuracy = False  # whether the reward `accuracy` must be among the recipe's

    @cached_property
    def memory(self) -> dict[str, Any]:
        return {}

    @abstractmethod
    def of(self, group: Group) -> Sequence[float | None]:
        """Return the rewards of a group's rollouts; `None` adds nothing."""

    def remember(self, groups: Sequence[Group]) -> None:  # noqa: B027 - most remember nothing
        """Update `memory`, once for each training generation, after all of its groups have their rewards."""

    def __call__(self, *, thinking_tokens: Sequence[int], **_: Any) -> list[float]:
        """Return zeros, for TRL: `reward_groups` replaces them once the rows of all processes are together."""
        return [0.0] * len(thinking_tokens)


def repeats(token_ids: Sequence[int]) -> bool:
    """Return whether some run of four tokens occurs three times or more."""
    fours = Counter(zip(*(token_ids[start:] for start in range(4)), strict=False))
    return max(fours.values(), default=0) >= 3


def reward_groups(
    rewards: Sequence[Any],
    scores: torch.Tensor,
    accuracy: int | None,
    rows: Sequence[Mapping[str, Any]],
    size: int,
    training: bool,
    forks: int = 1,
) -> list[Group]:
    """Fill in the columns of the `GroupReward`s, and return the groups of all processes. A collective operation.

    Args:
        rewards: the recipe's.
        scores: (rollouts of all processes, rewards).
        accuracy: column of the scores that says which rollouts are right, if one does.
        rows: of this process, with the columns that a rollout adds, and `completion_ids`.
        size: rollouts of a group.
        training: whether the generation is trained on, and so remembered.
        forks: rollouts of a thought.
    """
    of_groups = {column: reward for column, reward in enumerate(rewards) if isinstance(reward, GroupReward)}
    known = [math.nan] * len(scores) if accuracy is None else scores[:, accuracy].tolist()
    look = any(reward.sees_repeats for reward in of_groups.values())
    own = [
        (
            key_of(row),
            row["thinking_tokens"],
            row["thinking_tokens"] + row["solution_tokens"],
            row["thinking_end"] in (ThinkingEnd.CLOSED, ThinkingEnd.FORCED) and not row["solution_truncated"],
            look and repeats(row["completion_ids"]),
            row.get("target"),
            row["thinking_budget"],
            row["thinking_end"],
        )
        for row in rows
    ]
    gathered = gather_object(own)
    groups = []
    for start in range(0, len(gathered), size):
        columns = map(list, zip(*gathered[start : start + size], strict=True))
        keys, thinking, tokens, finished, repeated, targets, budgets, ends = columns
        correct = [None if math.isnan(each) else bool(each) for each in known[start : start + size]]
        groups.append(Group(keys[0], correct, thinking, tokens, finished, repeated, targets[0], budgets, forks, ends))
    for column, reward in of_groups.items():
        values = [value for group in groups for value in _checked(reward.of(group), group, type(reward).__name__)]
        scores[:, column] = torch.tensor([math.nan if value is None else value for value in values])
        if training:
            reward.remember(groups)
    return groups


def advantages_of(groups: Sequence[Group], rewards: Sequence[float], advantage: Advantage) -> list[tuple[float, float]]:
    """Return the advantage of each rollout's thinking and of its solution; both are 0 without a reward."""
    name = name_of(advantage)
    found: list[tuple[float, float]] = []
    for group in groups:
        own = rewards[len(found) : len(found) + len(group.tokens)]
        for value, reward in zip(_checked(advantage(group, own), group, name), own, strict=True):
            thinking, solution = value if isinstance(value, Sequence) else (value, value)
            found.append((0.0, 0.0) if math.isnan(reward) else (float(thinking), float(solution)))
            if not math.isfinite(sum(found[-1])):
                raise UserError(f"{name} returns {value} for a rollout with the reward {reward:g}")
    return found


def _checked(values: Sequence[Any], group: Group, name: str) -> Sequence[Any]:
    if len(values) != len(group.tokens):
        raise UserError(f"{name} returns {len(values)} values for a group of {len(group.tokens)}")
    return values
