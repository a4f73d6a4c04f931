"""A reward may look at the whole group of a rollout."""

import math
from typing import Any

import torch

from e1_trl.answers.mathematics.grader import MathematicsGrader
from e1_trl.training.groups import Group, GroupReward, gathered, reward_groups
from e1_trl.training.rewards import Accuracy, format_reward, sees_all


class Shortest(GroupReward):
    """1 for the shortest that is right."""

    def of(self, group: Group) -> list[float]:
        right = [tokens for tokens, correct in zip(group.tokens, group.correct, strict=True) if correct]
        return [
            float(bool(correct) and tokens == min(right))
            for tokens, correct in zip(group.tokens, group.correct, strict=True)
        ]


def rows(*tokens: int) -> list[dict[str, Any]]:
    """Rollouts of as many tokens, one of which is of the solution; two of each problem."""
    return [
        {"key": f"{at // 2:016}", "thinking_tokens": each - 1, "solution_tokens": 1} for at, each in enumerate(tokens)
    ]


def test_a_group_has_what_is_known_of_its_rollouts_in_their_order() -> None:
    first, second = gathered(rows(9, 8, 7, 6), [1.0, 0.0, math.nan, 1.0], 2)
    assert first == Group("0" * 16, [True, False], [8, 7], [9, 8])
    assert second == Group("0" * 15 + "1", [None, True], [6, 5], [7, 6])


def test_a_reward_of_groups_fills_in_its_own_column_by_what_accuracy_has_found() -> None:
    accuracy, shortest = Accuracy(MathematicsGrader(time_limit=1.0, workers=1)), Shortest()
    rollouts = rows(9, 8, 9, 8)
    scores = torch.tensor([[0.5, 1.0, 0.0], [0.5, 1.0, 0.0], [0.5, 1.0, 0.0], [0.5, 0.0, 0.0]])
    assert shortest(**{"thinking_tokens": [8, 7], "prompts": []}) == [0.0, 0.0] and not sees_all(shortest)
    reward_groups([format_reward, accuracy, shortest], scores, rollouts, 2)
    assert scores.tolist() == [[0.5, 1.0, 0.0], [0.5, 1.0, 1.0], [0.5, 1.0, 1.0], [0.5, 0.0, 0.0]]
    ungraded = torch.ones(4, 1)
    reward_groups([shortest], ungraded, rollouts, 2)
    assert ungraded.tolist() == [[0.0]] * 4
