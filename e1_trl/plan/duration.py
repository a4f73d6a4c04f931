"""Seconds of one generation and what is learnt from it, estimated; never measured on a GPU."""

from dataclasses import dataclass

from e1_trl.plan.setup import Setup


@dataclass(frozen=True)
class Card:
    """A GPU, with the shares of its nominal speed that are assumed to be reached."""

    name: str
    flops: float  # per second, dense bfloat16
    bandwidth: float  # bytes a second
    computing: float  # share of `flops` in training with padding
    reading: float = 0.6  # share of `bandwidth` while decoding


CARDS = {
    "h100": Card("H100", 989e12, 3.35e12, computing=0.35),
    "a100": Card("A100", 312e12, 2.0e12, computing=0.45),
}
LAUNCH = 0.003  # seconds of one decoding step besides reading memory
SYNC = 3.0  # seconds: weights to the engine, waking, sleeping
GRADING = 2.0  # seconds: grading mathematics, gathering, logging
PROGRAMS = 20.0  # seconds: the same with 1,024 programs on 16 cores, of which one in twenty runs into its time limit


@dataclass(frozen=True)
class Duration:
    """Seconds of one generation with the optimizer steps made of it."""

    decoding: float
    sync: float
    scoring: float  # log-probabilities under the trainer's weights and the reference's
    learning: float
    rest: float
    steps: float

    @property
    def total(self) -> float:
        return self.decoding + self.sync + self.scoring + self.learning + self.rest

    @property
    def per_step(self) -> float:
        return self.total / self.steps


def duration(setup: Setup, card: Card) -> Duration:
    """Every sequence takes its whole budget, is padded to the whole context, and finds room in the cache at once.

    An adapter needs no gradients of the weights beside it, which are half of a backward pass.
    """
    model = setup.architecture
    sequences = setup.rollouts // setup.gpus
    decoded = setup.context - setup.prompt
    weights = 2 * model.parameters / setup.tensor_parallel
    cache = sequences * (setup.prompt + setup.context) / 2 * model.kv_bytes()
    step = (weights + cache) / (card.reading * card.bandwidth) + LAUNCH
    forward = 2 * model.parameters * sequences * setup.context / (card.computing * card.flops)
    passes = (2 if setup.adapter is None else 1) + 1 + setup.checkpointing  # backward, forward, forward once more
    return Duration(
        decoding=decoded * step,
        sync=SYNC,
        scoring=forward * (int(setup.scored_anew) + int(setup.reference)),
        learning=forward * passes * setup.iterations,
        rest=PROGRAMS if setup.programs else GRADING,
        steps=setup.steps,
    )
