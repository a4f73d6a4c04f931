"""Stub of a server of the OpenAI API with token ids, whose answers a test decides."""

import json
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Body = dict[str, Any]
TOKEN = {"text": "x", "token_ids": [3], "finish_reason": "length"}  # an answer of one token
EMPTY = (307, 308)  # statuses that come without a body


class ServerStub(ThreadingHTTPServer):
    """A server on this machine; it answers any number of requests at a time.

    An answer is a choice, the choices of a stream one after the other, a stream's bytes, or an HTTP status.

    Attributes:
        bodies: requests so far.
        headers: of each of them.
        tokens: what /tokenize says of every prompt.
    """

    request_queue_size = 2048  # connections that are not yet accepted

    def __init__(self, respond: Callable[[Body], Any] = lambda body: TOKEN, models: Any = ({"id": "m"},)):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.respond = respond
        self.models = list(models)
        self.bodies: list[Body] = []
        self.headers: list[Mapping[str, str]] = []
        self.tokens = [2, 4]
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that have left."""


def stream_of(parts: Iterable[Body]) -> bytes:
    """Format choices as events of a stream that goes on."""
    return b"".join(f"data: {json.dumps({'choices': [part]})}\n\n".encode() for part in parts)


class _Handler(BaseHTTPRequestHandler):
    server: ServerStub

    def do_GET(self) -> None:
        self._send(200, {"data": self.server.models})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self._send(200, {"tokens": self.server.tokens})
            return
        self.server.bodies.append(body)
        self.server.headers.append(dict(self.headers))
        answer = self.server.respond(body)
        if isinstance(answer, int):
            self._send(answer, None if answer in EMPTY else {"error": {"message": "no"}})
        elif isinstance(answer, bytes):
            self._send_bytes(200, answer)
        elif body.get("stream", False):
            parts = answer if isinstance(answer, list) else [answer]
            self._send_bytes(200, stream_of(parts) + b"data: [DONE]\n\n")
        else:
            self._send(200, {"choices": [answer]})

    def _send(self, status: int, answer: Body | None) -> None:
        self._send_bytes(status, b"" if answer is None else json.dumps(answer).encode())

    def _send_bytes(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
