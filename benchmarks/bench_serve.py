"""What `e1 serve` costs: time to the first token, throughput, CPU time of its own, requests/s before a stub.

    python -m benchmarks.bench_serve --model runs/smollm2/base      (twelve minutes; nothing else should run)

All is started here. Lengths are imposed: no part of an answer ends before its budget. Beside the proxy stand the same
two requests, made by the client, and one request for as many tokens, without a close. With `--litellm FILE`, that
program of an installation of LiteLLM stands before the stub, too. A soak (`soak_serve.py`) ends it.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from benchmarks.results import in_turns, parser, publish, ratio, settled, spread
from benchmarks.serving import (
    NAME,
    NANO,
    Event,
    Pair,
    address,
    connections,
    conversation,
    events,
    free_port,
    metric,
    pair,
    questions,
    start_proxy,
    started,
)
from benchmarks.soak_serve import soak
from e1_trl.budget import Budget
from e1_trl.engines.openai import RETURNED
from e1_trl.report.markdown import table

LENGTHS, CONTEXT = Budget(512, 128), 1024
CLIENTS, ROUNDS = (1, 32), {1: 3, 32: 2}  # by clients
GIVEN_UP = 8  # more requests of the only client, each given up at its first token
NANO_LENGTHS, NANO_REQUESTS = Budget(96, 32), {1: 24, 32: 256}  # by clients
STUB_ROUNDS, STUB_SECONDS = 4, 4.0
KEYLESS = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}  # it listens on this machine alone
STUB = "--stub"  # the argument with which this file is the stub
FIGURES = ("ttft_s", "tokens_per_s")
HEADER = ("clients", "", "first token, s", "to two requests'", "tokens/s", "to two requests'", "found in the cache")


@dataclass(frozen=True)
class Run:
    """One arm: seconds to the first token (the clients' median), tokens/s of all, prompt tokens found in the cache.

    Those are a share of all but the first prompt of each client; `None` where there are no others.
    """

    ttft_s: float
    tokens_per_s: float
    cached: float | None


async def through_proxy(client: httpx.AsyncClient, pair: Pair, question: str, lengths: Budget) -> AsyncGenerator[Event]:
    budget = {"thinking_budget": lengths.thinking, "solution_budget": lengths.solution}
    body = {"messages": conversation(question), **budget}
    async for event in events(client, f"{pair.proxy}/chat/completions", body):
        yield event


async def two_requests(client: httpx.AsyncClient, pair: Pair, question: str, lengths: Budget) -> AsyncGenerator[Event]:
    prompt_ids, thinking = pair.prompt_ids(question), list[int]()
    body = {**RETURNED, **pair.sampling, "prompt": prompt_ids, "max_tokens": lengths.thinking}
    first, url = {**body, "stop_token_ids": pair.marker.ids}, f"{pair.server}/completions"
    async for event in events(client, url, first):
        thinking += [token for choice in event["choices"] for token in choice["token_ids"]]
        yield event
    then = {"prompt": [*prompt_ids, *thinking, *pair.marker.forced_ids], "max_tokens": lengths.solution}
    async for event in events(client, url, {**body, **then}):
        yield event


async def one_request(client: httpx.AsyncClient, pair: Pair, question: str, lengths: Budget) -> AsyncGenerator[Event]:
    body = {**pair.sampling, "prompt": pair.prompt_ids(question), "max_tokens": total(lengths)}
    async for event in events(client, f"{pair.server}/completions", body):
        yield event


Arm = Callable[[httpx.AsyncClient, Pair, str, Budget], AsyncGenerator[Event]]
PROXY, TWO = "through the proxy", "two requests"
ARMS: Mapping[str, Arm] = {PROXY: through_proxy, TWO: two_requests, "one request": one_request}


def total(lengths: Budget) -> int:
    return (lengths.thinking or 0) + (lengths.solution or 0)


async def ask(arm: Arm, client: httpx.AsyncClient, pair: Pair, question: str, lengths: Budget) -> float:
    """Read an answer to its end, and return the seconds to its first token.

    Raises:
        RuntimeError: it has other lengths than the imposed ones.
    """
    began, first, tokens = time.perf_counter(), 0.0, 0
    async for event in arm(client, pair, question, lengths):
        first = first or time.perf_counter() - began
        usage = event.get("usage") or {"completion_tokens": 0}
        tokens += usage["completion_tokens"] - (usage.get("completion_tokens_details") or {}).get("forced_tokens", 0)
    if tokens != total(lengths):
        raise RuntimeError(f"an answer has {tokens} tokens, not {total(lengths)}")
    return first


async def ask_and_give_up(arm: Arm, client: httpx.AsyncClient, pair: Pair, question: str, lengths: Budget) -> float:
    """Seconds to the first token of a request, which then ends."""
    began = time.perf_counter()
    async with aclosing(arm(client, pair, question, lengths)) as stream:
        await anext(stream)
        taken = time.perf_counter() - began
    await asyncio.sleep(0.1)  # in which the server frees it
    return taken


async def measure(name: str, pair: Pair, clients: int, lengths: Budget, turn: int) -> Run:
    """All clients begin at once."""
    arm, asked, firsts = ARMS[name], questions(clients + GIVEN_UP, name, clients, turn), list[float]()
    async with connections() as client:
        if clients == 1:
            firsts += [await ask_and_give_up(arm, client, pair, each, lengths) for each in asked[clients:]]
        before, began = cache(pair.server), time.perf_counter()
        firsts += await asyncio.gather(*(ask(arm, client, pair, each, lengths) for each in asked[:clients]))
        wall = time.perf_counter() - began
    hits, queries = (now - then for now, then in zip(cache(pair.server), before, strict=True))
    others = queries - sum(len(pair.prompt_ids(each)) for each in asked[:clients])
    return Run(median(firsts), clients * total(lengths) / wall, hits / others if others else None)


def cache(server: str) -> list[float]:
    """Tokens that the server has found in its prefix cache, and those that it has looked for."""
    return [metric(server, f"vllm:prefix_cache_{what}_total") for what in ("hits", "queries")]


async def cpu_us(pair: Pair, clients: int, stream: bool) -> float:
    """CPU microseconds of the proxy for a token of a stream, or for a request that is answered at once."""
    requests = NANO_REQUESTS[clients]
    asked, url = iter(questions(requests, "cpu", clients, stream)), f"{pair.proxy}/chat/completions"
    budget = {"thinking_budget": NANO_LENGTHS.thinking, "solution_budget": NANO_LENGTHS.solution}

    async def ask_all(client: httpx.AsyncClient) -> None:
        for each in asked:
            if stream:
                await ask(through_proxy, client, pair, each, NANO_LENGTHS)
            else:
                body = {"model": NAME, "messages": conversation(each), **budget}
                (await client.post(url, json=body)).raise_for_status()

    async with connections() as client:
        before = pair.process.cpu_times()
        await asyncio.gather(*(ask_all(client) for _ in range(clients)))
        after = pair.process.cpu_times()
    seconds = after.user + after.system - before.user - before.system
    return 1e6 * seconds / (requests * total(NANO_LENGTHS) if stream else requests)


class Stub(asyncio.Protocol):
    """A server that answers at once, to a request that may stop at token 5 that it has sampled that."""

    def connection_made(self, transport: Any) -> None:
        self.transport, self.received = transport, b""

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
        stop = 5 if b'"stop_token_ids"' in body else None
        choice = {"index": 0, "text": "x", "token_ids": [5], "finish_reason": "stop", "stop_reason": stop}
        content: dict[str, Any] = {"id": "0", "object": "text_completion", "created": 0, "model": NAME}
        content |= {"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
        if head.startswith(b"GET"):
            content = {"object": "list", "data": [{"id": NAME, "object": "model", "max_model_len": 256}]}
        told = json.dumps(content).encode()
        start = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        return start % len(told) + told


async def serve_stub(port: int) -> None:
    await (await asyncio.get_running_loop().create_server(Stub, "127.0.0.1", port)).serve_forever()


def answered_per_s(port: int, turn: int) -> float:
    """See `requests_per_s`; the turn changes nothing."""
    return asyncio.run(requests_per_s(port, STUB_SECONDS))


async def requests_per_s(port: int, seconds: float) -> float:
    """Requests/s that are answered to the most clients, each with a connection of its own."""
    body = json.dumps({"model": NAME, "prompt": "a=1;a?"}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    request = head.encode() + b"Content-Type: application/json\r\n\r\n" + body
    end, answered = time.perf_counter() + seconds, 0

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
    return answered / seconds


@contextmanager
def stub(folder: Path, litellm: Path | None) -> Iterator[dict[str, int]]:
    """The ports of a stub, and of what stands before it."""
    with ExitStack() as stack:
        port, proxy = free_port(), free_port()
        stack.enter_context(
            started(folder / "stub.log", port, sys.executable, "-m", "benchmarks.bench_serve", STUB, port)
        )
        stack.enter_context(start_proxy(folder / "proxy.log", proxy, NANO, port, "--marker", "</think>"))
        ports = {"e1 serve": proxy, "the stub alone": port}
        if litellm is not None:
            ports["LiteLLM"] = other = free_port()
            behind = {"model": f"text-completion-openai/{NAME}", "api_base": address(port), "api_key": "none"}
            told = folder / "litellm.json"  # which is YAML, too
            told.write_text(json.dumps({"model_list": [{"model_name": NAME, "litellm_params": behind}]}))
            words = (litellm, "--config", told, "--host", "127.0.0.1", "--port", other)
            stack.enter_context(started(folder / "litellm.log", other, *words, **KEYLESS))
        yield ports


def rows(found: Mapping[str, list[Run]], clients: int) -> list[tuple[str, ...]]:
    """Lines of the table: each arm beside the two requests of the same rounds."""
    lines, two = [], found[TWO]
    for name, runs in found.items():
        to_two = [ratio([getattr(each, key) for each in runs], [getattr(each, key) for each in two]) for key in FIGURES]
        own = [spread([getattr(each, key) for each in runs]) for key in FIGURES]
        cached = [each.cached for each in runs if each.cached is not None]
        share = f"{median(cached):.0%}" if cached else ""
        lines.append((str(clients), name, own[0], to_two[0], own[1], to_two[1], share))
    return lines


def to_two_requests(found: Mapping[str, list[Run]], key: str) -> float:
    """The proxy's figure to that of two requests, the median of the rounds."""
    return median(getattr(ours, key) / getattr(two, key) for ours, two in zip(found[PROXY], found[TWO], strict=True))


class Parts:
    """Measurements of one commit in a file: those that are there are not made again."""

    def __init__(self, commit: str):
        self._file = Path("runs/bench_serve.json")
        stored = json.loads(self._file.read_text()) if self._file.exists() else {}
        self._found = stored if stored.get("commit") == commit else {"commit": commit}

    def part(self, name: str, measure: Callable[[], Any]) -> Any:
        """What was measured under a name, as JSON."""
        if name not in self._found:
            self._found[name] = measure()
            self._file.parent.mkdir(exist_ok=True)
            self._file.write_text(json.dumps(self._found))
        return self._found[name]


def against_stub(folder: Path, litellm: Path | None) -> dict[str, list[float]]:
    """Requests/s of each proxy, and of the stub."""
    with stub(folder, litellm) as ports:
        runs = {name: partial(answered_per_s, port) for name, port in ports.items()}
        return in_turns(runs, STUB_ROUNDS, "requests before the stub")


def of_processor(folder: Path) -> dict[str, float]:
    """CPU microseconds of the proxy."""
    with pair(folder, NANO, 256, "float32") as sides:
        return {
            f"{what}, {clients} clients": asyncio.run(cpu_us(sides, clients, what == "a token"))
            for what in ("a token", "a request")
            for clients in CLIENTS
        }


def of_arms(folder: Path, model: str, clients: int) -> dict[str, list[dict[str, Any]]]:
    """Each arm's rounds."""
    with pair(folder, model, CONTEXT, "bfloat16") as sides:

        def run(name: str, turn: int) -> Run:
            return asyncio.run(measure(name, sides, clients, LENGTHS, turn))

        found = in_turns({name: partial(run, name) for name in ARMS}, ROUNDS[clients], f"{clients} clients")
    return {name: [asdict(each) for each in runs] for name, runs in found.items()}


def main() -> None:
    if sys.argv[1:2] == [STUB]:
        asyncio.run(serve_stub(int(sys.argv[2])))
        return
    words = parser("Measure what e1 serve costs.", "serve.json", "serve")
    words.add_argument("--model", required=True, help="checkpoint folder that the server samples")
    words.add_argument("--litellm", type=Path, help="the program of an installation of LiteLLM, to compare with")
    parsed = settled(words)
    parts = Parts(parsed.provenance.commit)
    with TemporaryDirectory() as name:
        folder = Path(name)
        answered = parts.part("answered_per_s", lambda: against_stub(folder, parsed.litellm))
        cpu = parts.part("cpu_us", lambda: of_processor(folder))
        held = parts.part("soak", lambda: asdict(asyncio.run(soak(folder))))
        stored = {
            clients: parts.part(f"clients_{clients}", partial(of_arms, folder, parsed.model, clients))
            for clients in CLIENTS
        }
    arms = {
        clients: {arm: [Run(**run) for run in runs] for arm, runs in own.items()} for clients, own in stored.items()
    }
    content = {
        "throughput_ratio_32": to_two_requests(arms[32], "tokens_per_s"),
        "ttft_ratio": to_two_requests(arms[1], "ttft_s"),
        "ttft_ratio_32": to_two_requests(arms[32], "ttft_s"),
        "cpu_us_per_token": cpu["a token, 32 clients"],
        "requests_per_s": median(answered["e1 serve"]),
        **held,
        **{key: getattr(parsed.provenance, key) for key in ("commit", "date", "machine")},
        "cpu_us": cpu,
        "answered_per_s": answered,
        **{f"clients_{clients}": own for clients, own in stored.items()},
    }
    lines = [line for clients, own in arms.items() for line in rows(own, clients)]
    served = [(name, spread(each)) for name, each in answered.items()]
    tables = [
        table(HEADER, lines),
        table(("CPU of the proxy for", "µs"), [(what, f"{value:.0f}") for what, value in cpu.items()]),
        table(("before a server that answers at once, 32 clients", "requests/s"), served),
        table(("soak", ""), [(key.replace("_", " "), str(value)) for key, value in held.items()]),
    ]
    publish(parsed, content, "\n".join(tables))


if __name__ == "__main__":
    main()
