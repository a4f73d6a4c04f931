"""Miniatures on which systems are ranked: their bases, problems and recipes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    """A language of problems, and the recipe of E1 on them, which has the base, batch, rate and tokens of all systems.

    The folder of the language has both, with an evaluation.
    """

    name: str
    language: str
    read: Callable[[str], Problem]
    make_data: Callable[[Path, int], None]
    settings: str = "recipe.yaml"

    @property
    def folder(self) -> Path:
        return Path(__file__).parents[1] / self.language

    @property
    def data(self) -> Path:
        """The folder of its problems, which its recipe and its evaluation name."""
        return Path("runs") / self.language

    @property
    def recipe(self) -> Path:
        return self.folder / self.settings

    @property
    def base(self) -> Path:
        return Path(__file__).parents[2] / fields_of(self.recipe)["model_name_or_path"]

    @property
    def systems(self) -> list[Path]:
        """Recipes that are trained on it; only first_zero's base knows what a prompt that asks for a length means."""
        recipes = sorted(Path(__file__).parent.glob("*.yaml"))
        return [each for each in recipes if self.language == "first_zero" or "target_prompt" not in fields_of(each)]

    @property
    def rollouts(self) -> int:
        """Rollouts of an optimizer step, as its recipe has it."""
        fields = fields_of(self.recipe)
        return int(fields["per_device_train_batch_size"] * fields["gradient_accumulation_steps"])


FIRST_ZERO = Miniature("first_zero", "first_zero", first_zero.Search.read, first_zero.make_data)
SHORT = replace(FIRST_ZERO, name="first_zero_short", settings="short.yaml")
BEST_OF = Miniature("best_of", "best_of", best_of.Choice.read, best_of.make_data)
CONCISE = replace(BEST_OF, name="best_of_concise", settings="concise.yaml")
MINIATURES = {each.name: each for each in (FIRST_ZERO, SHORT, BEST_OF, CONCISE)}
