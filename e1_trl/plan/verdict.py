"""What the plan says of a training that is about to start on this node."""

import os
from collections.abc import Mapping
from typing import Any

from e1_trl.errors import UserError
from e1_trl.plan.memory import GB, memory
from e1_trl.plan.setup import DEFAULTS, Setup


def verdict(args: Any, model: Any, card: int, skip: bool) -> str:
    """One line on whether a training fits its GPUs, as far as that can be calculated.

    Args:
        args: the trainer's configuration, an `E1Config`.
        model: TRL's `ModelConfig`.
        card: bytes of the smallest GPU.
        skip: whether a training that breaks the rule may start all the same.

    Raises:
        UserError: it breaks the rule (`Memory.breaks_the_rule`), unless `skip`.
    """
    fields = {name: getattr(args, name) for name in DEFAULTS if hasattr(args, name)}
    dtype = (args.model_init_kwargs or {}).get("dtype", model.dtype)
    fields |= {"dtype": dtype, "model_name_or_path": model.model_name_or_path}
    fields |= {name: getattr(model, name) for name in ("use_peft", "lora_r", "lora_target_modules")}
    try:
        setup = Setup.of(fields, _accelerate(args))
    except UserError as error:
        return f"memory: not planned ({error})"
    taken = memory(setup, card)
    said = (
        f"memory, calculated: {taken.generation / GB:.0f} GB at generation and {taken.training / GB:.0f} GB at "
        f"training, of {card / GB:.0f} GB a GPU"
    )
    if taken.breaks_the_rule and not skip:
        raise UserError(
            f"{said}: training state ({taken.state / GB:.0f} GB) and vLLM's share ({taken.engine / GB:.0f} GB) exceed "
            f"it; {'; '.join(taken.problems)}; or skip_memory_check: true trains all the same"
        )
    return "; ".join([said, *taken.problems])


def _accelerate(args: Any) -> Mapping[str, Any]:
    """The Accelerate configuration that this process was launched with, as far as the plan reads it."""
    plugin = args.deepspeed_plugin
    if plugin is not None:
        names = ("zero_stage", "offload_optimizer_device", "offload_param_device")
        settings = {name: value for name in names if (value := getattr(plugin, name)) is not None}
        return {"distributed_type": "DEEPSPEED", "num_processes": args.world_size, "deepspeed_config": settings}
    shards = os.environ.get("ACCELERATE_USE_FSDP", "false") == "true"
    return {"distributed_type": "FSDP" if shards else "MULTI_GPU", "num_processes": args.world_size}
