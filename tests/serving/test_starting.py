"""What `e1 serve` says as it starts, or cannot: no engine is needed for that."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import pytest
from conftest import BASE, free_port

from e1_trl.errors import UserError, run_command
from e1_trl.serving import app

NEEDED = ["--model", str(BASE), "--served_model_name", "nano", "--thinking_budget", "8", "--solution_budget", "8"]


class Listing(BaseHTTPRequestHandler):
    """A server that lists one model, as vLLM does."""

    def do_GET(self) -> None:
        content = json.dumps({"data": [{"id": "nano", "max_model_len": 512}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Listing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def said(*line: str) -> str:
    with pytest.raises(SystemExit) as error:
        run_command("e1 serve", lambda: app.main([*NEEDED, *line]))
    return str(error.value)


def test_a_server_that_is_not_there_is_said_in_words(upstream: str) -> None:
    remedy = "start a server there, as `vllm serve MODEL`, or name another address"
    nowhere = "http://127.0.0.1:9/v1"
    assert said("--upstream", nowhere) == f"e1 serve: no answer from {nowhere}: Connection refused; {remedy}"
    unknown = said("--upstream", "http://no-such-host.invalid:8000/v1")
    assert re.fullmatch(rf"e1 serve: no answer from \S+: [A-Z][\w ]+; {remedy}", unknown)
    other = said("--upstream", upstream, "--served_model_name", "other")
    assert other == f"e1 serve: {upstream} serves nano, not 'other'; set served_model_name to one of its models"


def test_an_address_that_is_in_use_is_named() -> None:
    with app.listen("127.0.0.1", free_port()) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UserError, match=rf"^cannot listen at 127\.0\.0\.1, port {port}: Address already in use; name"
        ):
            app.listen("127.0.0.1", port)
    if socket.has_ipv6:
        app.listen("::1", free_port()).close()


@pytest.mark.slow
def test_a_proxy_says_where_it_listens(upstream: str) -> None:
    port = str(free_port())
    line = [sys.executable, "-m", "e1_trl.cli", "serve", *NEEDED, "--upstream", upstream, "--port", port]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stderr is not None
            address = next(line.split()[-1] for line in proxy.stderr if "listening at" in line)
            assert address == f"http://127.0.0.1:{port}/v1"
            assert httpx.get(f"{address}/models", timeout=60).json()["data"][0]["id"] == "nano"
        finally:
            os.kill(proxy.pid, signal.SIGTERM)


@pytest.mark.slow
def test_what_a_library_warns_of_is_printed_once() -> None:
    code = (
        "import contextlib\n"
        "from e1_trl.serving import app\n"
        "with contextlib.suppress(SystemExit, ValueError):\n"
        f"    app.main([*{NEEDED}, '--upstream', 'http://127.0.0.1:9/v1'])\n"
        "from huggingface_hub.utils import logging\n"
        "logging.get_logger('huggingface_hub.file_download').warning('no Hub')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("no Hub") == 1
