"""Connections of `e1 serve` to its vLLM server, whose address and failures are told to the log alone."""

import json
import logging
import os
from collections.abc import AsyncGenerator, Mapping
from typing import Any, ClassVar

import aiohttp

from e1_trl.engines.openai import Client, read_message
from e1_trl.serving.request import RefusedError

logger = logging.getLogger("e1 serve")
KEY = "E1_UPSTREAM_API_KEY"
FAULTS_OF_CLIENTS = (400, 404, 413, 422, 429, 501, 503)  # statuses that are passed on, with their message


class Upstream(Client):
    """A vLLM server. Its API key is read from `E1_UPSTREAM_API_KEY`."""

    # A connection that is kept may fail when it is used again, which a client would see.
    CONNECTIONS: ClassVar[Mapping[str, Any]] = {"force_close": True}

    def __init__(self, base_url: str, name: str):
        super().__init__(base_url, name)
        self._session.headers.popall("Authorization", None)  # of OPENAI_API_KEY, which may be another server's
        if key := os.environ.get(KEY):
            self._session.headers["Authorization"] = f"Bearer {key}"

    async def post(self, path: str, body: Mapping[str, Any], request_id: str = "") -> aiohttp.ClientResponse:
        """Post a request to a path, as /v1/completions; return its answer, of status 200, which must be closed."""
        url = self.base_url.removesuffix("/v1") + path
        headers = {"X-Request-Id": request_id}
        try:
            answer = await self._session.post(
                url, json={"model": self.name, **body}, headers=headers, allow_redirects=False
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _fail("does not answer", f"{url}: {error!r}") from error
        if answer.status == 200:
            return answer
        async with answer:
            said = read_message(await answer.read())
        if answer.status in FAULTS_OF_CLIENTS and said:
            raise RefusedError(said, answer.status)
        raise _fail(f"answered with status {answer.status}", f"{url}: {said}")

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """Post a request, and return the JSON of its answer; raise as `post` does."""
        async with await self.post(path, body) as answer:
            return await answer.json(content_type=None)


def _fail(what: str, details: str) -> RefusedError:
    logger.warning("the server %s: %s", what, details)
    return RefusedError(f"the server behind this proxy {what}", 502)


async def read_events(answer: aiohttp.ClientResponse) -> AsyncGenerator[dict[str, Any]]:
    """Read a stream of events up to its end."""
    rest = b""
    try:
        async for received in answer.content.iter_any():
            *events, rest = (rest + received).split(b"\n\n")
            for data in (event.removeprefix(b"data: ") for event in events):
                if data == b"[DONE]":
                    return
                event = json.loads(data)
                if "error" in event:
                    raise _fail("failed", str(event["error"]))
                yield event
    except (aiohttp.ClientError, json.JSONDecodeError) as error:
        raise _fail("broke off its answer", repr(error)) from error
    raise _fail("broke off its answer", "its end is missing")
