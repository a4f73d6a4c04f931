"""Bytes on one GPU, seconds of a generation. Pure arithmetic; assumptions are constants."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from e1_trl.plan.setup import Setup
from e1_trl.training.arguments import VARLEN

GB = 10**9
# Assumed bytes.
OVERHEAD = 2 * GB  # CUDA context, workspaces, fragments, remains of a sleeping engine
COMMUNICATION = 3 * GB  # with several GPUs: NCCL and ZeRO's buckets
FRAGMENTS = 2 * GB  # with several GPUs and a sleeping engine: left in buckets and allocator after a training step
ENGINE_OVERHEAD = 3 * GB  # of vLLM's share: activations of its largest batch, CUDA graphs
MARGIN = 0.03  # share of a card that is left free for the unforeseen
WAVES = 5  # vLLM samples a generation that its cache cannot hold in waves; more waves than this count as a problem
# Tokens of the mean prompt, counted in DeepScaleR's problems of mathematics and DeepCoder's of programs.
MATHEMATICS = 101
PROGRAMS = 450
# Assumed speeds and times on an H100.
READ = 2.0e12  # bytes per second that kernels read
COMPUTED = 4.0e14  # operations per second
STEP = 0.002  # seconds of an engine's step besides reading weights and cache
SENT = 3.0e11  # bytes per second between GPUs over NVLink, not overlapped with computing
AROUND = 3.0  # seconds to send the weights to the engine, compare them and step the optimizer
USED = 0.7  # share of its budget that the mean completion takes; the longest takes all of it
ASSUMED = (
    f"completions use {USED:.0%} of their budget; an H100 reads {READ / 1e12:g} TB/s, does {COMPUTED / 1e12:g} TFLOP/s "
    f"and sends {SENT / 1e9:g} GB/s; added are {STEP * 1000:g} ms for an engine's step, {AROUND:g} s for a generation"
)


def gb(bytes_: float) -> str:
    """Format bytes in GB, to a tenth."""
    return f"{bytes_ / GB:.1f} GB"


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU; the last three are of all GPUs together."""

    setup: Setup
    card: int
    weights: int
    gradients: int
    optimizer: int
    reference: int
    activations: int  # of one micro-batch
    overhead: int  # assumed, at any time
    gathered: int  # whole weights, if ZeRO-3 trains an adapter, which is merged into them at each sync
    engine: int  # vLLM's share, awake
    engine_weights: int  # in that share
    cache_needed: int  # for all sequences of a generation at once
    host: int  # in the host's memory
    checkpoint: int  # on disk, with the optimizer
    model: int  # on disk, as saved at the end

    @property
    def state(self) -> int:
        """Training state, which stays while the engine generates."""
        return self.weights + self.gradients + self.optimizer + self.reference

    @property
    def disk(self) -> int:
        """Peak of the run's bytes on disk."""
        return self.setup.checkpoints * self.checkpoint + self.model

    @property
    def engine_cache(self) -> int:
        """Bytes that vLLM's share leaves to its cache; negative if it is too small."""
        return self.engine - self.engine_weights - ENGINE_OVERHEAD

    @property
    def generation(self) -> int:
        """Peak while the engine is awake; in a sync after a sleep, the engine has its weights but no cache yet."""
        synced = self.engine_weights + ENGINE_OVERHEAD if self.setup.sleep else self.engine
        return self.state + self.overhead + max(self.engine, synced + self.gathered if self.gathered else 0)

    @property
    def training(self) -> int:
        """Peak of an optimizer step."""
        return self.state + self.activations + self.overhead + (0 if self.setup.sleep else self.engine)

    @property
    def cannot_fit(self) -> bool:
        """Training state and vLLM's share do not fit the card together, so the run is sure to fail.

        With sleep mode it fails when the engine wakes up for the second time.
        """
        return self.state + self.engine >= self.card

    @property
    def problems(self) -> list[str]:
        """Descriptions of peaks that leave less than `MARGIN` free, and of a cache that is too small."""
        room = (1 - MARGIN) * self.card
        served = self.setup.served
        peaks = {"training": self.training} if served else {"generation": self.generation, "training": self.training}
        problems = [f"{name} takes {gb(peak)} of {gb(room)}" for name, peak in peaks.items() if peak > room]
        if not served and self.engine_cache < self.cache_needed / WAVES:
            problems.append(
                f"vLLM's share of {gb(self.engine)} leaves {gb(max(0, self.engine_cache))} to its cache, which holds "
                f"less than 1/{WAVES} of the sequences"
            )
        return problems


def saved(setup: Setup) -> int:
    """Return the bytes that a layer keeps of a micro-batch for its backward pass, with `sdpa` or `eager` attention."""
    model = setup.architecture
    tokens = setup.batch * setup.context
    # A layer keeps its norms' inputs in fp32 and their results, all inputs of linear layers and attention, and the
    # attention's output. Under autocast, fp32 weights make the norms' results fp32, and linear layers keep bf16 copies.
    norms = 8 * model.normed + 10 * model.hidden if setup.dtype == 4 else 6 * model.normed + 4 * model.hidden
    # Eager attention keeps its probabilities in fp32 and in bf16.
    head = 8 * model.head + 4 + (6 * setup.context if setup.eager else 0)
    attention = head * model.heads * model.attending // model.layers
    # Inputs and outputs for each expert of a token. Experts compute in their weights' dtype, even under autocast.
    mlp = 8 * model.mlp + 4 * model.routed * model.hidden
    if model.routed:
        mlp = mlp * setup.dtype // 2
    # Each layer also has a padding mask of its own: for each token, 2 bytes for each position of the context.
    return tokens * (norms + attention + mlp + 2 * setup.context)


def activations(setup: Setup) -> int:
    """Return the bytes of a micro-batch at the peak of forward and backward pass, with the output head's gradient."""
    model = setup.architecture
    tokens = setup.batch * setup.context
    layer = saved(setup)
    gradients = layer // 2  # of one layer's activations; measured on a CPU: 0.36 to 0.42 of what the layer keeps
    if setup.rank is not None:
        gradients += 4 * tokens * model.mlp  # PEFT casts inputs of an adapter to fp32
    # The head's gradient is in fp32, as TRL computes it in chunks; with an adapter there is none.
    head = 4 * model.output_head if setup.rank is None else 0
    # Autocast's bf16 copies of fp32 weights stay until the forward pass ends.
    copies = 2 * model.layers * model.layer if setup.dtype == 4 and setup.rank is None else 0
    if not setup.checkpointing:
        return model.layers * layer + copies + gradients + head
    inputs = model.layers * setup.dtype * tokens * model.hidden  # from which layers are recomputed
    return inputs + max(layer + gradients, copies) + head


def memory(setup: Setup, card: int) -> Memory:
    """Return the memory of a setup on a card with `card` bytes.

    A micro-batch is one backward pass, during which ZeRO-2 and ZeRO-3 shard its gradients.
    """
    model = setup.architecture
    shards = setup.gpus
    parameters = model.parameters
    # Without DeepSpeed, PEFT keeps adapters in fp32, whatever the weights' dtype.
    trained = parameters if setup.adapter is None else setup.adapter
    dtype = setup.dtype if setup.adapter is None or setup.zero > 0 else 4
    masters = dtype == 2 and setup.zero > 0  # DeepSpeed keeps fp32 weights in addition
    per_parameter = 12 if masters else 2 * dtype  # Adam's two moments have the weights' dtype

    def shared(total: int, from_stage: int) -> int:
        return total // shards if setup.zero >= from_stage else total

    optimizer = shared(per_parameter * trained, 1)
    gradients = (4 if setup.zero else dtype) * trained  # E1Config: fp32 under ZeRO
    if setup.zero == 0 and setup.gpus > 1:
        gradients *= 2  # DistributedDataParallel's buckets hold a second copy
    overhead = OVERHEAD
    if setup.gpus > 1:
        overhead += COMMUNICATION + (FRAGMENTS if setup.sleep else 0)
    sequences = setup.rollouts // setup.gpus * setup.tensor_parallel
    # In a checkpoint: the saved model, and under ZeRO-1 and ZeRO-2 DeepSpeed's own copy of the weights.
    copies = 2 if 0 < setup.zero < 3 else 1
    whole = (copies * dtype + per_parameter) * trained
    return Memory(
        setup=setup,
        card=card,
        weights=shared(setup.dtype * parameters + dtype * (setup.adapter or 0), 3),
        gradients=0 if setup.offload else shared(gradients, 2),
        optimizer=0 if setup.offload else optimizer,
        # With an adapter, the model without it is the reference.
        reference=shared(setup.dtype * parameters, 3) if setup.reference and setup.adapter is None else 0,
        activations=activations(setup),
        overhead=overhead,
        gathered=setup.dtype * parameters if setup.rank is not None and setup.zero == 3 else 0,
        engine=0 if setup.served else int(setup.utilization * card),
        engine_weights=2 * parameters // setup.tensor_parallel,
        cache_needed=sequences * setup.context * model.kv_bytes // setup.tensor_parallel,
        # DeepSpeed keeps fp32 gradients twice there: as it accumulates them, and as its Adam reads them.
        host=optimizer * shards + 8 * trained if setup.offload else 0,
        checkpoint=dtype * trained if setup.only_weights else whole,
        model=dtype * trained,
    )


def widths(setup: Setup, prompt: float) -> dict[str, tuple[float, float]]:
    """Return for each layout the mean width of a row, padding included, in scoring passes and in learning passes.

    Padded rows are as wide as the longest of all, packed rows have no padding. Trimmed rows are as wide as the longest
    row of their pass, whose mean is computed for evenly spread lengths. Scoring sorts the rows first; its padding is
    neglected.
    """
    longest = prompt + setup.context - setup.prompt
    packed = prompt + USED * (setup.context - setup.prompt)
    trimmed = packed + (longest - packed) * (setup.batch - 1) / (setup.batch + 1)  # mean of a pass's longest
    return {"padded": (longest, longest), "trimmed": (packed, trimmed), "packed": (packed, packed)}


def seconds(taken: Memory, prompt: float, layout: str) -> float:
    """Return the seconds of a generation and one update from it; `prompt` is the mean prompt's tokens."""
    setup = taken.setup
    model = setup.architecture
    rows = setup.rollouts / setup.gpus
    lengths = widths(setup, prompt)
    scored, learned = lengths[layout]
    cache = rows * lengths["packed"][0] * model.kv_bytes  # of all sequences at once
    waves = max(1.0, cache / taken.engine_cache)
    step = STEP + (taken.engine_weights + cache / waves / 2) / READ  # on average, half of a sequence is in the cache

    def forward(positions: float) -> float:
        attention = 2 * model.attending * model.heads * model.head * positions**2  # causal
        return 2 * (model.layers * model.active + model.output_head) * positions + attention

    scorings = 1 + setup.reference  # passes of the old policy and, if there is one, of the reference
    learnings = 4 if setup.checkpointing else 3  # a backward pass takes as long as two forward passes
    operations = rows * (scorings * forward(scored) + learnings * forward(learned))
    sent = 0.0
    if setup.zero == 3:  # each forward and backward pass gathers the weights of the other GPUs
        gathers = rows / setup.batch * (scorings + 2)
        sent = gathers * setup.dtype * model.parameters * (1 - 1 / setup.gpus)
    decoding = waves * (setup.context - setup.prompt) * step
    return decoding + operations / COMPUTED + sent / SENT + AROUND


def read_rows(setup: Setup, fields: Mapping[str, Any]) -> tuple[float, str]:
    """Return a recipe's mean prompt, in tokens, as in the paper's data, and its layout of rows."""
    attention = fields["attn_implementation"] or ""
    layout = "packed" if attention == VARLEN or "flash" in attention else "trimmed"  # if the model allows it
    prompt = PROGRAMS if fields.get("grader") == "programs" else MATHEMATICS
    return min(setup.prompt, prompt), layout if fields["padding_free"] else "padded"
