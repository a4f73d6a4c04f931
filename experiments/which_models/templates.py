"""Chat templates of today's models, as TRL stores them, and what each does to the thinking."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from e1_trl.errors import UserError
from e1_trl.marker import Marker, PromptState, find_marker
from e1_trl.problems.prompts import explain_unthinking, tokenize

FOLDER = Path(trl.__file__).parent / "chat_templates"
ENDS = ("<eos>", "<pad>")
# Arguments of templates that have a say in the thinking, and the values that models document.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "enable_thinking": (True, False),
    "low_effort": (True,),
    "medium_effort": (True,),
    "reasoning_effort": ("low", "medium", "high", "xhigh"),
}
# TRL stores no template of SmolLM3 and OLMo-3; these do what their authors say of thinking.
SMOLLM3 = """{%- set mode = namespace(thinks=enable_thinking is not defined or enable_thinking) -%}
{%- for message in messages if message.role == "system" -%}
{%- if "/no_think" in message.content -%}{%- set mode.thinks = false -%}{%- endif -%}
{%- endfor -%}
<|im_start|>system
Reasoning Mode: {{ "/think" if mode.thinks else "/no_think" }}<|im_end|>
{% for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{{ "" if mode.thinks else "<think>\n\n</think>\n" }}
{%- endif -%}
"""
OLMO3 = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
<think>
{%- endif -%}
"""
OWN = {"smollm3, ours": SMOLLM3, "olmo3 think, ours": OLMO3}
# Some templates write today's date.
DATED = {"strftime_now": datetime.date(2026, 11, 26).strftime}


def stored_templates() -> list[str]:
    """Name the templates that models ship, without TRL's patches for training, and our own."""
    stored = sorted(file.stem for file in FOLDER.glob("*.jinja") if not file.stem.endswith("_training"))
    return [*stored, *OWN]


def read_template(name: str) -> str:
    """Return a stored template by its name."""
    return OWN[name] if name in OWN else (FOLDER / f"{name}.jinja").read_text()


def make_bytes_tokenizer(template: str | None, added: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Make a tokenizer whose tokens are the 256 bytes and the `added` texts, with a chat template."""
    vocabulary = {byte: number for number, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return complete(tokenizer, added, template)


def complete(tokenizer: Tokenizer, added: Sequence[str], template: str | None = None) -> PreTrainedTokenizerFast:
    """Add a decoder, special tokens and `added` ones to a tokenizer of bytes, and a chat template."""
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*ENDS])
    tokenizer.add_tokens([*added])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=ENDS[0],
        eos_token=ENDS[0],
        pad_token=ENDS[1],
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


@dataclass(frozen=True)
class Rendering:
    """One template with one set of arguments.

    Attributes:
        name: the template.
        arguments: arguments that render this prompt, "default" for none; several where they render the same.
        kwargs: the first of them.
    """

    name: str
    arguments: tuple[str, ...]
    kwargs: tuple[tuple[str, Any], ...]

    def prompt_ids(self, tokenizer: PreTrainedTokenizerBase, question: str) -> list[int]:
        """Render a question."""
        tokenizer.chat_template = self.template
        return tokenize(tokenizer, [{"role": "user", "content": question}], {**dict(self.kwargs), **DATED})

    @cached_property
    def template(self) -> str:
        return read_template(self.name)

    def marker(self, tokenizer: PreTrainedTokenizerBase) -> Marker:
        """Find the marker of the template."""
        tokenizer.chat_template = self.template
        return Marker.from_tokenizer(tokenizer)

    def advice(self, tokenizer: PreTrainedTokenizerBase) -> str | None:
        """Return what training says of a prompt that does not think."""
        marker = self.marker(tokenizer)
        return explain_unthinking(tokenizer, marker, [{"role": "user", "content": "?"}], {**dict(self.kwargs), **DATED})

    def thinks(self, tokenizer: PreTrainedTokenizerBase) -> bool:
        return self.advice(tokenizer) is None

    def state(self, tokenizer: PreTrainedTokenizerBase) -> PromptState:
        return self.marker(tokenizer).state_of(self.prompt_ids(tokenizer, "?"))


def renderings(name: str) -> list[Rendering]:
    """Return the different prompts that a template renders, by default and with each argument that it reads."""
    template = read_template(name)
    tokenizer = make_bytes_tokenizer(template)
    named = {"default": ()} | {
        f"{argument}: {str(value).lower()}": ((argument, value),)
        for argument, values in ARGUMENTS.items()
        if argument in template
        for value in values
    }
    found: dict[tuple[int, ...], list[str]] = {}
    for text, kwargs in named.items():
        try:
            ids = Rendering(name, (text,), kwargs).prompt_ids(tokenizer, "?")
        except UserError:  # the template refuses the value
            continue
        found.setdefault(tuple(ids), []).append(text)
    return [Rendering(name, tuple(texts), named[texts[0]]) for texts in found.values()]


def thinking_renderings() -> list[Rendering]:
    """Return all prompts of all stored templates of models that think."""
    found = []
    for name in stored_templates():
        try:
            find_marker(make_bytes_tokenizer(read_template(name)))
        except UserError:
            continue
        found += renderings(name)
    return found
