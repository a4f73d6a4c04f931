"""Stand-ins for the Hub: folders named like models and datasets, with a random model and a few problems."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import trl
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerBase,
)

from e1_trl.errors import UserError
from experiments.which_models.templates import SMOLLM3

LAYERS = 2
HEAD = 32  # dimensions, the fewest that vLLM's CPU attention takes
DATA = Path(os.environ.get("E1_TRL_DATA", Path(__file__).parents[3] / "shared" / "data"))
STORED = Path(trl.__file__).parent / "chat_templates"


@dataclass(frozen=True)
class Words:
    """Tokenizer and chat template of a family of models."""

    tokenizer: str  # of a model on the Hub
    copy: str  # its folder among ours, if it is there
    template: str | None = None  # as TRL stores it, by name, or as a text; None: the tokenizer's own
    about: str = "its own"  # of both, for a table
    borrowed: bool = False  # whether the tokenizer is another family's
    added: tuple[str, ...] = ()  # the family's own tokens
    end: str | None = None  # the one that ends a sequence; None: the tokenizer's own

    def load(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer, from a copy in `DATA` or from the Hub."""
        copy = DATA / "tokenizers" / self.copy
        try:
            tokenizer = AutoTokenizer.from_pretrained(copy if copy.is_dir() else self.tokenizer)
        except (OSError, ValueError) as error:
            said = str(error).partition("\n")[0].rstrip(".")
            raise UserError(f"no tokenizer: {said}; copy that of {self.tokenizer} into {copy}") from error
        if self.added:
            tokenizer.add_special_tokens({"additional_special_tokens": [*self.added]})
        if self.end:
            tokenizer.eos_token = self.end
        if self.template:
            stored = STORED / f"{self.template}.jinja"
            tokenizer.chat_template = self.template if "\n" in self.template else stored.read_text()
        return tokenizer


FAMILIES = {
    "qwen2": Words("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "deepseek-r1-distill-qwen"),
    "qwen3": Words("Qwen/Qwen3-1.7B", "qwen3", "qwen3"),
    "qwen3_5": Words("Qwen/Qwen3-1.7B", "qwen3", "qwen3_5_think", "Qwen3's with its own template", borrowed=True),
    "smollm3": Words("Qwen/Qwen3-1.7B", "qwen3", SMOLLM3, "Qwen3's with a template of ours", borrowed=True),
    "gpt_oss": Words(
        "Qwen/Qwen3-1.7B",
        "qwen3",
        "gptoss",
        "Qwen3's with its own tokens and its own template",
        borrowed=True,
        added=("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>", "<|constrain|>"),
        end="<|return|>",
    ),
}
MATHEMATICS = "agentica-org/DeepScaleR-Preview-Dataset"
PROGRAMS = "agentica-org/DeepCoder-Preview-Dataset"
VALIDATION = "HuggingFaceH4/aime_2024"

VALIDATED = [{"problem": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(1, 3)]
SUMS = [{"problem": f"What is {n} plus {n + 1}?", "answer": str(2 * n + 1)} for n in range(1, 5)]


def _on_stdin(what: str, solution: str, outputs: Mapping[int, int]) -> dict[str, Any]:
    tests = [{"type": "stdin_stdout", "input": f"{n}\n", "output": f"{out}\n"} for n, out in outputs.items()]
    return {
        "problem": f"Read an integer and print {what}.",
        "solutions": [f"```python\nn = int(input())\nprint({solution})\n```"],
        "tests": json.dumps(tests),
    }


# Of DeepCoder's three sets, each with its tests in a shape of its own. `substitutions.PROGRAM` solves the first.
_DOUBLE = _on_stdin("twice its value", "n + n", {3: 6, 50: 100})
_SQUARE = _on_stdin("its square", "n * n", {3: 9, 50: 2500})
_CUBE = _on_stdin("its cube", "n * n * n", {3: 27, 50: 125_000})
_AREA = {
    "problem": "Write a function `area` of the two sides of a rectangle.",
    "solutions": ["def area(a, b):\n    return a * b"],
    "tests": json.dumps({"fn_name": "area", "inputs": [[2, 3], [4, 5]], "outputs": [[6], [20]]}),
}
# Its own solution fails. It is the one that is left out since LiveCodeBench's prompt is much longer than the others,
# and each generation is padded to its longest.
_TOTAL = {
    "problem": "Given two integers, return their sum.",
    "starter_code": "class Solution:\n    def total(self, a: int, b: int) -> int:\n        ",
    "solutions": ["```python\nclass Solution:\n    def total(self, a, b):\n        return a - b\n```"],
    "tests": json.dumps(
        [{"input": "1\n2", "output": "3", "testtype": "functional", "metadata": {"func_name": "total"}}]
    ),
    "metadata": {"func_name": "total"},
}
SETS = {"primeintellect": [_DOUBLE, _SQUARE, _CUBE], "taco": [_AREA], "lcbv5": [_TOTAL]}


def reduced(real: Mapping[str, Any], kv_heads: int) -> dict[str, Any]:
    """Return a real configuration reduced to two layers with `kv_heads` KV heads, each shared by two heads."""
    heads = 2 * kv_heads
    hidden = heads * HEAD
    if "text_config" in real:
        vision = {"depth": 1, "hidden_size": HEAD, "intermediate_size": HEAD, "num_heads": 1, "out_hidden_size": hidden}
        return {**real, "text_config": reduced(real["text_config"], kv_heads), "vision_config": vision}
    small = {
        "num_hidden_layers": LAYERS,
        "hidden_size": hidden,
        "intermediate_size": HEAD * math.ceil(hidden * real["intermediate_size"] / real["hidden_size"] / HEAD),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": HEAD,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "full_attention_interval": LAYERS,  # one layer of each type
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
    }
    return {name: small.get(name, value) for name, value in real.items()}


def make_model(real: Mapping[str, Any], kv_heads: int, folder: Path) -> None:
    """Write a random model of a real one's class at reduced size, the same at every call, with its tokenizer."""
    words = FAMILIES[real["model_type"]]
    tokenizer = words.load()
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    sizes = reduced(real, kv_heads)
    text = sizes.get("text_config", sizes)
    text |= {"max_position_embeddings": 131_072, **ends}
    if words.borrowed:
        text["vocab_size"] = 64 * math.ceil(len(tokenizer) / 64)
    config = AutoConfig.for_model(**sizes)
    torch.manual_seed(0)
    kind = AutoModelForImageTextToText if "text_config" in sizes else AutoModelForCausalLM
    model = kind.from_config(config, dtype=torch.float32)
    model.generation_config = GenerationConfig(**ends)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_datasets(folder: Path) -> None:
    """Write the problems under the names of the datasets on the Hub: DeepScaleR, AIME, and the sets of DeepCoder."""
    _write(folder / MATHEMATICS / "train.jsonl", SUMS)
    _write(folder / VALIDATION / "train.jsonl", VALIDATED)
    for name, rows in SETS.items():
        _write(folder / PROGRAMS / name / "train.jsonl", rows)
    configs = "".join(f"- config_name: {name}\n  data_files: {name}/train.jsonl\n" for name in SETS)
    (folder / PROGRAMS / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")


def _write(file: Path, rows: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
