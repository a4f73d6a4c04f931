"""Everything that is to be sampled in one evaluation. Knows neither engines nor files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from e1_trl.evaluation.methods import METHODS, MIXED, Cell, Question, Setting
from e1_trl.problems.prompts import Prompt
from e1_trl.rollout import Segment
from e1_trl.tree import Leg, Tree

Identity = tuple[int, int]  # problem and sample


@dataclass(frozen=True)
class Asked:
    """A cell that was asked for, on the first `problems` problems with `samples` samples each.

    `commit` is the version of this project that finished sampling it, `None` while that is to be done.
    """

    cell: Cell
    problems: int
    samples: int
    commit: str | None = None

    def covers(self, other: "Asked") -> bool:
        """Whether it holds all answers of the other."""
        return self.cell == other.cell and self.problems >= other.problems and self.samples >= other.samples


@dataclass(frozen=True)
class Problem:
    """A problem with its prompts, as token ids, by what a method adds to it (`Cell.request`).

    `problem_id` is what a benchmark of programs calls it, or its `key`.
    """

    index: int
    problem_id: str | None
    prompt: Prompt
    answers: list[str]
    prompts: Mapping[str, list[int]]


@dataclass(frozen=True)
class Plan:
    """Everything that is to be sampled: a tree per problem and sample, with every cell that was asked of it.

    Attributes:
        thinking: for the method `mixed`, the other model's thinking.
    """

    problems: Sequence[Problem]
    asked: Sequence[Asked]
    setting: Setting
    independent: bool
    thinking: Mapping[Identity, Segment]

    def cells(self, problem: Problem, sample: int) -> list[Cell]:
        """What was asked of one tree."""
        return [asked.cell for asked in self.asked if problem.index < asked.problems and sample < asked.samples]

    def trees(self) -> list[tuple[Problem, int]]:
        """Problem and sample of every tree."""
        samples = max(asked.samples for asked in self.asked)
        every = ((problem, sample) for problem in self.problems for sample in range(samples))
        return [(problem, sample) for problem, sample in every if self.cells(problem, sample)]

    def tree(self, problem: Problem, sample: int, saved: Sequence[Leg]) -> Tree[Cell]:
        """A tree with its methods run as far as what is saved of it reaches."""
        setting = self.setting
        tree: Tree[Cell] = Tree(problem.index, sample, setting.close.marker, setting.decode, saved, self.independent)
        for cell in self.cells(problem, sample):
            thinking = self.thinking.get((problem.index, sample)) if cell.method == MIXED else None
            method, prompt_ids = METHODS[cell.method], problem.prompts[cell.request]
            context = method.context(len(prompt_ids), cell.budget, setting)
            room = replace(setting, close=replace(setting.close, context=context))
            tree.start(cell, method.answer(tree, Question(prompt_ids, cell.budget, thinking), room))
        return tree

    @property
    def context(self) -> int:
        """The longest sequence that it can take, in tokens.

        Raises:
            ValueError: a cell does not fit the context, or all problems that it is asked for are left out.
        """
        contexts = []
        for asked in self.asked:
            request = asked.cell.request
            prompts = [len(problem.prompts[request]) for problem in self.problems if problem.index < asked.problems]
            if not prompts:
                raise ValueError(f"the first {asked.problems} prompts are all longer than max_prompt_length")
            method = METHODS[asked.cell.method]
            contexts.append(method.context(max(prompts), asked.cell.budget, self.setting))
        return max(contexts)
