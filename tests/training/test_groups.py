"""A reward may look at the whole group of a rollout."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from e1_trl.rollout import ThinkingEnd
from e1_trl.training.groups import Group, GroupReward, reward_groups
from e1_trl.training.named_rewards import format_reward
from e1_trl.training.rewards import Accuracy, sees_all

ACCURACY = Accuracy(None)  # type: ignore[arg-type]


class Shortest(GroupReward):
    """1 for the shortest that is right."""

    def of(self, group: Group) -> list[float]:
        right = [tokens for tokens, correct in group.graded() if correct]
        return [float(bool(correct) and tokens == min(right)) for tokens, correct in group.graded()]


def rows(*tokens: int) -> list[dict[str, Any]]:
    """Rollouts of as many tokens, one of which is of the solution; two of each problem."""
    return [
        {
            "key": f"{at // 2:016}",
            "thinking_tokens": each - 1,
            "solution_tokens": 1,
            "thinking_end": ("closed", "forced", "eos", "total")[at],
            "solution_truncated": at == 1,
            "completion_ids": [at] * each,
            "target": 5,
            "thinking_budget": 10 * at,
        }
        for at, each in enumerate(tokens)
    ]


def test_a_reward_of_groups_fills_in_its_own_column_by_what_accuracy_has_found() -> None:
    seen: list[Group] = []

    class Watching(Shortest):
        sees_repeats = True

        def __init__(self, bonus: float = 1.0):  # as one that remembers nothing may have it
            self.bonus = bonus

        def of(self, group: Group) -> list[float]:
            seen.append(group)
            return super().of(group)

    shortest = Watching()
    assert shortest(**{"thinking_tokens": [8, 7], "prompts": []}) == [0.0, 0.0] and not sees_all(shortest)
    scores = torch.tensor([[0.5, 1.0, 0.0], [0.5, 1.0, 0.0], [0.5, math.nan, 0.0], [0.5, 1.0, 0.0]])
    reward_groups([format_reward, ACCURACY, shortest], scores, 1, rows(9, 8, 5, 6), 2, training=True)
    assert scores[:, 2].tolist() == [0.0, 1.0, 0.0, 1.0] and scores[:, 0].tolist() == [0.5] * 4
    ends = [ThinkingEnd.CLOSED, ThinkingEnd.FORCED, ThinkingEnd.EOS, ThinkingEnd.TOTAL]
    assert seen == [
        Group("0" * 16, [True, True], [8, 7], [9, 8], [True, False], [True, True], 5, [0, 10], 1, ends[:2]),
        Group("0" * 15 + "1", [None, True], [4, 5], [5, 6], [False, False], [False, True], 5, [20, 30], 1, ends[2:]),
    ]
    unknown = torch.ones(4, 1)
    reward_groups([shortest], unknown, None, rows(9, 8, 9, 8), 2, training=True)
    assert unknown.tolist() == [[0.0]] * 4 and seen[-1].correct == [None, None] and shortest.memory == {}


def test_a_reward_of_groups_may_give_none_where_the_grader_failed() -> None:
    class Known(GroupReward):
        def of(self, group: Group) -> list[float | None]:
            return [None if correct is None else 0.5 for correct in group.correct]

    scores = torch.tensor([[1.0, 9.0], [math.nan, 9.0]])
    reward_groups([ACCURACY, Known()], scores, 0, rows(9, 8), 2, training=True)
    assert scores[0, 1] == 0.5 and scores[1, 1].isnan()


def test_a_reward_that_does_not_give_a_value_to_each_of_a_group_is_named() -> None:
    class Single(GroupReward):
        def of(self, group: Group) -> list[float]:
            return [1.0]

    with pytest.raises(ValueError, match="Single returns 1 values for a group of 2"):
        reward_groups([Single()], torch.zeros(4, 1), None, rows(9, 8, 7, 6), 2, training=True)


def test_a_reward_sees_a_generation_once_after_all_its_groups_and_only_where_that_is_trained_on() -> None:
    seen: list[list[str]] = []

    class Remembering(Shortest):
        def of(self, group: Group) -> list[float]:
            assert not seen
            return super().of(group)

        def remember(self, groups: Sequence[Group]) -> None:
            seen.append([group.key for group in groups])

    reward_groups([Remembering()], torch.zeros(4, 1), None, rows(9, 8, 7, 6), 2, training=False)
    assert not seen
    reward_groups([Remembering()], torch.zeros(4, 1), None, rows(9, 8, 7, 6), 2, training=True)
    assert seen == [["0" * 16, "0" * 15 + "1"]]
