"""What TRL sends to its engines."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from conftest import BASE
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
from trl.generation.vllm_generation import VLLMGeneration

from e1_trl.trl_internals import TrlEngine


def test_a_server_is_sent_merged_weights_that_stay_merged_when_trl_unmerges_the_adapter() -> None:
    config = LoraConfig(target_modules=["q_proj"], init_lora_weights=False)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32), config)
    generation: Any = VLLMGeneration.__new__(VLLMGeneration)
    generation.model = model
    generation._dist = SimpleNamespace(gather_params=lambda _: nullcontext(), is_fsdp=False)
    name = "model.layers.0.self_attn.q_proj.weight"
    own = model.get_parameter(f"base_model.model.{name.removesuffix('.weight')}.base_layer.weight")
    before = own.detach().clone()
    stale = dict(generation._iter_named_params())
    assert torch.allclose(stale[name], before, atol=1e-6)  # what vLLM's packing would send
    engine = TrlEngine.__new__(TrlEngine)
    engine._generation = generation
    engine.copy_merged()
    sent = dict(generation._iter_named_params())
    model.merge_adapter()
    assert torch.allclose(sent[name], own, atol=1e-6) and not torch.allclose(own, before, atol=1e-3)
