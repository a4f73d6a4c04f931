"""Makes what an experiment starts from: files of problems, and a model that has learnt worked examples.

Knows nothing about what the examples are of.
"""

import argparse
import itertools
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn.functional import cross_entropy
from torch.nn.functional import pad as pad_tensor
from torch.utils.data import IterableDataset
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)

from e1_trl.command_line import run_command

SPECIAL = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<think>", "</think>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}{% if m['role'] == 'assistant' %}"
    "{{ '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|><think>' }}{% endif %}"
)
SEED = 17
RECHECK = 2 / 3  # the probability of one more recheck of a step
MAX_RECHECKS = 4
STEPS = 3000
BATCH = 48  # worked examples per step
LEARNING_RATE = 2e-3  # the peak
CONTEXT = 1024  # tokens
RUN = 16  # batches whose examples are sorted by length together
IGNORED_LABEL = -100
ROWS = 128  # of which the output head takes a multiple

Row = dict[str, list[int]]  # `input_ids` and `labels`
# From a generator and how far the training is (0 to 1, reached after a part of it) to a problem, the thinking and the
# solution of a worked example, and whether the thinking was stopped: then only the solution is learnt.
Example = Callable[[random.Random, float], tuple[str, str, str] | tuple[str, str, str, bool]]


def rechecked(steps: Iterable[str], rng: random.Random) -> str:
    """The steps, each followed by rechecks ("Wait …") while `rng` says so: 1.6 on average."""
    text = ""
    for step in steps:
        text += step
        for _ in range(MAX_RECHECKS):
            if rng.random() >= RECHECK:
                break
            text += f"Wait {step}"
    return text


def draw_problems(seed: int, sample: Callable[[random.Random], Any]) -> Iterator[dict[str, str]]:
    """Draw different problems with their answers, from what makes a record of both."""
    rng, seen = random.Random(f"problems-{seed}"), set[str]()
    while True:
        drawn = sample(rng)
        if drawn.problem not in seen:
            seen.add(drawn.problem)
            yield {"problem": drawn.problem, "answer": drawn.answer}


def write_data(output: Path, splits: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
    """Write the rows of each split into the folder `data`, one file of JSON lines each."""
    (output / "data").mkdir(parents=True, exist_ok=True)
    for split, rows in splits.items():
        (output / "data" / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def main(name: str, make_data: Callable[[Path, int], None], make_model: Callable[[Path, int], None]) -> None:
    """Make what the command line asks for, `data/` or `base/`, in the folder of this name in runs/."""
    parser = argparse.ArgumentParser(prog=f"experiments.{name}.make_base")
    parser.add_argument("--what", choices=("data", "model"), required=True)
    make = make_data if parser.parse_args().what == "data" else make_model
    run_command(f"experiments.{name}", lambda: make(Path("runs") / name, SEED))


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


def batch_by_length(examples: Iterable[Row], size: int, rng: random.Random) -> Iterator[Row]:
    """Order examples so that each batch of `size` has similar lengths, and so little padding; batches are shuffled."""
    ordered = sorted(examples, key=lambda example: len(example["input_ids"]))
    batches = [ordered[i : i + size] for i in range(0, len(ordered), size)]
    rng.shuffle(batches)
    yield from itertools.chain.from_iterable(batches)


@dataclass(eq=False)
class WorkedExamples(IterableDataset):
    """An endless stream of tokenized examples; `encode` makes the token ids of a response of thinking and solution."""

    tokenizer: PreTrainedTokenizerBase
    example: Example
    encode: Callable[[str, str], list[int]]
    seed: int
    steps: int
    batch_size: int  # examples
    grown: float = 1 / 3  # share of the training after which examples grow no more

    def __iter__(self) -> Iterator[Row]:
        rng = random.Random(self.seed)
        for step in itertools.count(0, RUN):
            growth = min(1.0, step / (self.grown * self.steps))
            examples = [self.tokenized(*self.example(rng, growth)) for _ in range(RUN * self.batch_size)]
            yield from batch_by_length(examples, self.batch_size, rng)

    def tokenized(self, problem: str, thinking: str, solution: str, stopped: bool = False) -> Row:
        """Only the response is learnt, or of a stopped thinking the solution; the loss ignores what is before it."""
        prompt = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": problem}], add_generation_prompt=True, return_dict=False
        )
        response = self.encode(thinking, solution)
        given = len(self.encode(thinking, "")) - 1 if stopped else 0  # the end of the sequence apart
        return {
            "input_ids": prompt + response,
            "labels": [IGNORED_LABEL] * (len(prompt) + given) + response[given:],
        }


def pad(rows: list[Row], tokenizer: PreTrainedTokenizerBase) -> dict[str, torch.Tensor]:
    """Rows of `WorkedExamples` as one batch, of a width for which oneDNN has compiled its kernels before."""
    padded = tokenizer.pad(
        {"input_ids": [row["input_ids"] for row in rows]}, return_tensors="pt", pad_to_multiple_of=32
    )
    width = padded["input_ids"].shape[1]
    labels = [row["labels"] + [IGNORED_LABEL] * (width - len(row["labels"])) for row in rows]
    return {**padded, "labels": torch.tensor(labels)}


class WarmUp(Trainer):
    """A Trainer that puts nothing but responses through the output head, which is a fifth of this model."""

    def compute_loss(self, model: PreTrainedModel, inputs: dict[str, torch.Tensor], *_: Any, **__: Any) -> torch.Tensor:
        labels = inputs.pop("labels")[:, 1:]
        learnt = (labels != IGNORED_LABEL).flatten().nonzero()[:, 0]
        # Few different shapes: oneDNN compiles for each, and memory that was freed fits the next.
        places = pad_tensor(learnt, (0, -len(learnt) % ROWS))
        weights = torch.arange(len(places), device=places.device) < len(learnt)
        causal = getattr(model, "get_base_model", lambda: model)()  # of an adapter
        with self.accelerator.autocast():
            hidden = causal.model(**inputs).last_hidden_state[:, :-1]
            logits = causal.lm_head(hidden.flatten(0, 1)[places])
        losses = cross_entropy(logits.float(), labels.flatten()[places], reduction="none")
        return (losses * weights).sum() / len(learnt)


def last_checkpoint(folder: Path) -> str | None:
    """Find the last checkpoint that is whole: its state is written last."""
    whole = (state.parent for state in folder.glob("checkpoint-*/trainer_state.json"))
    last = max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
    return None if last is None else str(last)


def settings(
    seed: int, steps: int, batch_size: int, learning_rate: float, output: Path, **own: Any
) -> TrainingArguments:
    """Settings of a training on worked examples, which writes into `output`; `own` adds to them."""
    return TrainingArguments(
        output_dir=str(output),
        max_steps=steps,
        per_device_train_batch_size=batch_size,
        learning_rate=learning_rate,
        lr_scheduler_type="cosine",
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
        bf16=True,  # on a core that has AMX, 2.5 times faster than float32
        seed=seed,
        **own,
    )


def pretrain(
    output: Path,
    seed: int,
    layers: int,
    tokenizer: PreTrainedTokenizerFast,
    example: Example,
    steps: int = STEPS,
    grown: float = 1 / 3,
) -> None:
    """Train a model from nothing, and write it, with its tokenizer, into the folder `base`.

    Examples grow for the share `grown` of the training.
    """

    def encode(thinking: str, solution: str) -> list[int]:
        return tokenizer.encode(f"{thinking}</think>{solution}<|end|>")

    own = {"warmup_steps": 100, "adam_beta2": 0.99, "weight_decay": 0.01, "logging_steps": 100, "save_strategy": "no"}
    args = settings(seed, steps, BATCH, LEARNING_RATE, output / "pretraining", **own)
    examples = WorkedExamples(tokenizer, example, encode, seed, steps, BATCH, grown)
    # On CPU in bfloat16, eager attention is faster than SDPA.
    train(output, layers, "eager", tokenizer, examples, args)


def train(
    output: Path,
    layers: int,
    attention: str,
    tokenizer: PreTrainedTokenizerFast,
    examples: IterableDataset,
    args: TrainingArguments,
) -> None:
    """Train a model of so many layers on tokenized examples, and write it, with its tokenizer, into `base`."""
    set_seed(args.seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=False,  # as in the R1-distilled models that the paper starts from
            attn_implementation=attention,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    trainer = Trainer(model=model, args=args, train_dataset=examples, data_collator=partial(pad, tokenizer=tokenizer))
    trainer.train()
    model.save_pretrained(output / "base")
    tokenizer.save_pretrained(output / "base")
