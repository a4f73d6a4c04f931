"""Connections of `e1 serve` to its vLLM server, whose address and messages of failure stay in the log."""

import json
import logging
import os
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp

from e1_trl.engines.openai import Client, ServerError
from e1_trl.serving.arguments import LOCAL
from e1_trl.serving.request import RefusedError

logger = logging.getLogger("e1 serve")
KEY = "E1_UPSTREAM_API_KEY"
FALLBACK = "OPENAI_API_KEY"
CLIENTS_FAULT = (400, 404, 413, 422, 429, 501, 503)  # statuses that a client is told as they are, with their message
Event = dict[str, Any]


class Upstream(Client):
    """A vLLM server. Its API key is read from `E1_UPSTREAM_API_KEY`, else from `OPENAI_API_KEY`."""

    def __init__(self, base_url: str, name: str):
        super().__init__(base_url, name)
        key = os.environ.get(KEY)
        if key is not None:
            self._session.headers["Authorization"] = f"Bearer {key}"
        elif FALLBACK in os.environ and not any(f"//{host}" in base_url for host in (*LOCAL, "[::1]")):
            logger.warning("%s goes to %s; set %s to send another key there", FALLBACK, base_url, KEY)
        # A kept connection may have been closed by the other side; the second try opens one.
        fresh = aiohttp.TCPConnector(limit=0, force_close=True)
        self._fresh = aiohttp.ClientSession(
            headers=self._session.headers, timeout=self._session.timeout, connector=fresh
        )

    async def close(self) -> None:
        await self._fresh.close()
        await super().close()

    async def post(self, path: str, body: Mapping[str, Any], request_id: str = "") -> aiohttp.ClientResponse:
        """Post a request to a path of the server, as /v1/completions; return its answer, which must be closed.

        Raises:
            RefusedError: the server does not answer, or not with status 200.
        """
        url = self.base_url.removesuffix("/v1") + path
        headers = {"Content-Type": "application/json"} | ({"X-Request-Id": request_id} if request_id else {})
        content = json.dumps(body).encode()
        try:
            try:
                answer = await self._session.post(url, data=content, headers=headers, allow_redirects=False)
            except aiohttp.ClientConnectorError:
                raise
            except aiohttp.ClientError:
                answer = await self._fresh.post(url, data=content, headers=headers, allow_redirects=False)
        except (aiohttp.ClientError, TimeoutError) as error:
            logger.warning("no answer from %s: %r", url, error)
            raise RefusedError("the server behind this proxy does not answer", 502) from error
        if answer.status == 200:
            return answer
        async with answer:
            status, said = answer.status, read_error(await answer.read())
        if status in CLIENTS_FAULT:
            raise RefusedError(said or f"the server behind this proxy answered with status {status}", status)
        logger.warning("%s answered with status %d: %s", url, status, said)
        raise RefusedError(f"the server behind this proxy answered with status {status}", 502)

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """Post a request, and return the JSON of its answer; raise as `post` does."""
        async with await self.post(path, {"model": self.name, **body}) as answer:
            return await answer.json(content_type=None)

    async def check(self) -> int | None:
        """Return the context that the server names.

        Raises:
            RefusedError: it does not serve the model.
        """
        try:
            return await self.context()
        except ServerError as error:
            logger.warning("%s", error)
            raise RefusedError("the server behind this proxy does not serve the model", 502) from error


def read_error(content: bytes) -> str:
    """Read the message of an error, in any of the forms that servers have; empty if it says nothing."""
    try:
        error = json.loads(content)
        return str(error.get("error", error).get("message", ""))
    except (ValueError, AttributeError):
        return ""


async def read_events(answer: aiohttp.ClientResponse) -> AsyncGenerator[list[Event]]:
    """Read a stream of events; those that arrive together come together.

    Raises:
        RefusedError: the server failed, or broke off its answer.
    """
    rest = b""
    ended = False
    try:
        async for received in answer.content.iter_any():
            *lines, rest = (rest + received).split(b"\n\n")
            data = [line.strip().removeprefix(b"data:").strip() for line in lines if line.lstrip().startswith(b"data:")]
            ended = ended or b"[DONE]" in data
            events = [json.loads(each) for each in data if each != b"[DONE]"]
            for event in events:
                if "error" in event:
                    logger.warning("the server failed: %s", event["error"])
                    raise RefusedError("the server behind this proxy failed", 502)
            if events:
                yield events
    except (aiohttp.ClientError, ValueError) as error:
        if isinstance(error, RefusedError):
            raise
        logger.warning("a broken answer: %r", error)
        raise RefusedError("the server behind this proxy broke off its answer", 502) from error
    if not ended:
        raise RefusedError("the server behind this proxy broke off its answer", 502)
