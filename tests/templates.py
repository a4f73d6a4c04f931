"""Chat templates of today's models, as TRL stores them, and a tokenizer of bytes that renders any of them."""

from collections.abc import Sequence
from pathlib import Path

import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

FOLDER = Path(trl.__file__).parent / "chat_templates"
ENDS = ["<eos>", "<pad>"]


def read_template(name: str) -> str:
    """Return a stored template by its name, without `.jinja`."""
    return (FOLDER / f"{name}.jinja").read_text()


def stored_templates() -> list[str]:
    """Name the templates that models ship; TRL's patches for training and models of pictures alone are left out."""
    return sorted(file.stem for file in FOLDER.glob("*.jinja") if not file.stem.endswith("_training"))


def make_bytes_tokenizer(template: str | None, added: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Make a tokenizer whose tokens are the 256 bytes and the `added` texts, with a chat template."""
    vocabulary = {byte: number for number, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(ENDS)
    tokenizer.add_tokens([*added])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=ENDS[0],
        bos_token=ENDS[0],
        pad_token=ENDS[1],
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )
