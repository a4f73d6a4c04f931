"""vLLM server and the proxy in front of it, started for a benchmark and killed after it, and their requests."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from e1_trl.marker import Marker
from e1_trl.ports import free_port
from e1_trl.problems.prompts import tokenize

NANO = "experiments/nano/base"
NAME = "model"  # at the server
MARKERS = {NANO: "</think>"}
RARE = "<|endoftext|>"  # the marker of other models: one token, which is never sampled here
STARTING = 300.0  # seconds
Event = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """Addresses of a vLLM server and of the proxy in front of it, which end in /v1."""

    server: str
    proxy: str
    process: psutil.Process
    tokenizer: PreTrainedTokenizerBase
    marker: Marker

    def prompt_ids(self, question: str) -> list[int]:
        return tokenize(self.tokenizer, conversation(question), {})

    @property
    def sampling(self) -> dict[str, Any]:
        """Sampling parameters that keep a request from ending before its budget is used up."""
        return {"temperature": 0, "ignore_eos": True, "logit_bias": {str(self.marker.ids[0]): -100}}


def address(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"


@contextmanager
def started(log: Path, port: int, *words: object, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server in a process group of its own, yield it once it lists its models, and kill it.

    Raises:
        RuntimeError: it did not start; with the end of its output.
    """
    line = [str(word) for word in words]
    deadline = time.monotonic() + STARTING
    with log.open("ab") as out:
        process = subprocess.Popen(
            line, env={**os.environ, **environment}, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        while not _answers(f"{address(port)}/models"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{line[:3]} did not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)
        yield process
    finally:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=10).status_code in (200, 401)
    except httpx.TransportError:
        return False


def start_server(log: Path, port: int, model: str, context: int, dtype: str, *more: object) -> Any:
    """Start a vLLM server."""
    flags = ("--no-enable-chunked-prefill", "--enforce-eager", "--block-size", 32, "--served-model-name", NAME)
    words = ("--model", model, "--dtype", dtype, "--max-model-len", context, "--port", port, *flags, *more)
    config = {"reasoning_start_str": "<think>", "reasoning_end_str": MARKERS.get(model, RARE)}
    words = (*words, "--reasoning-config", json.dumps(config))
    apart = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_CPU_KVCACHE_SPACE": "4"}
    return started(log, port, sys.executable, "-m", "vllm.entrypoints.openai.api_server", *words, **apart)


def start_proxy(log: Path, port: int, model: str, server: int, *more: object, **environment: str) -> Any:
    """Start a proxy in front of the server at a port."""
    words = ("--model", model, "--served_model_name", NAME, "--upstream", address(server), "--port", port, *more)
    words = (*words, "--budget", "64+32")
    return started(log, port, sys.executable, "-m", "e1_trl.cli", "serve", *words, **environment)


@contextmanager
def pair(folder: Path, model: str, context: int, dtype: str) -> Iterator[Pair]:
    """Start a server and its proxy, whose requests end at their budgets."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    text = MARKERS.get(model, RARE)
    marker = Marker.from_tokenizer(tokenizer, text)
    server = free_port()
    proxy = free_port()
    if len(marker.ids) != 1:
        raise ValueError(f"the marker {text!r} is {len(marker.ids)} tokens of {model}; it must be one")
    sides = address(server), address(proxy)
    options = ("--marker", text, "--sampling", json.dumps(Pair(*sides, psutil.Process(), tokenizer, marker).sampling))
    with (
        start_server(folder / "server.log", server, model, context, dtype),
        start_proxy(folder / "proxy.log", proxy, model, server, *options) as process,
    ):
        yield Pair(*sides, psutil.Process(process.pid), tokenizer, marker)


def questions(number: int, *seed: object) -> list[str]:
    """Make questions in the words of both models, which differ in their first block of tokens."""
    rng = random.Random(repr(seed))
    return [";".join(f"{name}={rng.randrange(10_000)}" for name in "abcdefgh") + ";a?" for _ in range(number)]


def conversation(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def connections() -> httpx.AsyncClient:
    """Make a client without limits."""
    return httpx.AsyncClient(timeout=None, verify=False, limits=httpx.Limits(max_connections=None))


async def events(client: httpx.AsyncClient, url: str, body: Mapping[str, Any]) -> AsyncGenerator[Event]:
    """Yield what a server streams.

    Raises:
        RuntimeError: it fails.
    """
    body = {"model": NAME, "stream": True, "stream_options": {"include_usage": True}, **body}
    async with client.stream("POST", url, json=body) as answer:
        if answer.status_code != 200:
            raise RuntimeError((await answer.aread()).decode())
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                if "error" in event:
                    raise RuntimeError(line)
                yield event


def metric(server: str, name: str) -> float:
    """Read one of vLLM's metrics, summed over its labels."""
    lines = httpx.get(f"{server.removesuffix('/v1')}/metrics", timeout=60).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{"))
