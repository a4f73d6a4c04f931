"""Conditions under which answers were asked for and sampled: one record, in every row of the table of answers.

They are in the table, in the report, and in run.json, by which a resumed evaluation is compared. A new field needs a
default, `None` for "unset", so that folders of the same version that lack it can be read and resumed.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import combinations
from typing import Any, Self

import pandas as pd

from e1_trl.report.card import CHANGING

# Conditions that make a model another one: its rows do not belong on one line.
SAMPLED_BY = {
    *("instruction", "chat_template", "chat_template_kwargs", "prompts", "marker", "forced_text"),
    *("temperature", "top_p", "top_k", "min_p", "logit_bias"),
    *("dtype", *CHANGING),  # of an engine
}
# Conditions that older tables do not tell.
LATER = ("vocabulary", "prompts", "independent", "grading_time_limit", "request_seeds")


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Conditions that all answers of one evaluation share. Lengths are in tokens; digests stand for long values."""

    dataset: str  # name and digest of the problems, with what was added to them
    problems: int  # their number, whether they were asked or not
    local: bool  # whether they came from a local file, not from the Hub
    instruction: str | None  # text added to every problem; `None`: the usual request to box the answer
    chat_template: str  # digest of the template that made prompts of them
    chat_template_kwargs: Mapping[str, Any]  # its arguments
    max_prompt_length: int  # longer prompts were left out; 0: none was
    temperature: float  # of the sampling, as the three that follow
    top_p: float
    top_k: int
    min_p: float
    marker: str  # text that ends the thinking
    forced_text: str  # text that is appended in its place
    # Of single methods (`evaluation.methods.MethodOptions`), written among the others.
    options: Mapping[str, Any]
    context: int  # longest sequence
    # Longest completion where a part of the budget is unlimited; `None`: as long as the context allows.
    response: int | None
    thinking_from: str | None  # digest of the other model's evaluation whose thinking was answered after
    engine: Mapping[str, Any]  # arguments of the engine; a server has its own
    versions: Mapping[str, str]  # of the packages that have a say in the samples
    logit_bias: Mapping[str, float] | None = None  # numbers added to logits, by token id; `None`: nothing
    vocabulary: str | None = None  # digest of the tokenizer's; `None`, as in the four that follow: not recorded
    prompts: str | None = None  # digest of them as token ids
    independent: bool | None = None  # whether budgets and methods shared no samples
    grading_time_limit: float | None = None  # seconds
    request_seeds: bool | None = None  # whether a server was given a seed for each request; `None`: no server

    def values(self) -> dict[str, Any]:
        """Return all conditions by name, in their order, with the methods' options in the place of `options`."""
        found: dict[str, Any] = {}
        for name, value in asdict(self).items():
            found |= value if name == "options" else {name: value}
        return found

    def as_text(self) -> str:
        """Write the conditions as the table of answers has them."""
        return json.dumps(self.values(), ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the conditions in a table of answers; an option that is null is one that later versions do not have."""
        found = json.loads(text)
        own = {each.name: found.pop(each.name) for each in fields(cls) if each.name in found}
        return cls(**own, options={name: value for name, value in found.items() if value is not None})

    def unlike(self, other: "Conditions") -> tuple[str, ...]:
        """Return the names of the conditions that differ, as far as both tables have recorded them."""
        mine = self.values()
        others = other.values()
        unknown = {name for name in LATER if None in (mine[name], others[name])}
        return tuple(name for name in mine | others if name not in unknown and mine.get(name) != others.get(name))

    def engines_unlike(self, other: "Conditions") -> tuple[str, ...]:
        """Return the names of the engines' arguments that differ; a server's are not known."""
        known = {**self.engine, **other.engine} if self.engine and other.engine else {}
        return tuple(name for name in known if self.engine.get(name) != other.engine.get(name))

    def said(self, names: Iterable[str]) -> str:
        values = self.values()
        return "; ".join(
            f"{name.replace('_', ' ')} {json.dumps(values.get(name), ensure_ascii=False)}" for name in names
        )


@dataclass(frozen=True)
class Shared:
    """Conditions of some models; models whose conditions differ have entries of their own."""

    models: list[str]
    conditions: Conditions


def shared(table: pd.DataFrame) -> list[Shared]:
    """Group the models of a table of answers by their conditions, in the order of the table."""
    distinct = table[["model", "conditions"]].drop_duplicates().astype(str)
    groups = distinct.groupby("conditions", sort=False)["model"]
    return [Shared(models.tolist(), Conditions.from_text(str(text))) for text, models in groups]


def as_markdown(found: Sequence[Shared]) -> str:
    """Write in one line what all share, and in one for each group of models what only it has."""
    first = found[0].conditions
    names = list(dict.fromkeys(name for each in found for name in each.conditions.values()))
    pairs = combinations((each.conditions for each in found), 2)  # all, as an old table may not tell what others do
    unlike = {name for one, other in pairs for name in one.unlike(other)}
    common = (name for name in names if name not in unlike and first.values().get(name) not in (None, {}))
    text = f"Sampled with {first.said(common)}.\n"
    if unlike:
        own = [name for name in names if name in unlike]
        text += "\n**Not alike**, which the differences below include:\n\n"
        text += "".join(f"- {', '.join(each.models)}: {each.conditions.said(own)}\n" for each in found)
    return text
