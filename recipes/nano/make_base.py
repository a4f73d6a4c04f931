"""Make the nano base: a language of chained sums, a tokenizer, and a model that thinks too long in it.

Everything that the nano recipe needs is made here from nothing: problems with known answers, a word-level
tokenizer with `<think>` and `</think>`, and a Qwen2 model of 0.65 M parameters, pre-trained on worked
examples. Its thinking is right but redundant, as that of R1-like models: every step is rechecked ("Wait ...")
1.6 times on average, so the natural thinking is almost three times the concise chain.

    problem    a=2;b=a-3;c=b+5;c?
    thinking   a=2;b=2-3=9;Wait b=2-3=9;c=9+5=4;        (mod 10)
    solution   c=9+5=4;\\boxed{4}                         (restates none, some or all of the steps)

    python recipes/nano/make_base.py --what data     the problems of the recipe: seconds
    python recipes/nano/make_base.py --what model    the base: about 20 minutes on two cores (`make base`)
"""

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.utils.data import IterableDataset
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Trainer, TrainingArguments, set_seed
from trl import TrlParser

VARIABLES = "abcdefgh"
WORDS = [*"0123456789", *VARIABLES, *"=+-;?", "Wait ", "\\boxed{", "}"]
SPECIAL = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<think>", "</think>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}{% if m['role'] == 'assistant' %}"
    "{{ '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|><think>' }}{% endif %}"
)
MAX_RECHECKS = 4
RUN = 16  # batches sorted by length together
IGNORED_LABEL = -100


@dataclass(frozen=True)
class Chain:
    """A problem: variable i is variable i-1 plus a signed digit, mod 10; the value of the last one is asked."""

    start: int
    operands: tuple[tuple[str, int], ...]

    @classmethod
    def sample(cls, rng: random.Random, min_variables: int, max_variables: int) -> "Chain":
        operands = rng.randint(min_variables, max_variables) - 1
        return cls(rng.randrange(10), tuple((rng.choice("+-"), rng.randrange(10)) for _ in range(operands)))

    @property
    def steps(self) -> list[str]:
        """The concise chain, one worked step per variable."""
        value, steps = self.start, [f"a={self.start};"]
        for name, (sign, digit) in zip(VARIABLES[1:], self.operands, strict=False):
            result = (value + digit if sign == "+" else value - digit) % 10
            steps.append(f"{name}={value}{sign}{digit}={result};")
            value = result
        return steps

    @property
    def problem(self) -> str:
        parts = [f"a={self.start};"]
        for previous, name, (sign, digit) in zip(VARIABLES, VARIABLES[1:], self.operands, strict=False):
            parts.append(f"{name}={previous}{sign}{digit};")
        return "".join(parts) + f"{VARIABLES[len(self.operands)]}?"

    @property
    def answer(self) -> str:
        return self.steps[-1][-2]

    def thinking(self, rng: random.Random, recheck: float) -> str:
        """The chain with each computed step rechecked while `rng` says so (with probability `recheck`)."""
        text = self.steps[0]
        for step in self.steps[1:]:
            text += step
            for _ in range(MAX_RECHECKS):
                if rng.random() >= recheck:
                    break
                text += f"Wait {step}"
        return text

    def solution(self, rng: random.Random, restate: float) -> str:
        """The boxed answer; with probability `restate`, after a random number of the last steps."""
        restated = rng.randint(1, len(self.steps)) if rng.random() < restate else 0
        return "".join(self.steps[len(self.steps) - restated :]) + f"\\boxed{{{self.answer}}}"


def make_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<|pad|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"Wait |\\boxed\{|."), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(SPECIAL[:4])
    # Like the real markers, <think> and </think> are added tokens that survive `skip_special_tokens`. So are the two
    # words, since AutoTokenizer gives every Qwen2 model Qwen2's pre-tokenizer, which would spell them.
    tokenizer.add_tokens([*SPECIAL[4:], *(word for word in WORDS if len(word) > 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


@dataclass
class BaseArguments:
    """What to make, and the few numbers that shape it."""

    what: str = field(metadata={"help": "`data` or `model`."})
    output: Path = field(default=Path("runs/nano"), metadata={"help": "Folder that `data/` or `base/` is written to."})
    seed: int = field(default=17, metadata={"help": "Seed of the pre-training; the data have seeds of their own."})
    steps: int = field(default=3000, metadata={"help": "Pre-training steps."})
    batch_size: int = field(default=48, metadata={"help": "Worked examples per step."})
    learning_rate: float = field(default=2e-3, metadata={"help": "Peak learning rate, cosine decay."})
    min_variables: int = field(default=4, metadata={"help": "Shortest chain."})
    max_variables: int = field(default=8, metadata={"help": "Longest chain."})
    recheck: float = field(default=2 / 3, metadata={"help": "Probability of one more recheck of a step."})
    restate: float = field(default=0.5, metadata={"help": "Share of the solutions that restate some steps."})


class WorkedExamples(IterableDataset):
    """An endless stream of tokenized examples; chains grow to full length over the first third of the training.

    Examples come in runs of similar length, so that batches hold little padding.
    """

    def __init__(self, arguments: BaseArguments, tokenizer: PreTrainedTokenizerFast):
        self.arguments, self.tokenizer = arguments, tokenizer

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        arguments = self.arguments
        rng = random.Random(arguments.seed)
        for step in itertools.count(0, RUN):
            growth = min(1.0, step / (arguments.steps / 3))
            longest = round(3 + growth * (arguments.max_variables - 3))
            examples = [
                self.example(Chain.sample(rng, min(arguments.min_variables, longest), longest), rng)
                for _ in range(RUN * arguments.batch_size)
            ]
            examples.sort(key=lambda example: len(example["input_ids"]))
            batches = [examples[i : i + arguments.batch_size] for i in range(0, len(examples), arguments.batch_size)]
            rng.shuffle(batches)
            yield from itertools.chain.from_iterable(batches)

    def example(self, chain: Chain, rng: random.Random) -> dict[str, list[int]]:
        """Only the response is learnt; the prompt is ignored by the loss."""
        prompt = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": chain.problem}], add_generation_prompt=True, return_dict=False
        )
        response = self.tokenizer.encode(
            f"{chain.thinking(rng, self.arguments.recheck)}</think>{chain.solution(rng, self.arguments.restate)}<|end|>"
        )
        return {"input_ids": prompt + response, "labels": [IGNORED_LABEL] * len(prompt) + response}


def make_model(arguments: BaseArguments) -> None:
    set_seed(arguments.seed)
    tokenizer = make_tokenizer()
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=3,
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

    def collate(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        padded = tokenizer.pad(
            {"input_ids": [row["input_ids"] for row in rows]}, return_tensors="pt", pad_to_multiple_of=32
        )
        width = padded["input_ids"].shape[1]
        labels = [row["labels"] + [IGNORED_LABEL] * (width - len(row["labels"])) for row in rows]
        return {**padded, "labels": torch.tensor(labels)}

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
        train_dataset=WorkedExamples(arguments, tokenizer),
        data_collator=collate,
    )
    trainer.train()
    model.save_pretrained(arguments.output / "base")
    tokenizer.save_pretrained(arguments.output / "base")


def make_data(arguments: BaseArguments) -> None:
    """Write `train.jsonl` and `test.jsonl`: 8,192 and 1,024 different problems, none in both."""
    folder = arguments.output / "data"
    folder.mkdir(parents=True, exist_ok=True)
    rng, seen = random.Random(f"problems-{arguments.seed}"), set[str]()
    for split, size in (("test", 1024), ("train", 8192)):
        with (folder / f"{split}.jsonl").open("w") as file:
            while size:
                chain = Chain.sample(rng, arguments.min_variables, arguments.max_variables)
                if chain.problem not in seen:
                    seen.add(chain.problem)
                    file.write(json.dumps({"problem": chain.problem, "answer": chain.answer}) + "\n")
                    size -= 1


if __name__ == "__main__":
    (arguments,) = TrlParser(BaseArguments).parse_args_and_config()
    {"data": make_data, "model": make_model}[arguments.what](arguments)
