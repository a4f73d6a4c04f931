"""TRL's engines, as several training processes start and drive them together: in the processes, or one server for all.

Both take each process's own rollouts to their end by a collective operation.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from accelerate.utils.other import get_free_port
from transformers import set_seed
from trl.generation import vllm_generation
from trl.generation.vllm_generation import VLLMGeneration

from e1_trl.budget import ThinkingClose
from e1_trl.engines.engine import OnCompletion, SamplingSettings, ignore_completion, run
from e1_trl.engines.openai import ServedModel
from e1_trl.engines.server import ServerEngine
from e1_trl.rollout import Completion, Name, Rollout
from e1_trl.seeds import NUMPY, seed_of

if TYPE_CHECKING:
    from e1_trl.engines.weight_check import WeightCheck


class TrainingEngine(Protocol):
    """What a trainer samples with."""

    @property
    def compared_tensors(self) -> int:
        """How many of the engine's tensors were compared with the trainer's after the last sync; 0 if it cannot be."""

    def complete(
        self, rollouts: list[Rollout], name: Name, finished: OnCompletion = ignore_completion
    ) -> list[Completion]:
        """The completions of this process's rollouts. Every process calls it with equally many.

        What is drawn follows from the training's seed and the `name` of this generation, the same in all processes.
        `finished` is told of this process's own alone.
        """


@contextmanager
def starting(revision: str | None, processes: int) -> Iterator[None]:
    """While TRL starts an engine: at the model's revision, and at a port that nobody else takes.

    TRL tells the engine the model's name alone. Weights are sent to it in any case; configuration, tokenizer and the
    tokens that end a sequence would be the newest.

    Args:
        revision: of the model on the Hub; None: the newest, or the engine is a server.
        processes: of the training.
    """
    if processes == 1:
        # Where the engine's group of one meets itself. TRL tries the same port first in every run, and would refuse
        # the later one of two that start together.
        os.environ.setdefault("MASTER_PORT", str(get_free_port()))
    if revision is None:
        yield
        return
    engine = vllm_generation.LLM
    vllm_generation.LLM = partial(engine, revision=revision, tokenizer_revision=revision)
    try:
        yield
    finally:
        vllm_generation.LLM = engine


def _of_own(finished: OnCompletion, first: int, count: int) -> OnCompletion:
    """What is told of the rollouts of several processes, and tells of this one's, `count` from the `first` on."""

    def told(row: int, completion: Completion) -> None:
        if first <= row < first + count:
            finished(row - first, completion)

    return told


def sampling_of(generation: VLLMGeneration) -> SamplingSettings:
    """What TRL's configuration says about sampling."""
    return SamplingSettings(
        temperature=generation.temperature,
        top_p=generation.top_p,
        top_k=generation.top_k,
        min_p=generation.min_p or 0.0,
        repetition_penalty=generation.repetition_penalty,
        extra=generation.generation_kwargs,
    )


def make_training_engine(
    generation: VLLMGeneration, close: ThinkingClose, accelerator: Accelerator, adapter: bool, seed: int
) -> TrainingEngine:
    """The engine of TRL's `vllm_mode`; inside the processes, its weights are compared with the trainer's at every sync.

    On CPU they are brought there as vLLM's CPU kernels need it.

    Args:
        generation: TRL's engine or its client.
        close: what ends the thinking, and the longest sequence.
        accelerator: the trainer's.
        adapter: a LoRA adapter is trained.
        seed: of the training.

    Raises:
        EngineError: the server does not serve the model, or its context is too short.
    """
    if generation.mode == "server":
        main = accelerator.is_main_process
        return ServedEngine(accelerator, _connect(generation, close, seed) if main else None)
    from e1_trl.engines.weight_check import WeightCheck
    from e1_trl.engines.weights import reload_weights

    on_cpu = accelerator.device.type == "cpu"
    check = WeightCheck(generation, partial(reload_weights, generation) if on_cpu else generation.sync_weights)
    generation.sync_weights = check
    return ColocatedEngine(generation, close, accelerator, adapter, seed, check)


def _connect(generation: VLLMGeneration, close: ThinkingClose, seed: int) -> ServerEngine:
    client, sampling = generation.vllm_client, sampling_of(generation)
    return ServerEngine(ServedModel.connect(f"{client.base_url}/v1", client.model, close, sampling, seed))


class ColocatedEngine:
    """vLLM in the training processes; the arguments are those of `make_training_engine`, and what syncs its weights."""

    def __init__(
        self,
        generation: VLLMGeneration,
        close: ThinkingClose,
        accelerator: Accelerator,
        adapter: bool,
        seed: int,
        weights: "WeightCheck",
    ):
        from e1_trl.engines.local import LocalEngine

        self._generation = generation
        self._engine = LocalEngine(generation.llm, close.marker, sampling_of(generation))
        self._accelerator = accelerator
        self._adapter = adapter
        self._seed = seed
        self._weights = weights

    @property
    def compared_tensors(self) -> int:
        return len(self._weights.compared)

    def complete(
        self, rollouts: list[Rollout], name: Name, finished: OnCompletion = ignore_completion
    ) -> list[Completion]:
        """Wakes and gathers as `VLLMGeneration.generate` does with its own requests.

        In a tensor-parallel group every process runs the whole group's rollouts, in the same order, draws the same
        numbers, and keeps its own.
        """
        generation = self._generation
        group, rank = rollouts, 0
        if generation.tensor_parallel_size > 1:
            gathered: list[Any] = [None] * generation.tensor_parallel_size
            torch.distributed.all_gather_object(gathered, rollouts, group=generation.tp_group)
            group = [rollout for part in gathered for rollout in part]
            rank = torch.distributed.get_rank(group=generation.tp_group)
        if generation.enable_sleep_mode:
            if generation._llm_weights_sleeping:
                generation.sync_weights()
            generation.llm.wake_up(tags=["kv_cache"])
        if generation.tensor_parallel_size > 1 and self._adapter:
            # The all-reduce of small LoRA gradients can race with vLLM's own collectives (trl issue 3671).
            on_gpu = self._accelerator.device.type == "cuda"
            torch.distributed.barrier(device_ids=[self._accelerator.local_process_index] if on_gpu else None)
        # What vLLM draws from: torch's global generator, and on CUDA numpy's, for a seed of every request.
        number = self._accelerator.process_index // generation.tensor_parallel_size
        set_seed(seed_of(self._seed, number, *name) % NUMPY)
        first = rank * len(rollouts)
        run(self._engine, group, finished=_of_own(finished, first, len(rollouts)))
        if generation.enable_sleep_mode:
            generation.llm.sleep(level=2)
            generation._llm_weights_sleeping = True
        return [rollout.completion for rollout in group[first : first + len(rollouts)]]


class ServedEngine:
    """TRL's vLLM server, which the main process asks for all.

    Args:
        accelerator: the trainer's.
        engine: in the main process.
    """

    def __init__(self, accelerator: Accelerator, engine: ServerEngine | None):
        self._accelerator = accelerator
        self._engine = engine

    @property
    def compared_tensors(self) -> int:
        return 0  # the server has no way to ask for its weights

    def complete(
        self, rollouts: list[Rollout], name: Name, finished: OnCompletion = ignore_completion
    ) -> list[Completion]:
        """Hands each process the completions of its own rollouts, which all but the main one are told of at the end."""
        everyones = gather_object(rollouts)
        completions = None
        first = self._accelerator.process_index * len(rollouts)
        if self._engine is not None:
            run(self._engine, everyones, name, _of_own(finished, first, len(rollouts)))
            completions = [rollout.completion for rollout in everyones]
        everyones_completions = broadcast_object_list([completions], from_process=0)[0]
        own: list[Completion] = everyones_completions[first : first + len(rollouts)]
        if self._engine is None:
            for row, completion in enumerate(own):
                finished(row, completion)
        return own
