"""Cost of `e1 serve`, and what it makes of `max_tokens`, next to the vLLM server behind it.

    python -m benchmarks.bench_serve --trained runs/nano/e1      (eight minutes; nothing else should run)

Servers and proxies are started here. Speed: both are asked for the same thinking budget, and lengths are imposed, so
that each part of an answer uses its whole budget. Requests/s are in front of a stub (`stub_serve.py`). Limits: a client
sends `max_tokens` alone, to the base and to the trained model. A soak (`soak_serve.py`) is the last part.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import httpx

from benchmarks.results import in_turns, parser, publish, ratio, settled, spread
from benchmarks.serving import (
    NAME,
    NANO,
    Event,
    Pair,
    connections,
    conversation,
    events,
    pair,
    questions,
)
from benchmarks.soak_serve import soak
from benchmarks.stub_serve import CLIENTS, answered_per_s, stub
from e1_trl.answers.mathematics.grader import MathematicsGrader
from e1_trl.budget import Budget
from e1_trl.report.markdown import table

LENGTHS = Budget(96, 32)
ROUNDS = 4
REQUESTS = {1: 24, 32: 256}  # by clients
PROXY = "through the proxy"
ALONE = "vLLM alone"
FIGURES = ("ttft_s", "tokens_per_s")
LIMITS = (32, 48, 64, 96, 160)  # `max_tokens` that a client sends
PROBLEMS = 256
DATA = Path("runs/nano/data/test.jsonl")
AT_A_TIME = 32


@dataclass(frozen=True)
class Run:
    """Run of an arm: seconds to the first token (the clients' median), and tokens/s of all clients."""

    ttft_s: float
    tokens_per_s: float


def through_proxy(client: httpx.AsyncClient, pair: Pair, question: str) -> AsyncGenerator[Event]:
    budget = {"thinking_budget": LENGTHS.thinking, "solution_budget": LENGTHS.solution}
    return events(client, f"{pair.proxy}/chat/completions", {"messages": conversation(question), **budget})


def vllm_alone(client: httpx.AsyncClient, pair: Pair, question: str) -> AsyncGenerator[Event]:
    budget = {"thinking_token_budget": LENGTHS.thinking, "max_tokens": total()}
    body = {"messages": conversation(question), **budget, **pair.sampling}
    return events(client, f"{pair.server}/chat/completions", body)


Arm = Callable[[httpx.AsyncClient, Pair, str], AsyncGenerator[Event]]
ARMS: Mapping[str, Arm] = {PROXY: through_proxy, ALONE: vllm_alone}


def total() -> int:
    """Count the tokens of an answer: both budgets, and the forced close of one token."""
    return (LENGTHS.thinking or 0) + 1 + (LENGTHS.solution or 0)


async def ask(arm: Arm, client: httpx.AsyncClient, pair: Pair, question: str) -> float:
    """Read an answer to its end, and return the seconds to its first token.

    Raises:
        RuntimeError: it has another length than the imposed one.
    """
    began = time.perf_counter()
    first = 0.0
    tokens = 0
    async for event in arm(client, pair, question):
        first = first or time.perf_counter() - began
        tokens += (event.get("usage") or {"completion_tokens": 0})["completion_tokens"]
    if tokens != total():
        raise RuntimeError(f"an answer has {tokens} tokens, not {total()}")
    return first


async def measure(arm: Arm, pair: Pair, clients: int, turn: int) -> Run:
    """Measure an arm with clients that ask on and on."""
    asked = iter(questions(REQUESTS[clients], arm.__name__, clients, turn))
    firsts: list[float] = []

    async def ask_all(client: httpx.AsyncClient) -> None:
        for each in asked:
            firsts.append(await ask(arm, client, pair, each))

    async with connections() as client:
        began = time.perf_counter()
        await asyncio.gather(*(ask_all(client) for _ in range(clients)))
        wall = time.perf_counter() - began
    return Run(median(firsts), len(firsts) * total() / wall)


async def cpu_us(pair: Pair, clients: int, stream: bool) -> float:
    """Measure the proxy's CPU microseconds for a token of a stream, or for a request that is answered at once."""
    requests = REQUESTS[clients]
    asked = iter(questions(requests, "cpu", clients, stream))
    budget = {"thinking_budget": LENGTHS.thinking, "solution_budget": LENGTHS.solution}

    async def ask_all(client: httpx.AsyncClient) -> None:
        for each in asked:
            if stream:
                await ask(through_proxy, client, pair, each)
            else:
                body = {"model": NAME, "messages": conversation(each), **budget}
                (await client.post(f"{pair.proxy}/chat/completions", json=body)).raise_for_status()

    async with connections() as client:
        before = pair.process.cpu_times()
        await asyncio.gather(*(ask_all(client) for _ in range(clients)))
        after = pair.process.cpu_times()
    seconds = after.user + after.system - before.user - before.system
    return 1e6 * seconds / (requests * total() if stream else requests)


async def accuracy(url: str, problems: list[dict[str, str]], limit: int) -> float:
    """Return the share of problems that a server answers rightly under `max_tokens`, at temperature 0."""
    asked = iter(problems)
    solutions: list[str] = []
    golds: list[list[str]] = []

    async def ask_all(client: httpx.AsyncClient) -> None:
        for each in asked:
            body = {"messages": conversation(each["problem"]), "max_tokens": limit, "temperature": 0}
            answer = await client.post(f"{url}/chat/completions", json={"model": NAME, **body})
            message = answer.raise_for_status().json()["choices"][0]["message"]
            # Without a reasoning parser vLLM's own content begins with the thinking.
            solutions.append((message["content"] or "").rpartition("</think>")[2])
            golds.append([each["answer"]])

    async with connections() as client:
        await asyncio.gather(*(ask_all(client) for _ in range(AT_A_TIME)))
    with MathematicsGrader(5.0, 1) as grader:
        grades = await asyncio.to_thread(grader.grade, solutions, golds)
    return sum(grade.correct for grade in grades) / len(problems)


def of_limits(folder: Path, model: str, problems: list[dict[str, str]]) -> dict[str, dict[str, float]]:
    """Measure the accuracy of a model under each limit, through the proxy and without it."""
    with pair(folder, model, imposed=False) as sides:
        return {
            str(limit): {
                name: asyncio.run(accuracy(url, problems, limit))
                for name, url in ((PROXY, sides.proxy), (ALONE, sides.server))
            }
            for limit in LIMITS
        }


def main() -> None:
    words = parser("Measure what e1 serve costs, and what it makes of max_tokens.", "serve.json", "serve")
    words.add_argument(
        "--trained", required=True, help="nano model that was trained under a budget, as make train does"
    )
    parsed = settled(words)
    problems = [json.loads(line) for line in DATA.read_text().splitlines()[:PROBLEMS]]
    with TemporaryDirectory() as name:
        folder = Path(name)
        with stub(folder) as ports:
            runs = {each: partial(answered_per_s, port) for each, port in ports.items()}
            answered = in_turns(runs, ROUNDS, "requests in front of the stub")
        with pair(folder) as sides:
            arms: dict[int, dict[str, list[Run]]] = {}
            for clients in CLIENTS:

                def run(arm: Arm, turn: int, clients: int = clients) -> Run:
                    return asyncio.run(measure(arm, sides, clients, turn))

                arms[clients] = in_turns(
                    {each: partial(run, arm) for each, arm in ARMS.items()}, ROUNDS, f"{clients} clients"
                )
            cpu = {
                f"{what}, {clients} clients": asyncio.run(cpu_us(sides, clients, what == "a token"))
                for what in ("a token", "a request")
                for clients in CLIENTS
            }
        limits = {each: of_limits(folder, model, problems) for each, model in (("base", NANO), ("e1", parsed.trained))}
        held = asdict(asyncio.run(soak(folder)))
    content = {
        "to_vllm_alone": {clients: {key: to_alone(own, key) for key in FIGURES} for clients, own in arms.items()},
        "cpu_us": cpu,
        "answered_per_s": answered,
        "limits": limits,
        "soak": held,
        "runs": {
            clients: {name: [asdict(run) for run in runs] for name, runs in own.items()}
            for clients, own in arms.items()
        },
    }
    speed = [
        (str(clients), name, *(spread([getattr(run, key) for run in runs]) for key in FIGURES))
        for clients, own in arms.items()
        for name, runs in own.items()
    ]
    right = [
        (model, limit, *(f"{share:.1%}" for share in own.values()))
        for model, found in limits.items()
        for limit, own in found.items()
    ]
    served = [(name, spread(each)) for name, each in answered.items()]
    tables = [
        table(("clients", "", "first token, s", "tokens/s"), speed),
        table(("CPU of the proxy for", "µs"), [(what, f"{value:.0f}") for what, value in cpu.items()]),
        table(("in front of a server that answers at once, 32 clients", "requests/s"), served),
        table(("model", "max_tokens alone", f"right {PROXY}", f"right, {ALONE}"), right),
        table(("soak", ""), [(key.replace("_", " "), str(value)) for key, value in held.items()]),
    ]
    publish(parsed, content, "\n".join(tables))


def to_alone(own: Mapping[str, list[Run]], key: str) -> str:
    """Divide the proxy's figure by vLLM's of the same round: the median and the range."""
    return ratio([getattr(run, key) for run in own[PROXY]], [getattr(run, key) for run in own[ALONE]])


if __name__ == "__main__":
    main()
