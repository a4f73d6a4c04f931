"""Engines and schedulers that are measured: counted work, given lengths, and a barrier to compare with."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from vllm import LLM

from e1_trl.engines.engine import Engine, Follow, InFlight, Key, Requests, SamplingSettings, Stepped, ignore
from e1_trl.engines.local import LocalEngine
from e1_trl.marker import Marker
from e1_trl.rollout import Request, Rollout, Segment, Stop

Imposed = tuple[Key, Request, int]  # a request as it was made, and after how many tokens it would end by itself


def barrier(engine: Engine, rollouts: Sequence[Rollout]) -> None:
    """Run all rollouts in two phases: all thinking, then all solutions. It exists only to be compared with."""

    def receive(row: int, segment: Segment) -> tuple[()]:
        rollouts[row].receive(segment)
        return ()

    while waiting := [(row, request) for row, each in enumerate(rollouts) if (request := each.request) is not None]:
        engine.serve(waiting, receive)


class Counted:
    """Counts the steps of an engine and keeps the requests that it has finished, since it was made or `reset`."""

    def __init__(self, llm: LLM):
        self.reset()
        step = llm.llm_engine.step

        def counted_step() -> list[Any]:
            self.steps += 1
            outputs = step()
            self.finished += [output for output in outputs if output.finished]
            return outputs

        llm.llm_engine.step = counted_step

    def reset(self) -> None:
        """Count from zero again."""
        self.steps = 0
        self.finished: list[Any] = []

    @property
    def sampled_tokens(self) -> int:
        """Tokens that the finished requests have sampled."""
        return sum(len(output.outputs[0].token_ids) for output in self.finished)

    def prefill_tokens(self, holding: int) -> int:
        """Tokens of the finished requests' prompts that were not in the prefix cache, where these hold a token."""
        prompts = [each for each in self.finished if holding in each.prompt_token_ids]
        return sum(len(each.prompt_token_ids) - each.num_cached_tokens for each in prompts)


class ImposedLengths:
    """An engine that ends thinking and solutions where it is told to: its work is that of a model that ends them there.

    Args:
        left: after how many tokens what a request is for would end by itself.

    Attributes:
        tokens: sampled so far.
    """

    def __init__(self, llm: LLM, marker: Marker, left: Callable[[Any, Request], int], slots: int | None = None):
        never_ending = SamplingSettings(extra={"ignore_eos": True, "logit_bias": {marker.ids[0]: -100.0}})
        self.engine = LocalEngine(llm, marker, never_ending, slots)
        self._left = left
        self.tokens = 0

    def serve(self, requests: Requests[Key], follow: Follow[Key], stepped: Stepped[Key] = ignore) -> None:
        """See `Engine.serve`."""

        def shortened(wanted: Requests[Key]) -> Iterator[tuple[Imposed[Key], Request]]:
            for key, request in wanted:
                left = self._left(key, request)
                yield (key, request, left), replace(request, max_tokens=min(request.max_tokens, left))

        def ended(imposed: Imposed[Key], segment: Segment) -> Iterable[tuple[Imposed[Key], Request]]:
            key, request, left = imposed
            self.tokens += len(segment.token_ids)
            if len(segment.token_ids) == left:
                marker, end = self.engine.marker.ids[0], request.prompt_ids[0]
                last, stop = (marker, Stop.MARKER) if request.stop_at_marker else (end, Stop.EOS)
                segment = Segment([*segment.token_ids[:-1], last], stop, segment.logprobs)
            return shortened(follow(key, segment))

        def between(in_flight: InFlight[Imposed[Key]]) -> None:
            stepped(lambda: ((key, segment) for (key, _, _), segment in in_flight()))

        self.engine.serve(shortened(requests), ended, between)
