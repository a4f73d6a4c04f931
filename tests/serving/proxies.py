"""Proxies of the nano model in this process."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import uvicorn
from conftest import BASE, free_port

from e1_trl.serving.app import ServeArguments, Server
from e1_trl.serving.model import Model


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
    default = {"model": str(BASE), "thinking_budget": "64", "solution_budget": "32"}
    arguments = ServeArguments(**{**default, **options}, served_model_name="nano", upstream=str(upstream), port=port)
    with asyncio.Runner() as runner:
        model = runner.run(Model.connect(arguments))
        proxy = uvicorn.Server(uvicorn.Config(Server(model, arguments, key).app(), port=port, log_level="error"))
        thread = Thread(target=runner.get_loop().run_until_complete, args=(proxy.serve(),))
        thread.start()
        assert eventually(lambda: proxy.started)
        try:
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            proxy.should_exit = True
            thread.join()
            runner.run(model.client.close())


def conversation(problem: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": problem}]


def send(url: str, body: bytes, length: int) -> socket.socket:
    """Open a connection, and begin a request with a body of `length` bytes."""
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    client = socket.create_connection((host, int(port)))
    client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length + body)
    return client
