"""The dimensions of a model, from which its bytes follow: read from its configuration, and counted without weights."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from e1_trl.arguments import Count, read_value
from e1_trl.errors import UserError, user_errors
from e1_trl.recipes import read_mapping

SIZES = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
# Configurations of the recipes' models, all Qwen2, so that nobody need have them at hand.
KNOWN = read_mapping(Path(__file__).with_name("models.yaml"))


@dataclass(frozen=True)
class Architecture:
    """A decoder of attention and dense layers. Counts are of numbers, not of bytes."""

    parameters: int  # tied ones count once
    output_head: int  # parameters of the matrix from hidden states to logits
    layer: int  # parameters of one, on average
    normed: int  # what the norms of a layer take of one token
    adapted: int  # parameters of a LoRA adapter of rank 1 on all linear layers but the output head
    layers: int
    hidden: int
    mlp: int  # width within a layer
    heads: int
    kv_heads: int
    head: int  # dimensions
    notes: tuple[str, ...]  # sentences on what a plan leaves out

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache of one token, in bfloat16."""
        return 4 * self.layers * self.kv_heads * self.head

    @classmethod
    @cache
    def of(cls, model: str, revision: str | None = None, trust_remote_code: bool = False) -> "Architecture":
        """The architecture of a model in a folder, of the recipes, in the Hub's cache or on the Hub, in this order.

        Raises:
            UserError: it is nowhere, or of a kind whose memory does not follow from these dimensions.
        """
        try:
            import torch
            from transformers import AutoConfig, AutoModelForCausalLM
            from transformers.modeling_utils import set_zero3_state
        except ImportError as error:
            raise UserError(f"a plan needs PyTorch (pip install 'e1-trl[train]'): {error}") from error
        options = {"revision": revision, "trust_remote_code": trust_remote_code}
        with user_errors(f"{model} cannot be planned for", Exception):  # its configuration, or its code, may raise any
            if model in KNOWN and not Path(model).is_dir():
                config = AutoConfig.for_model("qwen2", tie_word_embeddings=False, **KNOWN[model])
            else:
                try:
                    config = AutoConfig.from_pretrained(model, local_files_only=True, **options)
                except OSError:
                    config = AutoConfig.from_pretrained(model, **options)
            text = config.get_text_config()
            sizes = (read_value(f"{model}: {name}", getattr(text, name, None), Count) for name in SIZES)
            layers, hidden, mlp, heads = sizes
            types = set(getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None) or ())
            require(f"{model}: layers of", sorted(types), ["attention", "full_attention", "sliding_attention"])
            require(f"{model}: kv_lora_rank", [getattr(text, "kv_lora_rank", None)], [None])
            # Under ZeRO-3 this model would be shared out, too; so it is said to be already.
            with torch.device("meta"), set_zero3_state():
                built = AutoModelForCausalLM.from_config(text, trust_remote_code=trust_remote_code)
            output, embeddings = built.get_output_embeddings(), built.get_input_embeddings().weight
            kv_heads = getattr(text, "num_key_value_heads", None) or heads
            head = getattr(text, "head_dim", None) or hidden // heads
        for name, each in built.named_parameters():
            if each.ndim > 2 or "expert" in name:
                raise UserError(f"{model}: {name} cannot be planned for, only attention and dense layers")
        parameters = sum(each.numel() for each in built.parameters())
        outside = {output.weight, embeddings}
        norms = [each.numel() for name, each in built.named_parameters() if name.endswith("norm.weight")]
        alike = (heads + kv_heads) // 2  # queries and keys may have a norm each, which all of their heads share
        linear = [each for each in built.modules() if isinstance(each, torch.nn.Linear) and each is not output]
        windows = "sliding_attention" in types or getattr(text, "sliding_window", None)
        notes = {
            "Only the model of text is planned for.": text is not config,
            "Sliding windows are planned for as if layers saw all of the context.": windows,
        }
        return cls(
            parameters=parameters,
            output_head=output.weight.numel(),
            layer=(parameters - sum(each.numel() for each in outside)) // layers,
            normed=(sum(size * (alike if size == head else 1) for size in norms) - hidden) // layers,  # less the last
            adapted=sum(each.in_features + each.out_features for each in linear),
            layers=layers,
            hidden=hidden,
            mlp=mlp,
            heads=heads,
            kv_heads=kv_heads,
            head=head,
            notes=tuple(note for note, holds in notes.items() if holds),
        )


def require(name: str, found: Collection[Any], planned: Collection[Any]) -> None:
    """Raise a `UserError` that names the first of what is found that cannot be planned for."""
    for each in found:
        if each not in planned:
            raise UserError(f"{name} {each} cannot be planned for, only {' and '.join(map(str, planned))}")
