"""`e1 serve`: a filter in front of vLLM that gives every request a thinking budget and a solution budget.

    e1 serve --upstream http://node7:8000/v1 --model ORG/E1 --port 8100

One request of a client is one of the server, whose tokens are those of an evaluation. Needs no vLLM and no PyTorch.
"""

import asyncio
import json
import logging
import os
import re
import secrets
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from e1_trl.command_line import CommandParser
from e1_trl.engines.openai import allow_files
from e1_trl.errors import UserError, run_command
from e1_trl.serving.arguments import ServeArguments
from e1_trl.serving.model import Model
from e1_trl.serving.request import Asked, RefusedError, read_request
from e1_trl.serving.response import Answer, Part

logger = logging.getLogger("e1 serve")

Result = TypeVar("Result")
MOST_BODY = 2**24  # bytes of a request
BODY_SECONDS = 60.0  # for a request to arrive
KEY = "E1_API_KEY"
FILES = 2  # for a request: the client's connection, and the one to the server
GONE = 499  # status for a client that has left
HEARTBEAT = 15.0  # seconds without a token after which a stream sends a comment
KEPT = 75  # seconds for which a client's idle connection is kept: longer than a load balancer keeps it
STOPPING = 20  # seconds that answers have to end in when the proxy stops
ID = re.compile(r"[\w.-]{1,128}")


class Server:
    """Answers requests with one model; clients must send `key`, if there is one."""

    def __init__(self, model: Model, arguments: ServeArguments, key: str | None = None):
        self._model = model
        self._arguments = arguments
        self._key = key
        self._answering = 0
        self._counters: Counter[str] = Counter()

    def app(self) -> ASGIApp:
        """Return the routes of the API, which log every request."""
        origins = {"allow_origins": self._arguments.allow_origins, "allow_methods": ["*"], "allow_headers": ["*"]}
        routes = [
            Route("/v1/chat/completions", partial(self._answer, path="/v1/chat/completions"), methods=["POST"]),
            Route("/v1/completions", partial(self._answer, path="/v1/completions"), methods=["POST"]),
            Route("/v1/messages", partial(self._forward, path="/v1/messages"), methods=["POST"]),
            Route(
                "/v1/messages/count_tokens", partial(self._forward, path="/v1/messages/count_tokens"), methods=["POST"]
            ),
            Route("/v1/responses", partial(self._forward, path="/v1/responses"), methods=["POST"]),
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._models),
            Route("/health", self._health),
            Route("/metrics", self._metrics),
        ]
        known = ", ".join(route.path for route in routes)

        async def miss(request: Request, error: Exception) -> Response:
            assert isinstance(error, HTTPException)
            said = f"{request.method} {request.url.path} is no route; there are {known}"
            return await _refuse(request, RefusedError(said, error.status_code))

        app = Starlette(
            routes=routes,
            exception_handlers={RefusedError: _refuse, HTTPException: miss},
            middleware=[Middleware(CORSMiddleware, **origins)] if self._arguments.allow_origins else [],
        )

        async def logged(scope: Scope, receive: Receive, send: Send) -> None:
            await self._log(app, scope, receive, send)

        return logged

    async def _log(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the routes; log and count the request."""
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        sent = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = sent if ID.fullmatch(sent) else f"e1-{uuid4().hex}"
        told: dict[str, Any] = {"id": request_id, "status": GONE, "said": "", "slot": False}
        scope.setdefault("state", {})["told"] = told
        start = time.monotonic()

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                told["status"] = told.get("refused", message["status"])
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await app(scope, receive, send_on)
        finally:
            self._answering -= told["slot"]
            if scope["method"] == "POST" or told["status"] >= 400:
                self._counters[f'e1_requests_total{{status="{told["status"]}"}}'] += 1
                took = time.monotonic() - start
                line = "%s %s %d %s, %.2f s, %s"
                logger.info(
                    line, scope["method"], scope["path"], told["status"], told["said"] or "done", took, request_id
                )

    def _admit(self, request: Request) -> None:
        host = (request.headers.get("Host") or "").removesuffix(f":{self._arguments.port}").strip("[]")
        if self._arguments.hosts is not None and host.rsplit(":", 1)[0] not in self._arguments.hosts:
            raise RefusedError(f"this server is not called {host[:80]!r}; --allow_hosts may name it", 403)
        sent = request.headers.get("Authorization", "").removeprefix("Bearer ") or request.headers.get("x-api-key", "")
        if self._key is not None and not secrets.compare_digest(sent.encode("latin-1"), self._key.encode()):
            raise RefusedError("the API key is missing or wrong", 401)

    async def _read(self, request: Request) -> Asked:
        """Admit a request, and read it once it has arrived and there is room for it."""
        self._admit(request)
        if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            raise RefusedError("Content-Type must be application/json", 415)
        body = await _read_body(request)
        if self._answering >= self._arguments.max_requests:
            raise RefusedError(f"{self._answering} requests are being answered, which is the limit; try later", 503)
        self._answering += 1
        request.state.told["slot"] = True
        if self._arguments.log_requests:
            logger.info("%s: %s", request.state.told["id"], json.dumps(body))
        return read_request(body, self._model.presets, self._model.close.forced)

    async def _answer(self, request: Request, path: str) -> Response:
        asked = await self._read(request)
        told = request.state.told
        answer, response = await _unless_gone(request, Answer.begin(self._model, asked, path, told["id"]))
        if asked.stream:
            return StreamingResponse(self._stream(answer, response, asked, told), media_type="text/event-stream")

        async def collect() -> Part:
            async with aclosing(answer.read(response)) as stream:
                async for events in stream:
                    answer.merge(events)
            return answer.whole()

        try:
            whole = await _unless_gone(request, collect())
        finally:
            self._tell(answer, asked, told)
        return Response(json.dumps(whole), media_type="application/json")

    async def _stream(self, answer: Answer, response: Any, asked: Asked, told: Part) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(answer.read(response)) as stream:
                async for events in _with_heartbeats(stream):
                    yield b"".join(map(_event, events)) if events is not None else b": still sampling\n\n"
            if asked.stream_options.get("include_usage") is True:
                yield _event({**answer.head, "choices": [], "usage": answer.usage()})
        except RefusedError as error:
            told["refused"] = told["status"] = error.status
            yield _event(_describe(error)[0])
        finally:
            self._tell(answer, asked, told)
        yield b"data: [DONE]\n\n"

    def _tell(self, answer: Answer, asked: Asked, told: Part) -> None:
        """Note how an answer ended, for its line in the log and the metrics."""
        details = answer.usage()["completion_tokens_details"]
        for part, tokens in details.items():
            self._counters[f'e1_tokens_total{{part="{part.removesuffix("_tokens")}"}}'] += tokens
        ends = [choice.count.end or "given up" for choice in answer.choices]
        for end in ends:
            self._counters[f'e1_answers_total{{thinking_end="{end}"}}'] += 1
        effort = f" ({asked.effort})" if asked.effort else ""
        told["said"] = f"{asked.budget}{effort}, {', '.join(ends)}, {' + '.join(map(str, details.values()))} tokens"
        if self._arguments.log_requests:
            logger.info("%s: tokens %s", told["id"], [choice.count.ids for choice in answer.choices])

    async def _forward(self, request: Request, path: str) -> Response:
        """Pass a request of another API on, with the budget as far as vLLM has fields for it there."""
        asked = await self._read(request)
        body = self._model.other_fields(asked, path)
        told = request.state.told
        told["said"] = f"{asked.budget}, passed on"
        answer = await _unless_gone(request, self._model.upstream.post(path, body, told["id"]))

        async def read() -> AsyncIterator[bytes]:
            try:
                async for received in answer.content.iter_any():
                    yield received
            finally:
                answer.close()

        return StreamingResponse(read(), media_type=answer.content_type)

    async def _health(self, request: Request) -> Response:
        await self._model.upstream.check()
        return Response()

    async def _metrics(self, request: Request) -> Response:
        counted = [f"{name} {value}" for name, value in sorted(self._counters.items())]
        return Response("\n".join([*counted, f"e1_requests_running {self._answering}", ""]), media_type="text/plain")

    async def _models(self, request: Request) -> Response:
        """List the model under its name and under the names that select other budgets, or describe one of them."""
        self._admit(request)
        presets = self._model.presets
        budgets = dict.fromkeys([presets.default, *(effort.budget for effort in presets.efforts.values())])
        entry = {"object": "model", "created": 0, "owned_by": "e1_trl", "max_model_len": self._model.close.context}
        if (name := request.path_params.get("name")) is not None:
            read_request({"model": name}, presets, 0)
            return JSONResponse({"id": name, **entry})
        names = [presets.name, *(f"{presets.name}@{budget}" for budget in budgets)]
        return JSONResponse({"object": "list", "data": [{"id": each, **entry} for each in names]})


def _event(content: Part) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


async def _with_heartbeats(stream: AsyncGenerator[Result]) -> AsyncIterator[Result | None]:
    """Yield what a stream yields, and `None` each time that nothing came for a while."""
    waiting = asyncio.ensure_future(anext(stream))
    try:
        while True:
            done, _ = await asyncio.wait((waiting,), timeout=HEARTBEAT)
            if not done:
                yield None
                continue
            try:
                result = waiting.result()
            except StopAsyncIteration:
                return
            waiting = asyncio.ensure_future(anext(stream))
            yield result
    finally:
        waiting.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration, Exception):
            await waiting


async def _read_body(request: Request) -> Any:
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                content += part
                if len(content) > MOST_BODY:
                    raise RefusedError(f"the body has more than {MOST_BODY:,} bytes", 413)
    except TimeoutError as error:
        raise RefusedError(f"the body did not arrive within {BODY_SECONDS:.0f} s", 408) from error
    except ClientDisconnect as error:
        raise RefusedError("the client went away", GONE) from error
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"the body is not JSON: {error}") from error


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Await work, and cancel it, with its request to the server, when the client goes away."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise RefusedError("the client went away", GONE)
        return task.result()
    finally:
        for each in (task, gone):
            each.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await each


def _describe(error: Exception) -> tuple[Part, int]:
    """Return an error as the API has it, and its HTTP status."""
    status = getattr(error, "status", 502)
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": str(error), "type": kind, "param": None, "code": status}}, status


async def _refuse(request: Request, error: Exception) -> Response:
    content, status = _describe(error)
    request.state.told["said"] = str(error)
    headers = {"Retry-After": "1"} if status == 503 else None
    # JSON in ASCII, as a quoted text may hold half of a surrogate pair.
    return Response(json.dumps(content), status, headers, "application/json")


def make_parser() -> CommandParser:
    """Make the parser of `e1 serve`."""
    made = CommandParser(
        "e1 serve",
        "--model MODEL --upstream URL [OPTIONS]",
        "Run an OpenAI-compatible proxy in front of a vLLM server: every client gets a thinking budget and a solution\n"
        "budget. The server's API key is read from E1_UPSTREAM_API_KEY or OPENAI_API_KEY, the one that clients must send\n"
        "from E1_API_KEY:\n\n"
        "  e1 serve --model runs/my-model --upstream http://localhost:8000/v1",
    )
    made.add_record(ServeArguments)
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until SIGINT or SIGTERM."""
    asyncio.run(serve(make_parser().read(ServeArguments, argv)))


def listen(host: str, port: int) -> socket.socket:
    """Open a socket that listens at an address.

    Raises:
        UserError: the address is in use, or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise UserError(f"cannot listen at {host}, port {port}: {reason}; name another --host or --port") from error


def make_config(app: ASGIApp, **more: Any) -> uvicorn.Config:
    """Make uvicorn's configuration. h11 bounds the headers of a request; httptools does not."""
    timeouts = {"timeout_keep_alive": KEPT, "timeout_graceful_shutdown": STOPPING}
    return uvicorn.Config(app, http="h11", log_level="warning", access_log=False, **timeouts, **more)


async def serve(arguments: ServeArguments) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        UserError: the model, the server, a budget or the address is unusable.
    """
    if not logger.handlers:  # not the root logger's, which would repeat the lines that libraries print themselves
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    model = await Model.connect(arguments)
    try:
        presets = model.presets
        read_request({}, presets, 0)  # raises where the default budget exceeds the largest one
        arguments.max_requests = min(arguments.max_requests, allow_files(FILES * arguments.max_requests) // FILES)
        efforts = ", ".join(f"{name} {effort.budget}" for name, effort in presets.efforts.items())
        logger.info("%s at %s; reasoning_effort: %s", arguments.name, presets.default, efforts)
        with listen(arguments.host, arguments.port) as listener:
            logger.info("listening at http://%s:%d/v1", arguments.host, arguments.port)
            server = Server(model, arguments, os.environ.get(KEY) or None)
            await uvicorn.Server(make_config(server.app())).serve([listener])
            logger.info("stopped")
    finally:
        await model.upstream.close()


if __name__ == "__main__":
    run_command("e1 serve", main)
