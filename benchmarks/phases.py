"""Where an optimizer step spends its time, by TRL's own profiling contexts."""

import time
from collections import defaultdict
from typing import Any

from trl.extras.profiling import ProfilingContext

# What TRL times, as a reader knows it. What it times within one of these belongs to that.
PHASES = {
    "sync_weights": "weights to vLLM",
    "vLLM.generate": "generation",
    "_get_per_token_logps_and_entropies": "scoring",
    "_calculate_rewards": "rewards",
    "_prepare_inputs": "rest of the preparation",
    "compute_loss": "loss, forward",
}
PREPARATION = "_prepare_inputs"  # all up to the loss; what is timed within it is taken off
REST = "backward, optimizer, rest"


class Phases:
    """Seconds within TRL's profiling contexts, from now on; TRL itself sends them to a logger only."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._open: list[tuple[str, float]] = []
        enter, leave = ProfilingContext.__enter__, ProfilingContext.__exit__

        def entered(context: ProfilingContext) -> ProfilingContext:
            self._open.append((context.name.partition(".")[2], time.perf_counter()))
            return enter(context)

        def left(context: ProfilingContext, *error: Any) -> bool:
            name, start = self._open.pop()
            self._add(name, time.perf_counter() - start)
            return leave(context, *error)

        ProfilingContext.__enter__, ProfilingContext.__exit__ = entered, left

    def _add(self, name: str, seconds: float) -> None:
        around = [name for name, _ in self._open]
        if around in ([], [PREPARATION]):
            self._seconds[PHASES[name]] += seconds
        if around == [PREPARATION]:
            self._seconds[PHASES[PREPARATION]] -= seconds

    def take(self, wall_s: float) -> dict[str, float]:
        """The seconds of each phase since the last time; with the rest they add up to `wall_s`."""
        found = {phase: self._seconds[phase] for phase in PHASES.values()}
        self._seconds.clear()
        return {**found, REST: wall_s - sum(found.values())}
