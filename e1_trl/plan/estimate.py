"""Bytes on one GPU, whether they fit, and seconds of a generation. Pure arithmetic; assumptions are constants."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from e1_trl.plan.setup import Setup
from e1_trl.training.arguments import VARLEN

GB = 10**9
OVERHEAD = 2 * GB  # assumed: CUDA context, workspaces, fragments, and what a sleeping engine keeps
COMMUNICATION = 3 * GB  # assumed, where there are several GPUs: NCCL, and ZeRO's buckets
FRAGMENTS = 2 * GB  # assumed, where an engine wakes up beside these: what buckets and allocator keep of a training step
ENGINE_OVERHEAD = 3 * GB  # assumed, of vLLM's share: activations of its largest batch, CUDA graphs
MARGIN = 0.03  # of a card, left free for what nobody has thought of
WAVES = 5  # in which sequences may have to be sampled before that is called a problem
# Tokens of the mean prompt, as counted in DeepScaleR's problems of mathematics and DeepCoder's of programs.
MATHEMATICS, PROGRAMS = 101, 450
# Assumed, of an H100: bytes and operations per second that kernels reach, and seconds of a step of the engine besides.
READ, COMPUTED, STEP = 2.0e12, 4.0e14, 0.002
SENT = 3.0e11  # bytes per second between GPUs over NVLink, assumed; nothing of it hidden behind computing
AROUND = 3.0  # seconds, assumed: weights sent to the engine and compared, optimizer
USED = 0.7  # of its budget, by the mean completion, assumed; the longest takes it whole
ASSUMED = (
    f"completions of {USED:.0%} of their budget; of an H100 {READ / 1e12:g} TB/s, {COMPUTED / 1e12:g} TFLOP/s, "
    f"{SENT / 1e9:g} GB/s between GPUs, {STEP * 1000:g} ms a step of the engine, {AROUND:g} s around it"
)


def gb(bytes_: float) -> str:
    """Write bytes in GB, to a tenth."""
    return f"{bytes_ / GB:.1f} GB"


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU, but for the last three, which are of all GPUs together."""

    setup: Setup
    card: int
    weights: int
    gradients: int
    optimizer: int
    reference: int
    activations: int  # of one micro-batch
    overhead: int  # assumed, at any time
    engine: int  # vLLM's share, awake
    engine_weights: int  # in its share
    cache_needed: int  # for all of a generation's sequences at once
    host: int  # in the host's memory
    checkpoint: int  # on disk, with its optimizer
    model: int  # on disk, as it is saved at the end

    @property
    def state(self) -> int:
        """The training state, which stays while the engine generates."""
        return self.weights + self.gradients + self.optimizer + self.reference

    @property
    def disk(self) -> int:
        """The most bytes that the run holds on disk."""
        return self.setup.checkpoints * self.checkpoint + self.model

    @property
    def engine_cache(self) -> int:
        return self.engine - self.engine_weights - ENGINE_OVERHEAD

    @property
    def generation(self) -> int:
        """The peak while the engine is awake."""
        return self.state + self.engine + self.overhead

    @property
    def training(self) -> int:
        """The peak of an optimizer step."""
        return self.state + self.activations + self.overhead + (0 if self.setup.sleep else self.engine)

    @property
    def breaks_the_rule(self) -> bool:
        """Training state and vLLM's share exceed the card: it ends at the engine's second wake-up, for certain."""
        return self.state + self.engine >= self.card

    @property
    def problems(self) -> list[str]:
        """What does not fit, or barely; empty if all does."""
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
    """Bytes that a layer keeps of a micro-batch for its backward pass, with attention by `sdpa`."""
    model, tokens = setup.architecture, setup.batch * setup.context
    # The norms' inputs in fp32 and results; of linear layers and attention all inputs, and the attention's output.
    # Under autocast fp32 weights make the norms' results fp32, too, and each linear layer has a bf16 copy of its own.
    norms = 8 * model.normed + 10 * model.hidden if setup.dtype == 4 else 6 * model.normed + 4 * model.hidden
    attention = 8 * model.heads * model.head
    # A layer also makes its own of the padding mask: a row of the context for each token.
    return tokens * (norms + attention + 8 * model.mlp + 4 * model.heads + 2 * setup.context)


def activations(setup: Setup) -> int:
    """Bytes of a micro-batch at the peak of forward and backward pass, the output head's gradient included."""
    model, tokens, layer = setup.architecture, setup.batch * setup.context, saved(setup)
    gradients = layer // 2  # of a layer's activations, at once: on a CPU 0.36 to 0.42 of what it keeps
    if setup.adapter is not None:
        gradients += 4 * tokens * model.mlp  # PEFT casts what enters an adapter to fp32
    # In fp32, as TRL makes it in chunks; an adapter leaves the head as it is.
    head = 4 * model.output_head if setup.adapter is None else 0
    # Autocast's bf16 copies of fp32 weights stay until the forward pass ends.
    copies = 2 * model.layers * model.layer if setup.dtype == 4 and setup.adapter is None else 0
    if not setup.checkpointing:
        return model.layers * layer + copies + gradients + head
    inputs = model.layers * setup.dtype * tokens * model.hidden  # from which layers are computed again
    return inputs + max(layer + gradients, copies) + head


def memory(setup: Setup, card: int) -> Memory:
    """What a setup takes on a card of so many bytes.

    A micro-batch is learned from in one pass, so that ZeRO-2 and ZeRO-3 share gradients out as they come.
    """
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
    gradients = (4 if setup.zero else dtype) * trained  # E1Config: fp32 under ZeRO
    if setup.zero == 0 and setup.gpus > 1:
        gradients *= 2  # DistributedDataParallel's buckets hold all of them once more
    overhead = OVERHEAD
    if setup.gpus > 1:
        overhead += COMMUNICATION + (FRAGMENTS if setup.sleep else 0)
    sequences = setup.rollouts // setup.gpus * setup.tensor_parallel
    # The saved model, the optimizer, and under ZeRO-1 and ZeRO-2 DeepSpeed's own copy of the weights.
    copies = 2 if 0 < setup.zero < 3 else 1
    return Memory(
        setup=setup,
        card=card,
        weights=shared(setup.dtype * parameters + dtype * (setup.adapter or 0), 3),
        gradients=shared(gradients, 2),
        optimizer=0 if setup.offload else optimizer,
        # The model without its adapter is its reference.
        reference=shared(setup.dtype * parameters, 3) if setup.reference and setup.adapter is None else 0,
        activations=activations(setup),
        overhead=overhead,
        engine=0 if setup.served else int(setup.utilization * card),
        engine_weights=2 * parameters // setup.tensor_parallel,
        cache_needed=sequences * setup.context * model.kv_bytes // setup.tensor_parallel,
        host=optimizer * shards if setup.offload else 0,
        checkpoint=(copies * dtype + per_parameter) * trained,
        model=dtype * trained,
    )


def widths(setup: Setup, prompt: float) -> dict[str, tuple[float, float]]:
    """Positions of a row by layout: in the scoring passes, and in those that are learned from.

    Padded rows are as long as the longest of all, packed ones as themselves. Trimmed rows are as long as the longest of
    their pass, with lengths assumed to be spread evenly; of scoring passes, whose rows are sorted, that is themselves.
    """
    longest = prompt + setup.context - setup.prompt
    packed = prompt + USED * (setup.context - setup.prompt)
    trimmed = packed + (longest - packed) * (setup.batch - 1) / (setup.batch + 1)  # the longest of so many, on average
    return {"padded": (longest, longest), "trimmed": (packed, trimmed), "packed": (packed, packed)}


def seconds(taken: Memory, prompt: float, layout: str) -> float:
    """Of a generation and what is learned from it, once, with so many tokens in the mean prompt."""
    setup, model = taken.setup, taken.setup.architecture
    rows = setup.rollouts / setup.gpus
    widest, (mean, _) = widths(setup, prompt), widths(setup, prompt)["packed"]
    scored, learned = widest[layout]
    cache = rows * mean * model.kv_bytes  # of all sequences at once
    waves = max(1.0, cache / taken.engine_cache)
    step = STEP + (taken.engine_weights + cache / waves / 2) / READ  # half of a sequence is there, on average

    def forward(positions: float) -> float:
        attention = 2 * model.layers * model.heads * model.head * positions**2  # causal
        return 2 * (model.layers * model.layer + model.output_head) * positions + attention

    scorings = 1 + setup.reference  # of the policy that sampled, first
    learnings = 4 if setup.checkpointing else 3  # backward is two
    operations = rows * (scorings * forward(scored) + learnings * forward(learned))
    sent = 0.0
    if setup.zero == 3:  # each pass gathers the weights of the other GPUs, and so does each backward pass
        gathers = rows / setup.batch * (scorings + 2)
        sent = gathers * setup.dtype * model.parameters * (1 - 1 / setup.gpus)
    decoding = waves * (setup.context - setup.prompt) * step
    return decoding + operations / COMPUTED + sent / SENT + AROUND


def read_rows(setup: Setup, fields: Mapping[str, Any]) -> tuple[float, str]:
    """Tokens of the mean prompt, as in the paper's data, and the layout of rows that a recipe's fields ask for."""
    attention = fields["attn_implementation"] or ""
    layout = "packed" if attention == VARLEN or "flash" in attention else "trimmed"  # if the model allows it
    prompt = PROGRAMS if fields.get("grader") == "programs" else MATHEMATICS
    return min(setup.prompt, prompt), layout if fields["padding_free"] else "padded"
