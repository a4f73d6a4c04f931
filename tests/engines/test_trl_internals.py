"""What TRL sends to its engines."""

from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import BASE
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, modeling_utils
from trl.generation import vllm_generation
from trl.generation.vllm_generation import VLLMGeneration
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.models.utils import StageMissingLayer

from e1_trl.engines.engine import EngineError
from e1_trl.engines.weight_check import WeightCheck, sync_in_place
from e1_trl.trl_internals import TrlEngine, starting


def test_an_engine_starts_unsharded_with_kernels_that_keep_weights_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, Any]] = []
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        vllm_generation, "LLM", lambda **given: started.append({**given, "plain": modeling_utils._is_ds_init_called})
    )
    with starting("main", 1):
        assert not modeling_utils._is_ds_init_called  # where TRL loads the policy
        vllm_generation.LLM(model="ORG/MODEL")
    revisions = {"revision": "main", "tokenizer_revision": "main"}
    assert started == [
        {"model": "ORG/MODEL", "language_model_only": True, "moe_backend": "triton", **revisions, "plain": True}
    ]


class Latent(torch.nn.Module, AttentionLayerBase):
    """An attention layer that derives a parameter from the weights of another, as vLLM's latent attention does."""

    get_attn_backend = get_kv_cache_spec = None  # type: ignore[assignment]

    def __init__(self, projection: torch.nn.Linear):
        super().__init__()
        self._projections = [projection]  # not as a child
        self.derived = torch.nn.Parameter(torch.zeros(2, 3))

    def process_weights_after_loading(self, dtype: torch.dtype) -> None:
        self.derived.data.copy_(self._projections[0].weight.T.to(dtype))


def generation_of(model: torch.nn.Module) -> Any:
    """Return what a sync sees of TRL's engine with a model."""
    worker = SimpleNamespace(model_runner=SimpleNamespace(get_model=lambda: model))
    engine = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker))
    return SimpleNamespace(
        llm=SimpleNamespace(llm_engine=engine, reset_prefix_cache=lambda: True), tensor_parallel_size=1
    )


def test_what_attention_derives_from_weights_is_renewed_by_a_sync_in_place() -> None:
    projection = torch.nn.Linear(2, 3, bias=False)
    model: Any = torch.nn.ModuleDict({"projection": projection, "attention": Latent(projection)})

    def load_weights(weights: Any) -> set[str]:
        return {name for name, new in weights if model.get_parameter(name).data.copy_(new) is not None}

    model.load_weights = load_weights
    generation = generation_of(model)
    sent = torch.arange(6.0).view(3, 2)
    check = WeightCheck(
        generation, partial(sync_in_place, generation, lambda: model.load_weights([("projection.weight", sent)]))
    )
    check()
    assert torch.equal(model["attention"].derived, sent.T) and check.compared == {"projection.weight"}


@pytest.mark.parametrize("other", ["model.tower.0.weight", "model.towers.weight"])
def test_only_weights_of_parts_that_the_engine_has_left_out_may_arrive_nowhere(other: str) -> None:
    model: Any = torch.nn.ModuleDict({"head": torch.nn.Linear(2, 2, bias=False), "tower": StageMissingLayer("image")})
    model.load_weights = lambda weights: {name for name, _ in weights if name == "head.weight"}
    sent = [("head.weight", model["head"].weight), (other, torch.ones(2))]
    check = WeightCheck(generation_of(model), lambda: [model.load_weights([each]) for each in sent])
    is_left_out = other.startswith("model.tower.")
    with nullcontext() if is_left_out else pytest.raises(EngineError, match=f"^vLLM took no weights from {other}, "):
        check()
    assert check.compared == ({"head.weight"} if is_left_out else set())


def test_a_sync_that_sends_nothing_is_an_error_and_one_that_vllm_does_not_account_for_is_not() -> None:
    model: Any = torch.nn.ModuleDict({"head": torch.nn.Linear(2, 2, bias=False)})
    model.load_weights = lambda weights: {name for name, _ in weights}
    with pytest.raises(EngineError, match=r"^the trainer sent no weights, so vLLM would keep its old ones"):
        WeightCheck(generation_of(model), lambda: None)()
    model.load_weights = lambda _: None
    WeightCheck(generation_of(model), lambda: model.load_weights([("head.weight", model["head"].weight)]))()


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
