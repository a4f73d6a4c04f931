"""Cost of `e1 serve`: time to the first token, throughput, CPU time of its own, requests/s in front of a stub.

    python -m benchmarks.bench_serve --model runs/real/1/base      (twelve minutes; nothing else should run)

Servers and proxies are started here. Lengths are imposed: each part of an answer uses its whole budget. The proxy is
compared with the same two requests, made by the client, and with one request for as many tokens, without a close. With
`--litellm FILE`, that program of an installation of LiteLLM is put in front of the stub, too (`stub_serve.py`). A soak
(`soak_serve.py`) is the last part.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import httpx

from benchmarks.results import arguments, in_turns, publish, ratio, spread
from benchmarks.serving import (
    NAME,
    NANO,
    Event,
    Pair,
    connections,
    conversation,
    events,
    metric,
    pair,
    questions,
)
from benchmarks.soak_serve import soak
from benchmarks.stub_serve import CLIENTS, requests_per_s, stub
from e1_trl.budget import Budget
from e1_trl.engines.openai import RETURNED
from e1_trl.report.markdown import table

LENGTHS = Budget(512, 128)
CONTEXT = 1024  # tokens
ROUNDS = {1: 3, 32: 2}  # by clients
GIVEN_UP = 8  # more requests of the only client, each given up at its first token
NANO_LENGTHS = Budget(96, 32)
NANO_REQUESTS = {1: 24, 32: 256}  # by clients
STUB_ROUNDS = 4
FIGURES = ("ttft_s", "tokens_per_s")
HEADER = ("clients", "", "first token, s", "to two requests'", "tokens/s", "to two requests'", "found in the cache")


@dataclass(frozen=True)
class Run:
    """Run of an arm: seconds to the first token (the clients' median), tokens/s of all clients, cached prompt tokens.

    Those are a share of all prompts but the first one of each client; `None` where there are no others.
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
    prompt_ids = pair.prompt_ids(question)
    thinking: list[int] = []
    body = {**RETURNED, **pair.sampling, "prompt": prompt_ids, "max_tokens": lengths.thinking}
    url = f"{pair.server}/completions"
    async for event in events(client, url, {**body, "stop_token_ids": pair.marker.ids}):
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
PROXY = "through the proxy"
TWO = "two requests"
ARMS: Mapping[str, Arm] = {PROXY: through_proxy, TWO: two_requests, "one request": one_request}


def total(lengths: Budget) -> int:
    return (lengths.thinking or 0) + (lengths.solution or 0)


async def ask(arm: Arm, client: httpx.AsyncClient, pair: Pair, question: str, lengths: Budget) -> float:
    """Read an answer to its end, and return the seconds to its first token.

    Raises:
        RuntimeError: it has other lengths than the imposed ones.
    """
    began = time.perf_counter()
    first = 0.0
    tokens = 0
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
    """Measure an arm with clients that begin at once."""
    arm = ARMS[name]
    asked = questions(clients + GIVEN_UP, name, clients, turn)
    firsts: list[float] = []
    async with connections() as client:
        if clients == 1:
            firsts += [await ask_and_give_up(arm, client, pair, each, lengths) for each in asked[clients:]]
        before = cache(pair.server)
        began = time.perf_counter()
        firsts += await asyncio.gather(*(ask(arm, client, pair, each, lengths) for each in asked[:clients]))
        wall = time.perf_counter() - began
    hits, queries = (now - then for now, then in zip(cache(pair.server), before, strict=True))
    others = queries - sum(len(pair.prompt_ids(each)) for each in asked[:clients])
    return Run(median(firsts), clients * total(lengths) / wall, hits / others if others else None)


def cache(server: str) -> list[float]:
    """Return the tokens that the server has found in its prefix cache, and those that it has looked up."""
    return [metric(server, f"vllm:prefix_cache_{what}_total") for what in ("hits", "queries")]


async def cpu_us(pair: Pair, clients: int, stream: bool) -> float:
    """Measure the proxy's CPU microseconds for a token of a stream, or for a request that is answered at once."""
    requests = NANO_REQUESTS[clients]
    asked = iter(questions(requests, "cpu", clients, stream))
    url = f"{pair.proxy}/chat/completions"
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


def rows(found: Mapping[str, list[Run]], clients: int) -> list[tuple[str, ...]]:
    """Make the lines of the table: each arm next to the two requests of the same rounds."""
    lines = []
    two = found[TWO]
    for name, runs in found.items():
        to_two = [ratio([getattr(each, key) for each in runs], [getattr(each, key) for each in two]) for key in FIGURES]
        own = [spread([getattr(each, key) for each in runs]) for key in FIGURES]
        cached = [each.cached for each in runs if each.cached is not None]
        share = f"{median(cached):.0%}" if cached else ""
        lines.append((str(clients), name, own[0], to_two[0], own[1], to_two[1], share))
    return lines


def against_stub(folder: Path, litellm: Path | None) -> dict[str, list[float]]:
    """Measure the requests/s of each proxy, and of the stub."""
    with stub(folder, litellm) as ports:
        runs = {name: lambda _, port=port: asyncio.run(requests_per_s(port)) for name, port in ports.items()}
        return in_turns(runs, STUB_ROUNDS, "requests in front of the stub")


def of_processor(folder: Path) -> dict[str, float]:
    """Measure the CPU microseconds of the proxy."""
    with pair(folder, NANO, 256, "float32") as sides:
        return {
            f"{what}, {clients} clients": asyncio.run(cpu_us(sides, clients, what == "a token"))
            for what in ("a token", "a request")
            for clients in CLIENTS
        }


def of_arms(folder: Path, model: str, clients: int) -> dict[str, list[Run]]:
    """Measure the rounds of each arm."""
    with pair(folder, model, CONTEXT, "bfloat16") as sides:

        def run(name: str, turn: int) -> Run:
            return asyncio.run(measure(name, sides, clients, LENGTHS, turn))

        return in_turns({name: partial(run, name) for name in ARMS}, ROUNDS[clients], f"{clients} clients")


def main() -> None:
    parsed = arguments(
        "Measure what e1 serve costs.",
        "serve.json",
        "serve",
        model={"required": True, "help": "checkpoint folder that the server samples"},
        litellm={"type": Path, "help": "the program of an installation of LiteLLM, to compare with"},
    )
    with TemporaryDirectory() as name:
        folder = Path(name)
        answered = against_stub(folder, parsed.litellm)
        cpu = of_processor(folder)
        held = asdict(asyncio.run(soak(folder)))
        arms = {clients: of_arms(folder, parsed.model, clients) for clients in CLIENTS}
    content = {**held, "cpu_us": cpu, "answered_per_s": answered}
    for clients, own in arms.items():
        content[f"clients_{clients}"] = {arm: [asdict(each) for each in runs] for arm, runs in own.items()}
    lines = [line for clients, own in arms.items() for line in rows(own, clients)]
    served = [(name, spread(each)) for name, each in answered.items()]
    tables = [
        table(HEADER, lines),
        table(("CPU of the proxy for", "µs"), [(what, f"{value:.0f}") for what, value in cpu.items()]),
        table(("in front of a server that answers at once, 32 clients", "requests/s"), served),
        table(("soak", ""), [(key.replace("_", " "), str(value)) for key, value in held.items()]),
    ]
    publish(parsed, content, "\n".join(tables))


if __name__ == "__main__":
    main()
