"""Tests that need a GPU: memory that sleeps, engines that span devices, TRL's own weight sync."""

from typing import Any

import pytest
import torch
from conftest import Train

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.engine,
    pytest.mark.distributed,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: sleep mode and CUDA weight sync"),
]

GAP = "sampling/sampling_logp_difference/mean"
OPTIONS = ("--learning_rate", 5e-3, "--max_steps", 4, "--vllm_gpu_memory_utilization", 0.2, "--bf16", "true")


def gaps(log: list[dict[str, Any]]) -> list[float]:
    return [entry[GAP] for entry in log if GAP in entry]


@pytest.mark.parametrize("sleep", ["false", "true"])
def test_weights_reach_the_engine_with_and_without_sleep_mode(train: Train, sleep: str) -> None:
    log = train(*OPTIONS, "--vllm_enable_sleep_mode", sleep, accelerate_config="ddp", processes=1)
    assert len(gaps(log)) == 4 and max(gaps(log)) < 0.02


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("config", ["ddp", "zero2", "zero3"])
def test_a_tensor_parallel_group_takes_the_same_steps_on_every_rank(train: Train, config: str) -> None:
    log = train(*OPTIONS, "--vllm_tensor_parallel_size", 2, accelerate_config=config, processes=2)
    assert len(gaps(log)) == 4 and max(gaps(log)) < 0.02
