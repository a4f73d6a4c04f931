"""The rollouts of one problem together, whichever processes sampled them, and rewards that look at all of them.

The only file of the training that knows how the rows of processes follow each other.
"""

import math
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


class GroupReward:
    """A reward that a rollout has beside the others of its group, as for being the shortest that is right.

    A subclass is named in a recipe like any reward: by the dotted path to what makes it.
    """

    def of(self, group: Group) -> Sequence[float]:
        """The rewards of a group's rollouts."""
        raise NotImplementedError

    def __call__(self, *, thinking_tokens: Sequence[int], **_: Any) -> list[float]:
        """What TRL is told of it before the rows of all processes are together: nothing."""
        return [0.0] * len(thinking_tokens)


def gathered(rows: Sequence[Mapping[str, Any]], correct: Sequence[float], size: int) -> list[Group]:
    """The groups of a generation. A collective operation.

    Args:
        rows: of this process, with the columns that a rollout adds.
        correct: of all processes, 1, 0, or NaN where it is not known.
        size: rollouts of a group.
    """
    own = [(key_of(row), row["thinking_tokens"], row["solution_tokens"]) for row in rows]
    keys, thinking, solution = zip(*gather_object(own), strict=True)
    known = [None if math.isnan(right) else bool(right) for right in correct]
    tokens = [sum(parts) for parts in zip(thinking, solution, strict=True)]
    return [
        Group(keys[start], known[start:end], list(thinking[start:end]), tokens[start:end])
        for start, end in ((start, start + size) for start in range(0, len(known), size))
    ]


def reward_groups(
    rewards: Sequence[Reward], scores: torch.Tensor, rows: Sequence[Mapping[str, Any]], size: int
) -> None:
    """Fill in what the `GroupReward`s among the rewards give. A collective operation.

    Args:
        rewards: the recipe's.
        scores: what they gave, of the rollouts of all processes × rewards.
        rows, size: as in `gathered`.
    """
    of_groups = {column: reward for column, reward in enumerate(rewards) if isinstance(reward, GroupReward)}
    if not of_groups:
        return
    graded = [column for column, reward in enumerate(rewards) if isinstance(reward, Accuracy)]
    correct = scores[:, graded[0]].tolist() if graded else [math.nan] * len(scores)
    groups = gathered(rows, correct, size)
    for column, reward in of_groups.items():
        scores[:, column] = torch.tensor([given for group in groups for given in reward.of(group)])
