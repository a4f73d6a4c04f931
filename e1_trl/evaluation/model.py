"""The model that is evaluated: weights that vLLM loads in this process, or what a server has loaded."""

import asyncio
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from e1_trl.arguments import json_object
from e1_trl.budget import Marker, ThinkingClose
from e1_trl.checkpoints.checkpoint import Checkpoint
from e1_trl.engines.engine import Engine, SamplingSettings
from e1_trl.errors import UserError
from e1_trl.evaluation.arguments import EvaluationArguments
from e1_trl.evaluation.manifest import FILE, Manifest
from e1_trl.seeds import NUMPY, seed_of


@dataclass(frozen=True)
class Weights:
    """What vLLM loads, and how it samples.

    Raises:
        UserError: vLLM is not installed, there are too few GPUs, or `engine_args` names what has a field of its own.
    """

    arguments: EvaluationArguments
    checkpoint: Checkpoint
    sampling: SamplingSettings

    def __post_init__(self) -> None:
        if find_spec("vllm") is None:
            raise UserError("vLLM is not installed; pip install 'e1-trl[vllm]' brings it, or name a base_url")
        import torch

        needed, found = self.arguments.tensor_parallel_size, torch.cuda.device_count()
        if 0 < found < needed:
            raise UserError(f"tensor_parallel_size is {needed}, and there are {found} GPUs")
        self.options(context=0, seed=0)

    def facts(self) -> dict[str, Any]:
        """What a manifest says of it."""
        engine = {"dtype": self.arguments.dtype, **json_object("engine_args", self.arguments.engine_args)}
        return {"model": self.checkpoint.fingerprint(), "engine": engine}

    def context(self, marker: Marker) -> int | None:
        """The engine's context in tokens: nothing bounds it but the model's configuration."""
        return None

    def start(self, close: ThinkingClose, stored: int) -> Engine:
        """Start vLLM in this process, with room for the context of `close`.

        It is seeded by what is `stored` (a number of tokens), too: a run that is resumed, or adds samples, must not
        draw the numbers that an earlier one drew, or its samples would be copies.

        Raises:
            EngineError: vLLM does not start.
        """
        print("starting vLLM" + ", which compiles" * (not self.arguments.enforce_eager), file=sys.stderr, flush=True)
        from e1_trl.engines.local import SLOTS, LocalEngine

        slots, adapter = self.arguments.concurrency or SLOTS, self.checkpoint.adapter_folder
        seed = seed_of(self.arguments.seed, 0, stored) % NUMPY  # 0: of the only engine
        options = self.options(close.context, seed)
        return LocalEngine.start(self.checkpoint.model, close.marker, self.sampling, slots, adapter, options)

    def options(self, context: int, seed: int) -> dict[str, Any]:
        """The arguments of `vllm.LLM`; `context` in tokens."""
        arguments, checkpoint, tokenizer = self.arguments, self.checkpoint, self.checkpoint.tokenizer
        own = {
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
        }
        more = json_object("engine_args", arguments.engine_args)
        if twice := sorted(more.keys() & {*own, "model", "max_num_seqs", "enable_lora"}):
            raise UserError(f"engine_args sets {', '.join(twice)}, for which there are fields of their own")
        return {**own, **more}


@dataclass(frozen=True)
class Served:
    """What a server has loaded, which it is trusted to be, and how it is asked to sample."""

    arguments: EvaluationArguments
    checkpoint: Checkpoint
    sampling: SamplingSettings

    def facts(self) -> dict[str, Any]:
        """What a manifest says of it; its engine has settings of its own."""
        return {"model": f"served: {self._name}, {self.checkpoint.fingerprint()}", "engine": {}}

    def context(self, marker: Marker) -> int | None:
        """The server's context in tokens, if it says it; of an evaluation that has begun, that of its beginning.

        Raises:
            UserError: the server is not there, or does not serve the model.
        """
        from e1_trl.engines.openai import Client

        if (self.arguments.folder / FILE).exists():  # which may be done, and then needs no server
            return Manifest.read(self.arguments.folder).context

        async def ask() -> int | None:
            client = Client(str(self.arguments.base_url), self._name, trust_env=True)
            try:
                return await client.context()
            finally:
                await client.close()

        return asyncio.run(ask())

    def start(self, close: ThinkingClose, stored: int) -> Engine:
        """Connect. Every request has a seed of its own, whatever is stored.

        Raises:
            EngineError: the server does not serve the model, or its context is shorter than that of `close`.
        """
        from e1_trl.engines.server import MOST_IN_FLIGHT, ServerEngine

        seed = self.arguments.seed if self.arguments.request_seeds else None
        concurrency = self.arguments.concurrency or MOST_IN_FLIGHT
        return ServerEngine(str(self.arguments.base_url), self._name, close, self.sampling, seed, concurrency)

    @property
    def _name(self) -> str:
        return self.arguments.served_model_name or self.arguments.weights.path
