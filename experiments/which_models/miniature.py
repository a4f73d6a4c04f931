"""Make the miniature: a tokenizer and a model that turns numbers around in the words of every template."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.utils.data import IterableDataset
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Trainer, set_seed

from e1_trl.marker import PromptState
from experiments.pretraining import IGNORED_LABEL, RUN, pad, settings
from experiments.which_models.templates import ENDS, Rendering

# Tokens of the families; markers of several tokens are made of them.
ADDED = (
    "<think>",
    "</think>",
    "<|channel>",
    "<channel|>",
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|channel|>",
    "<|eom|>",
)
# How Transformers splits the text of every Qwen2.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
VOCABULARY = 1200
STEPS = 800
BATCH = 32
EMPTY = 0.15  # share of examples without a thought, whose opener and close are forced at a budget of 0
CONTEXT = 1024
DIGITS = 3


def example(rng: random.Random) -> tuple[str, str, str, str]:
    """Return a question, a redundant thinking, a solution, and the answer in its box."""
    number = "".join(rng.choice("0123456789") for _ in range(DIGITS))
    answer = number[::-1]
    steps = [answer[: end + 1] for end in range(DIGITS)]
    thinking = ";".join([*steps, *[f"Wait {answer}"] * rng.randint(0, 5)])
    return f"Reverse {number}.", thinking, f"\\boxed{{{answer}}}", answer


def make_tokenizer(found: Sequence[Rendering]) -> PreTrainedTokenizerFast:
    """Train a tokenizer on the prompts, with the families' special tokens."""
    texts = [rendering.template for rendering in found]
    rng = random.Random(0)
    texts += ["".join(example(rng)[:3]) for _ in range(200)]
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.add_special_tokens([*ENDS])
    tokenizer.add_tokens([*ADDED])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=ENDS[0], eos_token=ENDS[0], pad_token=ENDS[1],
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


@dataclass(eq=False)
class Examples(IterableDataset):
    """An endless stream of worked examples in the words of all templates."""

    found: Sequence[Rendering]
    tokenizer: PreTrainedTokenizerFast
    seed: int

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        rng = random.Random(self.seed)
        states = [each.state(self.tokenizer) for each in self.found]
        markers = [each.marker(self.tokenizer) for each in self.found]
        # A marker that few templates have is as frequent as the others.
        alike = [[at for at, other in enumerate(markers) if other == each] for each in dict.fromkeys(markers)]

        def make() -> dict[str, list[int]]:
            at = rng.choice(rng.choice(alike))
            question, thinking, solution, _ = example(rng)
            prompt = self.found[at].prompt_ids(self.tokenizer, question)
            text = solution + ENDS[0]
            if states[at] is not PromptState.CLOSED:
                empty = rng.random() < EMPTY
                opener = markers[at].opener * (states[at] is PromptState.NOTHING)
                if empty and opener:
                    opener = self.tokenizer.decode(list(markers[at].empty_ids)).removesuffix(markers[at].text)
                text = opener + thinking * (not empty) + markers[at].text + text
            response = self.tokenizer.encode(text, add_special_tokens=False)
            return {"input_ids": prompt + response, "labels": [IGNORED_LABEL] * len(prompt) + response}

        while True:  # runs of similar length, so that batches hold little padding
            rows = sorted((make() for _ in range(RUN * BATCH)), key=lambda row: len(row["input_ids"]))
            batches = [rows[at : at + BATCH] for at in range(0, len(rows), BATCH)]
            rng.shuffle(batches)
            yield from itertools.chain.from_iterable(batches)


def make_base(found: Sequence[Rendering], output: Path) -> None:
    """Train the miniature, and write it."""
    set_seed(0)
    tokenizer = make_tokenizer(found)
    sizes = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 3, "num_attention_heads": 4}
    ids = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = Qwen2Config(
        **sizes, **ids, vocab_size=len(tokenizer), num_key_value_heads=4, max_position_embeddings=CONTEXT,
        attn_implementation="sdpa",
    )  # fmt: skip
    trainer = Trainer(
        model=Qwen2ForCausalLM(config),
        args=settings(0, STEPS, BATCH, 2e-3, output / "pretraining", warmup_steps=50, logging_steps=50),
        train_dataset=Examples(found, tokenizer, 0),
        data_collator=partial(pad, tokenizer=tokenizer),
    )
    trainer.train()
    trainer.model.save_pretrained(output / "base")
    tokenizer.save_pretrained(output / "base")
