"""Brings the policy's weights into a colocated vLLM that runs on CPU.

On GPU, TRL's own `VLLMGeneration.sync_weights` does this, one parameter at a time, and nothing here is used. vLLM's CPU
kernels repack weights when they are first loaded, and what was repacked has no loader any more; vLLM's layerwise
reload unpacks, loads and repacks.
"""

from collections.abc import Iterator

import torch
from trl.generation.vllm_generation import VLLMGeneration
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead


def reload_weights(generation: VLLMGeneration) -> None:
    """Load the trainer's current weights into the engine of `generation` and empty its prefix cache.

    A collective operation: gathering a ZeRO-3 parameter needs every process.
    """

    def parameters() -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in generation._iter_named_params():
            # The reload reads a layer's tensors when the last of them has come, and by then ZeRO-3 has released the
            # gathered parameter.
            yield name, parameter.clone()

    runner = generation.llm.llm_engine.model_executor.driver_worker.model_runner
    runner.reload_weights(weights_iterator=parameters())
    # A head tied to the embedding has no tensor of its own to load, so the reload leaves its repacked copy stale.
    for module in runner.get_model().modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)
    generation.llm.reset_prefix_cache()
