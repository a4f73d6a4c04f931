"""Tiny random models of today's families, of two or three layers, with the vocabulary of a toy.

Sizes are the smallest that vLLM's CPU kernels take: heads of 32 dimensions, 64 in gated delta nets.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedModel

# vLLM's classes of these import torchvision, which the CPU installation lacks.
WITH_IMAGE_CODE = ("Qwen3.5", "Gemma 3, images", "Gemma 4, images")
TORCHVISION = """from importlib import import_module

__version__ = "0"
SCALES = ("NEAREST", "NEAREST_EXACT", "BILINEAR", "BICUBIC", "BOX", "HAMMING", "LANCZOS")


def __getattr__(name):
    if name[:2] == "__":
        raise AttributeError(name)
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError:
        return type(name, (), dict.fromkeys(SCALES, "scale"))
"""
TOKENIZER = Path(__file__).parents[1] / "nano" / "base"
VOCABULARY = 96
ONE_OF_EACH = ["linear_attention", "full_attention"]
WINDOWED = ["sliding_attention", "full_attention"]
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
TOKENS = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1}
OTHERS = {"initializer_range": 0.1, "max_position_embeddings": 512, "tie_word_embeddings": False}
EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
DELTA_HEADS = {"linear_num_key_heads": 2, "linear_num_value_heads": 2}
DELTA = {"layer_types": ONE_OF_EACH, "linear_key_head_dim": 64, "linear_value_head_dim": 64, **DELTA_HEADS}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 32, "mamba_chunk_size": 16}
NEMOTRON = {"num_hidden_layers": 3, "ssm_state_size": 32, "mamba_num_heads": 4, "mamba_head_dim": 32, "n_groups": 1}
NEMOTRON_EXPERTS = {"n_routed_experts": 4, "moe_intermediate_size": 64, "moe_shared_expert_intermediate_size": 64}
GRANITE = {**MAMBA, "layer_types": ["mamba", "attention"], "shared_intermediate_size": 64, "attention_multiplier": 0.17}
LFM2 = {
    "tie_word_embeddings": True,
    "conv_L_cache": 3,
    "conv_dim": 64,
    "conv_dim_out": 64,
    "block_dim": 64,
    "block_ff_dim": 128,
}
GEMMA = {"layer_types": WINDOWED, "sliding_window": 16, "tie_word_embeddings": True}
# With larger weights bfloat16 moves log-probabilities by 0.2 nats.
GEMMA_4 = {
    **GEMMA,
    "initializer_range": 0.02,
    "hidden_size_per_layer_input": 32,
    "vocab_size_per_layer_input": VOCABULARY,
}
VISION = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
QWEN_VISION = {"hidden_size": 32, "intermediate_size": 32, "depth": 1, "num_heads": 2, "out_hidden_size": 64}


def write_torchvision(folder: Path) -> None:
    """Write a stand-in for torchvision into a folder: its imports succeed, and a text needs nothing of it."""
    for module in ("", "io", "transforms", "transforms/functional", "transforms/v2", "transforms/v2/functional"):
        (folder / "torchvision" / module).mkdir(parents=True)
        (folder / "torchvision" / module / "__init__.py").write_text(TORCHVISION)


def text(name: str, **fields: Any) -> Callable[[], Any]:
    """Return what makes a configuration of a class of Transformers, with these fields beside the usual sizes."""
    return lambda: getattr(transformers, f"{name}Config")(**{**SIZES, **HEADS, **TOKENS, **OTHERS, **fields})


def with_vision(
    name: str, language: Callable[[], Any], vision: dict[str, Any], *image_fields: str
) -> Callable[[], Any]:
    """Return what makes a configuration that reads images, too, whose special tokens are the last of the vocabulary."""
    tokens = {field: VOCABULARY - 1 - index for index, field in enumerate(image_fields)}
    parts = {"vision_config": vision, **({"audio_config": None} if name == "Gemma4" else {})}
    make = getattr(transformers, f"{name}Config")
    return lambda: make(text_config=language().to_dict(), **parts, **tokens, tie_word_embeddings=name != "Qwen3_5")


FAMILIES: dict[str, Callable[[], Any]] = {
    "Qwen3": text("Qwen3", tie_word_embeddings=True),
    "Qwen3-MoE": text("Qwen3Moe", **EXPERTS),
    "Qwen3-Next": text("Qwen3Next", **DELTA, **EXPERTS, shared_expert_intermediate_size=64),
    "Qwen3.5": text("Qwen3_5Text", **DELTA),
    "SmolLM3": text("SmolLM3", no_rope_layers=[1, 0], tie_word_embeddings=True),
    "OLMo-3": text("Olmo3", layer_types=WINDOWED, sliding_window=16),
    "gpt-oss": text("GptOss", **EXPERTS, layer_types=WINDOWED, sliding_window=16),
    "Gemma 3": text("Gemma3Text", **GEMMA, query_pre_attn_scalar=32),
    "Gemma 4": text("Gemma4Text", **GEMMA_4),
    "Nemotron-H": text("NemotronH", **NEMOTRON, layers_block_type=[*ONE_OF_EACH, "mlp"], chunk_size=16),
    "Nemotron-H, experts": text(
        "NemotronH", **NEMOTRON, **NEMOTRON_EXPERTS, layers_block_type=[*ONE_OF_EACH, "moe"], chunk_size=16
    ),
    "Granite 4": text("GraniteMoeHybrid", **GRANITE, num_local_experts=0, position_embedding_type="nope"),
    "Granite 4, experts": text("GraniteMoeHybrid", **GRANITE, num_local_experts=4, position_embedding_type="nope"),
    "Falcon-H1": text("FalconH1", **MAMBA, mamba_d_ssm=128),
    "LFM2": text("Lfm2", **LFM2, layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False),
    "Qwen3.5, images": with_vision(
        "Qwen3_5",
        text("Qwen3_5Text", **DELTA),
        QWEN_VISION,
        *("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"),
    ),
    "Gemma 3, images": with_vision(
        "Gemma3",
        text("Gemma3Text", **GEMMA, query_pre_attn_scalar=32),
        {**VISION, "image_size": 28, "patch_size": 14},
        *("image_token_index", "boi_token_index", "eoi_token_index"),
    ),
    "Gemma 4, images": with_vision(
        "Gemma4",
        text("Gemma4Text", **GEMMA_4),
        {**VISION, "num_key_value_heads": 2, "head_dim": 16},
        *("image_token_id", "boi_token_id", "eoi_token_id", "audio_token_id", "boa_token_id", "eoa_token_index"),
        "video_token_id",
    ),
}


def make_model(name: str, attention: str | None = None) -> PreTrainedModel:
    """Make a model of a family, with weights large enough for every layer to matter, which bfloat16 holds exactly."""
    config = FAMILIES[name]()
    torch.manual_seed(0)
    make: Any = AutoModelForCausalLM.from_config
    if config.get_text_config() is not config:
        make = getattr(transformers, type(config).__name__.replace("Config", "ForConditionalGeneration"))._from_config
    model: PreTrainedModel = make(config, attn_implementation=attention)
    move(model, 0.05)
    return model.eval()


@torch.no_grad()
def move(model: PreTrainedModel, by: float) -> None:
    """Move every weight at random, to a value that bfloat16 holds exactly."""
    for parameter in model.parameters():
        parameter.add_(by * torch.randn_like(parameter)).copy_(parameter.bfloat16())


def save(model: PreTrainedModel, folder: Path) -> None:
    """Save a model as an engine loads it, with the miniature's tokenizer."""
    model.save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(TOKENIZER / file, folder)
