"""Stand-in for the core's `PromptState` and richer `Marker`; goes when budget.py has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from e1_trl.budget import Marker as CoreMarker

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class PromptState(Enum):
    """State of the thinking at the end of a prompt."""

    OPENED = "opened"
    CLOSED = "closed"
    NOTHING = "nothing"


def last_index(ids: Sequence[int], part: Sequence[int]) -> int:
    """Return where a part last begins; -1 if nowhere."""
    size = len(part)
    places = range(len(ids) - size, -1, -1)
    return next((place for place in places if tuple(ids[place : place + size]) == tuple(part)), -1)


@dataclass(frozen=True)
class Marker(CoreMarker):
    """A marker with its opener."""

    opener: str = "<think>"
    opener_ids: tuple[int, ...] = ()
    empty_ids: tuple[int, ...] = ()
    blank_ids: frozenset[int] = frozenset()

    @classmethod
    def from_tokenizer(
        cls, tokenizer: "PreTrainedTokenizerBase", text: str | None = None, forced_text: str | None = None
    ) -> "Marker":
        """Tokenize marker, forced text and opener."""
        core = CoreMarker.from_tokenizer(tokenizer, text, forced_text)
        opener_ids = tuple(tokenizer.encode("<think>", add_special_tokens=False))
        blanks = {token for blank in ("\n", "\n\n", " ") for token in tokenizer.encode(blank, add_special_tokens=False)}
        return cls(**vars(core), opener_ids=opener_ids, empty_ids=opener_ids + core.forced_ids,
                   blank_ids=frozenset(blanks))  # fmt: skip

    def state_of(self, prompt_ids: Sequence[int]) -> PromptState:
        """Read the state from a prompt's ids."""
        opened = last_index(prompt_ids, self.opener_ids)
        closed = last_index(prompt_ids, self.ids)
        if opened > closed:
            return PromptState.OPENED
        rest = prompt_ids[closed + len(self.ids) :] if closed >= 0 else [-1]
        return PromptState.CLOSED if all(each in self.blank_ids for each in rest) else PromptState.NOTHING
