"""Stand-ins for the Hub: folders named like models and datasets, with a random model and a few problems."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerBase, Qwen2Config

LAYERS = 2
HEAD = 32  # dimensions, the fewest that vLLM's CPU attention takes
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


def reduced(real: Mapping[str, int], kv_heads: int) -> dict[str, int]:
    """Return a real model's dimensions reduced to two layers with `kv_heads` KV heads, each shared by two heads."""
    heads = 2 * kv_heads
    hidden = heads * HEAD
    mlp = HEAD * math.ceil(hidden * real["intermediate_size"] / real["hidden_size"] / HEAD)
    sizes = {"num_hidden_layers": LAYERS, "hidden_size": hidden, "intermediate_size": mlp}
    return {**real, **sizes, "num_attention_heads": heads, "num_key_value_heads": kv_heads}


def make_model(sizes: Mapping[str, int], tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a random Qwen2 of these dimensions, the same at every call, with a tokenizer of its vocabulary."""
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = Qwen2Config(**sizes, tie_word_embeddings=False, max_position_embeddings=131_072, **ends)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
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
