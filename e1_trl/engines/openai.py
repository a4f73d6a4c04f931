"""An asynchronous client of the OpenAI completions API with token ids in and out, as vLLM and SGLang serve it."""

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError, Timeout

from e1_trl.budget import Marker, ThinkingClose
from e1_trl.engines.engine import SamplingSettings, UnusableEngineError, read_stop, request_parameters
from e1_trl.rollout import Request, Segment
from e1_trl.seeds import seed_of

RETURNED = {"return_token_ids": True, "return_tokens_as_token_ids": True}  # not by their texts
RETRIES = 40  # with the client's pauses of up to 8 s, the server may be away for five minutes
OTHER_FILES = 256  # that this process has open beside its connections
CONNECTING = 60.0  # seconds until a connection is there, and for any answer that samples nothing


def allow_files(connections: int) -> int:
    """Let the process open so many connections at a time, or as many as it may; returns how many those are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = max(soft, min(connections + OTHER_FILES, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return files - OTHER_FILES


@dataclass(frozen=True)
class ServedModel:
    """A model of a server, which one event loop samples from.

    Attributes:
        client: of the server.
        name: the model's name there.
        marker: what ends the thinking.
        sampling: how tokens are drawn.
        seed: of the run; each request has a seed of its own, which follows from this one, the request's name, and where
            it begins. If `None`, the server draws as it likes, and may repeat itself: vLLM seeds every data-parallel
            engine alike, and alike at every start.
        context: the longest sequence that the server takes, in tokens; `None` if it does not say.
    """

    client: AsyncOpenAI
    name: str
    marker: Marker
    sampling: SamplingSettings
    seed: int | None = None
    context: int | None = None

    @classmethod
    async def connect(
        cls, base_url: str, name: str, close: ThinkingClose, sampling: SamplingSettings, seed: int | None = None
    ) -> "ServedModel":
        """Make sure that the server is there, serves the model, and takes sequences of `close.context` tokens.

        The key is taken from `OPENAI_API_KEY`. Requests are repeated for some minutes while the server is away.

        Raises:
            UnusableEngineError: one line about what it lacks.
        """
        key = os.environ.get("OPENAI_API_KEY", "unused")
        # As many connections as there are requests: the client's own limits are 1000, of which it keeps 100 open.
        pool = DefaultAsyncHttpxClient(limits=httpx.Limits(max_connections=None, max_keepalive_connections=None))
        # No time to read: an answer comes when all its tokens are sampled.
        timeout = Timeout(None, connect=CONNECTING)
        client = AsyncOpenAI(base_url=base_url, api_key=key, timeout=timeout, http_client=pool)
        try:
            models = {served.id: served async for served in client.models.list(timeout=CONNECTING)}
        except OpenAIError as error:
            raise UnusableEngineError(
                f"no answer from {base_url}: {error}; is the server up, and the path /v1?"
            ) from error
        if name not in models:
            raise UnusableEngineError(f"{base_url} serves {', '.join(models)}, not {name!r}; set served_model_name")
        length = (models[name].model_extra or {}).get("max_model_len")
        if length is not None and length < close.context:
            raise UnusableEngineError(
                f"{base_url} has a context of {length} tokens, and what is asked for takes up to {close.context}; "
                f"restart it with --max-model-len {close.context}, or ask for less"
            )
        return cls(client.with_options(max_retries=RETRIES), name, close.marker, sampling, seed, length)

    async def sample(self, request: Request) -> Segment:
        """The server's answer; the client retries what can be retried.

        Raises:
            UnusableEngineError: the server refused the request, stayed away, or answered in a way that is no answer.
        """
        # The OpenAI client knows a part of vLLM's sampling parameters; all of them may go in the body.
        body = {**RETURNED, **request_parameters(request, self.marker, self.sampling)}
        if self.seed is not None:
            body["seed"] = seed_of(self.seed, *request.name, len(request.prompt_ids))
        try:
            response = await self.client.completions.create(
                model=self.name, prompt=request.prompt_ids, max_tokens=request.max_tokens, extra_body=body
            )
        except OpenAIError as error:
            raise UnusableEngineError(f"the server refused a request, or stayed away: {error}") from error
        return read_choice(response.choices[0].model_dump(), request, self.marker)


def read_choice(choice: Mapping[str, Any], request: Request, marker: Marker) -> Segment:
    """What a server sampled for a request, from the entry of `choices`.

    Raises:
        UnusableEngineError: it lacks token ids, or the probabilities that were asked for, or the request was aborted.
    """
    if choice.get("token_ids") is None:
        raise UnusableEngineError(
            "the server returns no token ids; it must know return_token_ids, as vLLM and SGLang do"
        )
    # A server that returns no log-probabilities for `logprobs=0` is good enough to evaluate with.
    returned = choice.get("logprobs") or {}
    values = returned.get("token_logprobs")
    logprobs = None if values is None else [float("nan") if value is None else value for value in values]
    stop_reason = choice.get("stop_reason", choice.get("matched_stop"))  # as vLLM calls it, and SGLang
    return Segment(choice["token_ids"], read_stop(choice.get("finish_reason"), stop_reason, request, marker), logprobs)
