r"""Rewards: ours, functions of the solution; TRL's and one's own, by name, or made with arguments.

TRL calls a reward with the columns of the dataset and those our rollout adds, one value per completion. What our
rewards look at is `solution_text` (what follows the close of the thinking, "" if there is none), how the thinking
ended, and whether the solution was cut; never the whole completion, so a box inside the thinking earns nothing.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import nn
from trl.rewards import (
    accuracy_reward,
    get_cosine_scaled_reward,
    get_repetition_penalty_reward,
    get_soft_overlong_punishment,
    reasoning_accuracy_reward,
    think_format_reward,
)

from e1_trl.answers.grade import Grader, Outcome
from e1_trl.answers.mathematics.boxes import BOX_OPENING, boxed_answer
from e1_trl.answers.mathematics.numerals import works_out
from e1_trl.errors import UserError
from e1_trl.rollout import ThinkingEnd
from e1_trl.training.lengths import LENGTH_REWARDS
from e1_trl.training.named import find, make

logger = logging.getLogger(__name__)

# A function, a reward model, or the name of one.
Reward = Callable[..., Any] | str


class Accuracy:
    """1.0 for a solution that its grader finds right, else 0.0; None where the grader itself has failed.

    A hostile answer, which times out or crashes its worker, is a wrong one, and so is one that leaves the computing to
    the grader. So is a right one that was worked out in its box, `6*8=48`, unless an accepted answer has such work: a
    policy that is paid for it takes the box for scratch paper. An evaluation counts it as right.

    Logs which part of the completions went wrong other than by being wrong, as `grading/timed_out` and so on (ratios),
    one for each of the grader's `faults`; of mathematics, what part worked in the box, right or wrong, as
    `grading/worked_in_box`; for how long it waited for the grades of a generation, in seconds; and every completion's
    outcome.
    """

    __name__ = "accuracy"

    def __init__(self, grader: Grader):
        self.grader = grader

    def begin(self, solution: str, answers: Sequence[str]) -> None:
        """Hand a solution to the grader before it is asked for its grade; one's own grader may have `grade` alone."""
        if hasattr(self.grader, "begin"):
            self.grader.begin(solution, answers)

    def __call__(
        self,
        *,
        solution_text: Sequence[str],
        answers: Sequence[Sequence[str]],
        log_metric: Callable[[str, float], None],
        log_extra: Callable[[str, list[str]], None],
        **_: Any,
    ) -> list[float | None]:
        asked = time.monotonic()
        grades = self.grader.grade(solution_text, answers)
        log_metric("seconds/waiting_for_grades", time.monotonic() - asked)
        outcomes = [grade.outcome for grade in grades]
        if Outcome.UNEVALUATED in self.grader.faults:
            for i, (grade, accepted) in enumerate(zip(grades, answers, strict=True)):
                worked = works_out(grade.answer or "") and not any(map(works_out, accepted))
                log_metric("grading/worked_in_box", float(worked))
                if worked and grade.correct:
                    outcomes[i] = Outcome.UNEVALUATED
        for fault in self.grader.faults:
            for outcome in outcomes:  # once per completion: TRL averages what it is given over ranks and steps
                log_metric(f"grading/{fault}", float(outcome is fault))
        log_extra("outcome", [outcome.value for outcome in outcomes])
        return [None if outcome is Outcome.UNGRADED else float(outcome is Outcome.CORRECT) for outcome in outcomes]


def format_reward(
    *, solution_text: Sequence[str], thinking_end: Sequence[str], solution_truncated: Sequence[bool], **_: Any
) -> list[float]:
    r"""1.0 for a solution that ended by itself and holds one box, which is closed and not empty, else 0.0."""
    return [
        float(
            end != ThinkingEnd.EOS
            and not truncated
            and len(BOX_OPENING.findall(text)) == 1
            and bool(boxed_answer(text))
        )
        for text, end, truncated in zip(solution_text, thinking_end, solution_truncated, strict=True)
    ]


format_reward.__name__ = "format"  # what TRL logs it under

# The names in TRL's own training script, trl/scripts/grpo.py, with its numbers.
TRLS_REWARDS: dict[str, Reward] = {
    "accuracy_reward": accuracy_reward,
    "reasoning_accuracy_reward": reasoning_accuracy_reward,
    "think_format_reward": think_format_reward,
    "get_soft_overlong_punishment": get_soft_overlong_punishment(max_completion_len=1280, soft_punish_cache=256),
}
# TRL's that take arguments; what makes one has its own name.
TRLS_FACTORIES: dict[str, Callable[..., Reward]] = {
    factory.__name__: factory
    for factory in (get_cosine_scaled_reward, get_repetition_penalty_reward, get_soft_overlong_punishment)
}


def make_rewards(
    specs: Sequence[str | Mapping[str, Any]], weights: Sequence[float] | None, grader: Grader
) -> list[Reward]:
    """The rewards of a recipe, in its order.

    Args:
        specs: each a name, which may be a dotted path to import from, the working directory included; or a mapping of
            `name` and arguments, with which what is named is called, to return the reward, as our length rewards
            (`{name: laser, target: 4096}`) and TRL's factories (`{name: get_cosine_scaled_reward, max_len: 1280}`) do.
        weights: one for each, or None.
        grader: of the reward `accuracy`.

    Raises:
        UserError: a reward is unknown, cannot be imported or made, or there are not as many weights.
    """
    if weights is not None and len(weights) != len(specs):
        raise UserError(
            f"reward_weights has {len(weights)} values for the {len(specs)} rewards {', '.join(map(str, specs))}"
        )
    known: dict[str, Reward] = {"accuracy": Accuracy(grader), "format": format_reward, **TRLS_REWARDS}
    factories = {**LENGTH_REWARDS, **TRLS_FACTORIES}
    rewards = []
    for spec in specs:
        is_named = isinstance(spec, str) and spec not in LENGTH_REWARDS
        found = find(str(spec), {**known, **LENGTH_REWARDS}, "reward") if is_named else type
        # A class, as a `GroupReward` is, is made, with or without arguments.
        rewards.append(make(spec, factories, "reward") if isinstance(found, type) else found)
    return rewards


def warn_of_thinking(names: Sequence[str], rewards: Sequence[Reward]) -> None:
    """Warn of rewards that judge the thinking, too, and of the one that looks for what stands in the prompt."""
    if not (whole := [name for name, reward in zip(names, rewards, strict=True) if sees_all(reward)]):
        return
    logger.warning(
        "the rewards %s see the whole completion, thinking included; `solution_text` is only what is graded",
        ", ".join(whole),
    )
    if think_format_reward.__name__ in whole:
        logger.warning(
            "think_format_reward is 0 for every completion where the chat template opens <think>: it looks for that in "
            "the completion, and it stands in the prompt; the reward format judges the solution"
        )


def sees_all(reward: Reward) -> bool:
    """Whether a reward judges the whole completion, thinking included: TRL's, which know no other, and models."""
    while isinstance(reward, partial):
        reward = reward.func
    return isinstance(reward, str | nn.Module) or reward.__module__.partition(".")[0] == "trl"
