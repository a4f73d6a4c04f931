"""Budgets of a training's rollouts: numbers of tokens for all of them, or schedules.

Pure: the budget of a rollout follows from its `RolloutKey`, so all processes agree and a resumed run needs no state.
Knows nothing about engines or trainers.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from e1_trl.arguments import find, from_yaml
from e1_trl.budget import Budget
from e1_trl.errors import UserError, one_line
from e1_trl.problems.prompts import IDENTITY, identity, problem_of

Generation = tuple[bool, int, int]  # whether it is trained on, the optimizer step, its number within that step
Tokens = int | None  # `None` is unlimited
FIELDS = ("thinking_budget", "solution_budget", "total_budget")


@dataclass(frozen=True)
class RolloutKey:
    """Everything that a schedule may depend on.

    Attributes:
        seed: the recipe's.
        generation: the one that the rollout belongs to.
        problem: key of the problem: 16 hexadecimal digits, the same in all generations.
        row: place among the rollouts of all processes in the generation, or among their thoughts if these are forked.
        field: the recipe's field that holds the schedule, so that two fields draw independently.
        fork: place of the rollout among those of its thought.
    """

    seed: int
    generation: Generation
    problem: str
    row: int
    field: str = ""
    fork: int = 0

    @property
    def step(self) -> int:
        """Optimizer steps before this generation."""
        return self.generation[1]

    def random(self, per: str = "problem") -> random.Random:
        """Return a generator for a problem in a generation, or for one `"row"`: the same in all processes."""
        row = {"problem": None, "row": self.row}[per]
        return random.Random(" ".join(map(str, (self.seed, self.field, self.generation, self.problem, row))))


def key_of(row: Mapping[str, Any]) -> str:
    """Return the key of a row's problem: the row's `key` if `identity` made it, else one made from its prompt."""
    key = str(row.get("key"))
    return key if IDENTITY.fullmatch(key) else identity(problem_of(row["prompt"]))


def fixed(key: RolloutKey, tokens: Tokens) -> Tokens:
    return tokens


def stages(key: RolloutKey, values: Mapping[int, Tokens]) -> Tokens:
    return values[max(start for start in values.keys() if start <= key.step)]  # noqa: SIM118  a list has none


def stair_cosine(key: RolloutKey, values: Sequence[int], period: int) -> Tokens:
    """Return a point of SIRI's cosine (arXiv 2509.25176), which rests for a quarter of its period at either end."""
    if type(period) is not int or period < 2:
        raise ValueError("a period has at least two steps")
    first, last = values
    phase = math.tau * (key.step % period) / period
    phase = 2 * min(max(min(phase, math.tau - phase) - math.pi / 4, 0), math.pi / 2)
    return round((first + last) / 2 + (first - last) / 2 * math.cos(phase))


def uniform(key: RolloutKey, values: Sequence[int], per: str = "problem") -> Tokens:
    least, most = values
    return key.random(per).randint(least, most)


def log_uniform(key: RolloutKey, values: Sequence[int], per: str = "problem", forks: int = 1) -> Tokens:
    """Draw from a range; the forks of a thought draw from equal parts of it, all at the same relative place."""
    least, most = values
    if least > most:
        raise ValueError("the smaller number comes first")
    return round(least * (most / least) ** ((key.fork + key.random(per).random()) / forks))


def nested(key: RolloutKey, values: Sequence[int]) -> Tokens:
    if [*values] != sorted(values):
        raise ValueError("the smallest number comes first")
    return values[key.fork]


def choice(key: RolloutKey, values: Sequence[Tokens], per: str = "problem") -> Tokens:
    return key.random(per).choice(values)


# The schedules that a recipe names without a dotted path, and how it writes them.
FORMS: dict[Callable[..., Tokens], str] = {
    stages: "{stages: {0: 4000, 200: 3000}}, each from an optimizer step on",
    stair_cosine: "{stair_cosine: [8192, 4096], period: 640}, between both and back, in optimizer steps",
    uniform: "{uniform: [256, 4096], per: problem}, drawn in each generation; per: row draws for every rollout",
    log_uniform: "{log_uniform: [256, 4096], per: problem}, with forks: 4 also at four budgets of one thought",
    nested: "{nested: [1000, 2000, 4000, 8000]}, which forks one thought at each",
    choice: "{choice: [0, 512, 1024], per: problem}",
}
SCHEDULES = {function.__name__: function for function in FORMS}
OWN = "{my_schedules.staircase: [256, 1024]}, a function of your own"


@dataclass(frozen=True)
class Schedule:
    """Number of tokens for each rollout.

    A recipe writes `{uniform: [256, 4096], per: row}`, and a rollout gets `uniform(key, [256, 4096], per="row")`. The
    function is one of `SCHEDULES`, or the user's at a dotted path. Its result must follow from its arguments alone, and
    not exceed the largest number in `argument`, a number, a list, or the values of a mapping.
    """

    field: str
    function: Callable[..., Tokens]
    argument: Any
    options: Mapping[str, Any]

    @classmethod
    def parse(cls, field: str, given: Any) -> "Schedule":
        """Read a recipe's field, which is YAML text if it comes from a command line, or raise a `UserError`."""
        said = from_yaml(field, given)
        if said is None or type(said) is int:
            return cls(field, fixed, said, {})
        entries = said if isinstance(said, Mapping) else {}
        name = next((str(each) for each in entries if each in SCHEDULES or "." in str(each)), None)
        if name is None:
            forms = "; ".join([*FORMS.values(), OWN])
            raise UserError(f"{field} is {given!r}; it must be a number of tokens, null, or a schedule: {forms}")
        function = find(name, SCHEDULES, "schedule")
        options = {option: value for option, value in entries.items() if option != name}
        schedule = cls(field, function, entries[name], options)
        try:
            if not all(each is None or (type(each) is int and each >= 0) for each in schedule.values):
                raise ValueError("its argument must hold numbers of tokens")
            if function is stages and not all(type(start) is int and start >= 0 for start in schedule.argument):
                raise ValueError("stages begin at optimizer steps")
            if schedule.forks < 1:
                raise ValueError("a thought has one fork or more")
            schedule.at(RolloutKey(0, (True, 0, 1), identity(""), 0, fork=schedule.forks - 1))
        except Exception as error:  # whatever a function of the user's raises
            reads = f"must read as {FORMS[function]}" if name in SCHEDULES else f"fails: {one_line(error)}"
            raise UserError(f"{field} is {given!r}; it {reads}") from error
        if schedule.forks > 1 and field != FIELDS[0]:
            raise UserError(f"{field} has {schedule.forks} forks; only the thoughts of {FIELDS[0]} are forked")
        return schedule

    @property
    def values(self) -> list[Tokens]:
        """Numbers of tokens that bound what rollouts get: the largest, the smallest, and others."""
        if isinstance(self.argument, Mapping):
            return [*self.argument.values()]
        return self.argument if isinstance(self.argument, list) else [self.argument]

    @property
    def forks(self) -> int:
        """Rollouts that share one thought, cut at budgets of their own."""
        return len(self.argument) if self.function is nested else self.options.get("forks", 1)

    @property
    def largest(self) -> Tokens:
        """Most tokens of any rollout."""
        return None if None in self.values else max(tokens for tokens in self.values if tokens is not None)

    def at(self, key: RolloutKey) -> Tokens:
        """Return the tokens of one rollout, or raise a `UserError` if a user's function returns an invalid number."""
        tokens = self.function(replace(key, field=self.field), self.argument, **self.options)
        most = self.largest
        unlimited = tokens is None and most is None
        if not unlimited and not (type(tokens) is int and 0 <= tokens <= (tokens if most is None else most)):
            expected = "0 on, or null" if most is None else f"0 to {most}"
            raise UserError(f"{self.field} is {tokens!r} at step {key.step}; expected a whole number from {expected}")
        return tokens


@dataclass(frozen=True)
class Budgets:
    """Budgets of all rollouts; in the paper there is one for all of them (arXiv 2505.05315, section 3.2)."""

    thinking: Schedule
    solution: Schedule
    total: Schedule

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Budgets":
        """Read the three fields of a recipe, or raise a `UserError`."""
        budgets = cls(*(Schedule.parse(name, fields[name]) for name in FIELDS))
        budgets.extremes()
        return budgets

    @property
    def forks(self) -> int:
        """Rollouts that share one thought: row r is fork r % forks of thought r // forks."""
        return self.thinking.forks

    def extremes(self) -> list[Budget]:
        """Combine all values of the three parts; each of these budgets must fit the context."""
        return [Budget(*parts) for parts in product(self.thinking.values, self.solution.values, self.total.values)]

    @property
    def largest(self) -> Budget:
        """Budget that has the largest of each part."""
        return Budget(self.thinking.largest, self.solution.largest, self.total.largest)

    def completion_tokens(self, forced: int) -> int | None:
        """Longest completion in tokens, with `forced` forced tokens; `None` if nothing bounds some of them."""
        longest = [budget.completion_tokens(forced) for budget in self.extremes()]
        return None if None in longest else max(tokens for tokens in longest if tokens is not None)

    @property
    def fixed(self) -> Budget | None:
        """Budget of all rollouts; `None` where they differ."""
        parts = (self.thinking, self.solution, self.total)
        return self.largest if all(part.function is fixed for part in parts) else None

    def __str__(self) -> str:
        return str(self.fixed or f"up to {self.largest}")

    def at(self, key: RolloutKey) -> Budget:
        forked = replace(key, row=key.row // self.forks, fork=key.row % self.forks)
        return Budget(self.thinking.at(forked), self.solution.at(key), self.total.at(key))
