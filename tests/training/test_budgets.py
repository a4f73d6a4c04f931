"""A policy over budgets is one class; what it draws follows from the rollout alone."""

import hashlib
from dataclasses import replace

import pytest

from e1_trl.budget import Budget
from e1_trl.problems.selection import identity
from e1_trl.training.budgets import Budgets, Draw, drawn, key_of

DRAW = Draw(seed=42, generation=(True, 3, 1), key="0123456789abcdef", row=7)


class Random(Budgets):
    """Thinking of 1 token to the largest."""

    def at(self, draw: Draw) -> Budget:
        digest = hashlib.sha256(repr(draw).encode()).digest()
        return replace(self.largest, thinking=1 + int.from_bytes(digest[:8]) % (self.largest.thinking or 1))


def test_a_problem_is_known_by_its_key_or_else_by_its_prompt() -> None:
    assert key_of({"prompt": "a=3; a?", "key": DRAW.key}) == DRAW.key
    assert key_of({"prompt": [{"role": "user", "content": "a=3; a?"}]}) == identity("a=3; a?")


def test_a_recipes_budget_is_that_of_every_rollout() -> None:
    budgets = Budgets(Budget(1024, None))
    assert budgets.at(DRAW) == budgets.fixed == budgets.largest == Budget(1024, None)
    assert (str(budgets), str(Random(Budget(64, 32)))) == ("1024+unlimited", "up to 64+32")


def test_a_random_budget_is_the_same_in_a_run_that_resumes_and_another_for_another_rollout() -> None:
    budgets = Random(Budget(64, 32))
    drawn = [budgets.at(replace(DRAW, row=row)) for row in range(100)]
    assert drawn == [budgets.at(replace(DRAW, row=row)) for row in range(100)]
    assert len(set(drawn)) > 30 and all(1 <= (budget.thinking or 0) <= 64 and budget.solution == 32 for budget in drawn)
    for other in (replace(DRAW, seed=43), replace(DRAW, generation=(True, 4, 1)), replace(DRAW, key="0" * 16)):
        assert [budgets.at(replace(other, row=row)) for row in range(100)] != drawn


@pytest.mark.parametrize("budget", [Budget(65, 32), Budget(None, 32), Budget(64, 33), Budget(64, None)])
def test_a_policy_that_draws_more_than_the_largest_is_refused(budget: Budget) -> None:
    class Larger(Budgets):
        def at(self, draw: Draw) -> Budget:
            return budget

    with pytest.raises(ValueError, match=r"Larger draws .*; the largest budget of the recipe is 64\+32"):
        drawn(Larger(Budget(64, 32)), DRAW)
