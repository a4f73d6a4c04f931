"""How far the policy that vLLM samples from is from the trainer's, as it is measured while training."""

import logging

from e1_trl.errors import TROUBLESHOOTING

logger = logging.getLogger(__name__)

FIRST = 5  # generations that say what is usual in this run
RISE = 3.0  # times the largest of these
GROSS = 0.1  # nats; rounding in bfloat16 is well below, other weights or another distribution are not


class LogprobGap:
    """Warns when the gap grows out of what the run began with, or is gross from the start.

    The gap is the mean absolute difference of the two log-probabilities of each token, in nats; TRL leaves NaN out.
    """

    def __init__(self) -> None:
        self._first: list[float] = []
        self._bound = GROSS

    def see(self, gap: float, step: int) -> None:
        """Take note of the gap of the generation at this step."""
        if gap > self._bound:
            usual = f"; in this run's first generations it was at most {max(self._first):.3g}" if self._first else ""
            logger.warning(
                "step %d: vLLM's log-probabilities differ from the trainer's by %.3g nats a token on average%s: its "
                "precision is too low, or top_p, top_k, min_p or a penalty makes it sample from another distribution "
                "than the trainer computes; %s",
                *(step, gap, usual, TROUBLESHOOTING),
            )
            self._bound = 2 * gap  # warn again only of worse
        if len(self._first) < FIRST:
            self._first.append(gap)
            if len(self._first) == FIRST:
                self._bound = RISE * max(self._first)
