"""The dimensions of a model, from which its bytes follow: no weights, no GPU, no network."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e1_trl.arguments import Count, read_value
from e1_trl.errors import UserError


@dataclass(frozen=True)
class Architecture:
    """A decoder of the Qwen2 or Llama kind. Counts are of numbers, not of bytes."""

    layers: int
    hidden: int
    mlp: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool = False
    attention_bias: bool = True  # of queries, keys and values, as Qwen2 has it

    @property
    def head(self) -> int:
        """Dimensions of one attention head."""
        return self.hidden // self.heads

    @property
    def output_head(self) -> int:
        """Parameters of the matrix from hidden states to logits."""
        return self.vocabulary * self.hidden

    @property
    def layer(self) -> int:
        """Parameters of one layer."""
        keys = self.kv_heads * self.head
        attention = self.hidden * (2 * self.hidden + 2 * keys) + (self.hidden + 2 * keys) * self.attention_bias
        return attention + 3 * self.hidden * self.mlp + 2 * self.hidden

    @property
    def parameters(self) -> int:
        return self.output_head * (1 if self.tied else 2) + self.layers * self.layer + self.hidden

    def adapter(self, rank: int) -> int:
        """Parameters of a LoRA adapter of all linear layers, which the output head is none of."""
        attention = 2 * (2 * self.hidden) + 2 * (self.hidden + self.kv_heads * self.head)
        return self.layers * rank * (attention + 3 * (self.hidden + self.mlp))

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache of one token, in bfloat16."""
        return 4 * self.layers * self.kv_heads * self.head

    @classmethod
    def of(cls, model: str) -> "Architecture":
        """The architecture of a model of the recipes, by its name on the Hub, or of one in a folder.

        Raises:
            UserError: it is neither, or of another kind.
        """
        if model in KNOWN:
            return KNOWN[model]
        file = Path(model) / "config.json"
        if not file.is_file():
            known = ", ".join(KNOWN)
            raise UserError(
                f"the dimensions of {model} are not known here: name a folder with its config.json, or {known}"
            )
        try:
            config = read_value(str(file), json.loads(file.read_text()), dict)
        except (OSError, json.JSONDecodeError) as error:
            raise UserError(f"{file} cannot be read: {error}") from error

        def count(name: str, default: int | None = None) -> int:
            read: int = read_value(f"{file}: {name}", config.get(name, default), Count)
            return read

        require(f"{file}: model_type", config.get("model_type"), ["qwen2", "llama"])
        hidden = count("hidden_size")
        heads = count("num_attention_heads")
        is_qwen2 = config["model_type"] == "qwen2"
        # Llama's bias is one of the output, too.
        for name, planned in {"mlp_bias": False, "head_dim": hidden // heads, "attention_bias": is_qwen2}.items():
            if config.get(name) is not None:
                require(f"{file}: {name}", config[name], [planned])
        return cls(
            layers=count("num_hidden_layers"),
            hidden=hidden,
            mlp=count("intermediate_size"),
            heads=heads,
            kv_heads=count("num_key_value_heads", heads),
            vocabulary=count("vocab_size"),
            tied=config.get("tie_word_embeddings", False),
            attention_bias=is_qwen2,
        )


def require(name: str, value: Any, planned: Sequence[Any]) -> None:
    """Raise a `ValueError` that names what cannot be planned for, unless it is one of what can be."""
    if value not in planned:
        raise UserError(f"{name} {value} cannot be planned for, only {' and '.join(map(str, planned))}")


_1_5B = Architecture(layers=28, hidden=1536, mlp=8960, heads=12, kv_heads=2, vocabulary=151_936)
_7B = Architecture(layers=28, hidden=3584, mlp=18_944, heads=28, kv_heads=4, vocabulary=152_064)
_14B = Architecture(layers=48, hidden=5120, mlp=13_824, heads=40, kv_heads=8, vocabulary=152_064)
KNOWN = {
    "agentica-org/DeepScaleR-1.5B-Preview": _1_5B,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": _1_5B,
    "Skywork/Skywork-OR1-Math-7B": _7B,
    "agentica-org/DeepCoder-14B-Preview": _14B,
    "nvidia/AceReason-Nemotron-14B": _14B,
}
