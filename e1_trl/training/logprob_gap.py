"""Warnings about the gap between vLLM's and the trainer's log-probabilities."""

import logging

from e1_trl.errors import TROUBLESHOOTING

logger = logging.getLogger(__name__)

FIRST = 5  # generations that set the usual gap of a run
RISE = 3.0  # times the largest of these
GROSS = 0.1  # nats; rounding in bfloat16 stays well below, other weights or another distribution do not


class LogprobGap:
    """Warns if the gap outgrows that of the run's first generations, or is gross from the start.

    The gap is the mean absolute difference of the two log-probabilities of each token, in nats; TRL leaves NaN out.
    """

    def __init__(self) -> None:
        self._first: list[float] = []
        self._bound = GROSS

    def see(self, gap: float, step: int) -> None:
        """Record the gap of the generation at a step."""
        if gap > self._bound:
            usual = f"; in this run's first generations it was at most {max(self._first):.3g}" if self._first else ""
            logger.warning(
                "step %d: vLLM's log-probabilities differ from the trainer's by %.3g nats a token on average%s: its "
                "precision is too low, or top_p, top_k, min_p or a penalty makes it sample from another distribution "
                "than the trainer computes; %s",
                *(step, gap, usual, TROUBLESHOOTING),
            )
            self._bound = 2 * gap  # the next warning
        if len(self._first) < FIRST:
            self._first.append(gap)
            if len(self._first) == FIRST:
                self._bound = RISE * max(self._first)
