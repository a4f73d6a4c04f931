"""Compares, after every sync, what a colocated engine holds with what the trainer sent: exactly, by checksums.

At learning rates near 1e-6 an engine with stale weights samples almost as it should, and nothing else would show it.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from trl.generation.vllm_generation import VLLMGeneration
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

from e1_trl.engines.engine import EngineError

logger = logging.getLogger(__name__)

CHUNK = 2**24  # numbers whose bits are widened at once
CPU_PARTS = 8  # on CPU a sync is followed by a look at one part of the tensors, the next one by another part
INTEGERS = {2: torch.int16, 4: torch.int32}  # by bytes


def checksum(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The sum, modulo 2^64, of the squared bit patterns that the numbers of a tensor have in `dtype`; an int64 scalar.

    Neither their order matters, nor zeros: tensors that are stacked, sharded or padded add up. Zeros of either sign and
    subnormal numbers count as zero, since kernels need not keep them.
    """
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for piece in tensor.detach().reshape(-1).split(CHUNK):
        numbers = piece.to(dtype)
        numbers = numbers.masked_fill(numbers.abs() < torch.finfo(dtype).tiny, 0)
        bits = numbers.view(INTEGERS[dtype.itemsize]).to(torch.int64)
        total += (bits * bits).sum()
    return total


@dataclass
class Sent:
    """What one tensor of the engine was sent; it may stack several of the trainer's."""

    checksum: torch.Tensor | int = 0
    numbers: int = 0


class WeightCheck:
    """A sync of weights with a comparison after it.

    On GPUs every tensor is compared each time. On CPU, where vLLM repacks weights, so that they are read by having each
    layer multiply an identity matrix, one of `CPU_PARTS` parts is, in turn.

    Args:
        generation: TRL's colocated engine.
        sync: sends it the trainer's weights; a collective operation, as is `__call__`.

    Attributes:
        compared: the names of the engine's tensors that the last sync was compared for.
    """

    def __init__(self, generation: VLLMGeneration, sync: Callable[[], None]):
        self._generation = generation
        self._sync = sync
        self._model = generation.llm.llm_engine.model_executor.driver_worker.model_runner.get_model()
        parameters = dict(self._model.named_parameters())  # a tied output head is none of its own
        self._dtypes = {name: parameter.dtype for name, parameter in parameters.items()}
        on_cpu = all(parameter.device.type == "cpu" for parameter in parameters.values())
        parts = CPU_PARTS if on_cpu else 1
        self._part_of = {name: index % parts for index, name in enumerate(parameters)}
        self._parts = parts
        self._part = -1
        self._warned: set[str] = set()
        self.compared: frozenset[str] = frozenset()

    def __call__(self) -> None:
        """Sync and compare.

        Raises:
            EngineError: a tensor of the engine is not what was sent; names it.
        """
        self._part = (self._part + 1) % self._parts
        sent: dict[str, Sent] = {}
        filled: set[str] = set()
        untaken = []
        load = self._model.load_weights

        def load_weights(weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
            taken: set[str] = set()
            for name, tensor in weights:
                names = load([(name, tensor)]) or set()
                if not names:
                    untaken.append(name)
                for own in names & self._dtypes.keys():
                    if self._part_of[own] == self._part and self._comparable(own):
                        so_far = sent.setdefault(own, Sent())
                        so_far.checksum += checksum(tensor, self._dtypes[own])
                        so_far.numbers += tensor.numel()
                taken |= names
            filled.update(taken)
            return taken

        self._model.load_weights = load_weights
        try:
            self._sync()
        finally:
            del self._model.load_weights
        if not filled:
            self._warn("vLLM does not say which of its tensors the weights went to, so they are not compared")
            return
        if untaken:
            raise EngineError(f"vLLM took no weights from {untaken[0]}, which the trainer sent")
        if unfilled := [name for name in self._dtypes if name not in filled]:
            raise EngineError(f"vLLM's {unfilled[0]} was sent nothing by the trainer, so it would stay as it was")
        self._compare(sent)

    def _comparable(self, name: str) -> bool:
        """Whether it holds plain numbers, as quantized tensors do not."""
        dtype = self._dtypes[name]
        return dtype.is_floating_point and dtype.itemsize in INTEGERS

    def _compare(self, sent: dict[str, Sent]) -> None:
        held, expected, whole, names = [], [], [], []
        for name, each in sent.items():
            # Of a small vocabulary one process may have all, and the others as many zeros.
            shards = self._generation.tensor_parallel_size > 1 and self._is_vocabulary(name)
            for part, tensor in self._tensors(name):
                complete = tensor.numel() == each.numbers and not shards
                if not complete and not self._adds_up(name, tensor.numel(), each.numbers):
                    continue
                names.append(part)
                held.append(checksum(tensor, self._dtypes[name]))
                expected.append(torch.as_tensor(each.checksum, device=tensor.device))
                whole.append(complete)
        self.compared = frozenset(names)
        if not names:
            return
        own, wanted = torch.stack(held), torch.stack(expected)
        if self._generation.tensor_parallel_size > 1:
            sums = own.clone()
            torch.distributed.all_reduce(sums, group=self._generation.tp_group)
            own = torch.where(torch.tensor(whole, device=own.device), own, sums)
        for name, equal in zip(names, (own == wanted).tolist(), strict=True):
            if not equal:
                raise EngineError(f"vLLM's {name} is not what the trainer has just sent: its weights are stale")

    def _adds_up(self, name: str, held: int, sent: int) -> bool:
        """Whether shards of so many numbers, each in a process of its own, hold what was sent once, and zeros else."""
        processes = self._generation.tensor_parallel_size
        if held * processes == sent or self._is_vocabulary(name):
            return True
        if processes == 1:
            raise EngineError(f"vLLM's {name} has {held} numbers, of which the trainer sent {sent}")
        self._warn(f"vLLM's {name} is in several processes at once, in part, and is not compared")  # KV heads
        return False

    def _is_vocabulary(self, name: str) -> bool:
        return isinstance(self._module(name), VocabParallelEmbedding)

    def _module(self, name: str) -> torch.nn.Module:
        return self._model.get_submodule(name.rpartition(".")[0])

    def _tensors(self, name: str) -> Iterable[tuple[str, torch.Tensor]]:
        """What the engine computes with in place of the tensor of this name: itself, or a tied output head, too."""
        module = self._module(name)
        yield name, self._held(module, name.rpartition(".")[2], self._dtypes[name])
        if isinstance(module, VocabParallelEmbedding) and not isinstance(module, ParallelLMHead):
            for head_name, head in self._model.named_modules():
                if isinstance(head, ParallelLMHead) and f"{head_name}.weight" not in self._dtypes:
                    yield f"{head_name}.weight", self._held(head, "weight", self._dtypes[name])

    def _held(self, module: torch.nn.Module, attribute: str, dtype: torch.dtype) -> torch.Tensor:
        looked_up = isinstance(module, VocabParallelEmbedding) and not isinstance(module, ParallelLMHead)
        if attribute != "weight" or looked_up or not hasattr(module, "cpu_linear"):
            return module.get_parameter(attribute)
        # Repacked, and what is left of the weight itself may be empty or stale. A product with one and otherwise zeros
        # is exact.
        for width in ("input_size_per_partition", "input_size", "embedding_dim"):
            if hasattr(module, width):
                return module.cpu_linear(torch.eye(getattr(module, width), dtype=dtype), module.weight, None)
        raise EngineError(f"{type(module).__name__} has repacked its weight and does not tell its width")

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            logger.warning(message)
