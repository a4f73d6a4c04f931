"""The reward for a right answer, and what is known of any reward.

TRL calls a reward with the columns of the dataset and those our rollout adds, one value per completion. Ours look at
`solution_text` (what follows the close of the thinking, "" if there is none), how the thinking ended, and whether the
solution was truncated; never at the whole completion, so a box inside the thinking earns nothing.
"""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import nn
from trl.rewards import think_format_reward

from e1_trl.answers.grade import Grader, Outcome

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
        if Outcome.UNEVALUATED in self.grader.faults and hasattr(self.grader, "works_out"):
            for i, (grade, accepted) in enumerate(zip(grades, answers, strict=True)):
                worked = self.grader.works_out(grade.answer or "", accepted)
                log_metric("grading/worked_in_box", float(worked))
                if worked and grade.correct:
                    outcomes[i] = Outcome.UNEVALUATED
        for fault in self.grader.faults:
            for outcome in outcomes:  # once per completion: TRL averages what it is given over ranks and steps
                log_metric(f"grading/{fault}", float(outcome is fault))
        log_extra("outcome", [outcome.value for outcome in outcomes])
        return [None if outcome is Outcome.UNGRADED else float(outcome is Outcome.CORRECT) for outcome in outcomes]


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
