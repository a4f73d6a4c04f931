"""`e1 serve`: a filter in front of vLLM that gives every request a thinking budget and a solution budget.

One request of a client is one of the server, with the tokens of an evaluation. Needs neither vLLM nor PyTorch.
"""

import asyncio
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Sequence
from contextlib import closing
from contextvars import ContextVar
from dataclasses import MISSING, dataclass
from typing import Annotated, Any, ClassVar
from uuid import uuid4

from aiohttp import web
from aiohttp.typedefs import Handler

from e1_trl.arguments import Url, Within, option
from e1_trl.budget import Budget
from e1_trl.checkpoints.budget_file import Effort
from e1_trl.command_line import CommandParser
from e1_trl.engines.openai import ServerError, allow_files
from e1_trl.errors import UserError, user_errors
from e1_trl.serving.model import Model, ModelArguments
from e1_trl.serving.response import Answer, ask

logger = logging.getLogger("e1 serve")

LOCAL = ("localhost", "127.0.0.1", "::1")
ANSWERED = ("/v1/chat/completions", "/v1/completions")
FAULTS_OF_CLIENTS = (400, 404, 413, 422, 429, 501, 503)  # statuses of the server that are passed on, with its message
# Clients that leave cancel their requests; as in vLLM, no body is decompressed; a stop waits 10 seconds, twice.
RUNNING: Any = {"handler_cancellation": True, "auto_decompress": False, "access_log": None, "shutdown_timeout": 10.0}
RECORD: ContextVar[dict[str, Any]] = ContextVar("record")  # id, description and status of this task's request


@dataclass(kw_only=True)
class ServeArguments(ModelArguments):
    """Arguments of `e1 serve`."""

    GROUP: ClassVar[str] = "clients"

    upstream: Url = option(MISSING, "Address of vLLM, as http://host:8000/v1, with a reasoning config.", metavar="URL")
    port: Annotated[int, Within(1, 65_535)] = option(8100, "Port to listen on.")
    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 listens on all.")
    efforts: list[str] = option(
        [], "Budgets of efforts, as low=256+1024. Default: budget.json's, or 1/4, 1, 4 times.", metavar="EFFORT=BUDGET"
    )
    max_budget: str = option("unlimited", "Largest budget of a request, in tokens, as 4096+1024.", metavar="BUDGET")
    drop: list[str] = option([], "Fields to take out of every request, as tools.", metavar="FIELD")
    allow_origins: list[str] = option([], "Web pages that may ask, as https://chat.example.org; * allows all.")
    allow_hosts: list[str] = option([], "Names, besides localhost, by which a proxy on localhost may be called.")


@dataclass(frozen=True)
class Server:
    """Handlers of requests for one model; clients must send `key`, if there is one."""

    model: Model
    arguments: ServeArguments
    key: str | None

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the request's id, and what lets an allowed page read the answer."""
        response.headers["X-Request-Id"] = RECORD.get()["id"]
        origin = request.headers.get("Origin")
        if origin is not None and {origin, "*"} & set(self.arguments.allow_origins):
            allowed = {"Origin": origin, "Headers": "*, Authorization", "Methods": "*"}
            response.headers.update({f"Access-Control-Allow-{name}": value for name, value in allowed.items()})

    @web.middleware
    async def log(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request, or say why it is refused; give it an id, and log it."""
        sent = request.headers.get("X-Request-Id", "")
        known = sent if re.fullmatch(r"[\w.-]{1,128}", sent) else uuid4().hex
        record: dict[str, Any] = {"id": known, "said": "given up"}
        RECORD.set(record)
        start = time.monotonic()
        try:
            response = await self._admit(request, handler)
            record.setdefault("status", response.status)
        except (UserError, web.HTTPException) as error:
            response = web.json_response(_explain(request, error), status=record["status"])
        except (ConnectionError, asyncio.CancelledError) as error:  # writing to a client may notice that it has left
            record["status"] = 499
            raise asyncio.CancelledError from error
        finally:
            status = record.get("status", 500)  # of a bug, whose traceback aiohttp logs
            if request.method == "POST" or status >= 400:
                seconds = time.monotonic() - start
                said = repr(record["said"])[1:-1]  # without line breaks and half characters of clients
                logger.info(f"{request.method} {request.raw_path} {status}, {seconds:.2f} s, {known}: {said}")
        return response

    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request that names this server and has its key, as all but `/health` and preflights must."""
        if request.method == "OPTIONS" and self.arguments.allow_origins:
            return web.Response(status=204)
        if request.path != "/health":
            host = re.sub(r":\d*$", "", request.host).strip("[]")
            if self.arguments.host in LOCAL and host not in (*LOCAL, *self.arguments.allow_hosts):
                raise web.HTTPForbidden(text=f"this server is not called {host[:80]!r}; --allow_hosts can name it")
            sent = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if self.key is not None and not secrets.compare_digest(sent.encode(errors="replace"), self.key.encode()):
                raise web.HTTPUnauthorized(text="the API key is missing or wrong")
        return await handler(request)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a chat or a text with both budgets."""
        if request.content_type != "application/json":  # which a page of another origin cannot send unasked
            raise web.HTTPUnsupportedMediaType(text="the Content-Type must be application/json")
        try:
            body = json.loads(await request.read())
        except (ValueError, RecursionError) as error:
            raise UserError(f"the body is not JSON: {error}") from error
        async with ask(self.model, body, request.path.removeprefix("/v1/"), RECORD.get()["id"]) as answer:
            try:
                if answer.asked.body.get("stream"):
                    return await self._stream(request, answer)
                return web.json_response(await answer.whole())
            finally:
                ends = ", ".join(choice.end or "given up" for choice in answer.choices)
                tokens = " + ".join(map(str, answer.parts))  # of thinking, forced close and solution
                RECORD.get()["said"] = f"{answer.asked.budget}, {ends}, {tokens} tokens"

    async def _stream(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        try:
            async for event in answer.read():
                await response.write(f"data: {json.dumps(event)}\n\n".encode())
        except ServerError as error:
            await response.write(f"data: {json.dumps(_explain(request, error))}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    async def health(self, request: web.Request) -> web.Response:
        """Answer if the server does."""
        await self.model.upstream.context()
        return web.Response()

    async def models(self, request: web.Request) -> web.Response:
        """List the model under its name and under those that select other budgets, or describe it under one."""
        presets = self.model.presets
        entry = {"object": "model", "created": 0, "owned_by": "e1_trl", "max_model_len": self.model.close.context}
        if (name := request.match_info.get("name")) is not None:
            presets.read_name(name)
            return web.json_response({"id": name, **entry})
        budgets = dict.fromkeys([presets.default, *(effort.budget for effort in presets.efforts.values())])
        names = [presets.name, *(f"{presets.name}@{budget}" for budget in budgets)]
        return web.json_response({"object": "list", "data": [{"id": each, **entry} for each in names]})


def _explain(request: web.Request, error: UserError | web.HTTPException) -> dict[str, Any]:
    """Return what a client is told of an error; what a failing server says may hold addresses and others' prompts."""
    said = str(error)
    status = getattr(error, "status", 400)
    if isinstance(error, web.HTTPException):
        said = str(error.text)
        if said.startswith(f"{status}: "):  # aiohttp's own, for a path or method without a handler
            said = f"{request.method} {request.path} is no route; there are {', '.join(ANSWERED)}, /v1/models, /health"
    elif isinstance(error, ServerError) and error.said and status in FAULTS_OF_CLIENTS:
        said = error.said
    elif isinstance(error, ServerError):
        logger.warning("the server failed, with status %s: %s", status, error)
        how = {None: "does not answer", 200: "broke off its answer"}
        said = f"the server behind this proxy {how.get(status, f'answered with status {status}')}"
        status = 502
    RECORD.get().update(said=said, status=status)
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": said, "type": kind, "param": None, "code": status}}


def make_parser() -> CommandParser:
    """Make the parser of `e1 serve`."""
    return CommandParser(
        "e1 serve",
        "--model MODEL --upstream URL [OPTIONS]",
        "Run an OpenAI-compatible proxy in front of vLLM: every client gets a thinking budget and a solution budget.\n"
        "The server's API key is read from E1_UPSTREAM_API_KEY, that of clients from E1_API_KEY:\n\n"
        "  e1 serve --model runs/my-model --upstream http://localhost:8000/v1",
        ServeArguments,
    )


def main(argv: Sequence[str]) -> None:
    """Serve until SIGINT or SIGTERM; raise a `UserError` where model, server, budget or address are unusable."""
    arguments = make_parser().read(ServeArguments, argv)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    logger.handlers = [handler]  # not the root logger's, which would repeat the lines that libraries print themselves
    logger.setLevel(logging.INFO)
    with closing(asyncio.new_event_loop()) as loop:
        app = loop.run_until_complete(make_app(arguments, os.environ.get("E1_API_KEY") or None))
        with user_errors(f"cannot listen at {arguments.host}, port {arguments.port}", OSError):
            web.run_app(app, host=arguments.host, port=arguments.port, loop=loop, print=logger.info, **RUNNING)


async def make_app(arguments: ServeArguments, key: str | None) -> web.Application:
    """Find the model and its server, and make the application, or raise a `UserError`; clients must send the `key`."""
    parts = (each.partition("=") for each in arguments.efforts)
    efforts = {word: Effort.read(budget or word) for word, _, budget in parts}
    allow_files(2048)  # connections, two for a request
    model = await Model.connect(arguments, efforts, most=Budget.parse(arguments.max_budget), drop=arguments.drop)
    told = ", ".join(f"{word} {effort.budget}" for word, effort in model.presets.efforts.items())
    logger.info("%s at %s; reasoning_effort: %s", model.presets.name, model.presets.default, told)
    server = Server(model, arguments, key)
    app = web.Application(client_max_size=2**24, middlewares=[server.log])
    app.router.add_routes([web.get("/health", server.health), *(web.post(path, server.answer) for path in ANSWERED)])
    app.router.add_routes([web.get(path, server.models) for path in ("/v1/models", "/v1/models/{name:.+}")])
    app.on_response_prepare.append(server.add_headers)
    app.on_cleanup.append(lambda app: model.upstream.close())
    return app
