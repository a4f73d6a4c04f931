"""Gentler closes than the paper's: where in the last share of its budget a thinking is closed, and with which words.

The thinking keeps its budget with each; a message is forced on top. What they do is measured in docs/closing.md.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from e1_trl.budget import Close, Grace, Marker
from e1_trl.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

GENTLE = ("pause", "nearly", "message", "hint")


@dataclass
class ClosingArguments:
    """What evaluation and serving are both told about gentle closes."""

    grace: float = field(
        default=0.25, metadata={"help": "Last share of the thinking budget, which pause, nearly and hint are about."}
    )
    pause: str = field(default="\n", metadata={"help": "`pause` closes the thinking there after this text."})
    likeliest: int = field(
        default=3, metadata={"help": "`nearly` closes it there where the marker is one of so many likeliest tokens."}
    )
    message: str = field(
        default="\n\nI have to stop here and give my answer.\n",
        metadata={"help": "What `message` appends before the marker when the budget runs out."},
    )
    hint: str = field(
        default="\n\nLittle of the budget is left.\n",
        metadata={"help": "What `hint` puts into the thinking where that share begins."},
    )

    def __post_init__(self) -> None:
        if not 0 < self.grace < 1 or self.likeliest < 1 or not self.pause:
            raise UserError(
                f"grace {self.grace}, likeliest {self.likeliest}, pause {self.pause!r}: they must be a share between 0 "
                "and 1, a number of tokens above 0, and a text"
            )


@dataclass(frozen=True)
class Closing:
    """The gentle closes in one tokenizer's ids: the marker with its message, and the grace of all others."""

    message: Marker
    grace: Grace

    @classmethod
    def of(cls, arguments: ClosingArguments, tokenizer: "PreTrainedTokenizerBase", marker: Marker) -> "Closing":
        """In the ids of a tokenizer."""
        words = tuple(tokenizer.encode(arguments.message, add_special_tokens=False))
        close_tokens = marker.close_tokens and len(words) + marker.close_tokens
        message = replace(marker, forced_ids=words + marker.forced_ids, close_tokens=close_tokens)
        hint_ids = tuple(tokenizer.encode(arguments.hint, add_special_tokens=False))
        return cls(message, Grace(arguments.grace, arguments.pause, arguments.likeliest, hint_ids))

    def apply(self, how: str, close: Close) -> Close:
        """A hard close made gentle.

        Raises:
            KeyError: it is none of `GENTLE`.
        """
        return {
            "pause": replace(close, grace=replace(self.grace, likeliest=0, hint_ids=())),
            "nearly": replace(close, grace=replace(self.grace, pause="", hint_ids=())),
            "message": replace(close, marker=self.message),
            "hint": replace(close, grace=replace(self.grace, pause="", likeliest=0)),
        }[how]
