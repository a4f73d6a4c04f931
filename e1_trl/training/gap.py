"""How far vLLM's log-probabilities are from the trainer's, from one generation to the next."""

import logging
import math

logger = logging.getLogger(__name__)

FIRST = 5  # generations that say what is usual in this run
RISE = 3.0  # times the largest of these
GROSS = 0.1  # nats; rounding in bfloat16 is well below, other weights or another distribution are not


class LogprobGap:
    """Warns when the gap grows out of what the run began with, or is gross from the start, and refuses NaN.

    The gap is the mean absolute difference of the two log-probabilities of each token, in nats.
    """

    def __init__(self) -> None:
        self._first: list[float] = []
        self._bound = GROSS

    def see(self, gap: float, step: int) -> None:
        """Take note of the gap of the generation at this step.

        Raises:
            RuntimeError: it is no finite number.
        """
        if not math.isfinite(gap):
            raise RuntimeError(
                f"step {step}: vLLM's and the trainer's log-probabilities differ by {gap} nats a token: one of them "
                "computes no numbers any more"
            )
        if gap > self._bound:
            usual = f"; in this run's first generations it was at most {max(self._first):.3g}" if self._first else ""
            logger.warning(
                "step %d: vLLM's log-probabilities differ from the trainer's by %.3g nats a token on average%s: its "
                "precision is too low, or top_p, top_k, min_p or a penalty makes it sample from another distribution "
                "than the trainer computes",
                *(step, gap, usual),
            )
            self._bound = 2 * gap  # warn again only of worse
        if len(self._first) < FIRST:
            self._first.append(gap)
            if len(self._first) == FIRST:
                self._bound = RISE * max(self._first)
