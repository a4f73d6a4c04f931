"""The numbers of a model that decide its memory, counted from its configuration alone."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from e1_trl.arguments import Count, read_value
from e1_trl.errors import INSTALL, UserError, user_errors
from e1_trl.recipes import read_mapping

# Configurations of the recipes' models, so that a plan downloads nothing.
KNOWN = read_mapping(Path(__file__).with_name("models.yaml"))
# Fields of a configuration. Every family has the first three; it lacks others that it does not need.
READ = (
    *("num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("qk_head_dim", "kv_lora_rank", "qk_rope_head_dim", "sliding_window", "num_experts_per_tok", "layer_types"),
    "layers_block_type",
)
# Types of layers with a cache of keys and values; others have a state of one size, or none.
ATTENDING = ("attention", "full_attention", "sliding_attention", "chunked_attention", "hybrid")
# Factor by which linear attention and state spaces keep more of a micro-batch than an MLP with as many weights, if the
# packages with their kernels are not installed: such a layer of Qwen3.5-4B keeps 487 KB of a token.
MIXED = 8


@dataclass(frozen=True)
class Architecture:
    """A decoder, counted in numbers, not bytes. Layers that differ count as their mean."""

    parameters: int  # tied weights count once
    output_head: int  # parameters of the matrix from hidden states to logits
    layer: int  # parameters of a layer
    active: int  # those of a layer that compute one token: all but the experts that are not chosen
    normed: int  # inputs of a layer's norms for one token
    adapted: int  # parameters of a LoRA adapter of rank 1 on all linear layers but the output head
    layers: int
    attending: int  # layers of attention
    hidden: int
    mlp: int  # width of a gated MLP that keeps as much of a micro-batch as a layer without its attention
    routed: int  # experts that one token visits in a layer
    heads: int
    head: int  # dimensions
    kv_bytes: int  # of the KV cache of one token, in bfloat16
    notes: tuple[str, ...]  # sentences on what a plan leaves out

    @classmethod
    @cache
    def of(cls, model: str, revision: str | None = None, trust_remote_code: bool = False) -> "Architecture":
        """Return the architecture of a model: from a folder, the recipes' models, the Hub's cache or the Hub."""
        try:
            import torch
        except ImportError as error:
            raise UserError(f"a plan needs PyTorch ({INSTALL}): {error}") from error
        with user_errors(f"{model} cannot be planned for", Exception):  # code on the Hub may raise anything
            config = _read_config(model, revision, trust_remote_code)
            text = config.get_text_config()
            built = _build(text, trust_remote_code)
            embeddings = built.get_input_embeddings().weight.numel()
            given = {name: getattr(text, name, None) for name in READ}
        layers, hidden, words = (read_value(f"{model}: {name}", given[name], Count) for name in READ[:3])
        named = dict(built.named_parameters())
        experts = {name: each for name, each in named.items() if ".experts." in name}
        if not (chosen := given["num_experts_per_tok"] or 0) and experts:
            raise UserError(f"{model} cannot be planned for: its configuration has no num_experts_per_tok")
        idle = sum(each.numel() * (len(each) - chosen) // len(each) for each in experts.values())
        types = given["layer_types"] or given["layers_block_type"] or ["attention"] * layers
        others = ", ".join(sorted({*types} - {*ATTENDING}))
        attending = sum(map(ATTENDING.__contains__, types))
        heads = (given["num_attention_heads"] or 0) if attending else 0
        kv_heads = given["num_key_value_heads"] or heads
        head = given["qk_head_dim"] or given["head_dim"] or hidden // max(1, heads)
        # Numbers that multi-head latent attention caches of a token in a layer, with a key's positions.
        latent = given["kv_lora_rank"] and given["kv_lora_rank"] + given["qk_rope_head_dim"]
        attention = _weigh(each for each in built.modules() if "Attention" in type(each).__name__)
        mixers = _weigh(each for each in built.modules() if hasattr(each, "conv1d"))
        active = (body := sum(each.numel() for each in named.values())) - embeddings - idle
        norms = [each.numel() for name, each in named.items() if name.endswith("norm.weight")]
        alike = (heads + kv_heads) // 2  # all heads share one norm of queries and one of keys, if any
        linear = [each for each in built.modules() if isinstance(each, torch.nn.Linear)]
        windows = "sliding_attention" in types or given["sliding_window"]
        notes = {
            "Only the text model is planned for.": text is not config,
            "Sliding windows are planned for as if layers saw the whole context.": windows,
            f"Layers of {others} have no cache of keys and values; their states are left out.": others,
            f"Experts: all are held, and {chosen} of each layer compute a token.": experts,
        }
        return cls(
            parameters=body + (0 if config.tie_word_embeddings else words * hidden),
            output_head=words * hidden,
            layer=(body - embeddings) // layers,
            active=active // layers,
            # Without the last norm.
            normed=(sum(size * (alike if size == head else 1) for size in norms) - hidden) // layers,
            adapted=sum(each.in_features + each.out_features for each in linear),
            layers=layers,
            attending=attending,
            hidden=hidden,
            mlp=(active - attention + (MIXED - 1) * mixers) // (3 * hidden * layers),
            routed=chosen * len({name.partition(".experts.")[0] for name in experts}) // layers,
            heads=heads,
            head=head,
            kv_bytes=2 * attending * (latent or 2 * kv_heads * head),
            notes=tuple(note for note, holds in notes.items() if holds),
        )


def _weigh(modules: Iterable[Any]) -> int:
    """Count the parameters of modules, each once."""
    return sum(each.numel() for each in {each for module in modules for each in module.parameters()})


def _read_config(model: str, revision: str | None, trust_remote_code: bool) -> Any:
    from transformers import AutoConfig

    if model in KNOWN and not Path(model).is_dir():
        return AutoConfig.for_model(**KNOWN[model])
    options = {"revision": revision, "trust_remote_code": trust_remote_code}
    try:
        return AutoConfig.from_pretrained(model, local_files_only=True, **options)
    except OSError:
        return AutoConfig.from_pretrained(model, **options)


def _build(config: Any, trust_remote_code: bool) -> Any:
    """Build a model without values or output head. Transformers is told that ZeRO-3 has sharded the model already."""
    import torch
    from transformers import AutoModel
    from transformers.modeling_utils import set_zero3_state

    with torch.device("meta"), set_zero3_state():
        return AutoModel.from_config(config, trust_remote_code=trust_remote_code)
