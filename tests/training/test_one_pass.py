"""Micro-batches of one pass and of two under DeepSpeed: the order of reductions, and gathered weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import in_group
from test_scoring import WithoutEngine, model_of, padded_rows

from e1_trl.training import trainer as module
from e1_trl.training.scoring import PARTS_ON_CPU, Layout

LAYERS = 6
UNDER_ZERO = """
import json, sys, deepspeed, torch
import torch.distributed as dist
from deepspeed.runtime.zero import partitioned_param_coordinator, stage3, stage_1_and_2
from transformers.integrations import HfDeepSpeedConfig
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from trl.trainer.utils import add_fused_lm_head
from test_one_pass import LAYERS
from test_scoring import model_of, padded_rows
from e1_trl.training.scoring import scored

deepspeed.init_distributed("gloo")
ids, mask, kept = padded_rows()
seen = {"order": [], "gathered": 0, "invalidated": 0}

def watch(owner, name, note):
    kept = getattr(owner, name)
    def watched(self, *arguments, **options):
        note(*arguments)
        return kept(self, *arguments, **options)
    setattr(owner, name, watched)

def gathers(parameters, *_):
    seen["gathered"] += sum(each.ds_numel for each in parameters if each.ds_status.name == "NOT_AVAILABLE")

def invalidates():
    seen["invalidated"] += 1

coordinator = partitioned_param_coordinator.PartitionedParameterCoordinator
watch(coordinator, "_PartitionedParameterCoordinator__all_gather_params", gathers)
watch(coordinator, "_invalidate_trace", invalidates)
for optimizer in (stage3.DeepSpeedZeroOptimizer_Stage3, stage_1_and_2.DeepSpeedZeroOptimizer):
    watch(optimizer, "reduce_ready_partitions_and_remove_grads",
          lambda parameter, *_: seen["order"].append(f"R{layers.get(id(parameter), '-')}"))

for stage in (2, 3):
    for parts in (1, 2):
        model = model_of("sdpa", num_hidden_layers=LAYERS).train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        size = sum(each.numel() for each in model.parameters())
        zero = {"stage": stage, "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": size // 8,
                "stage3_max_reuse_distance": size // 8, "stage3_max_live_parameters": size // 4}
        settings = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero, "bf16": {"enabled": True}}
        known = HfDeepSpeedConfig(settings)
        add_fused_lm_head(model, outputs=("log_probs", "entropy"))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
        layers = {id(each): at for at, layer in enumerate(model.model.layers) for each in layer.parameters()}
        for at, layer in enumerate(model.model.layers):
            layer.register_full_backward_hook(lambda *_, at=at: seen["order"].append(f"b{at}"))
        for step in range(3):
            seen.update(order=[], gathered=0, invalidated=0)
            logps, _ = scored(engine, model.base_model, ids, mask, kept, len(ids), False, parts)
            engine.backward(logps.mean())
            engine.step()
        if dist.get_rank() == 0:
            print("SEEN", json.dumps({"stage": stage, "parts": parts, **seen, "model": size}))
        unset_hf_deepspeed_config()
"""


@pytest.mark.distributed
@pytest.mark.slow
def test_gradients_are_reduced_as_they_come_and_weights_prefetched_where_a_micro_batch_is_one_pass(
    tmp_path: Path,
) -> None:
    printed = in_group(UNDER_ZERO, folder=tmp_path)
    found = {}
    for line in printed.splitlines():
        if line.startswith("SEEN"):
            seen = json.loads(line.removeprefix("SEEN"))
            found[seen["stage"], seen["parts"]] = seen
    assert len(found) == 4, printed
    for stage in (2, 3):
        one, two = (waits(found[stage, parts]["order"]) for parts in (1, 2))
        assert one == 0 and two >= LAYERS - 2, (stage, found)
    one, two = found[3, 1], found[3, 2]
    assert one["invalidated"] == 0 < two["invalidated"]
    assert one["gathered"] < 2.5 * one["model"] and two["gathered"] > 2 * one["gathered"]


def waits(order: list[str]) -> int:
    """Count the layers whose gradients were first reduced when the layers before it had been gone through as well."""
    first = {layer: order.index(f"R{layer}") for layer in range(LAYERS)}
    return sum(first[layer] > order.index(f"b{layer - 2}") for layer in range(2, LAYERS))


@pytest.mark.parametrize(
    ("processes", "gradient", "layout", "parts"),
    [
        (1, True, Layout.TRIMMED, PARTS_ON_CPU),
        (2, True, Layout.TRIMMED, 1),
        (1, False, Layout.TRIMMED, 1),
        (1, True, Layout.PACKED, 1),
    ],
)
def test_only_a_process_that_trains_alone_on_a_cpu_makes_more_than_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, gradient: bool, layout: Layout, parts: int
) -> None:
    made: list[int] = []

    def noting(*arguments: Any) -> tuple[None, None]:
        made.append(arguments[7])
        return None, None

    trainer = WithoutEngine(model_of("sdpa"), tmp_path)
    trainer.layout = layout
    monkeypatch.setattr(module, "scored", noting)
    monkeypatch.setattr(type(trainer.accelerator), "num_processes", processes)
    with torch.set_grad_enabled(gradient):
        trainer._get_per_token_logps_and_entropies(trainer.model, *padded_rows())
    assert made == [parts]
