"""A server as an engine: many requests at a time, in an event loop beside the thread that asks."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from threading import Thread

from e1_trl.engines.engine import Follow, Key, Requests, Stepped, UnusableEngineError, ignore_steps
from e1_trl.engines.openai import ServedModel, allow_files
from e1_trl.errors import TROUBLESHOOTING
from e1_trl.rollout import Request, Segment

MOST_IN_FLIGHT = 2048  # requests; each has a connection of this process
SLOWEST = 5.0  # tokens per second that any server samples of a sequence
BUSY = 1800.0  # seconds for which the server may be away, or busy with the requests of others


class ServerEngine:
    """A served model.

    Args:
        connecting: `ServedModel.connect`, not yet awaited; what it raises is raised here.
        concurrency: requests in flight at a time; fewer, where the process may not open as many files.
    """

    def __init__(self, connecting: Coroutine[None, None, ServedModel], concurrency: int = MOST_IN_FLIGHT):
        # In a thread of its own, since a notebook's runs a loop already; a daemon, which does not keep the process.
        self._loop = asyncio.new_event_loop()
        Thread(target=self._loop.run_forever, daemon=True).start()
        self._model = asyncio.run_coroutine_threadsafe(connecting, self._loop).result()
        self._concurrency = max(1, min(concurrency, allow_files(concurrency)))

    def serve(self, requests: Requests[Key], follow: Follow[Key], stepped: Stepped[Key] = ignore_steps) -> None:
        """See `Engine.serve`. The first failure ends it, and gives up what is in flight."""
        waiting, followers = iter(requests), deque[tuple[Key, Request]]()
        in_flight: dict[Future[Segment], tuple[Key, Request]] = {}
        ended: SimpleQueue[Future[Segment]] = SimpleQueue()
        try:
            while True:
                while len(in_flight) < self._concurrency and (
                    wanted := followers.popleft() if followers else next(waiting, None)
                ):
                    future = asyncio.run_coroutine_threadsafe(self._model.sample(wanted[1]), self._loop)
                    in_flight[future] = wanted
                    future.add_done_callback(ended.put)
                if not in_flight:
                    return
                # A request may wait for others at any length; of those being sampled, one ends in the longest's time.
                seconds = max(request.max_tokens for _, request in in_flight.values()) / SLOWEST + BUSY
                try:
                    done = [ended.get(timeout=seconds)]
                except Empty:
                    server = self._model.client.base_url
                    raise UnusableEngineError(
                        f"{server} has ended no request for {seconds:.0f} s; does it hang? {TROUBLESHOOTING}"
                    ) from None
                while not ended.empty():
                    done.append(ended.get())
                # Those that failed last, so that nothing is lost that was finished at the same time.
                for future in sorted(done, key=lambda each: each.exception() is not None):
                    key, _ = in_flight.pop(future)
                    followers.extend(follow(key, future.result()))
                stepped(lambda: ())
        finally:
            if in_flight:
                wait([asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop)], timeout=10.0)


async def _cancel_others() -> None:
    """End all other tasks of this loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
