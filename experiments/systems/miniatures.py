"""Miniatures on which systems are ranked: their bases, problems and recipes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from e1_trl.recipes import fields_of
from experiments.best_of import make_base as best_of
from experiments.first_zero import make_base as first_zero


class Problem(Protocol):
    """A problem of a miniature."""

    @property
    def concise(self) -> list[str]:
        """The tokens of its shortest right thought."""

    @property
    def choices(self) -> str:
        """The answers that it can have."""

    def left(self, thought: Sequence[str]) -> Mapping[str, float]:
        """Return the probability of each answer that the tokens of a thought leave possible."""


@dataclass(frozen=True)
class Miniature:
    """A base and its problems; its folder has both, with the recipe of E1 and an evaluation."""

    name: str
    read: Callable[[str], Problem]
    make_data: Callable[[Path, int], None]

    @property
    def folder(self) -> Path:
        return Path(__file__).parents[1] / self.name

    @property
    def base(self) -> Path:
        return self.folder / "base"

    @property
    def recipe(self) -> Path:
        return self.folder / "recipe.yaml"

    @property
    def systems(self) -> list[Path]:
        """Recipes that are trained on it; only first_zero's base knows what a prompt that asks for a length means."""
        recipes = sorted(Path(__file__).parent.glob("*.yaml"))
        return [each for each in recipes if self.name == "first_zero" or "target_prompt" not in fields_of(each)]

    @property
    def rollouts(self) -> int:
        """Rollouts of an optimizer step, as its recipe has it."""
        fields = fields_of(self.recipe)
        return int(fields["per_device_train_batch_size"] * fields["gradient_accumulation_steps"])


FIRST_ZERO = Miniature("first_zero", first_zero.Search.read, first_zero.make_data)
BEST_OF = Miniature("best_of", best_of.Choice.read, best_of.make_data)
MINIATURES = {each.name: each for each in (FIRST_ZERO, BEST_OF)}
