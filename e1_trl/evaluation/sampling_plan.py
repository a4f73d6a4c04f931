"""All samples of one evaluation: a tree for each sample of each problem. Knows no engine and no file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from e1_trl.budget import ThinkingClose
from e1_trl.evaluation.methods import MIXED, Cell, Question, Setting
from e1_trl.problems.prompts import Prompt
from e1_trl.rollout import Segment
from e1_trl.tree import StoredSegment, Tree

Place = tuple[int, int]  # problem and sample


@dataclass(frozen=True)
class Goal:
    """Cell to answer on the first `problems` problems, with `samples` samples each.

    `commit` is the version of this project that reached the goal; `None` until then.
    """

    cell: Cell
    problems: int
    samples: int
    commit: str | None = None

    def covers(self, other: "Goal") -> bool:
        """Return whether this goal includes all answers of the other."""
        return self.cell == other.cell and self.problems >= other.problems and self.samples >= other.samples


@dataclass(frozen=True)
class Problem:
    """Problem; `prompts` maps the text that a method adds to it (`Cell.request`) to the prompt's token ids.

    `problem_id` is the problem's name in a benchmark of programs, or its `key`.
    """

    index: int
    problem_id: str | None
    prompt: Prompt
    answers: list[str]
    prompts: Callable[[str], list[int]]


@dataclass(frozen=True)
class SamplingPlan:
    """Problems, and the goals that their trees are to reach.

    `thinking` is another model's, for the method `mixed`.
    """

    problems: Sequence[Problem]
    goals: Sequence[Goal]
    setting: Setting
    independent: bool
    thinking: Mapping[Place, Segment]

    def cells(self, problem: Problem, sample: int) -> list[Cell]:
        return [goal.cell for goal in self.goals if problem.index < goal.problems and sample < goal.samples]

    def places(self) -> list[tuple[Problem, int]]:
        samples = range(max(goal.samples for goal in self.goals))
        return [(problem, sample) for problem in self.problems for sample in samples if self.cells(problem, sample)]

    def tree(self, problem: Problem, sample: int, saved: Sequence[StoredSegment]) -> Tree[Cell]:
        """Make a tree, with its methods run as far as its saved segments reach."""
        setting = self.setting
        tree: Tree[Cell] = Tree(problem.index, sample, setting.close.marker, setting.decode, saved, self.independent)
        for cell in self.cells(problem, sample):
            thinking = self.thinking.get((problem.index, sample)) if cell.method == MIXED else None
            method = cell.record
            prompt_ids = problem.prompts(cell.request)
            context = method.context(len(prompt_ids), cell.budget, setting)
            own = replace(setting, close=replace(setting.close, context=context))
            tree.start(cell, method.complete(tree, Question(prompt_ids, cell.budget, thinking), own))
        return tree

    @property
    def answers(self) -> int:
        return sum(len(self.cells(*place)) for place in self.places())

    @property
    def close(self) -> ThinkingClose:
        """Close of the thinking, with the context of the longest sequence, or the whole if the setting says so."""
        contexts = [self._longest_prompt(goal) + self.most_tokens(goal) for goal in self.goals]
        whole = self.setting.close
        return whole if self.setting.whole_context else replace(whole, context=max(contexts))

    def most_tokens(self, goal: Goal) -> int:
        """Return the tokens of a goal's longest completion; raise a `UserError` if they do not fit the context."""
        prompt = self._longest_prompt(goal)
        return goal.cell.record.context(prompt, goal.cell.budget, self.setting) - prompt

    def _longest_prompt(self, goal: Goal) -> int:
        request = goal.cell.request
        prompts = (len(problem.prompts(request)) for problem in self.problems if problem.index < goal.problems)
        return max(prompts, default=0)
