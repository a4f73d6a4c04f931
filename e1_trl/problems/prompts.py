"""Prompts: add texts to them, tokenize them, and name their problems. Texts are added to prompts here only.

Loads no library: a tokenizer and a dataset are handed in.
"""

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from e1_trl.errors import UserError, user_errors
from e1_trl.marker import Marker, PromptState

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

MEASURED = "_prompt_tokens"  # the column with the lengths of prompts
IDENTITY = re.compile("[0-9a-f]{16}")  # names that `identity` gives
SWITCHES = ("enable_thinking", "thinking")  # arguments of chat templates that turn thinking on

Message = dict[str, str]  # "role" and "content"
Prompt = str | Sequence[Message]  # a text that the model is given as it is, or a conversation for its chat template


def last_question(prompt: Prompt) -> str:
    """Return the question as a person reads it: the text, or the last user message."""
    return prompt if isinstance(prompt, str) else _text_of(prompt[last_user_message(prompt)])


def problem_of(prompt: Prompt) -> str:
    """Return what names a problem: the text, or all user messages, as the last may be the same for many problems."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(_text_of(message) for message in prompt if message["role"] == "user")


def _text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message, whose content may be a list of parts."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(str(part.get("text") or "") for part in content)


def identity(problem: str) -> str:
    """Return the name of a problem, the same in all files and datasets: 16 hexadecimal digits of its words' hash."""
    return hashlib.sha256(" ".join(problem.split()).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def last_user_message(messages: Sequence[Message]) -> int:
    last = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=None)
    if last is None:
        raise UserError(f"no user message in the conversation {list(messages)!r}; its problem must be one")
    return last


def tokenize(
    tokenizer: "PreTrainedTokenizerBase", prompt: Prompt, chat_template_kwargs: Mapping[str, Any]
) -> list[int]:
    """Return the token ids after which an answer is generated: the conversation and the generation prompt.

    A prompt that is a text is tokenized as it is, without a chat template, as TRL does.
    """
    from jinja2 import TemplateError

    if isinstance(prompt, str):
        return _check_ends(tokenizer(prompt)["input_ids"], tokenizer)
    if tokenizer.chat_template is None:
        raise UserError(
            f"the tokenizer {tokenizer.name_or_path!r} has no chat template; use a chat model, put chat_template.jinja "
            "beside the tokenizer, or give whole prompts as texts in a column `prompt`"
        )
    # One without system turns, say.
    with user_errors(f"the chat template of {tokenizer.name_or_path!r} refuses a conversation", TemplateError):
        tokens = tokenizer.apply_chat_template(
            list(prompt), add_generation_prompt=True, tokenize=True, return_dict=True, **chat_template_kwargs
        )
    return tokens["input_ids"]


def explain_unthinking(
    tokenizer: "PreTrainedTokenizerBase", marker: Marker, prompt: Prompt, chat_template_kwargs: Mapping[str, Any]
) -> str | None:
    """Explain that a prompt has closed the thinking or does not ask for any, and name what would; `None` if it does."""
    given = tokenize(tokenizer, prompt, chat_template_kwargs)
    state = marker.state_of(given)
    is_closed = state is PromptState.CLOSED

    def say() -> str:
        does = "has closed the thinking" if is_closed else "does not ask for thinking"
        return f"the prompt {does}, of {last_question(prompt)[:60]!r}"

    template = "" if isinstance(prompt, str) or state is PromptState.OPENED else str(tokenizer.chat_template)
    for name in (name for name in SWITCHES if re.search(rf"\b{name}\b", template)):
        if name in chat_template_kwargs and not is_closed:
            continue
        with suppress(UserError, TypeError):  # a template may refuse it
            asked = tokenize(tokenizer, prompt, {**chat_template_kwargs, name: True})
            if asked != given and marker.state_of(asked) is not PromptState.CLOSED:
                return f"{say()}; set chat_template_kwargs: {{{name}: true}}"
    return f"{say()}: it ends in {tokenizer.decode(given[-8:])!r}" if is_closed else None


def drop_long(
    problems: "Dataset",
    tokenizer: "PreTrainedTokenizerBase",
    max_prompt_length: int,
    chat_template_kwargs: Mapping[str, Any],
    marker: Marker,
) -> "Dataset":
    """Return the problems whose prompt is short enough, with its length in tokens in the column `MEASURED`."""
    # A module function with its settings in `fn_kwargs`, so that datasets can hash it and find its cache again.
    own = {"tokenizer": tokenizer, "chat_template_kwargs": dict(chat_template_kwargs), "marker": marker.text}
    measured = problems.map(_measure, input_columns=["prompt"], fn_kwargs=own, desc="Measuring prompts")
    lengths = measured[MEASURED]
    kept = [row for row, length in enumerate(lengths) if length <= max_prompt_length]
    longer = f"longer than max_prompt_length = {max_prompt_length} tokens"
    if not kept:
        raise UserError(f"all {len(measured)} prompts are {longer}; the shortest has {min(lengths)}")
    if len(kept) == len(measured):
        return measured
    logger.warning("dropped %d of %d prompts: %s", len(measured) - len(kept), len(measured), longer)
    return measured.select(kept)


def _measure(
    prompt: Prompt, tokenizer: "PreTrainedTokenizerBase", chat_template_kwargs: dict[str, Any], marker: str
) -> dict[str, int]:
    ids = tokenize(tokenizer, prompt, chat_template_kwargs)
    closing = Marker(marker, (), (), 0, decode=tokenizer.decode)
    if closing.state_of(ids) is PromptState.CLOSED:
        raise UserError(str(explain_unthinking(tokenizer, closing, prompt, chat_template_kwargs)))
    return {MEASURED: len(ids)}


def _check_ends(ids: list[int], tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Return the ids of a text that has no second beginning, and no end, from its tokenizer."""
    begin = tokenizer.bos_token_id
    if ids[:2] == [begin, begin]:
        raise UserError(f"a prompt begins with {tokenizer.bos_token!r} twice: the tokenizer adds it; remove it")
    if ids[-1:] == [tokenizer.eos_token_id] != [begin]:
        raise UserError(f"a prompt ends in {tokenizer.eos_token!r}: remove it, or the tokenizer's add_eos_token")
    return ids
