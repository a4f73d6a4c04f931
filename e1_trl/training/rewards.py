"""The reward for a right answer, and warnings about rewards that judge the thinking.

Our rewards look at the text after the close of the thinking, never at the whole completion: a box inside the thinking
earns nothing.
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
    """1.0 for a right solution, else 0.0; None if the grader itself failed.

    Answers that time out, crash their worker, or leave the computing to the grader are wrong. So is a right answer that
    was worked out in its box, `6*8=48`, unless an accepted answer has such work: a policy that is paid for it would use
    the box as scratch paper. Evaluations count it as right.

    Logs every completion's outcome, the seconds spent waiting for them, and ratios: `grading/<fault>` for each of the
    grader's `faults`, and for mathematics `grading/worked_in_box`, right or wrong.
    """

    __name__ = "accuracy"

    def __init__(self, grader: Grader):
        self.grader = grader

    def begin(self, solution: str, answers: Sequence[str]) -> None:
        """Let the grader begin with a solution early; a user's grader may have only `grade`."""
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
        began = time.monotonic()
        grades = self.grader.grade(solution_text, answers)
        log_metric("seconds/waiting_for_grades", time.monotonic() - began)
        outcomes = [grade.outcome for grade in grades]
        if Outcome.UNEVALUATED in self.grader.faults and hasattr(self.grader, "works_out"):
            for i, (grade, accepted) in enumerate(zip(grades, answers, strict=True)):
                worked = self.grader.works_out(grade.answer or "", accepted)
                log_metric("grading/worked_in_box", float(worked))
                if worked and grade.correct:
                    outcomes[i] = Outcome.UNEVALUATED
        for fault in self.grader.faults:
            for outcome in outcomes:  # once per completion: TRL averages over ranks and steps
                log_metric(f"grading/{fault}", float(outcome is fault))
        log_extra("outcome", [outcome.value for outcome in outcomes])
        return [None if outcome is Outcome.UNGRADED else float(outcome is Outcome.CORRECT) for outcome in outcomes]


def warn_of_thinking(names: Sequence[str], rewards: Sequence[Reward]) -> None:
    """Warn of rewards that judge the thinking too, and of the one that looks for `<think>`, which the prompt holds."""
    if not (whole := [name for name, reward in zip(names, rewards, strict=True) if sees_all(reward)]):
        return
    logger.warning(
        "the rewards %s see the whole completion, thinking included; `solution_text` holds the graded part",
        ", ".join(whole),
    )
    if think_format_reward.__name__ in whole:
        logger.warning(
            "think_format_reward is 0 for every completion if the chat template opens <think>: it looks for <think> in "
            "the completion, not in the prompt; the reward format judges the solution"
        )


def name_of(reward: Any) -> str:
    """Return the name under which TRL logs a reward function, as `rewards/NAME/mean`."""
    while isinstance(reward, partial):
        reward = reward.func
    return getattr(reward, "__name__", type(reward).__name__)


def sees_all(reward: Reward) -> bool:
    """Return whether a reward judges the whole completion, thinking included, as TRL's rewards and models do."""
    while isinstance(reward, partial):
        reward = reward.func
    return isinstance(reward, str | nn.Module) or reward.__module__.partition(".")[0] == "trl"
