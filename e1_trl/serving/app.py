"""`e1 serve`: the OpenAI API with a budget for thinking and one for the solution, before a server that takes token ids.

    e1 serve --upstream http://node7:8000/v1 --model ORG/E1 --port 8100

A served budget is an evaluated one: the same rollout asks for the same tokens. Needs neither vLLM nor PyTorch.
"""

import asyncio
import json
import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from e1_trl.budget import Budget
from e1_trl.command_line import CommandParser
from e1_trl.engines.engine import EngineError
from e1_trl.engines.openai import allow_files
from e1_trl.errors import UserError, run_command
from e1_trl.serving.arguments import ServeArguments
from e1_trl.serving.generate import generate
from e1_trl.serving.model import Model
from e1_trl.serving.request import BudgetPresets, ParsedRequest, RefusedError, read
from e1_trl.serving.response import Answer
from e1_trl.serving.upstream import UpstreamError

logger = logging.getLogger("e1 serve")

Result = TypeVar("Result")
MOST_BODY, BODY_SECONDS = 2**22, 60.0  # bytes of a request, and how long they may take to come
KEY = "E1_API_KEY"
FILES = 2  # a request: its client's connection, and the one to the server
GONE = 499  # a status that nobody reads


class Server:
    """Answers requests with one model; `key` is what clients must know, if anything."""

    def __init__(self, model: Model, arguments: ServeArguments, key: str | None = None):
        self._model = model
        self._name = arguments.name
        self._arguments = arguments
        self._key = key
        self._requests = 0
        # One thread, which a long prompt occupies in place of the loop; tokenizers are not made for several.
        self._tokenizing = ThreadPoolExecutor(1)
        self.ladder = BudgetPresets(model.usual, arguments.pairs or model.efforts, Budget.parse(arguments.max_budget))

    def app(self) -> ASGIApp:
        """The routes of the API, which so many requests may be in at a time."""
        routes = Starlette(
            routes=[
                Route("/v1/chat/completions", partial(self._answer, chat=True), methods=["POST"]),
                Route("/v1/completions", partial(self._answer, chat=False), methods=["POST"]),
                Route("/v1/models", self.models),
                Route("/health", self.health),
            ],
            exception_handlers=dict.fromkeys((RefusedError, UpstreamError, EngineError), _refuse),
        )

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            answers = scope["type"] == "http" and scope["method"] == "POST"
            if answers and self._requests >= self._arguments.max_requests:
                full = RefusedError(f"{self._requests} requests are being answered, which is the limit; try later", 503)
                await (await _refuse(Request(scope), full))(scope, receive, send)
                return
            self._requests += answers
            try:
                await routes(scope, receive, send)
            finally:
                self._requests -= answers

        return app

    async def health(self, request: Request) -> Response:
        """200 while the server behind it answers."""
        await self._model.upstream.context()
        return Response()

    async def models(self, request: Request) -> Response:
        """The model, and under which names it has other budgets."""
        self._admit(request)
        pairs = dict.fromkeys([self.ladder.usual, *self.ladder.efforts.values()])
        entry = {"object": "model", "created": 0, "owned_by": "e1_trl", "max_model_len": self._model.close.context}
        names = [self._name, *(f"{self._name}@{pair}" for pair in pairs)]
        return JSONResponse({"object": "list", "data": [{"id": name, **entry} for name in names]})

    def _admit(self, request: Request) -> None:
        told = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._key is not None and not secrets.compare_digest(told.encode("latin-1"), self._key.encode()):
            raise RefusedError("the API key is missing or wrong", 401)

    async def _answer(self, request: Request, chat: bool) -> Response:
        self._admit(request)
        asked = read(await _body(request), chat, self._name, self.ladder, self._model.sampling)
        loop = asyncio.get_running_loop()
        prompt_ids = await loop.run_in_executor(self._tokenizing, self._model.prompt_ids, asked)
        answer = Answer(self._model.rollout(prompt_ids, asked.budget), self._model, asked)
        events = self._events(answer, asked)
        # What fails before the first token fails with a status.
        first = await _unless_gone(request, anext(events))
        if asked.stream:
            return StreamingResponse(_after(first, events), media_type="text/event-stream")
        return Response(first, media_type="application/json")

    async def _events(self, answer: Answer, asked: ParsedRequest) -> AsyncGenerator[bytes]:
        """An answer as the events of a stream, or at once; it is logged how it ended."""
        began, ended, begun = time.monotonic(), "given up", False
        try:
            async with aclosing(generate(self._model, answer.rollout, asked)) as pieces:
                async for piece in pieces:
                    event = answer.add(piece)
                    if asked.stream and event:
                        begun = True
                        yield event
            ended = str(answer.rollout.thinking_end)
            yield answer.end() if asked.stream else json.dumps(answer.whole()).encode()
        except (UpstreamError, EngineError) as error:
            # What the server says may hold the prompt.
            ended = f"failed: {error}" if self._arguments.log_requests else f"failed, {_error(error)[1]}"
            if not begun:
                raise
            yield b"data: " + json.dumps(_error(error)[0]).encode() + b"\n\n"
        finally:
            logger.info("%s, %s, %.2f s", asked.budget, ended, time.monotonic() - began)
            if self._arguments.log_requests:
                logger.info("%r\n%s\n%s", asked.prompt, "".join(answer.thinking), "".join(answer.solution))


async def _after(first: bytes, events: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
    async with aclosing(events):
        yield first
        async for event in events:
            yield event


async def _body(request: Request) -> Any:
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                content += part
                if len(content) > MOST_BODY:
                    raise RefusedError(f"the body has more than {MOST_BODY:,} bytes", 413)
    except TimeoutError as error:
        raise RefusedError(f"the body did not come within {BODY_SECONDS:.0f} s", 408) from error
    except ClientDisconnect as error:
        raise RefusedError("the client went away", GONE) from error
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"the body is not JSON: {error}") from error


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The work's result; a client that goes away meanwhile ends it, and with it the request to the server."""
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


def _error(error: Exception) -> tuple[dict[str, Any], int]:
    status = getattr(error, "status", 502)
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": str(error), "type": kind, "param": None, "code": status}}, status


async def _refuse(request: Request, error: Exception) -> Response:
    content, status = _error(error)
    headers = {"Retry-After": "1"} if status == 503 else None
    # In ASCII: what is quoted may hold half of a character.
    return Response(json.dumps(content), status, headers, "application/json")


def make_parser() -> CommandParser:
    """The options of `e1 serve`."""
    made = CommandParser(
        "e1 serve",
        "--model MODEL --upstream URL [OPTIONS]",
        "Run an OpenAI-compatible proxy in front of a vLLM server: every client gets a thinking budget and a solution\n"
        "budget. The server's API key is read from OPENAI_API_KEY, the one that clients must send from E1_API_KEY:\n\n"
        "  e1 serve --model runs/my-model --upstream http://localhost:8000/v1",
    )
    made.add_record(ServeArguments)
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until it is stopped."""
    asyncio.run(serve(make_parser().read(ServeArguments, argv)))


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at an address.

    Raises:
        UserError: the address is in use, or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise UserError(f"cannot listen at {host}, port {port}: {reason}; name another --host or --port") from error


async def serve(arguments: ServeArguments) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        UserError: one line about what is wrong.
    """
    if not logger.handlers:  # not the root's, which would print what libraries print themselves once more
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    model = await Model.connect(arguments)
    try:
        server = Server(model, arguments, os.environ.get(KEY) or None)
        server.ladder.budget(None, {})  # raises where the usual one is more than any request may ask for
        arguments.max_requests = min(arguments.max_requests, allow_files(FILES * arguments.max_requests) // FILES)
        efforts = ", ".join(f"{name} {budget}" for name, budget in server.ladder.efforts.items())
        logger.info("%s at %s; reasoning_effort: %s", arguments.name, model.usual, efforts or "none")
        config = uvicorn.Config(server.app(), log_level="warning", access_log=False)
        with listen(arguments.host, arguments.port) as listener:
            logger.info("listening at http://%s:%d/v1", arguments.host, arguments.port)
            await uvicorn.Server(config).serve([listener])
    finally:
        await model.upstream.close()


if __name__ == "__main__":
    run_command("e1 serve", main)
