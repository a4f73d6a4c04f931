"""The control of forks with the mean: a quarter of GRPO's advantage on the thinking, all of it on the solution."""

from e1_trl.training.advantages import Rewards, grpo
from e1_trl.training.groups import Group


def quarter(group: Group, rewards: Rewards) -> list[tuple[float, float]]:
    """Pair each advantage of GRPO with a quarter of itself, for the thinking."""
    return [(value / 4, value) for value in grpo(group, rewards)]
