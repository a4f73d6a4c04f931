"""Model that is evaluated: weights that vLLM loads in this process, or those of a server."""

import asyncio
import logging
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from e1_trl.budget import ThinkingClose
from e1_trl.checkpoints.checkpoint import Checkpoint, served_rank
from e1_trl.command_line import json_object
from e1_trl.engines.engine import NUMPY, Engine, SamplingSettings, seed_of
from e1_trl.errors import INSTALL, UserError
from e1_trl.evaluation.arguments import EvaluationArguments, token_biases
from e1_trl.evaluation.store import read_facts
from e1_trl.marker import MARKER, find_marker

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)


def find_model(arguments: EvaluationArguments) -> "Weights | Served":
    """Find the model that the arguments name, with its sampling settings; a `UserError` if it cannot be loaded here."""
    checkpoint = Checkpoint.find(arguments.weights.path, arguments.weights.revision)
    settings = {**arguments.shared_with(SamplingSettings), "logit_bias": token_biases(arguments.logit_bias)}
    return (Served if arguments.base_url else Weights)(arguments, checkpoint, SamplingSettings(**settings))


def marker_of(tokenizer: "PreTrainedTokenizerBase") -> str:
    """Find the model's marker; for a baseline that does not think, warn and return the usual one."""
    try:
        return find_marker(tokenizer)
    except UserError as error:
        logger.warning("%s; used for now: %r", error, MARKER)
        return MARKER


@dataclass(frozen=True)
class Weights:
    """Weights that vLLM loads in this process, and how it samples; a `UserError` if vLLM is not installed."""

    arguments: EvaluationArguments
    checkpoint: Checkpoint
    sampling: SamplingSettings

    def __post_init__(self) -> None:
        if find_spec("vllm") is None:
            raise UserError(f"vLLM is not installed; {INSTALL} brings it, or name a base_url")
        self.options(context=0, seed=0)

    @property
    def name(self) -> str:
        """Fingerprint of the checkpoint, for run.json."""
        return self.checkpoint.fingerprint()

    @property
    def engine(self) -> dict[str, Any]:
        """Arguments of the engine that affect the samples."""
        return {"dtype": self.arguments.dtype, **json_object("engine_args", self.arguments.engine_args)}

    def start(self, close: ThinkingClose, stored: int) -> Engine:
        """Start vLLM in this process, with room for the context of `close`.

        Its seed also depends on how many tokens are `stored`: a run that is resumed, or adds samples, must not draw
        the numbers that an earlier one drew, or its samples would be copies.
        """
        print("starting vLLM" + ", which compiles" * (not self.arguments.enforce_eager), file=sys.stderr, flush=True)
        from e1_trl.engines.local import SLOTS, LocalEngine

        slots = self.arguments.concurrency or SLOTS
        adapter = self.checkpoint.adapter_folder
        seed = seed_of(self.arguments.seed, 0, stored) % NUMPY  # 0: the only engine
        options = self.options(close.context, seed)
        return LocalEngine.start(self.checkpoint.model, close.marker, self.sampling, slots, adapter, options)

    def options(self, context: int, seed: int) -> dict[str, Any]:
        arguments = self.arguments
        checkpoint = self.checkpoint
        tokenizer = checkpoint.tokenizer
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
            **({"max_lora_rank": served_rank(checkpoint.rank)} if checkpoint.adapter else {}),
        }
        more = json_object("engine_args", arguments.engine_args)
        if twice := sorted(more.keys() & {*own, "model", "max_num_seqs", "enable_lora"}):
            raise UserError(f"engine_args sets {', '.join(twice)}, which have options of their own")
        return {**own, **more}


@dataclass(frozen=True)
class Served:
    """A model that a server has loaded, and how the server is asked to sample."""

    arguments: EvaluationArguments
    checkpoint: Checkpoint
    sampling: SamplingSettings

    @property
    def name(self) -> str:
        """Name at the server, and fingerprint of the checkpoint whose tokenizer is used, for run.json."""
        return f"served: {self._served_name}, {self.checkpoint.fingerprint()}"

    @property
    def engine(self) -> dict[str, Any]:
        """Nothing, since a server has settings of its own."""
        return {}

    def context(self) -> int | None:
        """Return the server's context in tokens, if it says; an evaluation that has begun keeps its context."""
        from e1_trl.engines.openai import Client

        # A folder may be finished, and then needs no server; facts without a context are refused by the store.
        if "context" in (facts := read_facts(self.arguments.folder)):
            return int(facts["context"])

        async def ask() -> int | None:
            client = Client(str(self.arguments.base_url), self._served_name)
            try:
                return await client.context()
            finally:
                await client.close()

        return asyncio.run(ask())

    def start(self, close: ThinkingClose, stored: int) -> Engine:
        """Connect to the server. Every request has a seed of its own, whatever is stored."""
        from e1_trl.engines.server import MOST_IN_FLIGHT, ServerEngine

        seed = self.arguments.seed if self.arguments.request_seeds else None
        concurrency = self.arguments.concurrency or MOST_IN_FLIGHT
        return ServerEngine(str(self.arguments.base_url), self._served_name, close, self.sampling, seed, concurrency)

    @property
    def _served_name(self) -> str:
        return self.arguments.served_model_name or self.arguments.weights.path
