"""End of the thinking in one model's tokens: its marker, its opener, and whether a prompt holds them.

A chat template may open the thinking, close it at once (Qwen3 with `enable_thinking: false`), or leave it to the model.
`Marker.state_of` tells which, from the token ids of a prompt; training, evaluation and serving all ask it.
"""

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from e1_trl.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MARKER = "</think>"
# Markers and openers as in chat templates and vLLM's parsers. The first that a template names is the model's.
OPENERS = {
    "<|end|><|start|>assistant<|channel|>final<|message|>": "<|channel|>analysis<|message|>",  # gpt-oss
    "<|eom|><|start|>assistant to=user<|message|>": " to=self<|message|>",  # Muse Glimmer
    "<channel|>": "<|channel>thought\n",  # Gemma 4
    "<|close|>think<|sep|>": "<|open|>think<|sep|>",  # Kimi K3
    "</seed:think>": "<seed:think>",  # Seed-OSS
    "</mm:think>": "<mm:think>",  # MiniMax-M3
    "<|END_THINKING|>": "<|START_THINKING|>",  # Command A
    "[/THINK]": "[THINK]",  # Magistral
    "◁/think▷": "◁think▷",  # Kimi-VL
    MARKER: "<think>",
}
BLANKS = 16  # bytes of white space that may follow a close in a prompt


class PromptState(Enum):
    """State in which a prompt leaves the thinking."""

    OPENED = "opened"
    CLOSED = "closed"  # the completion is a solution
    NOTHING = "nothing"  # the model opens the thinking itself, or answers at once


@dataclass(frozen=True)
class Marker:
    """End-of-thinking marker and the text forced in its place, in one tokenizer's ids.

    Attributes:
        text: the marker as text, which the engine matches if the marker has several tokens.
        ids: token ids of the marker.
        forced_ids: token ids that are appended when the thinking budget runs out.
        close_tokens: number of `forced_ids` up to and including the end of the marker, which still belong to the
            thinking; 0 if the forced text holds no marker.
        opener: text that begins the thinking; "" if unknown.
        opener_ids: token ids of the opener.
        empty_ids: token ids that are forced at a thinking budget of 0 if the prompt has not opened the thinking: the
            opener, the template's text between the opener and the marker of an empty thinking, and `forced_ids`.
        decode: turns token ids into text, special tokens included. Without it every prompt counts as `NOTHING`.
        turns: added tokens between the last question and what the model says.
    """

    text: str
    ids: tuple[int, ...]
    forced_ids: tuple[int, ...]
    close_tokens: int
    opener: str = ""
    opener_ids: tuple[int, ...] = ()
    empty_ids: tuple[int, ...] = ()
    decode: Callable[..., str] | None = field(default=None, compare=False, repr=False)
    turns: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def from_tokenizer(
        cls, tokenizer: "PreTrainedTokenizerBase", text: str | None = None, forced_text: str | None = None
    ) -> "Marker":
        """Tokenize the marker `text` (default: the model's) and `forced_text` (default: the marker).

        Raises:
            UserError: one of the texts has no tokens, or the model does not show its marker.
        """
        text = find_marker(tokenizer) if text is None else text
        ids = tuple(tokenizer.encode(text, add_special_tokens=False))
        forced_ids = ids if forced_text is None else tuple(tokenizer.encode(forced_text, add_special_tokens=False))
        if not ids or not forced_ids:
            raise UserError(f"the marker {text!r} and the forced text {forced_text!r} must have at least one token")
        # A marker of several tokens may be merged with its neighbours in the forced text, so its end is where decoding
        # first shows all of it.
        close_tokens = next((n for n in range(1, len(forced_ids) + 1) if text in tokenizer.decode(forced_ids[:n])), 0)
        opener = opener_of(text)
        prompts = _ask_both_ways(tokenizer)
        opening = tokenizer.encode(_find_opening(prompts, opener, text), add_special_tokens=False)
        turn = prompts[0].rpartition("?")[2] if prompts else ""
        return cls(
            text=text,
            ids=ids,
            forced_ids=forced_ids,
            close_tokens=close_tokens,
            opener=opener,
            opener_ids=tuple(tokenizer.encode(opener, add_special_tokens=False)),
            empty_ids=(*opening, *forced_ids) if close_tokens else (),
            turns=tuple(each for each in tokenizer.get_added_vocab() if each.strip() and each in turn),
            decode=tokenizer.decode,
        )

    def state_of(self, prompt_ids: Sequence[int]) -> PromptState:
        """Return `CLOSED` if a prompt ends in the marker (and blanks), `OPENED` if an opener follows the last one."""
        if self.decode is None:
            return PromptState.NOTHING
        # A token is at least one byte. Text is compared: a marker of several tokens may merge with its neighbours.
        end = self.decode(list(prompt_ids[-len(self.text.encode()) - BLANKS :]), skip_special_tokens=False)
        if end.rstrip().endswith(self.text.rstrip()):
            return PromptState.CLOSED
        # An opener of several tokens may merge, too; one of a single token is looked up, without decoding the prompt.
        if not self.opener or (len(self.opener_ids) == 1 and self.opener_ids[0] not in prompt_ids):
            return PromptState.NOTHING
        whole = self.decode(list(prompt_ids), skip_special_tokens=False)
        _, opener, after = whole.rpartition(self.opener.rstrip())
        # A question may name the opener; its turn ends in such tokens.
        is_open = opener and not any(text in after for text in (self.text, *self.turns))
        return PromptState.OPENED if is_open else PromptState.NOTHING

    def check(self, ends: Collection[int]) -> None:
        """Check that the marker holds no end-of-sequence token, with which no thinking would ever be closed.

        Raises:
            UserError: it holds one of `ends`.
        """
        if found := [token for token in self.ids if token in ends]:
            raise UserError(
                f"the marker {self.text!r} = {list(self.ids)} holds {found[0]}, which ends a sequence of this model "
                f"(eos_token_id {sorted(ends)} of generation_config.json and tokenizer), so that no thinking would be "
                "closed; choose another marker, or remove the token from eos_token_id"
            )


def opener_of(marker: str) -> str:
    """Return the text that begins the thinking which a marker ends; "" if unknown."""
    return OPENERS.get(marker, marker.replace("/", "", 1) if re.match(r"[<\[◁]\|?/[\w:]{4}", marker) else "")


def find_marker(tokenizer: "PreTrainedTokenizerBase") -> str:
    """Find a model's marker: the first of `OPENERS` that its chat template names, else the last that is one token."""
    template = str(tokenizer.chat_template or "")
    for marker, opener in OPENERS.items():
        if marker in template or opener.strip() in template:
            return marker
    if found := [*filter(tokenizer.get_vocab().__contains__, OPENERS)]:
        return found[-1]
    added = {str(token) for token in tokenizer.added_tokens_decoder.values()} - {*tokenizer.all_special_tokens}
    likely = sorted(each for each in added if re.search("think|thought|reason|channel", each.lower()))
    raise UserError(
        f"the tokenizer {tokenizer.name_or_path!r} and its chat template name no known end of the thinking "
        f"({', '.join(OPENERS)}); set `marker` to the text that ends it, which may be one of "
        f"{', '.join(likely) or 'no added token'}"
    )


def _ask_both_ways(tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    """Return the template's prompts of a question with thinking and without; empty if it makes none."""
    from jinja2 import TemplateError

    ask = partial(tokenizer.apply_chat_template, [{"role": "user", "content": "?"}], add_generation_prompt=True)
    with suppress(TemplateError, ValueError, TypeError):  # a template may refuse the argument, and there may be none
        return [str(ask(tokenize=False, enable_thinking=thinks)) for thinks in (True, False)]
    return []


def _find_opening(prompts: Sequence[str], opener: str, marker: str) -> str:
    """Return the template's text from the opener to the marker of an empty thinking; if it has none, the opener."""
    closed = prompts[-1].rstrip() if prompts else ""
    head = closed.removesuffix(marker)
    return opener + head.rpartition(opener)[2] if opener and opener in head and head != closed else opener
