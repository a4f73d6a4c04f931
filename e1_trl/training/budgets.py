"""Which budget each rollout of a training is sampled under: numbers of tokens for all, or schedules of them.

Pure: the budget of a rollout follows from its `RolloutKey`, so that all processes agree and a resumed run needs no
state.
Knows nothing about engines or trainers.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from e1_trl.arguments import from_yaml
from e1_trl.budget import Budget
from e1_trl.errors import UserError
from e1_trl.problems.prompts import identity, last_question

Generation = tuple[bool, int, int]  # whether it is trained on, the optimizer's step, its number within that
Tokens = int | None  # `None` is unlimited
FIELDS = ("thinking_budget", "solution_budget", "total_budget")

# What a schedule may be, as a recipe says it, and the other entries of each.
FORMS = {
    "stages": "{stages: {0: 4000, 200: 3000}}, each from an optimizer step on",
    "cosine": "{cosine: [8192, 4096], period: 640}, between both, in optimizer steps",
    "stair_cosine": "{stair_cosine: [8192, 4096], period: 640}, the same with a quarter of a period at either",
    "uniform": "{uniform: [256, 4096], per: problem}, drawn anew in each generation, or per: row",
    "log_uniform": "{log_uniform: [256, 4096], per: problem}",
    "choice": "{choice: [0, 512, 1024], per: problem}",
}
CYCLES, DRAWN = {"cosine", "stair_cosine"}, {"uniform", "log_uniform", "choice"}


class Generations:
    """Names the generations of a training, counted from each step on: a run that was resumed has the same names."""

    def __init__(self) -> None:
        self._counted: dict[tuple[bool, int], int] = {}

    def next(self, training: bool, step: int) -> Generation:
        """Name the next generation of a step, those of evaluations apart."""
        self._counted[training, step] = self._counted.get((training, step), 0) + 1
        return (training, step, self._counted[training, step])


@dataclass(frozen=True)
class RolloutKey:
    """A rollout that is to have a budget: all that chance may follow from, so that a resumed run draws the same."""

    seed: int  # the recipe's
    generation: Generation
    key: str  # of its problem
    row: int  # its place among the rollouts of all processes in the generation


def key_of(row: Mapping[str, Any]) -> str:
    """What names the problem of a row: its column `key`, which `make_problems` gives it, or else its prompt."""
    key: str = row.get("key") or identity(last_question(row["prompt"]))
    return key


def chance(kind: str, values: Sequence[Any], *of: object) -> Any:
    """A number of tokens as `kind` draws it from `values`: the same wherever `of` is."""
    drawn = random.Random(" ".join(map(str, of)))
    if kind == "choice":
        return drawn.choice(values)
    least, most = values
    return drawn.randint(least, most) if kind == "uniform" else round(least * (most / least) ** drawn.random())


@dataclass(frozen=True)
class Schedule:
    """A number of tokens for each rollout.

    Attributes:
        name: of the recipe's field; each draws on its own.
        kind: one of `FORMS`, or `"number"`: the same for all.
        values: in tokens.
        starts: of stages, the optimizer step at which each begins.
        period: of cycles, in optimizer steps.
        per: `"problem"`, or `"row"`: every rollout of a problem draws anew.
    """

    name: str
    kind: str
    values: tuple[Tokens, ...]
    starts: tuple[int, ...] = ()
    period: int = 0
    per: str = "problem"

    @classmethod
    def parse(cls, name: str, given: Any) -> "Schedule":
        """What a recipe, or as YAML a command line, says in the field of this name.

        Raises:
            UserError: it is neither a number nor a schedule.
        """
        said = from_yaml(name, given)
        if said is None or type(said) is int:
            return cls(name, "number", (said,))
        kinds = [each for each in FORMS if isinstance(said, Mapping) and each in said]
        if not kinds:
            forms = "; ".join(FORMS.values())
            raise UserError(f"{name} is {given!r}; it must be a number of tokens, null, or a schedule: {forms}")
        kind, of = kinds[0], said[kinds[0]]
        more = {option: value for option, value in said.items() if option != kind}
        match kind:
            case "stages" if isinstance(of, Mapping) and _tokens(of.values()) and not more:
                if 0 in of and all(type(start) is int and start >= 0 for start in of):
                    starts = sorted(of)
                    return cls(name, kind, tuple(of[start] for start in starts), tuple(starts))
            case _ if isinstance(of, list) and kind in CYCLES and more.keys() == {"period"} and len(of) == 2:
                if _tokens(of, unlimited=False) and isinstance(more["period"], int) and more["period"] > 1:
                    return cls(name, kind, tuple(of), period=more["period"])
            case _ if isinstance(of, list) and kind in DRAWN and more.get("per", "problem") in ("problem", "row"):
                is_range = kind == "choice" or (_tokens(of, unlimited=False) and len(of) == 2 and of[0] <= of[1])
                if is_range and of and _tokens(of) and more.keys() <= {"per"} and (kind != "log_uniform" or of[0] > 0):
                    return cls(name, kind, tuple(of), **more)
        raise UserError(f"{name} is {given!r}; it must read as {FORMS[kind]}")

    @property
    def largest(self) -> Tokens:
        """No rollout has more."""
        return None if None in self.values else max(tokens for tokens in self.values if tokens is not None)

    def at(self, draw: RolloutKey) -> Tokens:
        """What one rollout has."""
        step = draw.generation[1]
        if self.kind == "stages":
            return self.values[sum(start <= step for start in self.starts) - 1]
        if self.kind in DRAWN:
            row = draw.row if self.per == "row" else None
            tokens: Tokens = chance(self.kind, self.values, draw.seed, self.name, draw.generation, draw.key, row)
            return tokens
        if self.kind in CYCLES:
            first, last = (tokens or 0 for tokens in self.values)
            phase = math.tau * (step % self.period) / self.period
            if self.kind == "stair_cosine":  # SIRI, arXiv 2509.25176: held for a quarter, then twice as steep
                phase = 2 * min(max(min(phase, math.tau - phase) - math.pi / 4, 0), math.pi / 2)
            return round((first + last) / 2 + (first - last) / 2 * math.cos(phase))
        return self.values[0]


def _tokens(values: Any, unlimited: bool = True) -> bool:
    """Whether all are numbers of tokens."""
    return all((each is None and unlimited) or (type(each) is int and each >= 0) for each in values)


@dataclass(frozen=True)
class Budgets:
    """What rollouts are sampled under; by the paper one budget for all (arXiv 2505.05315, section 3.2).

    Raises:
        UserError: a value of a schedule makes no budget.
    """

    thinking: Schedule
    solution: Schedule
    total: Schedule

    def __post_init__(self) -> None:
        _ = self.extremes

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Budgets":
        """What the three fields of a recipe say.

        Raises:
            UserError: one of them says neither a number nor a schedule, or makes no budget.
        """
        return cls(*(Schedule.parse(name, fields[name]) for name in FIELDS))

    @property
    def extremes(self) -> list[Budget]:
        """What each part can be at least and at most, with each of the others: what must fit the context."""
        return [Budget(*parts) for parts in product(self.thinking.values, self.solution.values, self.total.values)]

    @property
    def largest(self) -> Budget:
        """No rollout has a larger part than its."""
        return Budget(self.thinking.largest, self.solution.largest, self.total.largest)

    def completion_tokens(self, forced: int) -> int | None:
        """The longest completion in tokens, with `forced` forced tokens; `None` if nothing bounds some of them."""
        longest = [budget.completion_tokens(forced) for budget in self.extremes]
        return None if None in longest else max(tokens for tokens in longest if tokens is not None)

    @property
    def fixed(self) -> Budget | None:
        """The budget of all rollouts; `None` where they differ."""
        return (
            self.largest if {part.kind for part in (self.thinking, self.solution, self.total)} == {"number"} else None
        )

    def __str__(self) -> str:
        return str(self.fixed or f"up to {self.largest}")

    def at(self, draw: RolloutKey) -> Budget:
        """The budget of one rollout."""
        return Budget(self.thinking.at(draw), self.solution.at(draw), self.total.at(draw))
