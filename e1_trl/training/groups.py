"""The rollouts of one problem together, whichever processes sampled them, and rewards that look at all of them.

The only file of the training that knows how the rows of processes follow each other.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object

from e1_trl.training.budgets import key_of
from e1_trl.training.rewards import Accuracy, Reward


@dataclass(frozen=True)
class Group:
    """The rollouts of one problem in one generation, in order.

    Attributes:
        key: of the problem.
        correct: whether each is right; `None` where its grader failed, or the recipe has no reward `accuracy`.
        thinking, tokens: sampled tokens of each, of the thinking and of all.
    """

    key: str
    correct: list[bool | None]
    thinking: list[int]
    tokens: list[int]


class GroupReward(ABC):
    """A reward that a rollout has beside the others of its group, as for being the shortest that is right.

    A recipe names a subclass with its arguments, if it takes any: `{name: my_rewards.Shortest}`.
    """

    @abstractmethod
    def of(self, group: Group) -> Sequence[float]:
        """The rewards of a group's rollouts."""

    def __call__(self, *, thinking_tokens: Sequence[int], **_: Any) -> list[float]:
        """What TRL is told of it before the rows of all processes are together: nothing."""
        return [0.0] * len(thinking_tokens)


def reward_groups(
    rewards: Sequence[Reward], scores: torch.Tensor, rows: Sequence[Mapping[str, Any]], size: int
) -> None:
    """Fill in what the `GroupReward`s among the rewards give. A collective operation.

    Args:
        rewards: the recipe's.
        scores: what they gave, of the rollouts of all processes × rewards.
        rows: of this process, with the columns that a rollout adds.
        size: rollouts of a group.
    """
    of_groups = {column: reward for column, reward in enumerate(rewards) if isinstance(reward, GroupReward)}
    if not of_groups:
        return
    own = [(key_of(row), row["thinking_tokens"], row["thinking_tokens"] + row["solution_tokens"]) for row in rows]
    keys, thinking, tokens = map(list, zip(*gather_object(own), strict=True))
    graded = [column for column, reward in enumerate(rewards) if isinstance(reward, Accuracy)]
    known = scores[:, graded[0]].tolist() if graded else [math.nan] * len(scores)
    correct = [None if math.isnan(each) else bool(each) for each in known]
    for start in range(0, len(keys), size):
        part = slice(start, start + size)
        group = Group(keys[start], correct[part], thinking[part], tokens[part])
        for column, reward in of_groups.items():
            given = list(reward.of(group))
            if len(given) != len(group.tokens):
                name = type(reward).__name__
                raise ValueError(f"the reward {name} gives {len(given)} values to a group of {len(group.tokens)}")
            scores[part, column] = torch.tensor(given)
