"""Proxies of the nano model in this process."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

from aiohttp import web
from conftest import BASE

from e1_trl.ports import free_port
from e1_trl.serving.app import RUNNING, ServeArguments, make_app


def eventually(condition: Callable[[], bool], seconds: float = 20) -> bool:
    """Wait until a condition holds, and return whether it does."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


@contextlib.contextmanager
def proxy_of(upstream: object, key: str | None = None, **options: Any) -> Iterator[str]:
    """Run a proxy at 64+32 in a thread, and yield its address."""
    port = free_port()
    default = {"model": str(BASE), "budget": "64+32"}
    arguments = ServeArguments(**{**default, **options}, served_model_name="nano", upstream=str(upstream), port=port)
    with asyncio.Runner() as loop:
        runner = web.AppRunner(loop.run(make_app(arguments, key)), **{**RUNNING, "shutdown_timeout": 1})
        loop.run(runner.setup())
        loop.run(web.TCPSite(runner, "127.0.0.1", port).start())
        running = loop.get_loop()
        thread = Thread(target=running.run_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            running.call_soon_threadsafe(running.stop)
            thread.join()
            loop.run(runner.cleanup())


def conversation(problem: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": problem}]


def events(text: str) -> list[dict[str, Any]]:
    """Read the events of a stream that has ended well."""
    *told, done = [line.removeprefix("data: ") for line in text.split("\n\n") if line and line[0] != ":"]
    assert done == "[DONE]"
    return list(map(json.loads, told))


def send(url: str, body: bytes) -> socket.socket:
    """Open a connection, and send a request."""
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    client = socket.create_connection((host, int(port)))
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return client
