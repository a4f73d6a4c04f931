"""Which budget a rollout of a training is sampled under. A recipe gives one for all; another policy is a subclass,
which `budget_policy` names.

Knows nothing about engines or trainers: the trainer makes a `Draw` of every rollout, and asks for its budget.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from e1_trl.budget import Budget
from e1_trl.problems.prompts import last_question
from e1_trl.problems.selection import identity
from e1_trl.training.named import make

Generation = tuple[bool, int, int]  # whether it is trained on, the optimizer's step, its number within that


@dataclass(frozen=True)
class Draw:
    """A rollout that is to have a budget: all that chance may follow from, so that a resumed run draws the same."""

    seed: int  # the recipe's
    generation: Generation
    key: str  # of its problem
    row: int  # its place among the rollouts of all processes in the generation


def key_of(row: Mapping[str, Any]) -> str:
    """What names the problem of a row: its column `key`, which `make_problems` gives it, or else its prompt."""
    key: str = row.get("key") or identity(last_question(row["prompt"]))
    return key


@dataclass(frozen=True)
class Budgets:
    """One budget for all rollouts (arXiv 2505.05315, section 3.2).

    Attributes:
        largest: no rollout has a larger one in either part; what context and engine are sized for.
    """

    largest: Budget

    @property
    def fixed(self) -> Budget | None:
        """The budget of all rollouts; `None` where they differ."""
        return self.largest if type(self) is Budgets else None

    def __str__(self) -> str:
        return str(self.fixed or f"up to {self.largest}")

    def at(self, draw: Draw) -> Budget:
        """The budget of one rollout."""
        return self.largest


def make_budgets(policy: str | Mapping[str, Any] | None, largest: Budget) -> Budgets:
    """What a recipe names as `budget_policy`, as YAML or, from the command line, as its text; one budget if nothing.

    Raises:
        ValueError: it cannot be imported or made, or is no `Budgets`.
    """
    spec = yaml.safe_load(policy) if isinstance(policy, str) else policy
    if spec is None:
        return Budgets(largest)
    budgets = make(spec, {}, "budget_policy", largest)
    if not isinstance(budgets, Budgets) or getattr(budgets, "largest", None) != largest:
        raise ValueError(f"budget_policy {policy} makes no e1_trl.training.budgets.Budgets whose largest is {largest}")
    return budgets


def drawn(budgets: Budgets, draw: Draw) -> Budget:
    """The budget of one rollout, which is not more than the largest.

    Raises:
        ValueError: the policy has drawn more.
    """
    budget, largest = budgets.at(draw), budgets.largest
    for tokens, most in ((budget.thinking, largest.thinking), (budget.solution, largest.solution)):
        if most is not None and (tokens is None or tokens > most):
            raise ValueError(f"{type(budgets).__name__} draws {budget}; the largest budget of the recipe is {largest}")
    return budget
