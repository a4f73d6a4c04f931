"""`e1 serve`: an OpenAI-compatible proxy that gives every request a thinking budget and a solution budget.

    e1 serve --upstream http://node7:8000/v1 --model ORG/E1 --port 8100

An answer is the rollout of an evaluation, so both send the same requests to the server. Needs neither vLLM nor PyTorch.
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
from e1_trl.serving.model import Model, generate
from e1_trl.serving.request import BudgetPresets, ParsedRequest, RefusedError, parse_request
from e1_trl.serving.response import Answer

logger = logging.getLogger("e1 serve")

Result = TypeVar("Result")
MOST_BODY = 2**22  # bytes of a request
BODY_SECONDS = 60.0  # for a request to arrive
KEY = "E1_API_KEY"
FILES = 2  # for a request: the client's connection, and the one to the server
GONE = 499  # status for a client that has left


class Server:
    """Answers requests with one model; clients must send `key`, if there is one."""

    def __init__(self, model: Model, arguments: ServeArguments, key: str | None = None):
        self._model = model
        self._arguments = arguments
        self._key = key
        self._requests = 0
        # A long prompt occupies this thread in place of the loop; one thread, as tokenizers are not thread-safe.
        self._tokenizing = ThreadPoolExecutor(1)
        efforts = arguments.budgets_of_efforts or model.efforts
        self.presets = BudgetPresets(model.default_budget, efforts, Budget.parse(arguments.max_budget))

    def app(self) -> ASGIApp:
        """Return the routes of the API, which refuse more than `max_requests` requests at a time."""
        routes = Starlette(
            routes=[
                Route("/v1/chat/completions", partial(self._answer, chat=True), methods=["POST"]),
                Route("/v1/completions", partial(self._answer, chat=False), methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/health", self._health),
            ],
            exception_handlers=dict.fromkeys((RefusedError, EngineError), _refuse),
        )

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            samples = scope["type"] == "http" and scope["method"] == "POST"
            if samples and self._requests >= self._arguments.max_requests:
                full = RefusedError(f"{self._requests} requests are being answered, which is the limit; try later", 503)
                await (await _refuse(Request(scope), full))(scope, receive, send)
                return
            self._requests += samples
            try:
                await routes(scope, receive, send)
            finally:
                self._requests -= samples

        return app

    async def _health(self, request: Request) -> Response:
        await self._model.client.context()
        return Response()

    async def _models(self, request: Request) -> Response:
        """List the model under its name, and under the names that select other budgets."""
        self._admit(request)
        budgets = dict.fromkeys([self.presets.default, *self.presets.efforts.values()])
        entry = {"object": "model", "created": 0, "owned_by": "e1_trl", "max_model_len": self._model.close.context}
        name = self._arguments.name
        names = [name, *(f"{name}@{budget}" for budget in budgets)]
        return JSONResponse({"object": "list", "data": [{"id": each, **entry} for each in names]})

    def _admit(self, request: Request) -> None:
        sent = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._key is not None and not secrets.compare_digest(sent.encode("latin-1"), self._key.encode()):
            raise RefusedError("the API key is missing or wrong", 401)

    async def _answer(self, request: Request, chat: bool) -> Response:
        self._admit(request)
        body = await _read_body(request)
        parsed = parse_request(body, chat, self._arguments.name, self.presets, self._model.sampling)
        loop = asyncio.get_running_loop()
        prompt_ids = await loop.run_in_executor(self._tokenizing, self._model.prompt_ids, parsed)
        answer = Answer(self._model.make_rollout(prompt_ids, parsed.budget), self._model, parsed)
        events = self._events(answer, parsed)
        # A failure in front of the first token still has a status.
        first = await _unless_gone(request, anext(events))
        if parsed.stream:
            return StreamingResponse(_chain(first, events), media_type="text/event-stream")
        return Response(first, media_type="application/json")

    async def _events(self, answer: Answer, parsed: ParsedRequest) -> AsyncGenerator[bytes]:
        """Yield the events of a stream, or the whole answer; log how it ended."""
        start = time.monotonic()
        end = "given up"
        begun = False
        try:
            async with aclosing(generate(self._model, answer.rollout, parsed)) as pieces:
                async for piece in pieces:
                    event = answer.add(piece)
                    if parsed.stream and event:
                        begun = True
                        yield event
            end = str(answer.rollout.thinking_end)
            yield answer.end() if parsed.stream else json.dumps(answer.whole()).encode()
        except EngineError as error:
            # The server's message may quote the prompt.
            end = f"failed: {error}" if self._arguments.log_requests else f"failed, {_describe(error)[1]}"
            if not begun:
                raise
            yield b"data: " + json.dumps(_describe(error)[0]).encode() + b"\n\n"
        finally:
            logger.info("%s, %s, %.2f s", parsed.budget, end, time.monotonic() - start)
            if self._arguments.log_requests:
                logger.info("%r\n%s\n%s", parsed.prompt, "".join(answer.thinking), "".join(answer.solution))


async def _chain(first: bytes, events: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
    async with aclosing(events):
        yield first
        async for event in events:
            yield event


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


def _describe(error: Exception) -> tuple[dict[str, Any], int]:
    """Return an error as the API has it, and its HTTP status."""
    status = getattr(error, "status", 502)
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": str(error), "type": kind, "param": None, "code": status}}, status


async def _refuse(request: Request, error: Exception) -> Response:
    content, status = _describe(error)
    headers = {"Retry-After": "1"} if status == 503 else None
    # JSON in ASCII, as a quoted text may hold half of a surrogate pair.
    return Response(json.dumps(content), status, headers, "application/json")


def make_parser() -> CommandParser:
    """Make the parser of `e1 serve`."""
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
        server = Server(model, arguments, os.environ.get(KEY) or None)
        server.presets.choose(None, {})  # raises where the default budget exceeds the largest one
        arguments.max_requests = min(arguments.max_requests, allow_files(FILES * arguments.max_requests) // FILES)
        efforts = ", ".join(f"{name} {budget}" for name, budget in server.presets.efforts.items())
        logger.info("%s at %s; reasoning_effort: %s", arguments.name, model.default_budget, efforts or "none")
        config = uvicorn.Config(server.app(), log_level="warning", access_log=False)
        with listen(arguments.host, arguments.port) as listener:
            logger.info("listening at http://%s:%d/v1", arguments.host, arguments.port)
            await uvicorn.Server(config).serve([listener])
    finally:
        await model.client.close()


if __name__ == "__main__":
    run_command("e1 serve", main)
