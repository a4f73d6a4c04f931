"""Soak of the proxy: many kinds of requests at once, good and bad, while clients leave and the server is killed once.

Answers are compared, token by token, with those of an evaluation on the same server at temperature 0.
"""

import asyncio
import json
import random
import time
from collections.abc import Mapping
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from transformers import AutoTokenizer

from benchmarks.serving import (
    NAME,
    NANO,
    address,
    connections,
    conversation,
    events,
    metric,
    questions,
    start_proxy,
    start_server,
)
from e1_trl.budget import Budget, ThinkingClose
from e1_trl.engines.engine import SamplingSettings, run
from e1_trl.engines.server import ServerEngine
from e1_trl.marker import Marker
from e1_trl.ports import free_port
from e1_trl.problems.prompts import tokenize
from e1_trl.rollout import Rollout

REQUESTS = 500
AT_A_TIME = 16
KILLED_AT = 200  # requests
CONTEXT = 256  # tokens
BUDGETS = (Budget(8, 8), Budget(64, 32), Budget(128, 16))
PATIENCE = 60.0  # seconds for a reply
KINDS = {"stream": 6, "whole": 6, "text": 4, "leaves": 4, "malformed": 2, "oversized": 1, "contradictory": 2, "long": 1}
BAD: Mapping[str, tuple[int, Any]] = {
    "malformed": (400, b'{"messages": ['),
    "oversized": (413, b" " * (2**24 + 1)),
    "contradictory": (400, {"thinking_budget": 8, "thinking_token_budget": 9}),
    "long": (400, {"thinking_budget": 10 * CONTEXT}),
}
SETTLING = 100  # requests after which the proxy's memory is first measured


@dataclass
class Soak:
    """Result of a soak. `grown_mb` is the proxy's memory after all requests less that after the first hundred."""

    soak_requests: int = 0
    soak_failed: int = 0
    disconnects: int = 0
    upstream_kills: int = 0
    refused_while_away: int = 0
    connections_left: int = 0
    running_left: int = 0
    grown_mb: float = 0.0


class Soaking:
    """Running soak, whose requests are shared among some clients."""

    def __init__(self, proxy: str, process: psutil.Process, expected: Mapping[tuple[str, Budget], list[int]]):
        self.found = Soak()
        self.failures: list[str] = []
        self._proxy = proxy
        self._process = process
        self._expected = expected
        self._rng = random.Random(0)
        self.settled = 0.0

    async def work(self, client: httpx.AsyncClient) -> None:
        """Make requests until all have been made."""
        while self.found.soak_requests < REQUESTS:
            self.found.soak_requests += 1
            if self.found.soak_requests == SETTLING:
                self.settled = self._process.memory_info().rss
            (kind,) = self._rng.choices(list(KINDS), list(KINDS.values()))
            question, budget = self._rng.choice(list(self._expected))
            until = time.monotonic() + 4 * PATIENCE
            try:
                # An answer that says that the server is away is no failure; clients try again.
                while not await asyncio.wait_for(self._ask(client, kind, question, budget), PATIENCE):
                    self.found.refused_while_away += 1
                    if time.monotonic() > until:
                        raise RuntimeError("the server did not come back")
                    await asyncio.sleep(0.5)
            except Exception as error:
                self.found.soak_failed += 1
                self.failures.append(f"{kind}, {budget}: {error!r}")

    async def _ask(self, client: httpx.AsyncClient, kind: str, question: str, budget: Budget) -> bool:
        """Make a request; return whether it has the right answer, and not one that says that the server is away.

        Raises:
            RuntimeError: the answer is wrong.
        """
        url = f"{self._proxy}/{'completions' if kind == 'text' else 'chat/completions'}"
        prompt = {"prompt": TEXT.format(question)} if kind == "text" else {"messages": conversation(question)}
        body = {"model": f"{NAME}@{budget}", "temperature": 0, "return_token_ids": True, **prompt}
        if kind in BAD:
            status, wrong = BAD[kind]
            content = wrong if isinstance(wrong, bytes) else json.dumps({**body, "model": NAME, **wrong}).encode()
            answer = await client.post(url, content=content, headers={"Content-Type": "application/json"})
            if answer.status_code == 502:
                return False
            _is(answer.status_code == status and "error" in answer.json(), answer.text)
            return True
        if kind == "whole":
            answer = await client.post(url, json=body)
            if answer.status_code == 502:
                return False
            _is(answer.status_code == 200, answer.text)
            token_ids = answer.json()["choices"][0]["token_ids"]
        else:
            token_ids = []
            leave_after = self._rng.randrange(1, 30) if kind == "leaves" else 10_000
            try:
                async with aclosing(events(client, url, body)) as stream:
                    async for event in stream:
                        token_ids += [token for choice in event["choices"] for token in choice.get("token_ids", ())]
                        if len(token_ids) >= leave_after:
                            self.found.disconnects += 1
                            break
            except RuntimeError as error:
                if '"code": 502' in str(error) or '"code":502' in str(error):
                    return False
                raise
        expected = self._expected[question, budget]
        _is(token_ids == (expected[: len(token_ids)] if kind == "leaves" else expected), f"{token_ids}, not {expected}")
        return True


TEXT = "<|user|>{}<|assistant|><think>"  # the chat template of the nano base


def _is(true: bool, what: str) -> None:
    if not true:
        raise RuntimeError(what)


async def soak(folder: Path) -> Soak:
    """Start a server and a proxy, make the requests, kill the server once, and count what is left."""
    tokenizer = AutoTokenizer.from_pretrained(NANO)
    server = free_port()
    proxy = free_port()
    asked = questions(24, "soak")
    with ExitStack() as stack, ExitStack() as first:
        first.enter_context(start_server(folder / "server.log", server, NANO, CONTEXT, "float32"))
        process = stack.enter_context(start_proxy(folder / "soak.log", proxy, NANO, server, "--marker", "</think>"))
        close = ThinkingClose(Marker.from_tokenizer(tokenizer, "</think>"), CONTEXT)
        expected = {}
        for budget in BUDGETS:
            rollouts = [Rollout(tokenize(tokenizer, conversation(each), {}), budget, close) for each in asked]
            engine = ServerEngine(address(server), NAME, close, SamplingSettings(temperature=0.0))
            await asyncio.to_thread(run, engine, rollouts)
            for question, rollout in zip(asked, rollouts, strict=True):
                expected[question, budget] = rollout.completion.token_ids.tolist()
        soaking = Soaking(address(proxy), psutil.Process(process.pid), expected)

        async def kill_once() -> None:
            while soaking.found.soak_requests < KILLED_AT:
                await asyncio.sleep(0.05)
            await asyncio.to_thread(first.close)
            soaking.found.upstream_kills += 1
            again = start_server(folder / "server.log", server, NANO, CONTEXT, "float32")
            await asyncio.to_thread(stack.enter_context, again)

        async with connections() as client:
            await asyncio.gather(kill_once(), *(soaking.work(client) for _ in range(AT_A_TIME)))
        await asyncio.sleep(2)
        found = soaking.found
        process = psutil.Process(process.pid)
        ours = [each for each in process.net_connections() if each.status == "ESTABLISHED"]
        found.connections_left = sum(each.laddr.port == proxy for each in ours)
        found.running_left = int(metric(address(server), "vllm:num_requests_running"))
        found.grown_mb = round((process.memory_info().rss - soaking.settled) / 2**20, 1)
    print(*soaking.failures, sep="\n")
    return found
