"""The proxy in front of a stub of vLLM: how it starts, what it sends, what it refuses, and how it holds out."""

import contextlib
import gc
import gzip
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest
from conftest import BASE, SERVED_CONTEXT
from proxies import conversation, events, eventually, proxy_of
from server_stub import TOKEN, ServerStub, stream_of

from e1_trl import cli
from e1_trl.errors import UserError
from e1_trl.evaluation.arguments import parse
from e1_trl.evaluation.prepare import prepare
from e1_trl.ports import free_port
from e1_trl.serving import app, chat

MODELS = [{"id": "base", "max_model_len": SERVED_CONTEXT}, {"id": "nano", "parent": "base"}]  # an adapter
MODELS += [{"id": "other"}]
ASKED: dict[str, Any] = {"model": "nano", "messages": conversation("a secret")}


def part(*token_ids: int, reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "token_ids": list(token_ids), "finish_reason": reason}


def answer(body: dict[str, Any]) -> Any:
    """Close at once where the proxy tries it, and else think a token, close, and solve with two."""
    if not body.get("stream"):
        return {"text": "", "token_ids": [5], "finish_reason": "length"}
    thinking = [part(role="assistant", content=""), part(20, reasoning="e"), part(5)]
    return [*thinking, part(7, content="1"), part(8, content="2", reason="stop")]


@pytest.fixture
def stub() -> Iterator[ServerStub]:
    with ServerStub(answer, MODELS) as server:
        yield server
        server.shutdown()


@pytest.fixture
def url(stub: ServerStub) -> Iterator[str]:
    with proxy_of(stub.url) as url:
        yield url


def asked_of(stub: ServerStub) -> list[dict[str, Any]]:
    """Return the requests except those that try the server."""
    return [body for body in stub.bodies if body.get("stream")]


NOWHERE = "http://127.0.0.1:9/v1"
REMEDY = "start a server there, such as `vllm serve MODEL --reasoning-config '{.*}'`, or name another address"


AT_NOWHERE = f"--upstream {NOWHERE} --budget 8+8"
NANO = "--upstream STUB --served_model_name nano"


def words_of(options: str, stub: ServerStub) -> list[str]:
    return options.replace("STUB", stub.url).split()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (AT_NOWHERE, f"no answer from {NOWHERE}: Cannot connect .*; {REMEDY}"),
        ("--upstream http://no-such-host.invalid:8000/v1 --budget 8+8", rf": Cannot connect .*; {REMEDY}"),
        (f"--upstream {NOWHERE}", "has no budget.json; name a budget"),
        ("--budget 8+8", "--upstream must be given"),
        ("--upstream STUB --budget 8+8", f"STUB serves base, nano, other, not '{BASE}'; set served_model_name to one"),
        ("--upstream STUB --served_model_name other --budget 8+8", "context, max_model_len None"),
        (f"{NANO} --budget 900+8", "does not fit the server's context"),
        (f"{AT_NOWHERE} --sampling []", "it must be a JSON object"),
        (f"{AT_NOWHERE} --max_budget 8", "budget '8' must read"),
        (f"{AT_NOWHERE} --efforts low:8+8", "budget 'low:8[+]8': 'low:8' is neither"),
        (f"{NANO} --budget 8+8 --max_budget 4+8", "the budget is 8[+]8; at most 4[+]8 is allowed"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    options: str, said: str, stub: ServerStub, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SystemExit) as error:
        cli.main(["serve", "--model", str(BASE), "--port", "1", *words_of(options, stub)])
    assert re.search(said.replace("STUB", stub.url), str(error.value)) and "\n" not in str(error.value)
    gc.collect()  # connections that were left open are reported then
    assert not caplog.records


CONFIG = r"""start vLLM with --reasoning-config '{"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}'"""


@pytest.mark.parametrize(
    ("answers", "options", "said"),
    [
        (400, {}, rf"keeps no thinking budget \(no\); {CONFIG}"),  # vLLM without a reasoning config
        ({"text": "x", "finish_reason": "length"}, {}, CONFIG),  # a server without token ids
        ({**TOKEN, "token_ids": [9]}, {}, rf"does not close a thinking as this model's is closed; {CONFIG}"),
        ({**TOKEN, "token_ids": [29, 5]}, {"forced_text": "Wait </think>"}, "takes only the forced text for a close"),
    ],
)
def test_a_server_that_keeps_no_budget_is_one_line(
    stub: ServerStub, answers: Any, options: dict[str, str], said: str
) -> None:
    stub.respond = lambda body: answers
    with pytest.raises(UserError, match=f"^{stub.url} .*{said}"), proxy_of(stub.url, **options):
        pass


def test_an_address_that_is_in_use_is_named(stub: ServerStub) -> None:
    line = ["--model", str(BASE), *words_of(f"{NANO} --budget 8+8", stub)]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UserError, match=rf"^cannot listen at 127\.0\.0\.1, port {port}: .*[Aa]ddress already in use"
        ):
            app.main([*line, "--port", str(port)])
    with pytest.raises(UserError, match=r"^cannot listen at no-such-host\.invalid, port 8100: "):
        app.main([*line, "--host", "no-such-host.invalid"])


def test_a_chat_that_cannot_start_a_server_is_refused_before_it_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(UserError, match=r"has no budget\.json; name a budget"):
        chat.main(["--model", str(BASE)])
    with pytest.raises(UserError, match=r"-- begins options of a vLLM that is started, and --upstream names one"):
        chat.main(["--model", str(BASE), "--upstream", NOWHERE, "--", "--max-model-len", "8"])


@pytest.mark.slow
def test_a_proxy_says_where_it_listens_and_stops_on_a_signal(stub: ServerStub) -> None:
    port = str(free_port())
    line = [sys.executable, "-m", "e1_trl.cli", "serve", "--model", str(BASE), "--port", port]
    line += words_of(f"{NANO} --budget 8+8", stub)
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as proxy:
        assert proxy.stderr is not None
        address = next(line.split()[-2] for line in proxy.stderr if "Running on" in line)
        assert address == f"http://127.0.0.1:{port}"
        assert httpx.get(f"{address}/v1/models", timeout=60).json()["data"][0]["id"] == "nano"
        os.kill(proxy.pid, signal.SIGTERM)
        rest = proxy.stderr.read()
        assert "Running on" not in rest and "Traceback" not in rest and proxy.wait() == 0


def test_a_request_keeps_its_fields_id_and_key_and_its_text_out_of_the_log(
    stub: ServerStub, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setenv("OPENAI_API_KEY", "of another")
    monkeypatch.setenv("E1_UPSTREAM_API_KEY", "of vllm")
    tools = [{"type": "function", "function": {"name": "f"}}]
    with proxy_of(stub.url, drop=["tools"]) as url:  # with the context of the adapter's base
        more = {"seed": 3, "stop": "=", "temperature": 0.3, "tools": tools, "tool_choice": "auto", "max_tokens": 20}
        done = httpx.post(f"{url}/chat/completions", json={**ASKED, **more}, headers={"X-Request-Id": "mine-1"})
    (body,) = asked_of(stub)
    assert body["seed"] == 3 and body["temperature"] == 0.3 and body["repetition_penalty"] == 1
    assert body["model"] == "nano" and body["max_tokens"] == 20 and body["thinking_token_budget"] == 14
    assert not {"stop", "tools", "tool_choice"} & body.keys()
    headers = stub.headers[-1]
    assert headers["X-Request-Id"] == done.headers["X-Request-Id"] == "mine-1"
    assert headers["Authorization"] == "Bearer of vllm"
    assert headers["Connection"] == "close"  # one that is kept may be dead when it is used again
    assert "mine-1: 14+32/20, closed, 2 + 0 + 2 tokens" in caplog.text and "secret" not in caplog.text


def test_the_server_gets_no_key_of_another(stub: ServerStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of another")
    monkeypatch.setenv("E1_UPSTREAM_API_KEY", "")  # as where a variable of a container is unset
    with proxy_of(stub.url):
        assert "Authorization" not in stub.headers[-1]


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_says_how_it_was_made_and_ends_at_a_stop_text(stub: ServerStub, url: str, stream: bool) -> None:
    asked = {**ASKED, "stream": stream, "stream_options": {"include_usage": True}, "reasoning_effort": "xhigh"}
    done = httpx.post(f"{url}/chat/completions", json={**asked, "stop": ["2", "22"]})
    hidden = httpx.post(f"{url}/chat/completions", json={**ASKED, "include_reasoning": False}).json()
    assert "reasoning" not in hidden["choices"][0]["message"] and hidden["choices"][0]["message"]["content"] == "12"
    whole = done.json() if not stream else {}
    told = events(done.text) if stream else [whole]
    choices = [choice for each in told for choice in each["choices"]]
    deltas = [choice.get("delta", choice.get("message")) for choice in choices]
    assert "".join(delta.get("content") or "" for delta in deltas) == "1" and deltas[0]["role"] == "assistant"
    for name in ("reasoning", "reasoning_content"):
        assert "".join(delta.get(name) or "" for delta in deltas) == "e"
    assert choices[-1]["finish_reason"] == "stop" and choices[-1]["stop_reason"] == "2"
    assert choices[-1]["thinking_end"] == "closed"
    assert told[0]["budget"] == "159+32" and told[0]["reasoning_effort"] == "high" and told[0]["model"] == "nano"
    details = {"reasoning_tokens": 2, "forced_tokens": 0, "solution_tokens": 2}
    assert told[-1]["usage"]["completion_tokens_details"] == details
    assert told[-1]["usage"]["prompt_tokens"] == 2 and not any("token_ids" in choice for choice in choices)
    assert not stream or [bool(choice.get("thinking_end")) for choice in choices] == [False, False, True, True, True]


def test_a_whole_answer_has_the_ids_of_its_prompt_once(stub: ServerStub, url: str) -> None:
    told = stream_of(answer({"stream": True})).replace(b"{", b'{"prompt_token_ids": [2, 4], ', 1)
    stub.respond = lambda body: told + b"data: [DONE]\n\n"
    done = httpx.post(f"{url}/chat/completions", json={**ASKED, "return_token_ids": True}).json()
    assert done["prompt_token_ids"] == [2, 4] and done["choices"][0]["token_ids"] == [20, 5, 7, 8]


def ask_for(url: str, path: str = "/chat/completions", **fields: Any) -> Any:
    asked = ASKED if path == "/chat/completions" else {}
    done = httpx.post(f"{url}{path}", json={**asked, **fields}, timeout=60)
    assert done.status_code == 200, done.text
    return done.json()["choices"][0]


def test_an_answer_that_opens_no_thinking_is_a_solution_from_its_first_token(stub: ServerStub, url: str) -> None:
    stub.tokens = [2, 3]
    parts = [(2, "\n"), (27, "P"), (28, "Q"), (29, "R"), (30, "S")]
    stub.respond = lambda body: [part(token, content=text) for token, text in parts]
    cut = ask_for(url, model="nano@8+4")
    stopped = ask_for(url, model="nano@0+10", stop=["QR"])
    forced = {"thinking_token_budget": 0, "max_tokens": 12}
    assert asked_of(stub)[-1].items() >= forced.items()  # the template has no switch that closes it
    stub.respond = lambda body: [part(token, reasoning=text) for token, text in parts]
    parsed = ask_for(url, model="nano@8+4")  # as by a parser that takes everything for a thinking
    stub.respond = lambda body: [{"index": 0, "text": text, "token_ids": [token]} for token, text in parts]
    text = ask_for(url, "/completions", prompt=[2, 3], model="nano@8+4", stop=["R"])
    assert cut["message"]["content"] == parsed["message"]["content"] == "\nPQR"
    assert cut["finish_reason"] == "length" and cut["thinking_end"] == parsed["thinking_end"] == "none"
    assert stopped["message"]["content"] == "\nP" and stopped["finish_reason"] == "stop"
    assert text["text"] == "\nPQ" and text["thinking_end"] == "none"


def test_several_prompts_without_a_thinking_budget_have_the_least_that_is_left(stub: ServerStub, url: str) -> None:
    asked = {"model": "nano@unlimited+32", "prompt": [[27, 4], [27, 27, 4]]}
    least = SERVED_CONTEXT - 3 - 33
    spent = [{"index": each, "text": "e", "token_ids": [20] * (least - each)} for each in (0, 1)]
    stub.respond = lambda body: [*spent, *({**each, "token_ids": [5], "finish_reason": "stop"} for each in spent)]
    done = httpx.post(f"{url}/completions", json=asked, timeout=60).json()
    assert asked_of(stub)[0]["thinking_token_budget"] == least
    assert [choice["thinking_end"] for choice in done["choices"]] == ["forced", "closed"]


CALL = [{"index": 0, "function": {"name": "f", "arguments": '{"a": 1'}}]


@pytest.mark.parametrize(
    ("last", "content"),
    [
        (part(8, 9, 10, content="234"), "123"),
        (part(24, 18, 16, 24, reason="tool_calls", tool_calls=CALL), "1"),
        (part(24, 18, 16, 24, tool_calls=CALL), "1"),
        (part(8, 24, 18, 16, content="2", tool_calls=CALL), "12"),
        (part(8, 9, 10, 11, reason="stop", content="2345"), "123"),
        (part(8, 1, 10, 11, reason="stop", content="245"), "12"),  # a token without text
    ],
)
def test_what_the_budget_cuts_is_truncated_and_shows_no_raw_tool_call(
    stub: ServerStub, url: str, last: dict[str, Any], content: str
) -> None:
    stub.respond = lambda body: [part(20, reasoning="e"), part(5), part(7, content="1"), last]
    choice = ask_for(url, model="nano@8+3")
    assert (choice["message"]["content"], choice["finish_reason"]) == (content, "length")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("fails", "status", "said"),
    [
        (400, 400, "no"),
        (503, 503, "no"),
        (401, 502, "answered with status 401"),
        (500, 502, "answered with status 500"),
        (307, 502, "answered with status 307"),
    ],
)
def test_a_failure_of_the_server_has_a_status_and_a_message_without_its_address(
    stub: ServerStub, stream: bool, fails: Any, status: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    upstream = stub.url.replace("//", "//admin:s3cret@")
    with proxy_of(upstream) as url:
        stub.respond = lambda body: fails
        failed = httpx.post(f"{url}/chat/completions", json={**ASKED, "stream": stream})
        assert failed.status_code == status and said in failed.json()["error"]["message"]
        stub.shutdown()
        stub.server_close()
        away = httpx.post(f"{url}/chat/completions", json={**ASKED, "stream": stream})
        assert away.status_code == 502 and away.json()["error"]["message"].endswith("does not answer")
        sick = httpx.get(url.replace("v1", "health"))
        assert sick.status_code == 502
    assert "s3cret" not in failed.text + away.text + sick.text and "s3cret" in caplog.text


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "broken",
    [
        b'data: {"error": {"message": "a prompt of others"}}\n\n',
        b"data: {\n\n",
        b"",
        stream_of([part(reason="abort")]),
    ],
)
def test_an_answer_that_breaks_off_is_an_error_of_the_server(
    stub: ServerStub, url: str, broken: bytes, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stub.respond = lambda body: stream_of(answer(body)[:2]) + broken
    failed = httpx.post(f"{url}/chat/completions", json={**ASKED, "stream": stream})
    assert "the server behind this proxy broke off its answer" in failed.text and "others" not in failed.text
    assert failed.status_code == (200 if stream else 502) and '"code": 502' in failed.text
    assert "/v1/chat/completions 502, " in caplog.text


@pytest.mark.parametrize("stream", [True, False])
def test_a_fault_that_the_server_finds_in_a_stream_is_the_clients(stub: ServerStub, url: str, stream: bool) -> None:
    stub.respond = lambda body: b'data: {"error": {"message": "top_logprobs must be 20 or less", "code": 400}}\n\n'
    failed = httpx.post(f"{url}/chat/completions", json={**ASKED, "stream": stream})
    stub.respond = lambda body: stream_of(answer(body)[:2]) + b": keep-alive\n\n" + stream_of(answer(body)[2:])
    kept = httpx.post(f"{url}/chat/completions", json=ASKED)
    assert failed.status_code == (200 if stream else 400)
    assert '"message": "top_logprobs must be 20 or less"' in failed.text and '"code": 400' in failed.text
    assert kept.json()["choices"][0]["message"]["content"] == "12"


def test_what_is_refused_has_its_status_and_says_why(stub: ServerStub) -> None:
    body = {"model": "nano", "messages": conversation("a=1;a?")}
    with proxy_of(stub.url, key="secret", max_budget="128+64") as url:
        client = httpx.Client(base_url=url, headers={"Authorization": "Bearer secret"}, timeout=60)
        kind = {"Content-Type": "application/json"}

        def refused(status: int, says: str, path: str = "/chat/completions", method: str = "POST", **sent: Any) -> None:
            done = client.request(method, path, **sent)
            error = done.json()["error"]
            assert done.status_code == status == error["code"] and says in error["message"], done.text

        refused(401, "API key", json=body, headers={"Authorization": "Bearer other"})
        assert client.get("/models", headers={"Authorization": ""}).status_code == 401
        assert httpx.get(url.replace("/v1", "/health")).status_code == 200
        refused(400, "not JSON", content=b"{", headers=kind)
        refused(400, "not JSON", content=b"[" * 100_000, headers=kind)
        refused(400, "not JSON", content=b'{"seed": ' + b"9" * 5000 + b"}", headers=kind)
        refused(400, "not JSON", content=gzip.compress(b"{}"), headers={**kind, "Content-Encoding": "gzip"})
        refused(400, "stream is true or false", json={**body, "stream": "false"})
        refused(400, "at most 256 may be sent", path="/completions", json={"prompt": [[4]] * 257})
        refused(413, "16777216", content=b" " * (2**24 + 1), headers=kind)
        refused(415, "must be application/json", content=b"{}", headers={"Content-Type": "text/plain"})
        refused(403, "not called 'evil.example'", json=body, headers={"Host": "evil.example"})
        refused(404, "'other' is not served", json={**body, "model": "other"})
        refused(400, "the budget is 129+32; at most 128+64 is allowed", json={**body, "thinking_budget": 129})
        for prompt in ([1.5], [2**32], [-1], [True], [[]], {}):
            refused(400, "prompt must be", path="/completions", json={"prompt": prompt})
        refused(400, "\ud800", content=b'{"\\ud800_budget": 1}', headers=kind)
        for path in ("/messages", "/responses"):
            refused(404, f"POST /v1{path} is no route; there are /v1/chat/completions,", path=path, json=body)
        refused(405, "GET /v1/completions is no route", path="/completions", method="GET")
        refused(404, "'other' is not served", path="/models/other", method="GET")
        assert client.get("/models/nano@8+8").json()["id"] == "nano@8+8"
        assert client.post("/chat/completions", json={**body, "reasoning_effort": "high"}).json()["budget"] == "128+32"
        names = {each["id"] for each in client.get("/models").json()["data"]}
        assert names == {"nano", *(f"nano@{thinking}+32" for thinking in (0, 16, 64, 128))}
        stub.tokens = [2] * (SERVED_CONTEXT - 8)
        refused(400, "does not fit the context", json=body)
        refused(400, "the prompt has 1000000 tokens, and the", path="/completions", json={"prompt": [4] * 10**6})


def test_pages_may_ask_that_the_operator_allows(stub: ServerStub) -> None:
    page = {"Origin": "https://chat.example.org"}
    preflight = {**page, "Access-Control-Request-Method": "POST"}
    with proxy_of(stub.url, allow_origins=["https://chat.example.org"], key="secret") as url:
        assert httpx.options(f"{url}/models", headers=preflight).status_code == 204
        asked = httpx.get(f"{url}/models", headers={**page, "Authorization": "Bearer secret"})
        assert asked.status_code == 200 and asked.headers["Access-Control-Allow-Origin"] == page["Origin"]
        other = httpx.get(f"{url}/models", headers={"Origin": "https://evil.example"})
        assert "Access-Control-Allow-Origin" not in other.headers
    with proxy_of(stub.url, allow_hosts=["chat.example.org"]) as url:
        assert httpx.options(f"{url}/models", headers=preflight).status_code == 405
        assert httpx.get(f"{url}/models", headers={"Host": "chat.example.org:80"}).status_code == 200


def test_a_stream_without_its_thinking_has_none_of_its_tokens(stub: ServerStub, url: str) -> None:
    def logged(*token_ids: int, **delta: Any) -> dict[str, Any]:
        return {**part(*token_ids, **delta), "logprobs": {"content": [{"token": str(each)} for each in token_ids]}}

    parts = [
        *(logged(token, reasoning="a") for token in range(20, 26)),
        logged(5, 7, content="1"),
        logged(8, reason="stop"),
    ]
    asked = {**ASKED, "stream": True, "include_reasoning": False, "return_token_ids": True}
    stub.respond = lambda body: parts
    done = httpx.post(f"{url}/chat/completions", json=asked, timeout=60)
    choices = [choice for event in events(done.text) for choice in event["choices"]]
    shown = [each["token"] for choice in choices for each in choice["logprobs"]["content"]]
    assert shown == ["7", "8"] and [token for each in choices for token in each["token_ids"]] == [7, 8]


def test_a_proxy_stops_though_an_answer_goes_on(stub: ServerStub) -> None:
    end = Event()

    def ask() -> None:
        with contextlib.suppress(httpx.TransportError):
            httpx.post(f"{url}/chat/completions", json=ASKED, timeout=30)

    with proxy_of(stub.url) as url:
        stub.respond = lambda body: end.wait(30) and answer(body)
        asking = Thread(target=ask)
        asking.start()
        assert eventually(lambda: len(asked_of(stub)) == 1)
        start = time.monotonic()
    assert time.monotonic() - start < 10  # it has a second
    end.set()
    asking.join()


def test_an_evaluation_does_not_take_the_proxy_for_a_server(
    stub: ServerStub, url: str, nano_data: Path, tmp_path: Path
) -> None:
    words = ["--model", BASE, "--base_url", url, "--served_model_name", "nano", "--dataset_name", nano_data]
    with pytest.raises(UserError, match=f"^{url} is a proxy of e1 serve; name the server behind it$"):
        prepare(parse([*map(str, words), "--output", str(tmp_path), "--budgets", "8+8"]))
