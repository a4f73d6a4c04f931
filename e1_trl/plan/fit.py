"""The fewest fields of a recipe to change so that it fits, and a table of them for all recipes and some nodes.

python -m e1_trl.plan.fit docs/recipes.md      writes the table there, between its lines <!-- fits -->
"""

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from e1_trl.plan.memory import memory
from e1_trl.plan.setup import Launch, Setup
from e1_trl.recipes import shipped
from e1_trl.report.markdown import replace_section, table

NODES = {"1 × 24": (1, 22.0), "1 × 80": (1, 79.2), "4 × 80": (4, 79.2), "8 × 40": (8, 39.4), "8 × 80": (8, 79.2)}  # GiB
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


def make_table() -> str:
    """The table of what fits, in Markdown; a recipe for one GPU takes one, and a server has half of them."""
    rows = []
    for name in (name for name, file in shipped("recipes").items() if file.parent.name == "recipes"):
        setup, cells = Launch.read(name, None, None, []).setup, []
        for gpus, gib in NODES.values():
            trained = 1 if setup.zero == 0 else gpus // (2 if setup.served else 1)
            changed = fitting(setup, trained, int(gib * 2**30))
            words = [field if value is True else f"{field} {value}" for field, value in (changed or {}).items()]
            cells.append("no" if changed is None else ", ".join(words) or "yes")
        rows.append((f"`{name}`", *cells))
    return table(("recipe", *(f"{node} GB" for node in NODES)), rows)


if __name__ == "__main__":
    replace_section(Path(sys.argv[1]), "fits", make_table())
