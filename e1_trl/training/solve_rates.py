"""Which problems a stored evaluation never or always solved: groups that teach nothing, and cost as much as any other.

In GRPO an advantage is a reward less the mean of its group, so where none or all of a group are right there is none.
Knows nothing about engines, or about how answers are graded.
"""

import json
import logging
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import pandas as pd
from datasets import Dataset

from e1_trl.answers.grade import Outcome
from e1_trl.atomic import StoreError
from e1_trl.budget import Budget
from e1_trl.checkpoints.checkpoint import Checkpoint
from e1_trl.problems.prompts import shown
from e1_trl.report import samples
from e1_trl.report.rows import REFERENCE
from e1_trl.training.config import E1Config, Settled

logger = logging.getLogger(__name__)

# What is asked, instruction included (of a conversation its last user message), and the accepted answers as a table of
# answers has them. Where a row stands, or what it is called, may be otherwise in the training.
Posed = tuple[str, tuple[str, ...]]

CELL = ["method", "thinking_budget", "solution_budget"]
COLUMNS = [*CELL, "grader", "problem", "prompt", "answers", "outcome"]
SHORT = reprlib.Repr()
SHORT.maxstring = 100  # characters of a prompt in a message, from its start and its end


@dataclass(frozen=True)
class SolveRates:
    """How often problems were solved under the training budget, as a share of their graded answers.

    Attributes:
        where: what messages call the evaluations.
        rates: from 0 to 1; a problem without a graded answer has none.
    """

    where: str
    rates: Mapping[Posed, float]

    @classmethod
    def read(cls, names: Sequence[str], budget: Budget, grader: str) -> "SolveRates":
        """The rates in the folders of some evaluations; answers to problems that are posed alike count together.

        Args:
            names: folders, or the `samples.parquet` in them.
            budget: that of the training; answers under another, or of another method than separate budgets, are none.
            grader: what answers are, in the training.

        Raises:
            ValueError: one line about what is not there, or of another kind.
        """
        if budget.solution is None:
            raise ValueError(
                "solve_rates: solution_budget is null, and an evaluation with separate budgets needs a solution "
                "budget; set one, or remove solve_rates"
            )
        right: Counter[Posed] = Counter()
        graded: Counter[Posed] = Counter()
        most = 0
        for name in names:
            for posed, solved, of in _solved(_folder(name), budget, grader):
                right[posed] += solved
                graded[posed] += of
                most = max(most, of)
        where = ", ".join(names)
        if most < 2:  # whatever a problem that is there twice comes to
            raise ValueError(
                f"solve_rates: no problem has two graded answers under {budget} in {where}, and one tells no rate; the "
                "command that made it, with --samples 8, adds to it"
            )
        return cls(where, {posed: right[posed] / of for posed, of in graded.items()})

    def keep(self, problems: Dataset) -> Dataset:
        """The problems that were solved sometimes, and those without a rate. A warning counts the others.

        Args:
            problems: with the columns of `make_problems`.

        Raises:
            ValueError: no problem has a rate, or none is left.
        """
        posed = zip(problems["prompt"], problems["answers"], strict=True)
        rates = [self.rates.get(_posed(shown(prompt), answers)) for prompt, answers in posed]
        never, always, unknown = rates.count(0.0), rates.count(1.0), rates.count(None)
        if unknown == len(rates):
            prompt, answers = _posed(shown(problems[0]["prompt"]), problems[0]["answers"])
            there = max(self.rates, key=lambda posed: _alike(posed[0], prompt))
            raise ValueError(
                f"solve_rates: {self.where} has none of the {len(rates):,} training problems as they are asked and "
                f"graded here; the first is {_quoted(prompt, answers)}, and what is most like it there "
                f"{_quoted(*there)}; evaluate the same split, with the same columns and instruction"
            )
        kept = [row for row, rate in enumerate(rates) if rate not in (0.0, 1.0)]
        if not kept:
            raise ValueError(
                f"solve_rates: of {len(rates):,} problems {never:,} were never solved in {self.where} and {always:,} "
                "always, so none is left to train on; evaluate with more --samples, or train on other problems"
            )
        logger.warning(
            "solve rate: %s problems, %s never solved and %s always solved dropped, %s left%s",
            *(f"{count:,}" for count in (len(rates), never, always, len(kept))),
            f", of which {unknown:,} were not evaluated" if unknown else "",
        )
        return problems.select(kept)


def check_settings(names: Sequence[str], args: E1Config, model: str, settled: Settled) -> None:
    """Warn where what was evaluated is not what will be trained: another model, marker or sampling.

    That may be meant, as for rates of an earlier model. Another prompt is refused.

    Args:
        names: as in `SolveRates.read`.
        args: the training's; `model_init_kwargs` names the revision.
        model: what the training starts from.
        settled: what they come to together.

    Raises:
        ValueError: an evaluation does not say its settings, or used the chat template with other arguments.
        OSError: there is no such model.
    """
    here: dict[str, Any] = {
        "marker": list(settled.close.marker.ids),
        "forced_text": list(settled.close.marker.forced_ids),
        "temperature": args.temperature,
        "top_p": args.top_p,
        "top_k": max(args.top_k, 0),
        "min_p": args.min_p or 0.0,
        "repetition_penalty": args.repetition_penalty,
    }
    if args.process_index == 0:  # which warns for all: it may mean to read all of the weights
        here["model"] = Checkpoint(model, (args.model_init_kwargs or {}).get("revision")).fingerprint()
    template = args.chat_template_kwargs or {}
    for name in names:
        file = _folder(name) / "run.json"
        try:
            run = json.loads(file.read_text())
            there = {**run, **run["sampling"], "model": run["model"].rpartition(", ")[2]}  # of what is served, who
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(
                f"solve_rates: {file}, which says how the answers were sampled, cannot be read ({error}); it belongs "
                f"beside {samples.FILE}"
            ) from error
        if (theirs := there.get("chat_template_kwargs")) != template:
            raise ValueError(
                f"solve_rates: {name} was asked with chat_template_kwargs = {theirs}, the training has {template}; "
                "evaluate with the training's"
            )
        if other := [key for key, value in here.items() if there.get(key) != value]:
            logger.warning(
                "solve_rates: %s was sampled otherwise than the training will: %s",
                name,
                "; ".join(f"{key} {there.get(key)} there, {here[key]} here" for key in other),
            )


def _folder(name: str) -> Path:
    folder = Path(name).parent if Path(name).name == samples.FILE else Path(name)
    if not folder.is_dir():
        raise ValueError(
            f"solve_rates: there is no folder {folder}; `e1 eval` with the training's dataset, split, instruction and "
            f"budget, --methods {REFERENCE}, --samples 8 and --output {folder} makes it"
        )
    return folder


def _solved(folder: Path, budget: Budget, grader: str) -> Iterator[tuple[Posed, int, int]]:
    """Every problem of an evaluation with the numbers of its right and of its graded answers."""
    try:
        table = samples.read(folder, COLUMNS)
    except StoreError as error:
        raise ValueError(f"solve_rates: {error}") from error
    if (kind := table["grader"].iloc[0]) != grader:
        raise ValueError(f"solve_rates: {folder} was graded as {kind}, and the grader of the training is {grader}")
    cells = {_name(*cell): part for cell, part in table.groupby(CELL, sort=False, dropna=False)}
    wanted = f"{REFERENCE} {budget}"
    if wanted not in cells:
        raise ValueError(
            f"solve_rates: {folder} has no answers of {wanted}, the training budget, only of {', '.join(cells)}; the "
            f"command that made it, with --methods {REFERENCE} --budgets {budget}, adds them"
        )
    answers = cells[wanted][cells[wanted]["outcome"] != Outcome.UNGRADED]
    counts = (answers["outcome"] == Outcome.CORRECT).groupby(answers["problem"]).agg(["sum", "count"])
    first = answers.drop_duplicates("problem").set_index("problem").loc[counts.index]
    for prompt, accepted, right, of in zip(
        first["prompt"], first["answers"], counts["sum"], counts["count"], strict=True
    ):
        yield (prompt, tuple(accepted)), int(right), int(of)


def _name(method: str, thinking: Any, solution: Any) -> str:
    """A method at a budget, which is missing where it is unlimited."""
    parts = (None if pd.isna(part) else int(part) for part in (thinking, solution))
    return f"{method} {Budget(*parts)}"


def _posed(prompt: str, answers: Sequence[str]) -> Posed:
    return prompt, tuple(answers)


def _quoted(prompt: str, answers: Sequence[str]) -> str:
    return f"{SHORT.repr(prompt)} with the answers {SHORT.repr(list(answers))}"


def _alike(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
