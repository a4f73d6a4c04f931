"""Starts, or finds, the engine of an evaluation. The only place of the evaluation that loads one."""

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from e1_trl.engines.engine import Engine
from e1_trl.evaluation.arguments import engine_args
from e1_trl.evaluation.plan import Plan
from e1_trl.evaluation.prepare import Prepared
from e1_trl.seeds import NUMPY, seed_of


def start_engine(prepared: Prepared, plan: Plan, stored: int, rank: int = 0) -> Engine:
    """The server that was named, or vLLM in this process.

    vLLM is seeded by what is `stored` (a number of segments) and by the process's `rank`, too: a run that is resumed,
    or adds samples, must not draw the numbers that the first one drew, or its samples would be copies.

    Raises:
        EngineError: the server does not serve the model or vLLM does not start.
    """
    arguments, close = prepared.arguments, replace(prepared.setting.close, context=plan.context)
    if arguments.base_url is not None:
        from e1_trl.engines.openai import ServedModel
        from e1_trl.engines.server import MOST_IN_FLIGHT, ServerEngine

        served = arguments.served_model_name or arguments.weights.path
        seed = arguments.seed if arguments.request_seeds else None
        connecting = ServedModel.connect(arguments.base_url, served, close, prepared.sampling, seed)
        return ServerEngine(connecting, arguments.concurrency or MOST_IN_FLIGHT)
    from e1_trl.engines.local import SLOTS, LocalEngine

    checkpoint = prepared.checkpoint
    return LocalEngine.start(
        checkpoint.model,
        close.marker,
        prepared.sampling,
        arguments.concurrency or SLOTS,
        adapter=checkpoint.adapter_folder,
        options=engine_options(prepared, close.context, seed=seed_of(arguments.seed, rank, stored) % NUMPY),
    )


def engine_options(prepared: Prepared, context: int, seed: int) -> dict[str, Any]:
    """The arguments of `vllm.LLM` that the evaluation's come to."""
    arguments, checkpoint = prepared.arguments, prepared.checkpoint
    tokenizer = checkpoint.tokenizer
    return {
        "revision": checkpoint.model_revision,
        "tokenizer": tokenizer["pretrained_model_name_or_path"],
        "tokenizer_revision": tokenizer["revision"],
        "trust_remote_code": arguments.trust_remote_code,
        "dtype": arguments.dtype,
        "max_model_len": context,
        "tensor_parallel_size": arguments.tensor_parallel_size,
        "gpu_memory_utilization": arguments.gpu_memory_utilization,
        "enforce_eager": arguments.enforce_eager,
        "seed": seed,
        **({"max_lora_rank": checkpoint.max_rank} if checkpoint.adapter else {}),
        **engine_args(arguments),
    }


def check_devices(tensor_parallel_size: int, data_parallel_size: int) -> None:
    """Make sure that vLLM is there, and GPUs enough for it; on a machine without any, the CPU is asked for.

    Raises:
        ValueError: it is not installed, or there are too few.
    """
    if find_spec("vllm") is None:
        raise ValueError("vLLM is not installed; pip install 'e1-trl[vllm]' brings it, or name a server with base_url")
    import torch

    needed, found = tensor_parallel_size * data_parallel_size, torch.cuda.device_count()
    if 0 < found < needed:
        raise ValueError(f"tensor_parallel_size × data_parallel_size is {needed}, and there are {found} GPUs")
