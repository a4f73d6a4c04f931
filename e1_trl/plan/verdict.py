"""The memory verdict on a training that is about to start, and the fewest changes with which a setup fits."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from e1_trl.errors import UserError
from e1_trl.plan.estimate import Memory, gb, memory
from e1_trl.plan.setup import DEFAULTS, Setup

FIELDS = {
    "batch": "per_device_train_batch_size",
    "accumulation": "gradient_accumulation_steps",
    "passes": "steps_per_generation",
    "sleep": "vllm_enable_sleep_mode",
    "utilization": "vllm_gpu_memory_utilization",
}
SKIPPED = "or train all the same with skip_memory_check: true"


def fitting(setup: Setup, gpus: int, card: int) -> dict[str, Any] | None:
    """Find the fewest changes of `FIELDS` with which a setup fits its GPUs; None if none do.

    Of equally few, prefers the largest micro-batch, then the nearest share for vLLM. Steps and generations keep their
    sequences.
    """
    rows = setup.batch * setup.accumulation * setup.gpus // max(1, gpus)
    generation = setup.rollouts // max(1, gpus)
    batches = [batch for batch in range(setup.batch, 0, -1) if rows % batch == generation % batch == 0]
    shares = sorted((share / 100 for share in range(10, 96)), key=lambda share: abs(share - setup.utilization))
    fits = []
    for batch, share, sleep in product(batches, [setup.utilization, *shares], sorted({setup.sleep, True})):
        values: dict[str, Any] = {"batch": batch, "accumulation": rows // batch, "sleep": sleep, "utilization": share}
        values["passes"] = None if setup.passes is None else generation // batch
        if gpus >= setup.tensor_parallel and not memory(replace(setup, gpus=gpus, **values), card).problems:
            fits.append({name: value for name, value in values.items() if value != getattr(setup, name)})
    return min(fits, key=len, default=None)


def remedy(setup: Setup, card: int) -> str:
    """Say how to make a setup fit a card."""
    if (changed := fitting(setup, setup.gpus, card)) is None:
        fewer = ", or lower generation_batch_size" if setup.steps > 1 else ""
        return f"shard or offload more (ZeRO-3, more GPUs, offload_optimizer_device: cpu){fewer}"
    return f"it fits with {' '.join(f'--{FIELDS[name]} {str(value).lower()}' for name, value in changed.items())}"


def free_space(folder: Path) -> tuple[int, Path]:
    """Return the free bytes of the disk of a folder, which need not exist, and its nearest parent that does."""
    nearest = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    return shutil.disk_usage(nearest).free, nearest


def lack_of_disk(taken: Memory, output: Path) -> str:
    """Say how much more disk a run needs than is free, with a remedy; empty if it fits."""
    # Checkpoints of a run that is resumed count among the planned ones; one that is not whole is written again.
    written = sum(file.stat().st_size for file in output.glob("checkpoint-*/**/*"))
    needed = max(taken.model, taken.disk - written)
    free, _ = free_space(output)
    if needed <= free:
        return ""
    return (
        f"output_dir {output} needs {gb(needed)} more for {taken.setup.checkpoints} checkpoints of "
        f"{gb(taken.checkpoint)} and the model, and {gb(free)} are free: lower save_total_limit, or name an "
        "output_dir on another disk"
    )


def verdict(args: Any, model: Any, card: int | None, skip: bool) -> str:
    """Return a line that says whether a training fits its GPUs and its disk; empty on CPUs if the disk is large enough.

    `args` is an `E1Config`, `model` TRL's `ModelConfig`, and `card` the bytes of the smallest GPU (None on CPUs).

    Raises:
        UserError: the training cannot fit a GPU (`Memory.cannot_fit`), the disk or the host's memory, unless `skip`.
    """
    fields = {name: getattr(each, name) for each in (args, model) for name in DEFAULTS if hasattr(each, name)}
    loaded = args.model_init_kwargs or {}
    fields["model_name_or_path"] = model.model_name_or_path
    fields["model_revision"] = loaded.get("revision", model.model_revision)
    fields["dtype"] = loaded.get("dtype", model.dtype)
    try:
        taken = memory(Setup.of(fields, _accelerate(args)), card or 0)
    except UserError as error:
        return f"memory: not planned ({error})" if card else ""
    disk = lack_of_disk(taken, Path(args.output_dir))
    if disk and not skip:
        raise UserError(f"{disk}; {SKIPPED}")
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    here = int(os.environ.get("LOCAL_WORLD_SIZE", args.world_size))  # processes of this machine
    host = taken.host * here // args.world_size
    if host > machine and not skip:
        raise UserError(
            f"the optimizer takes {gb(host)} of the host's memory, and this machine has {gb(machine)}: use "
            f"accelerate_config zero3, whose optimizer stays on the GPUs; {SKIPPED}"
        )
    if card is None:
        return disk
    peaks = f"{gb(taken.generation)} at generation and {gb(taken.training)} at training"
    said = f"memory, calculated: {peaks}, of {gb(card)} a GPU"
    problems = [*taken.problems, remedy(taken.setup, card)] if taken.problems else []
    if taken.cannot_fit and not skip:
        raise UserError(
            f"{said}: training state ({gb(taken.state)}) and vLLM's share ({gb(taken.engine)}) exceed it; "
            f"{'; '.join(problems)}; {SKIPPED}"
        )
    return "; ".join([said, *problems, *([disk] if disk else [])])


def _accelerate(args: Any) -> Mapping[str, Any]:
    """Return the Accelerate configuration that this process was launched with, as far as the plan reads it."""
    plugin = args.deepspeed_plugin
    if plugin is not None:
        names = ("zero_stage", "offload_optimizer_device", "offload_param_device")
        settings = {name: value for name in names if (value := getattr(plugin, name)) is not None}
        return {"distributed_type": "DEEPSPEED", "num_processes": args.world_size, "deepspeed_config": settings}
    shards = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    return {"distributed_type": "FSDP" if shards else "MULTI_GPU", "num_processes": args.world_size}
