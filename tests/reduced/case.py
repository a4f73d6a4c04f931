"""A GPU recipe under one Accelerate configuration, and the command that trains it at reduced size. Runs nothing."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e1_trl.errors import UserError
from e1_trl.recipes import fields_of, read_mapping, resource
from tests.reduced import substitutions

ROOT = Path(__file__).parents[2]

# Other Accelerate configurations that a recipe's comments name, with the fields that they say to pass.
ALTERNATIVES: dict[str, dict[str, dict[str, Any]]] = {
    "E1-Math-1.5B": {"ddp": {"dtype": "float32", "vllm_enable_sleep_mode": True}, "zero3": {}},
    "E1-Qwen3-1.7B": {
        "one_gpu": {
            "dtype": "float32",
            "generation_batch_size": 512,
            "gradient_accumulation_steps": 16,
            "vllm_enable_sleep_mode": True,
            "vllm_gpu_memory_utilization": 0.52,
        }
    },
    "E1-Code-14B": {"zero3_offload": {"vllm_gpu_memory_utilization": 0.6}},
    "E1-AceReason-14B": {"zero3_offload": {"vllm_gpu_memory_utilization": 0.6}},
}


@dataclass(frozen=True)
class Case:
    """A recipe and an Accelerate configuration, both by name."""

    recipe: str
    accelerate_config: str

    def __str__(self) -> str:
        return f"{self.recipe}, {self.accelerate_config}"

    @property
    def recipe_file(self) -> Path:
        return resource("recipes", self.recipe)

    @property
    def accelerate_file(self) -> Path:
        return resource("accelerate_configs", self.accelerate_config)

    @property
    def passed(self) -> dict[str, Any]:
        """Fields that the recipe's comments say to pass under this Accelerate configuration."""
        return ALTERNATIVES.get(self.recipe, {}).get(self.accelerate_config, {})

    @property
    def fields(self) -> dict[str, Any]:
        """The recipe's fields, with the passed ones."""
        return {**fields_of(self.recipe_file), **self.passed}

    @property
    def accelerate(self) -> dict[str, Any]:
        """The Accelerate configuration's fields."""
        return read_mapping(self.accelerate_file)

    @property
    def overrides(self) -> dict[str, Any]:
        """Fields with another value than in the recipe: the substitutions and the passed ones."""
        return {**self.passed, **substitutions.of_recipe(self.fields, self.accelerate)}

    @property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of both files' fields, in hexadecimal digits; comments do not count."""
        return {"recipe_sha256": _hash(self.recipe_file), "accelerate_sha256": _hash(self.accelerate_file)}

    def reduced_accelerate(self) -> dict[str, Any]:
        """The Accelerate configuration with all its substitutions made."""
        return {**self.accelerate, **substitutions.of_accelerate(self.accelerate)}

    def command(self, accelerate_file: Path, **more: Any) -> list[str]:
        """Return the arguments of `e1` that train the case, with `more` fields of the recipe."""
        words = ["train", "--config", str(self.recipe_file), "--accelerate_config", str(accelerate_file)]
        for name, value in {**self.overrides, **more}.items():
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
        return words


def _hash(file: Path) -> str:
    fields = json.dumps(fields_of(file), sort_keys=True)
    return hashlib.sha256(fields.encode()).hexdigest()


def cases(recipes: list[str]) -> list[Case]:
    """Return the cases of some GPU recipes, or of all: each with its own Accelerate configuration, then the others."""
    known = {file.stem: file for file in sorted((ROOT / "recipes").glob("E1-*.yaml"))}
    if unknown := [name for name in recipes if name not in known]:
        raise UserError(f"{unknown[0]} is not a GPU recipe of ours; expected one of {', '.join(known)}")
    own = {name: fields_of(known[name])["accelerate_config"] for name in recipes or known}
    return [Case(name, config) for name in own for config in (own[name], *ALTERNATIVES.get(name, {}))]
