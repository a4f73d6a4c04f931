"""Asynchronous client of the OpenAI completions API with token ids in and out, as vLLM and SGLang serve it.

Evaluation and training at a server sample with it; `e1 serve` uses its connections.
"""

import json
import os
import resource
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

from e1_trl.engines.engine import UnusableEngineError, read_stop
from e1_trl.errors import one_line
from e1_trl.marker import Marker
from e1_trl.rollout import Request, Segment

RETURNED = {"return_token_ids": True, "return_tokens_as_token_ids": True}  # token ids in place of texts
OTHER_FILES = 256  # open files of this process that are no connections
CONNECTING = 30.0  # seconds for a connection, and for any answer that samples nothing
KEPT = 4.0  # seconds for which an idle connection is kept: shorter than vLLM keeps it
KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
Choice = dict[str, Any]  # an entry of `choices`
UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)  # causes of errors of requests never sent


class ServerError(UnusableEngineError):
    """A server refused a request, went away (no status), or answers in another form; `said` is the server's message."""

    def __init__(self, message: str, status: int | None = None, said: str = ""):
        super().__init__(message)
        self.status = status
        self.said = said
        self.is_temporary = status is None or status in (408, 409, 429) or status >= 500


def allow_files(connections: int) -> int:
    """Raise this process's limit of open files for `connections` at a time; return how many the limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = max(soft, min(connections + OTHER_FILES, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return files - OTHER_FILES


class Client:
    """Connections to a server (`base_url`, such as http://host:8000/v1), for the event loop that it is made in.

    `key` is the environment variable with the API key. If `direct`, `HTTP_PROXY` and the like are ignored, and each
    connection is used once, since a kept one may fail when it is used again.
    """

    def __init__(self, base_url: str, name: str, key: str = "OPENAI_API_KEY", direct: bool = False):
        self.base_url = base_url.rstrip("/")
        self.name = name
        secret = os.environ.get(key)
        use: dict[str, Any] = {"force_close": True} if direct else {"keepalive_timeout": KEPT}
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {secret}"} if secret else {},
            connector=aiohttp.TCPConnector(limit=0, socket_factory=_open_socket, **use),
            trust_env=not direct,
        )

    async def close(self) -> None:
        await self._session.close()

    async def context(self, options: str = "") -> int | None:
        """Ask for the longest sequence that the server takes, in tokens; `None` if it does not say."""
        try:
            timeout = aiohttp.ClientTimeout(CONNECTING)
            async with self._session.get(f"{self.base_url}/models", timeout=timeout) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            remedy = f"start a server there, such as `vllm serve MODEL{options}`, or name another address"
            raise ServerError(f"no answer from {self.base_url}: {one_line(error)}; {remedy}") from error
        try:
            models = {entry["id"]: entry for entry in json.loads(content)["data"]}
        except (ValueError, KeyError, TypeError) as error:
            found = f"{self.base_url}/models answered with status {answer.status}"
            raise ServerError(f"{found}; expected a list of models, as an OpenAI API returns") from error
        if self.name not in models:
            found = f"{self.base_url} serves {', '.join(models)}, not {self.name!r}"
            raise ServerError(f"{found}; set served_model_name to one of these")
        entry = models[self.name]
        if entry.get("owned_by") == "e1_trl":
            raise ServerError(f"{self.base_url} is a proxy of e1 serve; name the server behind it")
        context = models.get(entry.get("parent"), entry).get("max_model_len")  # an adapter has the context of its base
        return context if type(context) is int else None

    async def sample(self, body: Mapping[str, Any]) -> Choice:
        """Sample one answer; a task that is cancelled closes the connection, at which the server frees the request."""
        answer = await self.ask("completions", body)
        try:
            choice = {**answer["choices"][0]}
        except (KeyError, IndexError, TypeError) as error:
            raise ServerError(f"malformed response from {self.base_url}: {error!r}", 200) from error
        if choice.get("finish_reason") == "abort":  # how vLLM ends all requests when it is stopped
            raise ServerError(f"{self.base_url} has aborted a request")
        return choice

    async def ask(self, path: str, body: Mapping[str, Any], seconds: float | None = None) -> Any:
        """Post a request, and return the JSON of its answer, within `seconds` if given; raise as `sample` does."""
        async with await self.post(path, body, seconds=seconds) as answer:
            try:
                return await answer.json(content_type=None)
            except (aiohttp.ClientError, TimeoutError) as error:
                raise ServerError(f"{self.base_url} broke off its answer: {one_line(error)}") from error
            except ValueError as error:
                raise ServerError(f"malformed response from {self.base_url}: {error!r}", 200) from error

    async def post(
        self, path: str, body: Mapping[str, Any], request_id: str = "", seconds: float | None = None
    ) -> aiohttp.ClientResponse:
        """Post a request for the model to a path of the server; return its answer of status 200, to be closed."""
        sent: dict[str, Any] = {"json": {**body, "model": self.name}, "allow_redirects": False}
        sent |= {"headers": {"X-Request-Id": request_id}} if request_id else {}
        sent["timeout"] = aiohttp.ClientTimeout(seconds, sock_connect=CONNECTING)  # None: until all is sampled
        try:
            answer = await self._session.post(f"{self.base_url}/{path}", **sent)
            if answer.status == 200:
                return answer
            async with answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ServerError(f"no answer from {self.base_url}: {one_line(error)}") from error
        said = read_message(content)
        text = said or content.decode(errors="replace")[:500]
        raise ServerError(text or f"{self.base_url} answered with status {answer.status}", answer.status, said)


def _open_socket(address: tuple[Any, ...]) -> socket.socket:
    """Open a socket that notices within two minutes that its host has vanished; an answer may take hours."""
    connection = socket.socket(*address[:3])
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection


def read_message(content: bytes) -> str:
    """Read the message of an error, in any of the forms that servers have; "" if it is no JSON or says nothing."""
    try:
        error = json.loads(content)
        return str(error.get("error", error).get("message", ""))
    except (ValueError, AttributeError):
        return ""


async def read_events(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """Read a stream of events up to its end; raise a `ServerError` for one that is an error, or where it breaks off."""
    rest = b""
    try:
        async for received in answer.content.iter_any():
            *lines, rest = (rest + received).split(b"\n")
            for data in (line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: ")):
                if data == b"[DONE]":
                    return
                event = json.loads(data)
                if "error" in event:
                    error = event["error"]
                    code = error.get("code") if isinstance(error, dict) else None
                    status = code if type(code) is int else answer.status
                    raise ServerError(str(error), status, read_message(data))
                if any(choice.get("finish_reason") == "abort" for choice in event.get("choices") or ()):
                    raise ServerError("the server has aborted a request", answer.status)
                yield event
    except (aiohttp.ClientError, json.JSONDecodeError) as error:
        raise ServerError(repr(error), answer.status) from error
    raise ServerError("the end of an answer is missing", answer.status)


def read_choice(choice: Choice, request: Request, marker: Marker) -> Segment:
    if choice.get("token_ids") is None:
        raise ServerError("the server returns no token ids; it must know return_token_ids, as vLLM and SGLang do", 200)
    # Evaluation does without log-probabilities where a server returns none for `logprobs=0`.
    values = (choice.get("logprobs") or {}).get("token_logprobs")
    logprobs = None if values is None else [float("nan") if value is None else value for value in values]
    stop_reason = choice.get("stop_reason", choice.get("matched_stop"))  # vLLM's name, and SGLang's
    stop = read_stop(choice.get("finish_reason"), stop_reason, request, marker)
    return Segment(choice["token_ids"], stop, logprobs)
