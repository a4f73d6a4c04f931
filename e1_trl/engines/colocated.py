"""TRL's engines, as training processes start and drive them together: inside the processes, or one server for all."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from transformers import set_seed

from e1_trl.budget import ThinkingClose
from e1_trl.engines.engine import NUMPY, OnCompletion, SamplingSettings, ignore, run, seed_of
from e1_trl.engines.server import ServerEngine
from e1_trl.rollout import Completion, Name, Rollout
from e1_trl.trl_internals import TrlEngine

if TYPE_CHECKING:
    from e1_trl.engines.local import LocalEngine
    from e1_trl.engines.weight_check import WeightCheck


def _keep_own(on_completion: OnCompletion, first: int, count: int) -> OnCompletion:
    """Restrict a callback for several processes' rollouts to this process's, which are `count` from `first` on."""

    def receive(row: int, completion: Completion) -> None:
        if first <= row < first + count:
            on_completion(row - first, completion)

    return receive


def make_training_engine(
    vllm: TrlEngine, close: ThinkingClose, accelerator: Accelerator, adapter: bool, seed: int
) -> "ColocatedEngine | ServedEngine":
    """Make the engine of TRL's `vllm_mode`. In `colocate`, every sync compares its weights with the trainer's."""
    sampling = SamplingSettings(**vllm.sampling)
    if vllm.llm is None:
        if adapter:
            vllm.copy_merged()
        engine = vllm.server and ServerEngine(*vllm.server, close, sampling, seed, is_trained=True)
        return ServedEngine(accelerator, engine)
    from e1_trl.engines.local import LocalEngine, restore_calls
    from e1_trl.engines.weight_check import WeightCheck, reload_weights, sync_in_place

    restore_calls(vllm.model)
    on_cpu = accelerator.device.type == "cpu"
    check = WeightCheck(vllm, partial(reload_weights, vllm) if on_cpu else partial(sync_in_place, vllm, vllm.sync))
    vllm.replace_sync(check)
    return ColocatedEngine(vllm, LocalEngine(vllm.llm, close.marker, sampling), accelerator, adapter, seed, check)


@dataclass
class ColocatedEngine:
    """vLLM in the training processes; `weights` syncs it, and the other fields are as in `make_training_engine`."""

    vllm: TrlEngine
    engine: "LocalEngine"
    accelerator: Accelerator
    adapter: bool
    seed: int
    weights: "WeightCheck"

    @property
    def compared_tensors(self) -> int:
        """Tensors of the engine that were compared with the trainer's after the last sync."""
        return len(self.weights.compared)

    def complete(
        self, rollouts: list[Rollout], name: Name, on_completion: OnCompletion = ignore, forks: int = 1
    ) -> list[Completion]:
        """Complete this process's rollouts; a collective operation, with equally many rollouts in every process.

        Sampling follows from the training's seed and the `name` of this generation, the same in all processes.
        `on_completion` receives this process's completions alone. Every `forks` rollouts share a thought, as in `run`.

        Requests are gathered as in TRL. In a tensor-parallel group every process runs the whole group's rollouts, in
        the same order, draws the same numbers, and keeps its own.
        """
        group = rollouts
        rank = 0
        processes = self.vllm.tensor_parallel_size
        if processes > 1:
            gathered: list[Any] = [None] * processes
            torch.distributed.all_gather_object(gathered, rollouts, group=self.vllm.tp_group)
            group = [rollout for part in gathered for rollout in part]
            rank = torch.distributed.get_rank(group=self.vllm.tp_group)
        self.vllm.wake()
        if processes > 1 and self.adapter:
            # The all-reduce of small LoRA gradients can race with vLLM's own collectives (trl issue 3671).
            on_gpu = self.accelerator.device.type == "cuda"
            torch.distributed.barrier(device_ids=[self.accelerator.local_process_index] if on_gpu else None)
        # vLLM draws from torch's global generator; on CUDA it draws a seed for every request from numpy's.
        number = self.accelerator.process_index // processes
        set_seed(seed_of(self.seed, number, *name) % NUMPY)
        first = rank * len(rollouts)
        run(self.engine, group, (), _keep_own(on_completion, first, len(rollouts)), forks)
        self.vllm.sleep()
        return [rollout.completion for rollout in group[first : first + len(rollouts)]]


@dataclass
class ServedEngine:
    """TRL's vLLM server; the main process sends the requests of all processes, and only it has an `engine`."""

    accelerator: Accelerator
    engine: ServerEngine | None
    compared_tensors: ClassVar[int] = 0  # a server does not show its weights

    def complete(
        self, rollouts: list[Rollout], name: Name, on_completion: OnCompletion = ignore, forks: int = 1
    ) -> list[Completion]:
        """See `ColocatedEngine.complete`; processes other than the main one receive their completions at the end."""
        everyones = gather_object(rollouts)
        completions = None
        first = self.accelerator.process_index * len(rollouts)
        if self.engine is not None:
            run(self.engine, everyones, name, _keep_own(on_completion, first, len(rollouts)), forks)
            completions = [rollout.completion for rollout in everyones]
        everyones_completions = broadcast_object_list([completions], from_process=0)[0]
        own: list[Completion] = everyones_completions[first : first + len(rollouts)]
        if self.engine is None:
            for row, completion in enumerate(own):
                on_completion(row, completion)
        return own
