"""The fewest fields of a recipe to change so that it fits."""

from dataclasses import replace
from itertools import product
from typing import Any

from e1_trl.plan.memory import memory
from e1_trl.plan.setup import Setup

FIELDS = {
    "batch": "per_device_train_batch_size",
    "accumulation": "gradient_accumulation_steps",
    "sleep": "vllm_enable_sleep_mode",
    "utilization": "vllm_gpu_memory_utilization",
}


def fitting(setup: Setup, gpus: int, card: int) -> dict[str, Any] | None:
    """The fewest of `FIELDS` to change, with their values, so that a setup fits GPUs; None if it never does.

    Of equally many, the largest micro-batch, then the nearest share. A step learns from as many sequences as before.
    """
    rows = setup.batch * setup.accumulation * setup.gpus // max(1, gpus)
    batches = [batch for batch in range(setup.batch, 0, -1) if rows % batch == 0]
    shares = sorted((share / 100 for share in range(10, 96)), key=lambda share: abs(share - setup.utilization))
    fits = []
    for batch, share, sleep in product(batches, [setup.utilization, *shares], sorted({setup.sleep, True})):
        values: dict[str, Any] = {"batch": batch, "accumulation": rows // batch, "sleep": sleep, "utilization": share}
        if gpus >= setup.tensor_parallel and not memory(replace(setup, gpus=gpus, **values), card).problems:
            fits.append({name: value for name, value in values.items() if value != getattr(setup, name)})
    return min(fits, key=len, default=None)


def remedy(setup: Setup, card: int) -> str:
    """What to do about a setup that does not fit a card."""
    if (changed := fitting(setup, setup.gpus, card)) is None:
        return "share out more (ZeRO-3, more GPUs, offload_optimizer_device: cpu)"
    return f"it fits with {' '.join(f'--{FIELDS[name]} {str(value).lower()}' for name, value in changed.items())}"
