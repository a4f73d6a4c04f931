"""Pre-trains a Qwen2 model of a million parameters from nothing, on worked examples: what the miniatures start from.

Knows nothing about what the examples are of.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.utils.data import IterableDataset
from transformers import (
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)

SPECIAL = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<think>", "</think>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}{% if m['role'] == 'assistant' %}"
    "{{ '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|><think>' }}{% endif %}"
)
RUN = 16  # batches sorted by length together
IGNORED_LABEL = -100

# From a generator and how far the training is (0 to 1, reached after a third of it) to a problem, the thinking and the
# solution of a worked example.
Example = Callable[[random.Random, float], tuple[str, str, str]]


@dataclass
class WorkedArguments:
    """What to make, and the numbers that shape a training on worked examples."""

    what: str = field(metadata={"help": "`data` or `model`."})
    output: Path = field(metadata={"help": "Folder that `data/` or `base/` is written to."})
    seed: int = field(default=17, metadata={"help": "Seed of the pre-training; the data have seeds of their own."})
    steps: int = field(default=3000, metadata={"help": "Pre-training steps."})
    batch_size: int = field(default=48, metadata={"help": "Worked examples per step."})
    learning_rate: float = field(default=2e-3, metadata={"help": "Peak learning rate, cosine decay."})


@dataclass
class PretrainingArguments(WorkedArguments):
    """What shapes a model from nothing, too."""

    layers: int = field(default=3, metadata={"help": "Layers of the model."})
    recheck: float = field(default=2 / 3, metadata={"help": "Probability of one more recheck of a step."})


def make_tokenizer(words: Sequence[str], added: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer of these words, as they are.

    Those of several characters that can stand next to others, without a space, must be among `added`: AutoTokenizer
    gives every Qwen2 model Qwen2's pre-tokenizer, which would spell them. Like the real markers, `<think>` and
    `</think>` are added tokens that survive `skip_special_tokens`.
    """
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<|pad|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(SPECIAL[:4])
    tokenizer.add_tokens([*SPECIAL[4:], *added])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


class WorkedExamples(IterableDataset):
    """An endless stream of tokenized examples, in runs of similar length, so that batches hold little padding.

    `encode` makes the token ids of a response of a thinking and a solution.
    """

    def __init__(
        self,
        arguments: WorkedArguments,
        tokenizer: PreTrainedTokenizerBase,
        example: Example,
        encode: Callable[[str, str], list[int]],
    ):
        self.arguments, self.tokenizer, self.example, self.encode = arguments, tokenizer, example, encode

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        arguments = self.arguments
        rng = random.Random(arguments.seed)
        for step in itertools.count(0, RUN):
            growth = min(1.0, step / (arguments.steps / 3))
            examples = [self.tokenized(*self.example(rng, growth)) for _ in range(RUN * arguments.batch_size)]
            examples.sort(key=lambda example: len(example["input_ids"]))
            batches = [examples[i : i + arguments.batch_size] for i in range(0, len(examples), arguments.batch_size)]
            rng.shuffle(batches)
            yield from itertools.chain.from_iterable(batches)

    def tokenized(self, problem: str, thinking: str, solution: str) -> dict[str, list[int]]:
        """Only the response is learnt; the prompt is ignored by the loss."""
        prompt = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": problem}], add_generation_prompt=True, return_dict=False
        )
        response = self.encode(thinking, solution)
        return {"input_ids": prompt + response, "labels": [IGNORED_LABEL] * len(prompt) + response}


def pad(rows: list[dict[str, list[int]]], tokenizer: PreTrainedTokenizerBase) -> dict[str, torch.Tensor]:
    """Rows of `WorkedExamples` as one batch, of a width for which oneDNN has compiled its kernels before."""
    padded = tokenizer.pad(
        {"input_ids": [row["input_ids"] for row in rows]}, return_tensors="pt", pad_to_multiple_of=32
    )
    width = padded["input_ids"].shape[1]
    labels = [row["labels"] + [IGNORED_LABEL] * (width - len(row["labels"])) for row in rows]
    return {**padded, "labels": torch.tensor(labels)}


def pretrain(arguments: PretrainingArguments, tokenizer: PreTrainedTokenizerFast, example: Example) -> None:
    """Train a model and write it, with its tokenizer, into the folder `base`."""
    set_seed(arguments.seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=arguments.layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=1024,
            tie_word_embeddings=False,  # as in the R1-distilled models that the paper starts from
            attn_implementation="eager",  # on CPU in bfloat16, faster than SDPA
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )

    def encode(thinking: str, solution: str) -> list[int]:
        return tokenizer.encode(f"{thinking}</think>{solution}<|end|>")

    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(arguments.output / "pretraining"),
            max_steps=arguments.steps,
            per_device_train_batch_size=arguments.batch_size,
            learning_rate=arguments.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=100,
            adam_beta2=0.99,
            weight_decay=0.01,
            logging_steps=100,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=True,
            seed=arguments.seed,
        ),
        train_dataset=WorkedExamples(arguments, tokenizer, example, encode),
        data_collator=partial(pad, tokenizer=tokenizer),
    )
    trainer.train()
    model.save_pretrained(arguments.output / "base")
    tokenizer.save_pretrained(arguments.output / "base")
