"""Drives rollouts over vLLM: in process (`stream`), or through an OpenAI-compatible server (`stream_server`).

Both do the same thing: the solution of a sequence is requested the moment its own thinking ends, so that no sequence
waits for the slowest thinker, and the prefix cache holds all of it but the last, unfinished block. Nothing here depends
on time or on the order of a set: two engines that get the same rollouts and sample the same tokens take the same steps,
which tensor-parallel groups rely on.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from openai import OpenAI
from vllm import LLM, CompletionOutput, RequestOutput, SamplingParams
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from e1_trl.budget import Marker
from e1_trl.rollout import Request, Rollout, Segment, Stop

SERVER_CONCURRENCY = 256


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


def stream(llm: LLM, rollouts: Sequence[Rollout], marker: Marker, sampling: dict[str, Any]) -> None:
    """Run all rollouts to their end on an in-process engine.

    With more sequences than slots (`max_num_seqs`), vLLM's first-come-first-served queue starts all thinking before the
    first solution, so that slots never idle while there is a sequence to think, and the short solutions come last.
    """
    engine = llm.llm_engine
    in_flight: dict[str, tuple[Rollout, str]] = {}

    def submit(name: str, rollout: Rollout) -> None:
        assert rollout.request is not None
        prompt = {"prompt_token_ids": rollout.request.prompt_ids}
        internal_id = engine.add_request(name, prompt, sampling_params(rollout.request, marker, sampling))
        in_flight[name] = rollout, internal_id

    try:
        for index, rollout in enumerate(rollouts):
            submit(str(index), rollout)
        while in_flight:
            for output in engine.step():
                assert isinstance(output, RequestOutput)
                rollout, _ = in_flight.pop(output.request_id)
                assert rollout.request is not None
                rollout.receive(read_segment(output.outputs[0], rollout.request, marker))
                if rollout.request is not None:
                    submit(output.request_id, rollout)
    finally:
        # Nothing is left over unless a step failed or was interrupted; the engine is then free for the next caller.
        engine.abort_request([internal_id for _, internal_id in in_flight.values()], internal=True)


def stream_server(
    client: OpenAI, model: str, rollouts: Sequence[Rollout], marker: Marker, sampling: dict[str, Any]
) -> None:
    """Run all rollouts to their end on a server, each sequence's two requests one after the other, all concurrently.

    Prompts travel as token ids, and so do completions (`return_token_ids`), so nothing is tokenized twice. The client
    retries what can be retried.

    Raises:
        openai.OpenAIError: the server refused a request, or stayed out of reach after the client's retries.
    """
    # The OpenAI client knows a part of vLLM's sampling parameters; all of them may go in the body.
    body = {"return_token_ids": True, **sampling}

    def complete(request: Request) -> Segment:
        response = client.completions.create(
            model=model,
            prompt=request.prompt_ids,
            max_tokens=request.max_tokens,
            logprobs=0,
            extra_body={**body, **stop_arguments(request, marker)},
        )
        choice = response.choices[0]
        assert choice.model_extra is not None and choice.logprobs is not None
        logprobs = [float("nan") if value is None else value for value in choice.logprobs.token_logprobs or []]
        stop = read_stop(choice.finish_reason, choice.model_extra["stop_reason"], request, marker)
        return Segment(choice.model_extra["token_ids"], logprobs, stop)

    def drive(rollout: Rollout) -> None:
        while rollout.request is not None:
            rollout.receive(complete(rollout.request))

    with ThreadPoolExecutor(SERVER_CONCURRENCY) as pool:
        for _ in pool.map(drive, rollouts):
            pass
