"""Bytes on one GPU, at generation and at training, and whether they fit. Pure arithmetic; assumptions are constants."""

import math
from dataclasses import dataclass

from e1_trl.plan.setup import Setup

GB = 10**9
# Assumed: CUDA context, NCCL, communication buckets, and what a sleeping engine keeps.
OVERHEAD = 5 * GB
# Assumed: what vLLM takes of its share besides weights and cache: activations of its largest batch, CUDA graphs.
ENGINE_OVERHEAD = 3 * GB
WAVES = 4  # in which sequences may have to be sampled before that is called a problem


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU.

    Attributes:
        weights, gradients, optimizer, reference: the training state, which stays while the engine generates.
        activations: of one micro-batch.
        engine_weights, engine_cache: vLLM's share, awake.
        cache_needed: for all of a generation's sequences at once.
        host: bytes of the host's memory, of all GPUs together.
    """

    card: int
    weights: int
    gradients: int
    optimizer: int
    reference: int
    activations: int
    engine: int
    engine_weights: int
    cache_needed: int
    host: int
    sleeps: bool
    served: bool

    @property
    def state(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.reference

    @property
    def engine_cache(self) -> int:
        return self.engine - self.engine_weights - ENGINE_OVERHEAD

    @property
    def generation(self) -> int:
        """The peak while the engine is awake."""
        return self.state + self.engine + OVERHEAD

    @property
    def training(self) -> int:
        """The peak of an optimizer step."""
        return self.state + self.activations + OVERHEAD + (0 if self.sleeps else self.engine)

    @property
    def breaks_the_rule(self) -> bool:
        """Training state and vLLM's share exceed the card: it ends at the engine's second wake-up, for certain."""
        return self.state + self.engine >= self.card

    @property
    def problems(self) -> list[str]:
        """What does not fit, and what would make it fit; empty if all does."""
        found = []
        free = self.card - self.state - OVERHEAD
        if self.generation > self.card and not self.served:
            found.append(
                f"generation takes {self.generation / GB:.0f} GB: lower vllm_gpu_memory_utilization to "
                f"{math.floor(100 * max(0, free) / self.card) / 100:.2f}, or share out more "
                "(ZeRO-3, more GPUs, offload_optimizer_device: cpu)"
            )
        if self.training > self.card:
            remedy = "lower per_device_train_batch_size" if self.sleeps else "vllm_enable_sleep_mode: true"
            found.append(f"training takes {self.training / GB:.0f} GB: {remedy}, or share out more")
        if self.served:
            return found
        if 0 < self.engine_cache < self.cache_needed / WAVES:
            found.append(
                f"vLLM's cache of {self.engine_cache / GB:.1f} GB holds less than 1/{WAVES} of the sequences: raise "
                "vllm_gpu_memory_utilization or vllm_tensor_parallel_size"
            )
        if self.engine_cache <= 0:
            found.append(
                f"vLLM's share of {self.engine / GB:.0f} GB has no room for a cache beside its weights: raise "
                "vllm_gpu_memory_utilization or vllm_tensor_parallel_size"
            )
        return found


def memory(setup: Setup, card: int) -> Memory:
    """What a setup takes on a card of so many bytes."""
    model, shards = setup.architecture, setup.gpus
    parameters = model.parameters
    # Without DeepSpeed, PEFT keeps adapters in fp32 beside weights of any dtype.
    trained = parameters if setup.adapter is None else setup.adapter
    dtype = setup.dtype if setup.adapter is None or setup.zero > 0 else 4
    masters = dtype == 2 and setup.zero > 0  # DeepSpeed keeps fp32 weights beside the ones it computes with
    per_parameter = 12 if masters else 2 * dtype  # Adam's two moments, in what the weights are in

    def shared(total: int, from_stage: int) -> int:
        return total // shards if setup.zero >= from_stage else total

    optimizer = shared(per_parameter * trained, 1)
    tokens = setup.batch * setup.context
    working = 2 * 2 * tokens * (3 * model.mlp + 8 * model.hidden)  # a layer's, and their gradients, in 2 bytes
    kept = 2 * tokens * model.hidden  # the input of a layer, from which it is computed again
    layers = model.layers * (kept if setup.checkpointing else working // 2)
    # The gradient of the chunked output head, fp32; an adapter leaves the head as it is.
    head = 4 * model.output_head if setup.adapter is None else 0
    sequences = setup.rollouts // setup.gpus * setup.tensor_parallel
    return Memory(
        card=card,
        weights=shared(setup.dtype * parameters + dtype * (setup.adapter or 0), 3),
        gradients=shared((4 if setup.zero >= 2 else dtype) * trained, 2),  # E1Config: fp32 under ZeRO
        optimizer=0 if setup.offload else optimizer,
        # The model without its adapter is its reference.
        reference=shared(setup.dtype * parameters, 3) if setup.reference and setup.adapter is None else 0,
        activations=layers + working + head,
        engine=0 if setup.served else int(setup.utilization * card),
        engine_weights=2 * parameters // setup.tensor_parallel,
        cache_needed=sequences * setup.context * model.kv_bytes() // setup.tensor_parallel,
        host=optimizer * shards if setup.offload else 0,
        sleeps=setup.sleep,
        served=setup.served,
    )
