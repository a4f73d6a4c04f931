"""A server as an engine: many requests at a time, in an event loop of its own thread."""

import asyncio
import logging
import random
from collections import deque
from concurrent.futures import Future, wait
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from weakref import finalize

from e1_trl.budget import ThinkingClose
from e1_trl.engines.engine import (
    Follow,
    Key,
    Requests,
    SamplingSettings,
    Stepped,
    UnusableEngineError,
    ignore,
    request_parameters,
    seed_of,
)
from e1_trl.engines.openai import RETURNED, UNSENT, Client, ServerError, allow_files, read_choice
from e1_trl.errors import TROUBLESHOOTING
from e1_trl.rollout import Request, Segment

logger = logging.getLogger(__name__)

MOST_IN_FLIGHT = 2048  # requests; each has a connection of this process
RETRIES = 120  # with pauses of up to 8 s, the server may be away for a quarter of an hour
BRIEF = 3  # retries within 4 s, too short for a server to restart
LONGEST_PAUSE = 8.0  # seconds between two tries
SLOWEST = 5.0  # tokens per second that any server samples of a sequence
BUSY = 1800.0  # seconds for which the server may be away, or busy with the requests of others
CUT = "%s cut off a request (%s), now resampled: shorter answers replace long ones; raise its gateway's time limit"


@dataclass(eq=False)
class ServerEngine:
    """The model of this name at a server, such as http://host:8000/v1.

    Attributes:
        seed: seed of the run. Each request's seed follows from it, the request's name, and where the request begins.
            If `None`, the server draws as it likes, and may repeat itself: vLLM seeds every data-parallel engine
            alike, and alike at every start.
        concurrency: requests in flight at a time; fewer where the process may not open as many files.
        is_trained: whether the server has a training's weights, which a restart would lose: if it is away for longer
            than `BRIEF`, it is not waited for.
    """

    base_url: str
    name: str
    close: ThinkingClose
    sampling: SamplingSettings
    seed: int | None = None
    concurrency: int = MOST_IN_FLIGHT
    is_trained: bool = False

    def __post_init__(self) -> None:
        self.concurrency = max(1, min(self.concurrency, allow_files(self.concurrency)))
        self._has_warned = False
        # In a thread of its own, since a notebook's runs a loop already; a daemon does not keep the process alive.
        self._loop = asyncio.new_event_loop()
        Thread(target=self._loop.run_forever, daemon=True).start()
        connecting = _connect(self.base_url, self.name, self.close.context)
        self._client = asyncio.run_coroutine_threadsafe(connecting, self._loop).result()
        finalize(self, _close, self._loop, self._client)

    def serve(self, requests: Requests[Key], follow: Follow[Key], stepped: Stepped[Key] = ignore) -> None:
        """See `Engine.serve`. The first failure ends it, and cancels what is in flight."""
        waiting = iter(requests)
        followers = deque[tuple[Key, Request]]()
        in_flight: dict[Future[Segment], tuple[Key, Request]] = {}
        ended: SimpleQueue[Future[Segment]] = SimpleQueue()
        try:
            while True:
                while len(in_flight) < self.concurrency and (
                    wanted := followers.popleft() if followers else next(waiting, None)
                ):
                    future = asyncio.run_coroutine_threadsafe(self._sample(wanted[1]), self._loop)
                    in_flight[future] = wanted
                    future.add_done_callback(ended.put)
                if not in_flight:
                    return
                # A request may wait for others for any time; of those being sampled, one ends in the longest's time.
                seconds = max(request.max_tokens for _, request in in_flight.values()) / SLOWEST + BUSY
                try:
                    done = [ended.get(timeout=seconds)]
                except Empty:
                    server = self._client.base_url
                    said = f"{server} has ended no request for {seconds:.0f} s; does it hang? {TROUBLESHOOTING}"
                    raise UnusableEngineError(said) from None
                while not ended.empty():
                    done.append(ended.get())
                # Failed ones last, so that nothing is lost that was finished at the same time.
                for future in sorted(done, key=lambda each: each.exception() is not None):
                    key, _ = in_flight.pop(future)
                    followers.extend(follow(key, future.result()))
                stepped(lambda: ())
        finally:
            if in_flight:
                wait([asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop)], timeout=10.0)

    async def _sample(self, request: Request) -> Segment:
        """Sample a segment, and try again for a quarter of an hour while the server is away or overloaded."""
        body = {**RETURNED, **request_parameters(request, self.close.marker, self.sampling)}
        if self.seed is not None:
            body["seed"] = seed_of(self.seed, *request.name, len(request.prompt_ids))
        body |= {"prompt": request.prompt_ids, "max_tokens": request.max_tokens}
        for attempt in range(RETRIES + 1):
            try:
                choice = await self._client.sample(body)
            except ServerError as error:
                is_gone = error.status is None and self.is_trained and attempt >= BRIEF
                if is_gone or not error.is_temporary or attempt == RETRIES:
                    remedy = "; start it again, and resume from a checkpoint" if is_gone else ""
                    said = f"the server refused a request, or stayed away: {error}{remedy}"
                    raise UnusableEngineError(said) from error
                is_broken = error.status is None and not isinstance(error.__cause__, UNSENT)
                if (is_broken or error.status in (408, 504)) and not self._has_warned:
                    self._has_warned = True
                    logger.warning(CUT, self._client.base_url, error)
                await asyncio.sleep(min(0.5 * 2**attempt, LONGEST_PAUSE) * random.uniform(0.75, 1.0))
            else:
                return read_choice(choice, request, self.close.marker)
        raise AssertionError


async def _connect(base_url: str, name: str, context: int) -> Client:
    """Connect to a server; refuse one that says that it takes fewer than `context` tokens."""
    client = Client(base_url, name)
    try:
        longest = await client.context()
        if longest is not None and longest < context:
            found = f"{base_url} has a context of {longest} tokens, and the budgets need {context}"
            raise UnusableEngineError(f"{found}; restart it with --max-model-len {context}, or lower the budgets")
    except UnusableEngineError:
        await client.close()
        raise
    return client


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _close(loop: asyncio.AbstractEventLoop, client: Client) -> None:
    """Close the connections of an engine that is no longer used, and end its thread."""
    closing = asyncio.run_coroutine_threadsafe(client.close(), loop)
    closing.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
