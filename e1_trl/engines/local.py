"""vLLM in this process. Importing this module imports vLLM.

Nothing depends on time or on the order of a set: two engines that get the same requests and sample the same tokens take
the same steps, which tensor-parallel groups rely on. docs/internals.md lists what is assumed of vLLM on CUDA, where a
step's samples come a step late.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import torch
from vllm import LLM, CompletionOutput, SamplingParams
from vllm.compilation.wrapper import TorchCompileWithNoGuardsWrapper
from vllm.lora.request import LoRARequest
from vllm.sampling_params import RequestOutputKind

from e1_trl.engines.engine import (
    CPU_CACHE,
    Follow,
    Key,
    Requests,
    SamplingSettings,
    Stepped,
    UnusableEngineError,
    ignore,
    read_stop,
    request_parameters,
)
from e1_trl.errors import one_line
from e1_trl.marker import Marker
from e1_trl.rollout import Request, Segment, Stop

SLOTS = 256  # sequences sampled at a time, by default


def restore_calls(model: torch.nn.Module) -> None:
    """Restore `__call__`, which runs hooks, for the trainer's model: vLLM replaces it in classes that both use."""
    for each in {type(module) for module in model.modules()}:
        if issubclass(each, TorchCompileWithNoGuardsWrapper):
            each.__call__ = lambda module, *args, compiled=each.__call__, **inputs: (
                compiled if "vllm_config" in vars(module) else torch.nn.Module.__call__
            )(module, *args, **inputs)


def sampling_params(request: Request, marker: Marker, sampling: SamplingSettings) -> SamplingParams:
    parameters = request_parameters(request, marker, sampling)
    return SamplingParams(
        max_tokens=request.max_tokens,
        detokenize="stop" in parameters,
        output_kind=RequestOutputKind.FINAL_ONLY,
        **parameters,
    )


def read_segment(output: CompletionOutput, request: Request, marker: Marker) -> Segment:
    token_ids = list(output.token_ids)
    logprobs = [candidates[token].logprob for token, candidates in zip(token_ids, output.logprobs, strict=True)]
    stop = read_stop(output.finish_reason, output.stop_reason, request, marker)
    return Segment(token_ids, stop, logprobs)


@dataclass
class LocalEngine:
    """vLLM in this process, which nobody else steps meanwhile."""

    llm: LLM
    marker: Marker
    sampling: SamplingSettings
    concurrency: int | None = None  # requests in flight at a time; None queues all of them at once
    adapter: LoRARequest | None = None  # of all requests

    def __post_init__(self) -> None:
        # Names are never repeated: a step that was started for an earlier generation may still be in flight.
        self._names = map(str, count())

    @classmethod
    def start(
        cls,
        model: str,
        marker: Marker,
        sampling: SamplingSettings,
        concurrency: int = SLOTS,
        adapter: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> "LocalEngine":
        """Load a model, and a LoRA adapter of it, each from a folder or the Hub; `options` are those of `vllm.LLM`."""
        arguments: dict[str, Any] = {"max_num_seqs": concurrency, "language_model_only": True, **(options or {})}
        if adapter is not None:
            arguments["enable_lora"] = True
        if not torch.cuda.is_available():
            arguments.setdefault("kv_cache_memory_bytes", CPU_CACHE)
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # the engine is stepped in this process
        try:  # vLLM raises all of these for a model or an argument that it does not support
            llm = LLM(model, **arguments)
        except (TypeError, ValueError, RuntimeError, OSError) as error:
            raise UnusableEngineError(f"vLLM cannot start {model}: {one_line(error)}") from error
        return cls(llm, marker, sampling, concurrency, None if adapter is None else LoRARequest("e1", 1, adapter))

    def serve(self, requests: Requests[Key], follow: Follow[Key], stepped: Stepped[Key] = ignore) -> None:
        """See `Engine.serve`."""
        engine = self.llm.llm_engine
        waiting = iter(requests)
        in_flight: dict[str, tuple[Key, Request, str]] = {}

        def submit(key: Key, request: Request) -> None:
            name = next(self._names)
            prompt = {"prompt_token_ids": request.prompt_ids}
            params = sampling_params(request, self.marker, self.sampling)
            in_flight[name] = (key, request, engine.add_request(name, prompt, params, lora_request=self.adapter))

        def sampled() -> Iterator[tuple[Key, Segment]]:
            for key, _, internal_id in in_flight.values():
                state = engine.output_processor.request_states[internal_id]
                output = state._new_completion_output([], None, None)
                if output.token_ids:
                    yield key, Segment(list(output.token_ids), Stop.LENGTH)

        try:
            while True:
                room = None if self.concurrency is None else max(0, self.concurrency - len(in_flight))
                for key, request in islice(waiting, room):
                    submit(key, request)
                if not in_flight:
                    return
                for output in engine.step():
                    key, request, _ = in_flight.pop(output.request_id)
                    for follower in follow(key, read_segment(output.outputs[0], request, self.marker)):
                        submit(*follower)
                stepped(sampled)
        finally:
            # Requests are left only if a step failed or was interrupted; without them the next caller can go on.
            engine.abort_request([internal_id for _, _, internal_id in in_flight.values()], internal=True)
