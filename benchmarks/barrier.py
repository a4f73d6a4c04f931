"""The two-barrier form of a budgeted rollout: all thinking, then all solutions. It exists only to be compared with."""

from collections.abc import Sequence

from e1_trl.engines.engine import Engine
from e1_trl.rollout import Rollout, Segment


def barrier(engine: Engine, rollouts: Sequence[Rollout]) -> None:
    """Run all rollouts to their end, one phase at a time."""

    def receive(row: int, segment: Segment) -> tuple[()]:
        rollouts[row].receive(segment)
        return ()

    while waiting := [(row, request) for row, each in enumerate(rollouts) if (request := each.request) is not None]:
        engine.serve(waiting, receive)
