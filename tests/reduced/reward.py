"""A reward that differs between the answers of a random model."""

from collections.abc import Sequence
from typing import Any


def letters(*, solution_text: Sequence[str], **_: Any) -> list[float]:
    """The share of a solution's characters that are letters a to z."""
    return [sum(c.isascii() and c.isalpha() for c in text) / max(1, len(text)) for text in solution_text]
