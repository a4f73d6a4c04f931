"""Efforts of a model: the words of `reasoning_effort`, as budgets and as arguments of its chat template."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from e1_trl.budget import Budget
from e1_trl.checkpoints.budget_file import Effort
from e1_trl.problems.prompts import SWITCHES

LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
SHARES = {"low": 0.25, "medium": 1.0, "high": 4.0}  # of the default thinking budget


def nearest_level(word: str, available: Iterable[str]) -> str:
    """Return the available level that is nearest to one of `LEVELS`, the lower of two; only `none` gets `none`."""
    place = LEVELS.index(word)
    near = [each for each in available if each in LEVELS and (each != "none" or word == each)]
    return min(near, key=lambda each: (abs(LEVELS.index(each) - place), LEVELS.index(each)))


def template_arguments(template: str, word: str) -> dict[str, Any]:
    """Return the arguments of a chat template for a level, by the variables that the template contains.

    gpt-oss and Qwen3.8 read `reasoning_effort`, and a template may name the levels that it takes; Nemotron has flags
    for two levels; `enable_thinking`, of Qwen3 and others, and `thinking`, of DeepSeek V3.1, switch the thinking.
    """
    told: dict[str, Any] = {}
    if "reasoning_effort" in template:
        levels = [each for each in LEVELS if re.search(rf"""['"]{each}['"]""", template)]
        levels = levels if len(levels) > 1 else list(SHARES)  # one alone is the template's default
        if word != "none" or word in levels:
            told["reasoning_effort"] = nearest_level(word, levels)
    for level in ("low", "medium"):
        if f"{level}_effort" in template:
            told[f"{level}_effort"] = word != "none" and nearest_level(word, SHARES) == level
    code = " ".join(re.findall(r"\{[{%].*?[%}]\}", template, re.DOTALL))  # no comments, and no text of prompts
    return told | {name: word != "none" for name in SWITCHES if re.search(rf"(?<![.\w'\"]){name}\b", code)}


def make_efforts(named: Mapping[str, Effort], default: Budget, template: str, most: int) -> dict[str, Effort]:
    """Make the table of efforts: those that are named, else shares of the default budget; `none` does not think.

    The named ones' arguments of the chat template take precedence. No share is more than `most` tokens of thinking.
    """
    efforts = dict(named)
    if not efforts and default.thinking is not None:
        tokens = {word: min(int(share * default.thinking), most) for word, share in SHARES.items()}
        efforts = {word: Effort(replace(default, thinking=each)) for word, each in tokens.items()}
    efforts.setdefault("none", Effort(replace(default, thinking=0)))
    told = {word: template_arguments(template, word) if word in LEVELS else {} for word in efforts}
    return {word: Effort(each.budget, {**told[word], **each.chat_template_kwargs}) for word, each in efforts.items()}
