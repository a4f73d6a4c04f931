"""Sync of a colocated engine's weights, and an exact comparison of checksums after it.

At learning rates near 1e-6 an engine with stale weights samples almost as it should, and nothing else would show it.
"""

import inspect
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import torch
from vllm.model_executor.layers.attention import is_deferred_attention_layer as is_attention
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.model_executor.models.utils import StageMissingLayer

from e1_trl.engines.engine import EngineError
from e1_trl.errors import TROUBLESHOOTING
from e1_trl.trl_internals import TrlEngine

logger = logging.getLogger(__name__)
warn_once = cache(logger.warning)  # it would be repeated at every sync

CHUNK = 2**24  # values whose bits are widened at once
BITS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}  # not of quantized tensors


def checksum(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Sum the squared bit patterns, modulo 2^64, that a tensor's values have in `dtype`; an int64 scalar.

    Neither order nor zeros matter: tensors that are stacked, sharded or padded add up. Subnormal values and zeros of
    either sign count as zero, since kernels need not keep them.
    """
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for piece in tensor.detach().reshape(-1).split(CHUNK):
        numbers = piece.to(dtype)
        numbers = numbers.masked_fill(numbers.abs() < torch.finfo(dtype).tiny, 0)
        bits = numbers.view(BITS[dtype]).to(torch.int64)
        total += (bits * bits).sum()
    return total


def reload_weights(generation: TrlEngine) -> None:
    """Sync the weights of an engine on CPU, and empty its prefix cache. A collective operation.

    On GPU, TRL's own sync does it, one parameter at a time. vLLM's CPU kernels repack weights when they are first
    loaded, and repacked ones have no loader; vLLM's layerwise reload unpacks, loads and repacks.
    """
    # The reload reads a layer's tensors when the last has come, and ZeRO-3 has released the others by then.
    copies = ((name, parameter.clone()) for name, parameter in generation.named_params())
    runner = generation.llm.llm_engine.model_executor.driver_worker.model_runner
    packed = {each: each.w2_weight.clone() for each in runner.get_model().modules() if isinstance(each, RoutedExperts)}
    runner.reload_weights(weights_iterator=copies)
    for module in runner.get_model().modules():
        # A head tied to the embedding has no tensor of its own to load, so the reload leaves its repacked copy stale.
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)
        # Experts are packed only at the first load, and no checksum shows it. gpt-oss's, without a loader, still are.
        if module in packed and not torch.equal(packed[module], module.w2_weight):
            module.quant_method.moe_kernel.fused_experts.process_weights_after_loading(module)
        # A Mamba-2 layer computes with its convolution's first weight, of which the repacked one is a copy.
        if hasattr(module, "conv_weights"):
            module.conv_weights.copy_(getattr(module.conv1d, "_cpu_unpacked_conv_weight", module.conv_weights))
    generation.llm.reset_prefix_cache()


def sync_in_place(generation: TrlEngine, sync: Callable[[], None]) -> None:
    """Sync the weights of an engine on GPU, as TRL does, and renew what attention layers derive from them."""
    sync()
    # Factors of latent attention, and sinks in float32: vLLM derives them as it loads a model, and sleep discards them.
    model = generation.llm.llm_engine.model_executor.driver_worker.model_runner.get_model()
    for module in model.modules():
        if is_attention(module):
            module.process_weights_after_loading(next(model.parameters()).dtype)


class WeightCheck:
    """Sync of a colocated engine's weights, with a comparison after it; `sync` is a collective operation."""

    def __init__(self, generation: TrlEngine, sync: Callable[[], None]):
        self._generation = generation
        self._sync = sync
        self._model = generation.llm.llm_engine.model_executor.driver_worker.model_runner.get_model()
        # Without a tied output head, and what attention layers derive from others' weights.
        derived = {id(own) for each in self._model.modules() if is_attention(each) for own in each.parameters(False)}
        parameters = {name: own for name, own in self._model.named_parameters() if id(own) not in derived}
        self._dtypes = {name: parameter.dtype for name, parameter in parameters.items()}
        self._names = {name.replace(".routed_experts.", "."): name for name in parameters}  # as experts' loaders say
        # A function as loader may transform values, as Mamba's does (A = -exp(A_log)); methods of layers copy them.
        loaders = {name: getattr(parameter, "weight_loader", None) for name, parameter in parameters.items()}
        self._loaders = {name: loader for name, loader in loaders.items() if inspect.isfunction(loader)}
        modules = self._model.named_modules()
        self._left_out = {name.rpartition(".")[2] for name, each in modules if isinstance(each, StageMissingLayer)}
        self.compared: frozenset[str] = frozenset()  # names of the tensors that were compared at the last sync

    def __call__(self) -> None:
        # Checksum and size of what was sent for each of the engine's tensors, which may stack several of the trainer's.
        sent: defaultdict[str, torch.Tensor | int] = defaultdict(int)
        numbers: Counter[str] = Counter()
        kept: defaultdict[str, list[torch.Tensor]] = defaultdict(list)
        filled: set[str] = set()
        untaken = []
        load = self._model.load_weights

        def load_weights(weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
            for name, tensor in weights:
                names = {self._names.get(own, own) for own in load([(name, tensor)]) or ()}
                if not names and self._left_out.isdisjoint(name.split(".")):  # none of the parts for images
                    untaken.append(name)
                for own in names & self._dtypes.keys():
                    if self._dtypes[own] in BITS:
                        sent[own] += checksum(tensor, self._dtypes[own])
                        numbers[own] += tensor.numel()
                    if own in self._loaders:
                        kept[own].append(tensor.clone())  # ZeRO-3 releases it
                filled.update(names)
            return filled

        self._model.load_weights = load_weights
        try:
            self._sync()
        finally:
            del self._model.load_weights
        # The sync has just reset the cache, but ignores whether that succeeded.
        if not self._generation.llm.reset_prefix_cache():
            raise EngineError(
                "vLLM did not empty its prefix cache, as requests still hold blocks of it: keys and values of the old "
                f"weights would be used with the new ones; {TROUBLESHOOTING}"
            )
        if not filled and not untaken:
            raise EngineError("the trainer sent no weights, so vLLM would keep its old ones")
        if not filled:
            warn_once("vLLM does not say which of its tensors it loaded the weights into; they are not compared")
            return
        if untaken:
            raise EngineError(f"vLLM took no weights from {untaken[0]}, which the trainer sent")
        if unfilled := [name for name in self._dtypes if name not in filled]:
            raise EngineError(f"vLLM's {unfilled[0]} was sent nothing by the trainer, so it would keep its old values")
        self._compare(sent, numbers, kept)

    def _compare(self, sent: Mapping[str, Any], numbers: Mapping[str, int], kept: Mapping[str, list[Any]]) -> None:
        processes = self._generation.tensor_parallel_size
        names = []
        held = []
        expected = []
        for name in sent:
            module = self._model.get_submodule(name.rpartition(".")[0])
            is_vocabulary = isinstance(module, VocabParallelEmbedding)
            for part, tensor in self._held(module, name):
                # One process may have all of a small vocabulary, and the others as many zeros.
                is_whole = tensor.numel() == numbers[name] and not (is_vocabulary and processes > 1)
                # KV heads may be in several processes at once.
                if not (is_whole or is_vocabulary or tensor.numel() * processes == numbers[name]):
                    if processes == 1:
                        raise EngineError(
                            f"vLLM's {name} has {tensor.numel()} values, and the trainer sent {numbers[name]}"
                        )
                    warn_once(f"vLLM's {name} is partly replicated over processes, and is not compared")
                    continue
                names.append(part)
                held.append(checksum(tensor, self._dtypes[name]))
                expected.append(torch.as_tensor(sent[name], device=tensor.device) * (processes if is_whole else 1))
        self.compared = frozenset(names)
        if not names:
            return
        sums = torch.stack(held)
        if processes > 1:
            torch.distributed.all_reduce(sums, group=self._generation.tp_group)
        equal = (sums == torch.stack(expected)).int()
        for place, name in enumerate(names):
            if not equal[place] and name in kept:  # load it a second time, into a copy
                again = torch.full_like(self._model.get_parameter(name), torch.nan)
                for tensor in kept[name]:
                    self._loaders[name](again, tensor)
                equal[place] = torch.equal(again, self._model.get_parameter(name))
        if processes > 1:  # each has compared its own part
            torch.distributed.all_reduce(equal, torch.distributed.ReduceOp.MIN, group=self._generation.tp_group)
        for place, name in enumerate(names):
            if not equal[place]:
                raise EngineError(
                    f"vLLM's {name} is not what the trainer has just sent: its weights are stale; {TROUBLESHOOTING}"
                )

    def _held(self, module: torch.nn.Module, name: str) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors that the engine computes with under this name: its own, and that of a tied output head."""
        attribute = name.rpartition(".")[2]
        dtype = self._dtypes[name]
        is_table = isinstance(module, VocabParallelEmbedding) and not isinstance(module, ParallelLMHead)
        multiplies = attribute == "weight" and not is_table
        yield name, unpack(module, dtype) if multiplies else module.get_parameter(attribute)
        if is_table:
            for head_name, head in self._model.named_modules():
                if isinstance(head, ParallelLMHead) and head.weight is module.weight:
                    yield f"{head_name}.weight", unpack(head, dtype)


def unpack(module: torch.nn.Module, dtype: torch.dtype) -> torch.Tensor:
    """Return a module's weight; one that vLLM's CPU kernels repacked is multiplied by an identity matrix, exactly."""
    if not hasattr(module, "cpu_linear"):
        return module.get_parameter("weight")
    for width in ("input_size_per_partition", "input_size", "embedding_dim"):
        if hasattr(module, width):
            return module.cpu_linear(torch.eye(getattr(module, width), dtype=dtype), module.weight, None)
    raise EngineError(f"{type(module).__name__} has repacked its weight, and has no attribute with its width")
