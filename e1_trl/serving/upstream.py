"""The server behind the proxy: one that takes token ids and returns them, in a stream or at once.

Texts are the server's own: it has detokenized what it sampled, with what stands before it.
"""

import json
import os
import socket
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp

from e1_trl.errors import UserError

CONNECTING = 10.0  # seconds
PROBED = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
Choice = dict[str, Any]  # an entry of `choices`, or what came of it since the last one


class UpstreamError(UserError):
    """The server refused a request, went away, or is no such server; `status` is what the client is told over HTTP."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Upstream:
    """A server's completions API, as vLLM and SGLang have it; its key is taken from `OPENAI_API_KEY`.

    Args:
        base_url: as http://host:8000/v1.
        name: of the model there.
    """

    def __init__(self, base_url: str, name: str):
        self.base_url = base_url.rstrip("/")
        self.name = name
        key = os.environ.get("OPENAI_API_KEY")
        # It parses in C. httpx does so in Python, and looks through all its connections for each request.
        self._client = aiohttp.ClientSession(
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECTING),
            connector=aiohttp.TCPConnector(limit=0, socket_factory=_probed),
        )

    async def close(self) -> None:
        """Give up all connections."""
        await self._client.close()

    async def context(self) -> int:
        """The longest sequence that the server takes, in tokens.

        Raises:
            UpstreamError: it is not there, or does not serve the model, or does not say.
        """
        try:
            within = aiohttp.ClientTimeout(CONNECTING)
            async with self._client.get(f"{self.base_url}/models", timeout=within) as answer:
                status, content = answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            remedy = "start a server there, as `vllm serve MODEL`, or name another --upstream"
            raise UpstreamError(502, f"no answer from {self.base_url}: {_explain(error)}; {remedy}") from error
        try:
            models = {entry["id"]: entry for entry in json.loads(content)["data"]}
        except (ValueError, KeyError, TypeError) as error:
            raise UpstreamError(
                502,
                f"{self.base_url}/models answered with status {status} and no list of models, as an OpenAI API has it",
            ) from error
        if self.name not in models:
            served = ", ".join(models)
            raise UpstreamError(
                502, f"{self.base_url} serves {served}, not {self.name!r}; set served_model_name to what it serves"
            )
        entry = models[self.name]
        entry = models.get(entry.get("parent"), entry)  # an adapter has its base's
        if type(context := entry.get("max_model_len")) is not int:
            raise UpstreamError(502, f"{self.base_url} does not say its context (max_model_len), as vLLM and SGLang do")
        return context

    async def sample(self, body: Mapping[str, Any], stream: bool) -> AsyncGenerator[Choice]:
        """What the server samples: all of it at once, or what is new each time something came.

        Whoever closes the iterator closes the connection, at which the server frees the request.

        Raises:
            UpstreamError: see there.
        """
        answer = await self._post(json.dumps({**body, "model": self.name, "stream": stream}).encode())
        try:
            if answer.status != 200:
                raise UpstreamError(_told(answer.status), _message(await answer.read()))
            if not stream:
                yield json.loads(await answer.read())["choices"][0]
                return
            async for choice in _events(answer):
                yield choice
        except UpstreamError:  # which is a ValueError, too
            raise
        except aiohttp.ClientError as error:
            raise UpstreamError(502, f"{self.base_url} broke off its answer: {_explain(error)}") from error
        except (ValueError, KeyError, IndexError, TypeError) as error:
            kind = type(error).__name__
            raise UpstreamError(502, f"malformed response from {self.base_url}: {kind}: {error}") from error
        finally:
            answer.close()

    async def _post(self, content: bytes) -> aiohttp.ClientResponse:
        """Tried twice: that a connection is of a server that has been started anew shows when it is used."""
        url, headers = f"{self.base_url}/completions", {"Content-Type": "application/json"}
        for attempt in (1, 2):
            try:
                return await self._client.post(url, data=content, headers=headers, allow_redirects=False)
            except aiohttp.ClientError as error:
                if attempt == 2 or isinstance(error, aiohttp.ClientConnectorError):
                    raise UpstreamError(502, f"no answer from {self.base_url}: {_explain(error)}") from error
        raise AssertionError


def _explain(error: Exception) -> str:
    """Say why a request failed, without the internals that the client's own texts show."""
    if isinstance(error, TimeoutError):
        return f"none within {CONNECTING:.0f} s"
    cause = getattr(error, "os_error", None) or error
    number = getattr(cause, "errno", None) or 0
    return os.strerror(number) if number > 0 else getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


def _probed(address: tuple[Any, ...]) -> socket.socket:
    """A socket that notices in two minutes when its host vanishes without a word; an answer may take hours."""
    connection = socket.socket(*address[:3])
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in PROBED:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection


def _told(status: int) -> int:
    """What a client is told of the server's status: its own faults and the server's load, and else that it failed."""
    return status if status in (400, 413, 422, 429, 503) else 502


def _message(content: bytes) -> str:
    try:
        told = json.loads(content)
        return str(told.get("error", told).get("message", told))
    except (ValueError, AttributeError):
        return content.decode(errors="replace")[:500]


async def _events(answer: aiohttp.ClientResponse) -> AsyncGenerator[Choice]:
    """The events of a stream; those that come together are one, so that a busy proxy does less for each token."""
    rest = b""
    async for received in answer.content.iter_any():
        *lines, rest = (rest + received).split(b"\n\n")
        together: Choice = {}
        for line in lines:
            data = line.strip().removeprefix(b"data:").strip()
            if not line.lstrip().startswith(b"data:") or data == b"[DONE]":
                continue
            event = json.loads(data)
            if "error" in event:
                raise UpstreamError(502, f"the server failed: {_message(data)}")
            for choice in event["choices"]:
                if together:
                    choice["text"] = together["text"] + choice["text"]
                    choice["token_ids"] = together["token_ids"] + choice["token_ids"]
                together = choice
        if together:
            yield together
