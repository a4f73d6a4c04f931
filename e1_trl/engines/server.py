"""A server of the OpenAI completions API that takes and returns token ids, as vLLM's and SGLang's do."""

import os
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice

from openai import OpenAI, OpenAIError

from e1_trl.budget import Marker
from e1_trl.engines.engine import EngineError, Follow, Key, Requests, SamplingSettings, read_stop, request_parameters
from e1_trl.rollout import Request, Segment

CONCURRENCY = 256
LONGEST_REQUEST = 3600.0  # seconds, for the tokens of one request on a busy server
RETRIES = 40  # with the client's pauses of up to 8 s, the server may be away for five minutes


class ServerEngine:
    """A served model.

    Args:
        client: of the server.
        model: the model's name there.
        marker: what ends the thinking.
        sampling: how tokens are drawn.
        concurrency: requests in flight at a time.
    """

    def __init__(
        self, client: OpenAI, model: str, marker: Marker, sampling: SamplingSettings, concurrency: int = CONCURRENCY
    ):
        self.client = client
        self.model = model
        self.marker = marker
        self.sampling = sampling
        self.concurrency = concurrency

    @classmethod
    def connect(
        cls,
        base_url: str,
        model: str,
        marker: Marker,
        sampling: SamplingSettings,
        context: int,
        concurrency: int = CONCURRENCY,
    ) -> "ServerEngine":
        """Make sure that the server is there, serves the model, and takes sequences of `context` tokens.

        The key is taken from `OPENAI_API_KEY`. Requests are repeated for some minutes while the server is away.

        Raises:
            EngineError: one line about what it lacks.
        """
        key = os.environ.get("OPENAI_API_KEY", "unused")
        client = OpenAI(base_url=base_url, api_key=key, timeout=LONGEST_REQUEST)
        try:
            models = {served.id: served for served in client.models.list()}
        except OpenAIError as error:
            raise EngineError(f"no answer from {base_url}: {error}; is the server up, and the path /v1?") from error
        if model not in models:
            raise EngineError(f"{base_url} serves {', '.join(models)}, not {model!r}; set served_model_name")
        length = (models[model].model_extra or {}).get("max_model_len")
        if length is not None and length < context:
            raise EngineError(
                f"{base_url} has a context of {length} tokens, the budgets need {context}; "
                f"restart it with --max-model-len {context}, or lower the budgets"
            )
        return cls(client.with_options(max_retries=RETRIES), model, marker, sampling, concurrency)

    def serve(self, requests: Requests[Key], follow: Follow[Key]) -> None:
        """See `Engine.serve`. The client retries what can be retried; the first failure ends it, waiting for nobody."""
        waiting = iter(requests)
        in_flight: dict[Future[Segment], Key] = {}
        pool = ThreadPoolExecutor(self.concurrency)

        def submit(key: Key, request: Request) -> None:
            in_flight[pool.submit(self._complete, request)] = key

        try:
            while True:
                for key, request in islice(waiting, max(0, self.concurrency - len(in_flight))):
                    submit(key, request)
                if not in_flight:
                    return
                done = wait(in_flight, return_when=FIRST_COMPLETED).done
                # Those that failed last, so that nothing is lost that was finished at the same time.
                for future in sorted(done, key=lambda future: future.exception() is not None):
                    for follower in follow(in_flight.pop(future), future.result()):
                        submit(*follower)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _complete(self, request: Request) -> Segment:
        # The OpenAI client knows a part of vLLM's sampling parameters; all of them may go in the body.
        body = {"return_token_ids": True, **request_parameters(request, self.marker, self.sampling)}
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
