"""Which budget a rollout of a training is sampled under. A recipe names one for all; another policy is a subclass.

Knows nothing about engines or trainers: the trainer makes a `Draw` of every rollout, and asks for its budget.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from e1_trl.budget import Budget
from e1_trl.problems.prompts import last_question
from e1_trl.problems.selection import identity

Generation = tuple[bool, int, int]  # whether it is trained on, the optimizer's step, its number within that


@dataclass(frozen=True)
class Draw:
    """A rollout that is to have a budget. Everything random must follow from it, so that a resumed run draws the same.

    Attributes:
        seed: the recipe's.
        generation: the name of its generation.
        key: of its problem (`e1_trl.problems.selection.identity`).
        row: its place among the rollouts of all processes in the generation.
    """

    seed: int
    generation: Generation
    key: str
    row: int


def draws(rows: Sequence[Mapping[str, Any]], first: int, generation: Generation, seed: int) -> list[Draw]:
    """What the rollouts of these rows of a dataset are.

    Args:
        rows: of this process, one for each rollout.
        first: how many rollouts other processes have before them.
        generation, seed: as in `Draw`.
    """
    return [Draw(seed, generation, key_of(row), first + at) for at, row in enumerate(rows)]


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
        return self.largest

    def __str__(self) -> str:
        return str(self.fixed or f"up to {self.largest}")

    def at(self, draw: Draw) -> Budget:
        """The budget of one rollout."""
        return self.largest
