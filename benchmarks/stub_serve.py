"""Stub of a server that answers at once, and the requests/s of proxies in front of it."""

import asyncio
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.serving import NAME, NANO, address, start_proxy, started
from e1_trl.ports import free_port

CLIENTS = (1, 32)
SECONDS = 4.0  # of requests
KEYLESS = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}  # LiteLLM listens on this machine alone


class Stub(asyncio.Protocol):
    """A server that answers at once with token 5, which closes the thinking, and so tokenizes every prompt."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, rest = self.received.partition(b"\r\n\r\n")
            length = int((re.search(rb"(?i)content-length: *(\d+)", head) or [0, 0])[1])
            if len(rest) < length:
                return
            self.received = rest[length:]
            self.transport.write(self.answer(head, rest[:length]))

    def answer(self, head: bytes, body: bytes) -> bytes:
        content: dict[str, Any] = {"tokens": [4]}
        if head.startswith(b"GET"):
            content = {"object": "list", "data": [{"id": NAME, "object": "model", "max_model_len": 256}]}
        elif b"/tokenize" not in head.partition(b"\r\n")[0]:
            choice = {"index": 0, "text": "x", "token_ids": [5], "finish_reason": "stop", "stop_reason": None}
            content = {"id": "0", "object": "text_completion", "created": 0, "model": NAME, "choices": [choice]}
        content_bytes = json.dumps(content).encode()
        kind = b"application/json"
        if b'"stream": true' in body:
            content_bytes = b"data: " + content_bytes + b"\n\ndata: [DONE]\n\n"
            kind = b"text/event-stream"
        start = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
        return start % (kind, len(content_bytes)) + content_bytes


async def serve_stub(port: int) -> None:
    await (await asyncio.get_running_loop().create_server(Stub, "127.0.0.1", port)).serve_forever()


async def requests_per_s(port: int) -> float:
    """Measure the requests/s answered to the most clients, each with a connection of its own."""
    body = json.dumps({"model": NAME, "prompt": "a=1;a?"}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    request = head.encode() + b"Content-Type: application/json\r\n\r\n" + body
    end = time.perf_counter() + SECONDS
    answered = 0

    async def ask_on() -> None:
        nonlocal answered
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            if not head.startswith(b"HTTP/1.1 200") or length is None:
                raise RuntimeError(head.decode())
            await reader.readexactly(int(length[1]))
            answered += 1
        writer.close()

    await asyncio.gather(*(ask_on() for _ in range(CLIENTS[-1])))
    return answered / SECONDS


@contextmanager
def stub(folder: Path, litellm: Path | None) -> Iterator[dict[str, int]]:
    """Yield the ports of a stub, and of the proxies in front of it."""
    with ExitStack() as stack:
        port = free_port()
        proxy = free_port()
        stack.enter_context(started(folder / "stub.log", port, sys.executable, "-m", "benchmarks.stub_serve", port))
        stack.enter_context(start_proxy(folder / "proxy.log", proxy, NANO, port, "--marker", "</think>"))
        ports = {"e1 serve": proxy, "the stub alone": port}
        if litellm is not None:
            ports["LiteLLM"] = other = free_port()
            behind = {"model": f"text-completion-openai/{NAME}", "api_base": address(port), "api_key": "none"}
            config = folder / "litellm.json"  # also valid YAML
            config.write_text(json.dumps({"model_list": [{"model_name": NAME, "litellm_params": behind}]}))
            words = (litellm, "--config", config, "--host", "127.0.0.1", "--port", other)
            stack.enter_context(started(folder / "litellm.log", other, *words, **KEYLESS))
        yield ports


if __name__ == "__main__":
    asyncio.run(serve_stub(int(sys.argv[1])))
