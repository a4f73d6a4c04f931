"""The plan's verdict on a training that is about to start on this node."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from e1_trl.errors import UserError
from e1_trl.plan.fit import remedy
from e1_trl.plan.memory import GB, Memory, memory
from e1_trl.plan.setup import DEFAULTS, Setup


def verdict(args: Any, model: Any, card: int | None, skip: bool) -> str:
    """One line on whether a training fits its GPUs and its disk; empty on CPUs, unless the disk is too small.

    Args:
        args: the trainer's configuration, an `E1Config`.
        model: TRL's `ModelConfig`.
        card: bytes of the smallest GPU; None on CPUs.
        skip: whether what is refused may start all the same.

    Raises:
        UserError: it breaks the rule (`Memory.breaks_the_rule`), or the disk is too small, unless `skip`.
    """
    fields = {name: getattr(args, name) for name in DEFAULTS if hasattr(args, name)}
    given = {"dtype": model.dtype, "revision": model.model_revision, **(args.model_init_kwargs or {})}
    fields |= {"dtype": given["dtype"], "model_revision": given["revision"]}
    fields |= {
        name: getattr(model, name) for name in ("model_name_or_path", "use_peft", "lora_r", "lora_target_modules")
    }
    try:
        setup = Setup.of(fields, _accelerate(args))
    except UserError as error:
        return f"memory: not planned ({error})" if card else ""
    taken = memory(setup, card or 0)
    disk = _lack_of_disk(taken, Path(args.output_dir))
    if disk and not skip:
        raise UserError(f"{disk[0]}; or skip_memory_check: true trains all the same")
    if card is None:
        return "".join(disk)
    said = (
        f"memory, calculated: {taken.generation / GB:.0f} GB at generation and {taken.training / GB:.0f} GB at "
        f"training, of {card / GB:.0f} GB a GPU"
    )
    problems = [*taken.problems, remedy(setup, card)] if taken.problems else []
    if taken.breaks_the_rule and not skip:
        raise UserError(
            f"{said}: training state ({taken.state / GB:.0f} GB) and vLLM's share ({taken.engine / GB:.0f} GB) exceed "
            f"it; {'; '.join(problems)}; or skip_memory_check: true trains all the same"
        )
    return "; ".join([said, *problems, *disk])


def _lack_of_disk(taken: Memory, output: Path) -> list[str]:
    """What the run writes beyond the free space of its disk, with a remedy; nothing where all of it has room."""
    there = next(folder for folder in (output.absolute(), *output.absolute().parents) if folder.exists())
    written = len([*output.glob(f"{PREFIX_CHECKPOINT_DIR}-*")])  # by the run that is resumed
    needed = max(0, taken.setup.checkpoints - written) * taken.checkpoint + taken.model
    free = shutil.disk_usage(there).free
    said = (
        f"output_dir {output} needs {needed / GB:.1f} GB more for {taken.setup.checkpoints} checkpoints of "
        f"{taken.checkpoint / GB:.1f} GB and the model, and {free / GB:.1f} GB are free there: lower save_total_limit, "
        "or name an output_dir on another disk"
    )
    return [said] if needed > free else []


def _accelerate(args: Any) -> Mapping[str, Any]:
    """The Accelerate configuration that this process was launched with, as far as the plan reads it."""
    plugin = args.deepspeed_plugin
    if plugin is not None:
        names = ("zero_stage", "offload_optimizer_device", "offload_param_device")
        settings = {name: value for name in names if (value := getattr(plugin, name)) is not None}
        return {"distributed_type": "DEEPSPEED", "num_processes": args.world_size, "deepspeed_config": settings}
    shards = os.environ.get("ACCELERATE_USE_FSDP", "false") == "true"
    return {"distributed_type": "FSDP" if shards else "MULTI_GPU", "num_processes": args.world_size}
