"""Thinking of another model, from its finished evaluation, after which the method `mixed` answers."""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from e1_trl.atomic import StoreError
from e1_trl.errors import UserError
from e1_trl.evaluation.methods import MIXED
from e1_trl.evaluation.sampling_plan import Goal, Place
from e1_trl.evaluation.store import digest, read_facts
from e1_trl.report.samples import FACTS, read
from e1_trl.rollout import ENDS_BY_POLICY, Segment, Stop, ThinkingEnd

STOPS = {end: stop for stop, end in ENDS_BY_POLICY.items()} | {ThinkingEnd.NONE: Stop.EOS}


@dataclass(frozen=True)
class Thinking:
    """Longest thinking of each problem and sample, with its folder, its model and a digest of its facts."""

    segments: Mapping[Place, Segment]
    folder: Path
    model: str
    digest: str

    @classmethod
    def read(cls, folder: Path, compared: Mapping[str, object]) -> "Thinking":
        """Read the thinking of the evaluation in a folder, which must have the `compared` facts, too."""
        table = read(folder, ["model", "method", "problem", "sample", "token_ids", "thinking_tokens", "thinking_end"])
        facts = read_facts(folder)
        for name, ours in compared.items():
            if facts.get(name) != ours:
                raise UserError(f"{folder} has {name} = {facts.get(name)!r}, this evaluation {ours!r}; they must match")
        if facts.get("independent"):
            raise UserError(
                f"{folder} was evaluated with --independent, so that each of its budgets has thoughts of its own, of "
                "which mixed would take the longest; name an evaluation without it"
            )
        usable = table[table["method"].isin(["unconstrained", "separate"])]
        whole = usable["token_ids"].map(len)  # of an answer without thinking, which ended as a thought would
        thought = usable["thinking_tokens"].mask(usable["thinking_end"] == ThinkingEnd.NONE, whole)
        usable = usable.assign(thinking_tokens=thought)
        ordered = usable.sort_values("thinking_tokens", kind="stable")
        segments = {
            (row.problem, row.sample): Segment(
                array("i", row.token_ids[: row.thinking_tokens]), STOPS.get(row.thinking_end, Stop.LENGTH)
            )
            for row in ordered.drop_duplicates(["problem", "sample"], keep="last").itertuples()
        }
        return cls(segments, folder, str(table["model"].iloc[0]), digest((folder / FACTS).read_text()))

    def check(self, goals: Iterable[Goal], problems: Iterable[int]) -> None:
        """Raise a `StoreError` if a problem or sample of `mixed` was not thought about as far as its budgets need."""
        for goal in goals:
            if goal.cell.method != MIXED:
                continue
            budget = goal.cell.budget.thinking
            for problem, sample in product((each for each in problems if each < goal.problems), range(goal.samples)):
                where = f"problem {problem}, sample {sample}"
                if (problem, sample) not in self.segments:
                    raise StoreError(
                        f"{self.folder} lacks the thinking of {where}; evaluate that model on as many, with the method "
                        "separate or unconstrained"
                    )
                segment = self.segments[problem, sample]
                if segment.stop is Stop.LENGTH and (budget is None or budget > len(segment.token_ids)):
                    raise StoreError(
                        f"{self.folder}: the thinking of {where} was cut at {len(segment.token_ids)} tokens; evaluate "
                        "that model with the method unconstrained, or up to as large a budget as here"
                    )
