"""`e1 serve`: a filter in front of vLLM that gives every request a thinking budget and a solution budget.

    e1 serve --upstream http://node7:8000/v1 --model ORG/E1 --port 8100

One request of a client is one of the server, with the tokens of an evaluation. Needs neither vLLM nor PyTorch.
"""

import asyncio
import json
import logging
import os
import re
import secrets
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

from aiohttp import web

from e1_trl.command_line import CommandParser
from e1_trl.engines.openai import ServerError, allow_files
from e1_trl.errors import UserError, run_command
from e1_trl.serving.arguments import LOCAL, ServeArguments
from e1_trl.serving.model import Model
from e1_trl.serving.request import ParsedRequest, RefusedError, parse_request
from e1_trl.serving.response import Answer, Part

logger = logging.getLogger("e1 serve")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MOST_BODY = 2**24  # bytes of a request
BODY_SECONDS = 60.0  # for a request to arrive
KEY = "E1_API_KEY"
FILES = 2  # for a request: the client's connection, and the one to the server
GONE = 499  # status in the log for a client that has left
HEARTBEAT = 15.0  # seconds without a token after which a stream sends a comment
KEPT = 75.0  # seconds for which a client's idle connection is kept: longer than load balancers keep it
STOPPING = 20.0  # seconds that answers have to end in when the proxy stops
ANSWERED = ("/v1/chat/completions", "/v1/completions")
OF_VLLM = ("/v1/messages", "/v1/responses")  # its routes that know no solution budget, nor all thinking budgets
OPEN = ("/health", "/metrics")  # routes for everyone


# Of the request that the running task answers: its id, status, slot, and what the log says of it.
RECORD: ContextVar[dict[str, Any]] = ContextVar("record")


class Server:
    """Answers requests with one model; clients must send `key`, if there is one."""

    def __init__(self, model: Model, arguments: ServeArguments, key: str | None = None, heartbeat: float = HEARTBEAT):
        self._model = model
        self._arguments = arguments
        self._key = key
        self._heartbeat = heartbeat
        self._answering = 0
        self._counters: Counter[str] = Counter()

    def runner(self, stopping: float = STOPPING) -> web.AppRunner:
        """Return the application, which cancels the request of a client that leaves."""

        @web.middleware
        async def log(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._log(request, handler)

        app = web.Application(client_max_size=MOST_BODY, middlewares=[log])
        gets = {"/health": self._health, "/metrics": self._show_metrics}
        gets |= dict.fromkeys(("/v1/models", "/v1/models/{name:.+}"), self._models)
        app.router.add_routes([web.post(path, self._answer) for path in ANSWERED])
        app.router.add_routes([web.get(path, handler) for path, handler in gets.items()])
        app.on_response_prepare.append(self._add_headers)
        timeouts: Any = {"keepalive_timeout": KEPT, "shutdown_timeout": stopping}
        return web.AppRunner(app, handler_cancellation=True, access_log=None, **timeouts)

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers["X-Request-Id"] = RECORD.get()["id"]
        origin = request.headers.get("Origin")
        if origin is not None and {origin, "*"} & set(self._arguments.allow_origins):
            allowed = {"Origin": origin, "Headers": "*, Authorization", "Methods": "*"}
            response.headers.update({f"Access-Control-Allow-{name}": value for name, value in allowed.items()})

    async def _log(self, request: web.Request, answer: Handler) -> web.StreamResponse:
        """Answer a request, give it an id, log and count it."""
        sent = request.headers.get("X-Request-Id", "")
        record: dict[str, Any] = {"id": sent if re.fullmatch(r"[\w.-]{1,128}", sent) else uuid4().hex, "status": GONE}
        RECORD.set(record)
        start = time.monotonic()
        try:
            asks_ahead = request.method == "OPTIONS" and bool(self._arguments.allow_origins)
            if request.path not in OPEN and not asks_ahead:
                self._admit(request)
            response = web.Response(status=204) if asks_ahead else await answer(request)
            record["status"] = record.get("failed", response.status)
            return response
        except (RefusedError, web.HTTPException) as error:
            refused = error if isinstance(error, RefusedError) else _explain(request, error.status)
            record |= {"status": refused.status, "said": str(refused)}
            headers = {"Retry-After": "1"} if refused.status == 503 else None
            return web.json_response(refused.as_json(), status=refused.status, headers=headers)
        except Exception:  # a bug, whose traceback aiohttp logs
            record["status"] = 500
            raise
        finally:
            self._answering -= record.get("slots", 0)
            status = record["status"]
            self._counters[f'e1_requests_total{{status="{status}"}}'] += 1
            if request.method == "POST" or status >= 400:
                line = (request.method, request.raw_path, status, time.monotonic() - start, record["id"])
                said = repr(record.get("said", "given up"))[1:-1]  # without line breaks and half characters of clients
                logger.info("%s %s %d, %.2f s, %s: %s", *line, said)

    def _admit(self, request: web.Request) -> None:
        host = re.sub(r":\d*$", "", request.host).strip("[]")
        if self._arguments.host in LOCAL and host not in (*LOCAL, *self._arguments.allow_hosts):
            raise RefusedError(f"this server is not called {host[:80]!r}; --allow_hosts can name it", 403)
        sent = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._key is not None and not secrets.compare_digest(sent.encode(errors="replace"), self._key.encode()):
            raise RefusedError("the API key is missing or wrong", 401)

    async def _read(self, request: web.Request) -> ParsedRequest:
        """Read a request, once it has arrived and there is room for it."""
        if request.content_type != "application/json":
            raise RefusedError("the Content-Type must be application/json", 415)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = json.loads(await request.read())
        except TimeoutError as error:
            raise RefusedError(f"the body did not arrive within {BODY_SECONDS:.0f} s", 408) from error
        except (ValueError, RecursionError) as error:
            raise RefusedError(f"the body is not JSON: {error}") from error
        if self._answering >= self._arguments.max_requests:
            raise RefusedError(f"{self._answering} requests are being answered, which is the limit; try later", 503)
        self._answering += 1
        RECORD.get()["slots"] = 1
        if self._arguments.log_requests:
            logger.info("%s: %s", RECORD.get()["id"], json.dumps(body))
        return parse_request(body, self._model.presets, self._model.close.forced_after(None))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await self._read(request)
        answer = await Answer.begin(self._model, asked, request.path, RECORD.get()["id"])
        try:
            if asked.stream:
                return await self._stream(request, answer, asked)
            async with aclosing(answer.read()) as stream:
                async for events in stream:
                    answer.merge(events)
            return web.json_response(answer.whole())
        finally:
            self._note(answer, asked)

    async def _stream(self, request: web.Request, answer: Answer, asked: ParsedRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        try:
            async with aclosing(answer.read()) as stream:
                coming = asyncio.ensure_future(anext(stream, None))
                last = time.monotonic()
                try:
                    while True:
                        wait = max(0.0, last + self._heartbeat - time.monotonic())
                        done, _ = await asyncio.wait((coming,), timeout=wait)
                        if (events := coming.result() if done else []) is None:
                            break
                        coming = asyncio.ensure_future(anext(stream, None)) if done else coming
                        if events or not done:
                            await response.write(b"".join(map(_event, events)) or b": still sampling\n\n")
                            last = time.monotonic()
                finally:
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)
            if asked.include_usage:
                await response.write(_event({**answer.head, "choices": [], "usage": answer.usage()}))
        except RefusedError as error:
            RECORD.get()["failed"] = error.status
            await response.write(_event(error.as_json()))
        await response.write(b"data: [DONE]\n\n")
        return response

    def _note(self, answer: Answer, asked: ParsedRequest) -> None:
        """Note how an answer ended, for the log and the metrics."""
        details = answer.usage()["completion_tokens_details"]
        for part, tokens in details.items():
            self._counters[f'e1_tokens_total{{part="{part.removesuffix("_tokens")}"}}'] += tokens
        ends = [choice.count.end or "given up" for choice in answer.choices]
        for end in ends:
            self._counters[f'e1_answers_total{{thinking_end="{end}"}}'] += 1
        RECORD.get()["said"] = f"{asked.budget}, {', '.join(ends)}, {' + '.join(map(str, details.values()))} tokens"
        if self._arguments.log_requests:
            logger.info("%s: token ids %s", RECORD.get()["id"], [choice.count.ids for choice in answer.choices])

    async def _health(self, request: web.Request) -> web.Response:
        try:
            await self._model.upstream.context()
        except ServerError as error:
            logger.warning("%s", error)
            raise RefusedError("the server behind this proxy does not answer", 502) from error
        return web.Response()

    async def _show_metrics(self, request: web.Request) -> web.Response:
        lines = [f"{name} {value}" for name, value in sorted(self._counters.items())]
        return web.Response(text="\n".join([*lines, f"e1_requests_running {self._answering}", ""]))

    async def _models(self, request: web.Request) -> web.Response:
        """List the model under its name and under those that select other budgets, or describe it under one."""
        presets = self._model.presets
        entry = {"object": "model", "created": 0, "owned_by": "e1_trl", "max_model_len": self._model.close.context}
        if (name := request.match_info.get("name")) is not None:
            return web.json_response({"id": parse_request({"model": name}, presets, 0).model, **entry})
        budgets = dict.fromkeys([presets.default, *(effort.budget for effort in presets.efforts.values())])
        names = [presets.name, *(f"{presets.name}@{budget}" for budget in budgets)]
        return web.json_response({"object": "list", "data": [{"id": each, **entry} for each in names]})


def _event(content: Part) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def _explain(request: web.Request, status: int) -> RefusedError:
    if status == 413:
        return RefusedError(f"the body has more than {MOST_BODY:,} bytes", status)
    if request.path.startswith(OF_VLLM):
        return RefusedError(f"vLLM itself serves {request.path}, without a solution budget; {ANSWERED[0]} has one", 404)
    known = ", ".join([*ANSWERED, "/v1/models", *OPEN])
    return RefusedError(f"{request.method} {request.path} is no route; there are {known}", status)


def make_parser() -> CommandParser:
    """Make the parser of `e1 serve`."""
    made = CommandParser(
        "e1 serve",
        "--model MODEL --upstream URL [OPTIONS]",
        "Run an OpenAI-compatible proxy in front of vLLM: every client gets a thinking budget and a solution budget.\n"
        "The server's API key is read from E1_UPSTREAM_API_KEY or OPENAI_API_KEY, that of clients from E1_API_KEY:\n\n"
        "  e1 serve --model runs/my-model --upstream http://localhost:8000/v1",
    )
    made.add_record(ServeArguments)
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until SIGINT or SIGTERM."""
    asyncio.run(serve(make_parser().read(ServeArguments, argv)))


async def listen(runner: web.AppRunner, host: str, port: int) -> None:
    """Listen at an address; raise a `UserError` if it is in use, or not this machine's."""
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise UserError(f"cannot listen at {host}, port {port}: {reason}; name another --host or --port") from error


async def serve(arguments: ServeArguments) -> None:
    """Serve until SIGINT or SIGTERM; raise a `UserError` where model, server, budget or address are unusable."""
    if not logger.handlers:  # not the root logger's, which would repeat the lines that libraries print themselves
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    model = await Model.connect(arguments)
    try:
        parse_request({}, model.presets, 0)  # raises where the default budget exceeds the largest one
        arguments.max_requests = min(arguments.max_requests, allow_files(FILES * arguments.max_requests) // FILES)
        efforts = ", ".join(f"{word} {effort.budget}" for word, effort in model.presets.efforts.items())
        logger.info("%s at %s; reasoning_effort: %s", arguments.name, model.presets.default, efforts)
        runner = Server(model, arguments, os.environ.get(KEY) or None).runner()
        await listen(runner, arguments.host, arguments.port)
        logger.info("listening at http://%s:%d/v1", arguments.host, arguments.port)
        await stopped.wait()
        logger.info("stopping within %.0f s", STOPPING)
        await runner.cleanup()
    finally:
        await model.upstream.close()


if __name__ == "__main__":
    run_command("e1 serve", main)
