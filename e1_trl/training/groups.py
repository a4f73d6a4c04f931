"""Groups: the rollouts of one problem, whichever processes sampled them, and rewards that look at a whole group.

The only file of the training that knows in which order the rows of processes stand.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from accelerate.utils import gather_object

from e1_trl.errors import UserError
from e1_trl.rollout import ThinkingEnd
from e1_trl.training.budgets import key_of


@dataclass(frozen=True)
class Group:
    """The rollouts of one problem in one generation, in order.

    Attributes:
        key: names the problem.
        correct: whether each is right; `None` where its grader failed, or the recipe has no reward `accuracy`.
        thinking, tokens: sampled tokens of each, of its thinking and of all.
        finished: whether each closed its thinking and ended its solution.
        repeats: whether each has four tokens in a row three times; False where no reward looks at it.
        target: tokens that the prompt asks for, if it does.
    """

    key: str
    correct: list[bool | None]
    thinking: list[int]
    tokens: list[int]
    finished: list[bool]
    repeats: list[bool]
    target: int | None = None

    def graded(self) -> Iterator[tuple[int, bool | None]]:
        """Pair the tokens of each rollout with whether it is right."""
        return zip(self.tokens, self.correct, strict=True)

    @property
    def solved(self) -> float:
        """Share of right rollouts among those that could be graded."""
        graded = [each for each in self.correct if each is not None]
        return sum(graded) / max(len(graded), 1)


class GroupReward(ABC):
    """Reward that compares a rollout with the others of its group, for example for being the shortest right one.

    A recipe names a subclass with its arguments, if it takes any: `{name: my_rewards.Shortest}`. A subclass that
    remembers past generations changes `memory` in `remember` alone; checkpoints keep it.

    Attributes:
        memory: what is remembered, by name, as JSON can hold it, equal in all processes; `problems` is by problem keys.
    """

    sees_repeats = False  # whether it looks at `Group.repeats`, which costs time
    weighs_length = False  # whether it adds to the reward for a right answer, with a weight that TRL's scaling can undo
    needs_accuracy = False  # whether the reward `accuracy` must be among the recipe's

    @cached_property
    def memory(self) -> dict[str, Any]:
        return {}

    @abstractmethod
    def of(self, group: Group) -> Sequence[float]:
        """Return the rewards of a group's rollouts."""

    def remember(self, groups: Sequence[Group]) -> None:  # noqa: B027 - most remember nothing
        """See a generation that is trained on, once, after all of its groups have their rewards."""

    def __call__(self, *, thinking_tokens: Sequence[int], **_: Any) -> list[float]:
        """Return zeros to TRL, which `reward_groups` replaces once the rows of all processes are together."""
        return [0.0] * len(thinking_tokens)


def repeats(token_ids: Sequence[int]) -> bool:
    """Return whether four tokens in a row occur three times or more."""
    fours = Counter(zip(*(token_ids[start:] for start in range(4)), strict=False))
    return max(fours.values(), default=0) >= 3


def reward_groups(
    rewards: Sequence[Any],
    scores: torch.Tensor,
    accuracy: int | None,
    rows: Sequence[Mapping[str, Any]],
    size: int,
    training: bool,
) -> None:
    """Fill in the columns of the `GroupReward`s. A collective operation.

    Args:
        rewards: the recipe's.
        scores: (rollouts of all processes, rewards).
        accuracy: column of the scores that says which rollouts are right, if one does.
        rows: of this process, with the columns that a rollout adds, and `completion_ids`.
        size: rollouts of a group.
        training: whether the generation is trained on, and so remembered.

    Raises:
        UserError: a reward returns another number of values than a group has rollouts.
    """
    of_groups = {column: reward for column, reward in enumerate(rewards) if isinstance(reward, GroupReward)}
    if not of_groups:
        return
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
        )
        for row in rows
    ]
    gathered = gather_object(own)
    groups = []
    for start in range(0, len(gathered), size):
        keys, thinking, tokens, finished, repeated, targets = map(
            list, zip(*gathered[start : start + size], strict=True)
        )
        correct = [None if math.isnan(each) else bool(each) for each in known[start : start + size]]
        groups.append(Group(keys[0], correct, thinking, tokens, finished, repeated, targets[0]))
    for column, reward in of_groups.items():
        for at, group in enumerate(groups):
            values = list(reward.of(group))
            if len(values) != len(group.tokens):
                name = type(reward).__name__
                raise UserError(f"the reward {name} returns {len(values)} values for a group of {len(group.tokens)}")
            scores[at * size : (at + 1) * size, column] = torch.tensor(values)
        if training:
            reward.remember(groups)
