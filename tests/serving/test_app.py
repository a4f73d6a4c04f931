"""The proxy in front of a stub of a server: how it starts, what it sends, and what it refuses."""

import gc
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from conftest import BASE, SERVED_CONTEXT, free_port
from proxies import conversation, eventually, proxy_of, send
from server_stub import TOKEN, ServerStub

from e1_trl import cli
from e1_trl.errors import UserError
from e1_trl.serving import app, chat

BUDGET = ["--thinking_budget", "8", "--solution_budget", "8"]
MODELS = [{"id": "base", "max_model_len": SERVED_CONTEXT}, {"id": "nano", "parent": "base"}]  # an adapter


def end_at_once(body: dict[str, Any]) -> dict[str, Any]:
    """Sample the marker where it ends the request, or else an end-of-sequence token."""
    return {**TOKEN, "token_ids": [5], "finish_reason": "stop", "stop_reason": body.get("stop_token_ids", [None])[0]}


@pytest.fixture
def stub() -> Iterator[ServerStub]:
    with ServerStub(end_at_once, MODELS) as server:
        yield server
        server.shutdown()


NOWHERE = "http://127.0.0.1:9/v1"
REMEDY = "start a server there, as `vllm serve MODEL`, or name another address"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--upstream", NOWHERE, *BUDGET], f"no answer from {NOWHERE}: Connection refused; {REMEDY}"),
        (["--upstream", "http://no-such-host.invalid:8000/v1", *BUDGET], rf"no answer from \S+: [A-Z][\w ]+; {REMEDY}"),
        (["--upstream", NOWHERE], "has no budget.json; name a thinking_budget and a solution_budget"),
        (BUDGET, "--upstream must be given"),
        (["--upstream", "127.0.0.1:9/v1", *BUDGET], "it must be a text, as http://host:8000/v1"),
        (["--upstream", "STUB", *BUDGET], f"STUB serves base, nano, not '{BASE}'; set served_model_name to one of"),
        (["--upstream", NOWHERE, *BUDGET, "--sampling", "[]"], "it must be a JSON object"),
        (["--upstream", NOWHERE, *BUDGET, "--sampling", '{"n": 2}'], "sampling holds n, which each request sets"),
        (["--upstream", NOWHERE, *BUDGET, "--max_budget", "8"], "budget '8' must read"),
        (["--upstream", NOWHERE, *BUDGET, "--efforts", "low:8+8"], r"efforts: 'low:8\+8' must read 'low=256\+1024'"),
        (
            ["--upstream", "STUB", "--served_model_name", "nano", *BUDGET, "--max_budget", "4+8"],
            "the thinking budget is 8 tokens; it must be 4 or less",
        ),
    ],
)
def test_what_cannot_be_served_is_one_line(
    options: list[str], said: str, stub: ServerStub, caplog: pytest.LogCaptureFixture
) -> None:
    options = [stub.url if each == "STUB" else each for each in options]
    with pytest.raises(SystemExit) as error:
        cli.main(["serve", "--model", str(BASE), "--port", "1", *options])
    assert re.search(said.replace("STUB", stub.url), str(error.value)) and "\n" not in str(error.value)
    gc.collect()  # connections that were left open are reported then
    assert not caplog.records


def test_an_address_that_is_in_use_is_named() -> None:
    with app.listen("127.0.0.1", free_port()) as taken:
        port = taken.getsockname()[1]
        message = rf"^cannot listen at 127\.0\.0\.1, port {port}: Address already in use; name"
        with pytest.raises(UserError, match=message):
            app.listen("127.0.0.1", port)
    if socket.has_ipv6:
        app.listen("::1", free_port()).close()


def test_a_chat_without_a_budget_is_refused_before_a_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(UserError, match=r"has no budget\.json; name a thinking_budget and a solution_budget"):
        chat.main(["--model", str(BASE)])


@pytest.mark.slow
def test_a_proxy_says_where_it_listens(stub: ServerStub) -> None:
    port = str(free_port())
    line = [sys.executable, "-m", "e1_trl.cli", "serve", "--model", str(BASE), "--served_model_name", "nano", *BUDGET]
    line += ["--upstream", stub.url, "--port", port]
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
        f"    app.main([*{['--model', str(BASE), '--upstream', NOWHERE, *BUDGET]}])\n"
        "from huggingface_hub.utils import logging\n"
        "logging.get_logger('huggingface_hub.file_download').warning('no Hub')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("no Hub") == 1


@pytest.mark.parametrize("stream", [True, False])
def test_each_part_has_its_seed_and_the_solution_alone_the_stop_texts(
    stub: ServerStub, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with proxy_of(stub.url) as url:  # with the context of the adapter's base
        body = {"messages": conversation("a secret"), "stream": stream, "seed": 3, "stop": ["="], "temperature": 0.3}
        assert httpx.post(f"{url}/chat/completions", json=body).status_code == 200
    thinking, solution = stub.bodies
    assert thinking["seed"] == 3 != solution["seed"] and solution["stop"] == ["="] and "stop" not in thinking
    assert thinking["temperature"] == solution["temperature"] == 0.3 and thinking["repetition_penalty"] == 1
    assert solution["prompt"] == [*thinking["prompt"], 5]
    assert "64+32, closed" in caplog.text and "secret" not in caplog.text


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ({"text": "x", "finish_reason": "stop"}, 502, "returns no token ids"),
        ({**TOKEN, "token_ids": [5] * 99}, 502, "99 tokens came for a request of 64"),
        ({**TOKEN, "finish_reason": "abort"}, 502, "finish_reason='abort'"),
        (["no choice"], 502, "malformed response"),
        (400, 400, "no"),
        (503, 503, "no"),
        (404, 502, "no"),
    ],
)
def test_a_failure_of_the_server_has_a_status_and_a_message(
    stub: ServerStub, stream: bool, answer: Any, status: int, said: str
) -> None:
    stub.respond = lambda body: answer
    with proxy_of(stub.url) as url:
        failed = httpx.post(f"{url}/chat/completions", json={"messages": conversation("a"), "stream": stream})
    if failed.status_code == 200:  # noticed after the first token
        assert stream and said in failed.text and '"code": 502' in failed.text
    else:
        assert failed.status_code == status and said in failed.json()["error"]["message"]


def test_what_is_refused_has_its_status_and_says_why(stub: ServerStub) -> None:
    body = {"model": "nano", "messages": conversation("a=1;a?")}
    with proxy_of(stub.url, key="secret", max_budget="128+64") as url:
        client = httpx.Client(base_url=url, headers={"Authorization": "Bearer secret"}, timeout=60)

        def refused(status: int, says: str, **request: Any) -> None:
            answer = client.post("/chat/completions", **request)
            error = answer.json()["error"]
            assert answer.status_code == status == error["code"] and says in error["message"], answer.text

        refused(401, "API key", json=body, headers={"Authorization": "Bearer other"})
        assert client.get("/models", headers={"Authorization": ""}).status_code == 401
        assert httpx.get(url.replace("/v1", "/health")).status_code == 200
        refused(400, "not JSON", content=b"{")
        refused(400, "not JSON", content=b"[" * 100_000)
        refused(413, "4,194,304 bytes", content=b" " * (2**22 + 1))
        refused(404, "'other' is not served", json={**body, "model": "other"})
        refused(400, "must be 128 or less", json={**body, "thinking_budget": 129})
        refused(400, "does not fit the context", json={**body, "messages": conversation("a=1;a?" * 99)})
        refused(400, "chat_template_kwargs", json={**body, "chat_template_kwargs": 3})
        for own in ({"chat_template": "{{ 1 / 0 }}"}, {"max_length": 2, "truncation": True}, {"tools": [{}]}):
            refused(400, f"chat_template_kwargs has {min(own)}", json={**body, "chat_template_kwargs": own})
        unknown = {**body["messages"][0], "tool_calls": [{}]}  # type: ignore[dict-item]
        refused(400, "tool_calls is an unknown field of a message", json={**body, "messages": [unknown]})
        refused(400, "\ud800", content=b'{"\\ud800": 1}')
        assert client.get("/nothing").status_code == 404 and client.get("/completions").status_code == 405
    with proxy_of(stub.url, max_requests=1) as url, httpx.Client(base_url=url, timeout=60) as client:
        with send(url, b"{", 100):  # the rest of which does not come
            assert eventually(lambda: client.post("/chat/completions", json=body).status_code == 503)
            refused(503, "1 requests are being answered", json=body)
        assert eventually(lambda: client.post("/chat/completions", json=body).status_code == 200)
