"""Server mode up to the weight transfer (which needs NCCL): both phases against a real vLLM server."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import openai
import pandas as pd
import pytest
from conftest import BASE, ROOT, kill
from transformers import AutoTokenizer
from vllm import LLM

from e1_trl.budget import Budget, Marker
from e1_trl.data import load_problems, to_prompts
from e1_trl.engine import stream, stream_server
from e1_trl.rollout import Rollout, ThinkingEnd
from e1_trl.trainer import E1Trainer

pytestmark = pytest.mark.engine

CONTEXT = 256
STARTUP = 300  # seconds


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serving(port: int) -> Iterator["tuple[openai.OpenAI, subprocess.Popen[bytes]]"]:
    """A real vLLM server of the nano base, in a process group of its own, up and answering."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(BASE), "--enforce-eager"),
            *("--port", str(port), "--max-model-len", str(CONTEXT), "--logprobs-mode", "processed_logprobs"),
            *("--served-model-name", "nano"),
        ],
        env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="unused")
    try:
        deadline = time.monotonic() + STARTUP
        while True:
            assert process.poll() is None, "the server died while starting"
            assert time.monotonic() < deadline, f"the server did not start within {STARTUP} s"
            try:
                client.with_options(max_retries=0).models.list()
                break
            except openai.APIConnectionError:
                time.sleep(1)
        yield client, process
    finally:
        kill(process)


@pytest.fixture(scope="module")
def server() -> Iterator[openai.OpenAI]:
    with serving(free_port()) as (client, _):
        yield client


def test_server_and_process_sample_the_same_tokens_at_temperature_zero(
    server: openai.OpenAI, start_engine: Callable[..., LLM], nano_data: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    problems = load_problems(str(nano_data), "test", None, "problem", "answer").select(range(16))
    prompt_ids = [
        tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
        for prompt in to_prompts(problems, tokenizer, "", None)["prompt"]
    ]
    llm = start_engine(max_model_len=CONTEXT, logprobs_mode="processed_logprobs")
    greedy = {"temperature": 0.0}
    # One marker of a single token, and one of several with a longer forced text.
    for marker in (Marker.from_tokenizer(tokenizer), Marker.from_tokenizer(tokenizer, ";c=", "Wait ;c=")):
        for budget in (Budget(0, 8), Budget(20, 8), Budget(None, 8)):
            local = [Rollout(ids, budget, marker, CONTEXT) for ids in prompt_ids]
            remote = [Rollout(ids, budget, marker, CONTEXT) for ids in prompt_ids]
            stream(llm, local, marker, greedy)
            stream_server(server, "nano", remote, marker, greedy)
            for ours, theirs in zip(local, remote, strict=True):
                assert ours.completion.token_ids == theirs.completion.token_ids
                assert ours.completion.thinking_end is theirs.completion.thinking_end
                assert ours.completion.logprobs == pytest.approx(theirs.completion.logprobs, abs=0.02, nan_ok=True)
    assert ThinkingEnd.CLOSED in {rollout.completion.thinking_end for rollout in remote}


def test_the_trainer_finds_its_server_and_refuses_one_with_too_short_a_context(server: openai.OpenAI) -> None:
    trainer = object.__new__(E1Trainer)  # without the weight transfer, which needs NCCL
    base_url = str(server.base_url).removesuffix("/v1/")
    trainer.vllm_generation = SimpleNamespace(vllm_client=SimpleNamespace(base_url=base_url, model="nano"))
    trainer.context = CONTEXT
    trainer._connect()
    trainer.context = CONTEXT + 1
    with pytest.raises(ValueError, match=f"context of {CONTEXT} tokens; the budget needs {CONTEXT + 1}"):
        trainer._connect()


def test_a_refused_request_raises_and_is_not_retried_forever(server: openai.OpenAI) -> None:
    marker = Marker("</think>", (5,), (5,))
    rollout = Rollout([2] * 200, Budget(8, 8), marker, context=100_000)
    rollout.request = type(rollout.request)([2] * 1000, 8, stop_at_marker=True)  # longer than the server's context
    with pytest.raises(openai.BadRequestError):
        stream_server(server, "nano", [rollout], marker, {"temperature": 0.0})


def test_an_evaluation_outlives_its_server_and_equals_one_in_process(nano_data: Path, tmp_path: Path) -> None:
    options = [
        *("--model", BASE, "--dataset_name", nano_data, "--max_problems", 48, "--temperature", 0),
        *("--budgets", "16+16", "32+16", "64+16", "--methods", "separate", "truncation", "s1"),
        *("--s1_text", r"\boxed{", "--wait_text", "Wait ", "--max_model_length", CONTEXT, "--concurrency", 4),
    ]
    command = [sys.executable, "-m", "e1_trl.evaluation", *map(str, options)]
    port = free_port()
    log = (tmp_path / "log").open("w")
    remote = [*command, "--base_url", f"http://127.0.0.1:{port}/v1", "--output", str(tmp_path / "remote")]
    with serving(port) as (_, first):
        client = subprocess.Popen([*remote, "--served_model_name", "nano"], cwd=ROOT, stdout=log, stderr=log)
        while not list((tmp_path / "remote").glob("segments/*.parquet")):
            assert client.poll() is None, (tmp_path / "log").read_text()[-3000:]
            time.sleep(0.05)
        kill(first)
        assert client.poll() is None
    with serving(port):
        assert client.wait(timeout=300) == 0, (tmp_path / "log").read_text()[-3000:]
    local = [*command, "--enforce_eager", "true", "--output", str(tmp_path / "local")]
    subprocess.run(local, cwd=ROOT, check=True, capture_output=True)
    ours, theirs = (pd.read_parquet(tmp_path / where / "samples.parquet") for where in ("remote", "local"))
    assert [list(ids) for ids in ours["token_ids"]] == [list(ids) for ids in theirs["token_ids"]]
    assert (ours["correct"] == theirs["correct"]).all() and ours["correct"].any()


def test_a_server_that_serves_another_model_is_refused_in_one_line(
    server: openai.OpenAI, nano_data: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "e1_trl.evaluation", "--model", BASE, "--dataset_name", nano_data]
    command += [
        "--output",
        tmp_path / "out",
        "--budgets",
        "16+16",
        "--methods",
        "separate",
        "--base_url",
        server.base_url,
    ]
    for options, expected in (
        ([], f"serves nano, not '{BASE}'; set served_model_name"),
        (
            ["--served_model_name", "nano", "--budgets", "600+16", "--output", tmp_path / "other"],
            "context of 256 tokens",
        ),
    ):
        done = subprocess.run([str(part) for part in [*command, *options]], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert expected in done.stderr
