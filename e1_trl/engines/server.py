"""A server of the OpenAI completions API that takes and returns token ids, as vLLM's and SGLang's do."""

import os
import resource
from collections import deque
from collections.abc import Sequence
from itertools import count
from queue import Empty, SimpleQueue
from threading import Thread

import httpx
from openai import DefaultHttpxClient, OpenAI, OpenAIError, Timeout

from e1_trl.budget import Close, Marker
from e1_trl.engines.engine import EngineError, Follow, Key, Requests, SamplingSettings, read_stop, request_parameters
from e1_trl.rollout import Request, Segment
from e1_trl.seeds import seed_of

MOST_IN_FLIGHT = 2048  # requests; each has a thread and a connection of this process
OTHER_FILES = 256  # that this process has open beside its connections
RETRIES = 40  # with the client's pauses of up to 8 s, the server may be away for five minutes
SLOWEST = 5.0  # tokens per second that any server samples of a sequence
BUSY = 1800.0  # seconds for which the server may be away, or busy with the requests of others
CONNECTING = 60.0  # seconds until a connection is there, and for any answer that samples nothing


class ServerEngine:
    """A served model.

    Args:
        client: of the server.
        model: the model's name there.
        marker: what ends the thinking.
        sampling: how tokens are drawn.
        concurrency: requests in flight at a time.
        seed: of the run; each request has a seed of its own, which follows from this one, the request's name, and where
            it begins. If `None`, the server draws as it likes, and may repeat itself: vLLM seeds every data-parallel
            engine alike, and alike at every start.
    """

    def __init__(
        self,
        client: OpenAI,
        model: str,
        marker: Marker,
        sampling: SamplingSettings,
        concurrency: int = MOST_IN_FLIGHT,
        seed: int | None = None,
    ):
        self.client = client
        self.model = model
        self.marker = marker
        self.sampling = sampling
        self.concurrency = concurrency
        self.seed = seed

    @classmethod
    def connect(
        cls,
        base_url: str,
        model: str,
        close: Close,
        sampling: SamplingSettings,
        concurrency: int = MOST_IN_FLIGHT,
        seed: int | None = None,
    ) -> "ServerEngine":
        """Make sure that the server is there, serves the model, and takes sequences of `close.context` tokens.

        The key is taken from `OPENAI_API_KEY`. Requests are repeated for some minutes while the server is away. The
        process's own limit on open files is raised as far as `concurrency` connections need; where that is not
        enough, fewer requests are in flight.

        Raises:
            EngineError: one line about what it lacks.
        """
        key = os.environ.get("OPENAI_API_KEY", "unused")
        # As many connections as there are requests: the client's own limits are 1000, of which it keeps 100 open.
        pool = DefaultHttpxClient(limits=httpx.Limits(max_connections=None, max_keepalive_connections=None))
        # No time to read: an answer comes when all its tokens are sampled, and `serve` tells a server that hangs.
        timeout = Timeout(None, connect=CONNECTING)
        client = OpenAI(base_url=base_url, api_key=key, timeout=timeout, http_client=pool)
        try:
            models = {served.id: served for served in client.models.list(timeout=CONNECTING)}
        except OpenAIError as error:
            raise EngineError(f"no answer from {base_url}: {error}; is the server up, and the path /v1?") from error
        if model not in models:
            raise EngineError(f"{base_url} serves {', '.join(models)}, not {model!r}; set served_model_name")
        length = (models[model].model_extra or {}).get("max_model_len")
        if length is not None and length < close.context:
            raise EngineError(
                f"{base_url} has a context of {length} tokens, the budgets need {close.context}; "
                f"restart it with --max-model-len {close.context}, or lower the budgets"
            )
        client = client.with_options(max_retries=RETRIES)
        return cls(client, model, close.marker, sampling, _connections(concurrency), seed)

    def serve(self, requests: Requests[Key], follow: Follow[Key]) -> None:
        """See `Engine.serve`. The client retries what can be retried; the first failure ends it, waiting for nobody."""
        waiting, followers = iter(requests), deque[tuple[Key, Request]]()
        numbers = count()
        in_flight: dict[int, tuple[Key, Request]] = {}
        answers: SimpleQueue[tuple[int, Segment | Exception]] = SimpleQueue()

        def complete(number: int, request: Request) -> None:
            try:
                answers.put((number, self._complete(request)))
            except Exception as error:
                answers.put((number, error))

        while True:
            while len(in_flight) < self.concurrency and (
                wanted := followers.popleft() if followers else next(waiting, None)
            ):
                in_flight[number := next(numbers)] = wanted
                # A daemon, so that what is given up does not keep the process from ending.
                Thread(target=complete, args=(number, wanted[1]), daemon=True).start()
            if not in_flight:
                return
            seconds = _patience([request for _, request in in_flight.values()])
            try:
                done = [answers.get(timeout=seconds)]
            except Empty:
                where = self.client.base_url
                raise EngineError(f"{where} has ended no request for {seconds:.0f} s; does it hang?") from None
            while not answers.empty():
                done.append(answers.get())
            # Those that failed last, so that nothing is lost that was finished at the same time.
            for number, answer in sorted(done, key=lambda each: isinstance(each[1], Exception)):
                if isinstance(answer, Exception):
                    raise answer
                key, _ = in_flight.pop(number)
                followers.extend(follow(key, answer))

    def _complete(self, request: Request) -> Segment:
        # The OpenAI client knows a part of vLLM's sampling parameters; all of them may go in the body.
        body = {"return_token_ids": True, **request_parameters(request, self.marker, self.sampling)}
        if self.seed is not None:
            body["seed"] = seed_of(self.seed, *request.name, len(request.prompt_ids))
        try:
            response = self.client.completions.create(
                model=self.model, prompt=request.prompt_ids, max_tokens=request.max_tokens, logprobs=0, extra_body=body
            )
        except OpenAIError as error:
            raise EngineError(f"the server refused a request, or stayed away: {error}") from error
        choice = response.choices[0]
        extra = choice.model_extra or {}
        if "token_ids" not in extra:
            raise EngineError("the server returns no token ids; it must know return_token_ids, as vLLM and SGLang do")
        # A server that returns no log-probabilities for `logprobs=0` is good enough to evaluate with.
        given = choice.logprobs.token_logprobs if choice.logprobs else None
        logprobs = None if given is None else [float("nan") if value is None else value for value in given]
        stop_reason = extra.get("stop_reason", extra.get("matched_stop"))  # as vLLM calls it, and SGLang
        return Segment(extra["token_ids"], read_stop(choice.finish_reason, stop_reason, request, self.marker), logprobs)


def _patience(in_flight: Sequence[Request]) -> float:
    """Seconds in which a server ends one of the requests in flight, unless it hangs.

    How long a request waits for others is not known, so that no time is too long for it; but of those that the server
    samples at the moment, one ends in the time that the longest takes. A connection that is closed, by a server that
    dies, say, is none of this: the client tries again at once.
    """
    return max(request.max_tokens for request in in_flight) / SLOWEST + BUSY


def _connections(wanted: int) -> int:
    """How many of the connections wanted this process may have, after raising its limit on open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted + OTHER_FILES:
        soft = min(wanted + OTHER_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(wanted, soft - OTHER_FILES))
