"""Gentler closes than the paper's: where in the last share of its budget a thinking is closed, and with which words.

The thinking keeps its budget with each; a message is forced on top. What they do is measured in docs/closing.md.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from e1_trl.arguments import Count, Share, check_fields
from e1_trl.budget import Grace, Marker, ThinkingClose
from e1_trl.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

GENTLE = ("pause", "nearly", "message", "hint")


@dataclass
class ClosingArguments:
    """Arguments of both evaluation and serving: the gentle closes.

    Raises:
        UserError: a field is of another type, or beyond a limit.
    """

    GROUP: ClassVar[str] = "gentle closes (docs/closing.md)"

    grace: Share = field(
        default=0.25,
        metadata={
            "help": "Last share of the thinking budget, in which the closes pause, nearly and hint act; below 1."
        },
    )
    pause: str = field(default="\n", metadata={"help": "Text after which the close `pause` ends the thinking."})
    likeliest: Count = field(
        default=3,
        metadata={
            "help": "The close `nearly` ends the thinking where the marker is among this many most probable tokens."
        },
    )
    message: str = field(
        default="\n\nI have to stop here and give my answer.\n",
        metadata={
            "help": "Text that the close `message` appends in front of the marker when the thinking budget runs out."
        },
    )
    hint: str = field(
        default="\n\nLittle of the budget is left.\n",
        metadata={"help": "Text that the close `hint` inserts where the last share of the thinking budget begins."},
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.grace == 1:
            raise UserError("grace is 1; it must be a share below 1, as all of a budget cannot be its last part")
        if not self.pause:
            raise UserError("pause is empty; it must be the text after which the thinking is closed")


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

    def apply(self, how: str, close: ThinkingClose) -> ThinkingClose:
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
