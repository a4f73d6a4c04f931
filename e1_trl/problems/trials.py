"""Parts that dry runs of trainings and evaluations share: they show the first prompt, and how answers are graded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from e1_trl.answers.grade import Grade, Grader, Trial
from e1_trl.answers.kinds import AnswerType
from e1_trl.errors import UserError
from e1_trl.marker import Marker, PromptState
from e1_trl.problems.selection import SHORT

if TYPE_CHECKING:
    from datasets import Dataset

TRIED = 16  # problems whose prompts and accepted answers are tried
OPENS = {
    PromptState.OPENED: "opened by the prompt",
    PromptState.NOTHING: "opened by the model, if at all",
    PromptState.CLOSED: "closed by the prompt",
}


@dataclass(frozen=True)
class Trials:
    """Solutions to the first problems, some of them right, and their grades."""

    kind: AnswerType
    rows: Sequence[Mapping[str, Any]]
    graded: Sequence[tuple[int, Trial, Grade]]  # with the number of the problem

    @classmethod
    def run(cls, problems: "Dataset", kind: AnswerType, grader: Grader) -> "Trials":
        """Grade the solutions that the kind of answers tries."""
        rows = list(problems.select(range(min(TRIED, len(problems)))))
        trials = [(at, trial) for at, row in enumerate(rows) for trial in kind.trials(row)]
        grades = grader.grade([trial.solution for _, trial in trials], [rows[at]["answers"] for at, _ in trials])
        return cls(kind, rows, [(at, trial, grade) for (at, trial), grade in zip(trials, grades, strict=True)])

    @property
    def of_first(self) -> list[Trial]:
        return [trial for at, trial, _ in self.graded if at == 0]

    def describe(self) -> list[str]:
        """Describe the first problem's accepted answers, and the grades of its trials."""
        said = [
            f"{trial.name} is {grade.outcome}" + f" (read as {grade.value})" * (grade.value not in (None, grade.answer))
            for at, trial, grade in self.graded
            if at == 0
        ]
        return [self.kind.show(self.rows[0]), f"graded           {'; '.join(said) or 'nothing'}"]

    def check(self) -> None:
        """Raise a `UserError` if most accepted answers are graded wrongly, or the first one, which must be right.

        A row's own solutions need not be.
        """
        faults = {
            at: f"{trial.name} is {grade.outcome} for {SHORT.repr(self.rows[at]['answers'])}"
            for at, trial, grade in self.graded
            if grade.correct != trial.right
        }
        is_first_wrong = self.kind.remedy is None and any(
            trial.right and not grade.correct for _, trial, grade in self.graded[:1]
        )
        if is_first_wrong or 2 * len(faults) > len({at for at, _, _ in self.graded}):
            raise UserError(
                f"accepted answers are not graded as they should be: {'; '.join(list(faults.values())[:3])}; "
                + (self.kind.remedy or f"one must be {self.kind.wanted}")
            )


def describe_prompt(
    decode: Callable[[Sequence[int]], str], prompt_ids: Sequence[int], marker: Marker, kind: AnswerType
) -> list[str]:
    """Describe a prompt, its token ids, who opens its thinking, and the texts that close it."""
    text = decode(prompt_ids)
    return [
        f"first prompt, {len(prompt_ids)} tokens, between the lines:",
        "-" * 80,
        text,
        "-" * 80,
        f"its ids          {list(prompt_ids)}",
        *[f"asks for a box   {'yes' if 'boxed' in text else 'no'}; only a box is graded"] * kind.boxed,
        f"thinking         {OPENS[marker.state_of(prompt_ids)]}",
        f"marker           {marker.text!r} = {list(marker.ids)}",
        f"forced text      {decode(marker.forced_ids)!r} = {list(marker.forced_ids)}, "
        + (f"closed by the first {marker.close_tokens}" if marker.close_tokens else "which holds no marker"),
    ]
