"""Make the miniature: a tokenizer and a model that turns numbers around in the words of every template."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import IterableDataset
from transformers import PreTrainedTokenizerFast

from e1_trl.marker import PromptState
from experiments.pretraining import IGNORED_LABEL, RUN, Row, batch_by_length, settings, train
from experiments.which_models.templates import ENDS, Rendering, complete

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
STEPS = 600
BATCH = 32
EMPTY = 0.15  # share of examples without a thought, whose opener and close are forced at a budget of 0
DIGITS = 2


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
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    )
    return complete(tokenizer, ADDED)


@dataclass(eq=False)
class Examples(IterableDataset):
    """An endless stream of worked examples in the words of all templates."""

    found: Sequence[Rendering]
    tokenizer: PreTrainedTokenizerFast
    seed: int

    def __iter__(self) -> Iterator[Row]:
        rng = random.Random(self.seed)
        states = [each.state(self.tokenizer) for each in self.found]
        markers = [each.marker(self.tokenizer) for each in self.found]
        # A marker that few templates have is as frequent as the others.
        alike = [[at for at, other in enumerate(markers) if other == each] for each in dict.fromkeys(markers)]

        def make() -> Row:
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

        while True:
            yield from batch_by_length([make() for _ in range(RUN * BATCH)], BATCH, rng)


def make_base(found: Sequence[Rendering], output: Path) -> None:
    """Train the miniature, and write it."""
    tokenizer = make_tokenizer(found)
    args = settings(0, STEPS, BATCH, 2e-3, output / "pretraining", warmup_steps=50, logging_steps=50)
    train(output, 3, "eager", tokenizer, Examples(found, tokenizer, 0), args)  # faster than SDPA, as in `pretrain`
