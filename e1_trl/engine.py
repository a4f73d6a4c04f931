"""Drives requests over vLLM: in process (`serve`), or through an OpenAI-compatible server (`serve_remotely`).

Both do the same thing: every segment is answered the moment it is sampled, and what the answer asks for next enters the
running engine at once. The solution of a rollout (`stream`, `stream_server`) is thus requested when its own thinking
ends: no sequence waits for the slowest thinker, and the prefix cache holds all of it but the last, unfinished block.
Nothing in process depends on time or on the order of a set: two engines that get the same requests and sample the same
tokens take the same steps, which tensor-parallel groups rely on.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, TypeVar

from openai import OpenAI
from vllm import LLM, CompletionOutput, RequestOutput, SamplingParams
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from e1_trl.budget import Marker
from e1_trl.rollout import Request, Rollout, Segment, Stop

SERVER_CONCURRENCY = 256

Key = TypeVar("Key")
Requests = Iterable[tuple[Key, Request]]
Answer = Callable[[Key, Segment], Requests[Key]]  # what to request next, if anything


def stop_arguments(request: Request, marker: Marker) -> dict[str, Any]:
    """The sampling parameters that make vLLM stop at the marker.

    A marker of one token is stopped at by its id. One of several tokens can be sampled in more than one tokenization
    (its last character merged with a newline, say), so there vLLM's own incremental detokenizer looks for it, and the
    thinking ends with the token that completes it.
    """
    if not request.stop_at_marker:
        return {}
    return {"stop_token_ids": [marker.ids[0]]} if len(marker.ids) == 1 else {"stop": [marker.text]}


def read_stop(finish_reason: str | None, stop_reason: int | str | None, request: Request, marker: Marker) -> Stop:
    """Translate vLLM's reasons for ending a request.

    Raises:
        RuntimeError: the request was aborted or failed.
    """
    if finish_reason == "length":
        return Stop.LENGTH
    if finish_reason != "stop":
        raise RuntimeError(f"vLLM ended a request with finish_reason={finish_reason!r}; expected 'stop' or 'length'")
    at_marker = stop_reason == (marker.ids[0] if len(marker.ids) == 1 else marker.text)
    # Every other stop token is one of the end-of-sequence tokens that the model's generation config declares.
    return Stop.MARKER if request.stop_at_marker and at_marker else Stop.EOS


def sampling_params(request: Request, marker: Marker, sampling: dict[str, Any]) -> SamplingParams:
    """What vLLM is asked for: `sampling` holds temperature, top_p and the like."""
    arguments = dict(sampling)
    if request.native_thinking_budget is not None:
        arguments["thinking_token_budget"] = request.native_thinking_budget
    if isinstance(structured_outputs := arguments.get("structured_outputs"), dict):
        arguments["structured_outputs"] = StructuredOutputsParams(**structured_outputs)
    return SamplingParams(
        max_tokens=request.max_tokens,
        logprobs=0,
        detokenize=request.stop_at_marker and len(marker.ids) > 1,
        output_kind=RequestOutputKind.FINAL_ONLY,
        **stop_arguments(request, marker),
        **arguments,
    )


def read_segment(output: CompletionOutput, request: Request, marker: Marker) -> Segment:
    assert output.logprobs is not None
    token_ids = list(output.token_ids)
    return Segment(
        token_ids,
        [candidates[token].logprob for token, candidates in zip(token_ids, output.logprobs, strict=True)],
        read_stop(output.finish_reason, output.stop_reason, request, marker),
    )


def serve(
    llm: LLM,
    requests: Requests[Key],
    answer: Answer[Key],
    marker: Marker,
    sampling: dict[str, Any],
    concurrency: int | None = None,
) -> None:
    """Serve requests, and those that answers to them lead to, on an in-process engine.

    Args:
        llm: an engine that nobody else steps meanwhile.
        requests: taken lazily: a new one is taken only while fewer than `concurrency` are in flight.
        answer: is given each finished segment with its request's key, and returns the requests that follow from it.
        marker: what ends the thinking.
        sampling: temperature, top_p and the like.
        concurrency: `None` queues everything at once.
    """
    engine = llm.llm_engine
    waiting = iter(requests)
    in_flight: dict[str, tuple[Key, Request, str]] = {}
    submitted = 0

    def submit(key: Key, request: Request) -> None:
        nonlocal submitted
        name = str(submitted)
        submitted += 1
        prompt = {"prompt_token_ids": request.prompt_ids}
        internal_id = engine.add_request(name, prompt, sampling_params(request, marker, sampling))
        in_flight[name] = key, request, internal_id

    try:
        while True:
            room = None if concurrency is None else max(0, concurrency - len(in_flight))
            for key, request in islice(waiting, room):
                submit(key, request)
            if not in_flight:
                return
            for output in engine.step():
                assert isinstance(output, RequestOutput)
                key, request, _ = in_flight.pop(output.request_id)
                for follower in answer(key, read_segment(output.outputs[0], request, marker)):
                    submit(*follower)
    finally:
        # Nothing is left over unless a step failed or was interrupted; the engine is then free for the next caller.
        engine.abort_request([internal_id for _, _, internal_id in in_flight.values()], internal=True)


def serve_remotely(
    client: OpenAI,
    model: str,
    requests: Requests[Key],
    answer: Answer[Key],
    marker: Marker,
    sampling: dict[str, Any],
    concurrency: int = SERVER_CONCURRENCY,
) -> None:
    """Serve requests as `serve` does, on a server of the OpenAI completions API, `concurrency` of them at a time.

    Prompts travel as token ids, and so do completions (`return_token_ids`), so nothing is tokenized twice. The client
    retries what can be retried.

    Raises:
        openai.OpenAIError: the server refused a request, or stayed out of reach after the client's retries.
    """
    waiting = iter(requests)
    in_flight: dict[Future[Segment], Key] = {}
    with ThreadPoolExecutor(concurrency) as pool:

        def submit(key: Key, request: Request) -> None:
            in_flight[pool.submit(_complete, client, model, request, marker, sampling)] = key

        try:
            while True:
                for key, request in islice(waiting, max(0, concurrency - len(in_flight))):
                    submit(key, request)
                if not in_flight:
                    return
                for future in wait(in_flight, return_when=FIRST_COMPLETED).done:
                    for follower in answer(in_flight.pop(future), future.result()):
                        submit(*follower)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _complete(client: OpenAI, model: str, request: Request, marker: Marker, sampling: dict[str, Any]) -> Segment:
    # The OpenAI client knows a part of vLLM's sampling parameters; all of them may go in the body.
    body = {"return_token_ids": True, **sampling, **stop_arguments(request, marker)}
    if request.native_thinking_budget is not None:
        body["thinking_token_budget"] = request.native_thinking_budget
    response = client.completions.create(
        model=model, prompt=request.prompt_ids, max_tokens=request.max_tokens, logprobs=0, extra_body=body
    )
    choice = response.choices[0]
    extra = choice.model_extra or {}
    if "token_ids" not in extra:
        raise ValueError("the server returns no token ids; it must know return_token_ids, as vLLM and SGLang do")
    token_ids = extra["token_ids"]
    # A server that returns no log-probabilities for `logprobs=0` is good enough to evaluate with.
    given = choice.logprobs.token_logprobs if choice.logprobs else None
    logprobs = [float("nan") if value is None else value for value in given or [None] * len(token_ids)]
    stop_reason = extra.get("stop_reason", extra.get("matched_stop"))  # as vLLM calls it, and SGLang
    return Segment(token_ids, logprobs, read_stop(choice.finish_reason, stop_reason, request, marker))


def _first(rollouts: Sequence[Rollout]) -> Iterator[tuple[Rollout, Request]]:
    return ((rollout, rollout.request) for rollout in rollouts if rollout.request is not None)


def _next(rollout: Rollout, segment: Segment) -> Iterator[tuple[Rollout, Request]]:
    rollout.receive(segment)
    return _first([rollout])


def stream(llm: LLM, rollouts: Sequence[Rollout], marker: Marker, sampling: dict[str, Any]) -> None:
    """Run all rollouts to their end on an in-process engine.

    With more sequences than slots (`max_num_seqs`), vLLM's first-come-first-served queue starts all thinking before the
    first solution, so that slots never idle while there is a sequence to think, and the short solutions come last.
    """
    serve(llm, _first(rollouts), _next, marker, sampling)


def stream_server(
    client: OpenAI, model: str, rollouts: Sequence[Rollout], marker: Marker, sampling: dict[str, Any]
) -> None:
    """Run all rollouts to their end on a server, as `serve_remotely` says."""
    serve_remotely(client, model, _first(rollouts), _next, marker, sampling)
