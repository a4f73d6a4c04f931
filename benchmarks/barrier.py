"""The two-barrier form of a budgeted rollout: all thinking, then all solutions. It exists only to be compared with."""

from collections.abc import Sequence

from e1_trl.engines.local import LocalEngine, read_segment, sampling_params
from e1_trl.rollout import Rollout


def barrier(engine: LocalEngine, rollouts: Sequence[Rollout]) -> None:
    """Run all rollouts to their end, one phase at a time."""
    while waiting := [(rollout, rollout.request) for rollout in rollouts if rollout.request is not None]:
        outputs = engine.llm.generate(
            [{"prompt_token_ids": request.prompt_ids} for _, request in waiting],
            [sampling_params(request, engine.marker, engine.sampling) for _, request in waiting],
            use_tqdm=False,
        )
        for (rollout, request), output in zip(waiting, outputs, strict=True):
            rollout.receive(read_segment(output.outputs[0], request, engine.marker))
