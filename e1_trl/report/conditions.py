"""Under which conditions answers were asked for and sampled: one record, in every row of the table of answers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What all answers of one evaluation share. Lengths in tokens; digests stand for what is long.

    Attributes:
        dataset: name and digest of the problems, with what was added to them.
        problems: how many of them there are, whether they were asked or not.
        local: they came from a file here, not from the Hub.
        instruction: text added to every problem; `None`: the usual request to box the answer.
        chat_template, chat_template_kwargs: what made prompts of them.
        max_prompt_length: longer prompts were left out; 0: none was.
        temperature, top_p, top_k, min_p: of the sampling.
        marker, forced_text: what ends the thinking, and what is appended in its place.
        s1_text, wait_text, s1_waits: what s1 appends, what it puts in place of an early close, and how often.
        context: the longest sequence.
        response: the longest completion where a part of the budget is unlimited; `None`: what the context leaves.
        thinking_from: digest of another model's evaluation whose thinking was answered after.
        engine: arguments of the engine; a server has its own.
        gentle: what the gentle closes were told, if not the defaults.
        versions: of the packages that have a say in the samples.
        logit_bias: what was added to the logits of which token ids; `None`: nothing.
    """

    dataset: str
    problems: int
    local: bool
    instruction: str | None
    chat_template: str
    chat_template_kwargs: Mapping[str, Any]
    max_prompt_length: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    marker: str
    forced_text: str
    s1_text: str
    wait_text: str
    s1_waits: int
    context: int
    response: int | None
    thinking_from: str | None
    engine: Mapping[str, Any]
    versions: Mapping[str, str]
    gentle: Mapping[str, Any] | None = None
    logit_bias: Mapping[str, float] | None = None

    def as_text(self) -> str:
        """As the table of answers has it."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def unlike(self, other: "Conditions") -> tuple[str, ...]:
        """The names of those that differ."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name) != getattr(other, each.name))

    def said(self, names: Iterable[str]) -> str:
        """Those of these names, in words."""
        values = ((name.replace("_", " "), getattr(self, name)) for name in names)
        return "; ".join(f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in values)


@dataclass(frozen=True)
class Shared:
    """The conditions of some models; of two that differ, each has an entry of its own."""

    models: list[str]
    conditions: Conditions


def shared(table: pd.DataFrame) -> list[Shared]:
    """The conditions of a table of answers, in the order of its models."""
    distinct = table[["model", "conditions"]].drop_duplicates().astype(str)
    groups = distinct.groupby("conditions", sort=False)["model"]
    return [Shared(models.tolist(), Conditions.from_text(str(text))) for text, models in groups]


def as_markdown(found: Sequence[Shared]) -> str:
    """What all share, in one line; and in one for each group of models what is its own."""
    first, names = found[0].conditions, [each.name for each in fields(Conditions)]
    unlike = {name for each in found for name in first.unlike(each.conditions)}
    common = (name for name in names if name not in unlike and getattr(first, name) not in (None, {}))
    text = f"Sampled with {first.said(common)}.\n"
    if unlike:
        own = [name for name in names if name in unlike]
        text += "\n**Not alike**, which the differences below include:\n\n"
        text += "".join(f"- {', '.join(each.models)}: {each.conditions.said(own)}\n" for each in found)
    return text
