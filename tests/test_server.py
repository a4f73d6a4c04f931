"""Server mode up to the weight transfer (which needs NCCL): both phases against a real vLLM server."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from conftest import BASE
from transformers import AutoTokenizer
from vllm import LLM

from e1_trl.budget import Budget, Marker
from e1_trl.data import load_problems, to_prompts
from e1_trl.engine import stream, stream_server
from e1_trl.rollout import Rollout, ThinkingEnd

pytestmark = pytest.mark.engine

CONTEXT = 256
STARTUP = 300  # seconds


@pytest.fixture(scope="module")
def server() -> Iterator[openai.OpenAI]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(BASE), "--enforce-eager"),
            *("--port", str(port), "--max-model-len", str(CONTEXT), "--logprobs-mode", "processed_logprobs"),
            *("--served-model-name", "nano"),
        ],
        env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
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
        yield client
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_server_and_process_sample_the_same_tokens_at_temperature_zero(server: openai.OpenAI, nano_data: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    problems = load_problems(str(nano_data), "test", None, "problem", "answer").select(range(16))
    prompt_ids = [
        tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
        for prompt in to_prompts(problems, tokenizer, "", None)["prompt"]
    ]
    llm = LLM(str(BASE), max_model_len=CONTEXT, enforce_eager=True, logprobs_mode="processed_logprobs")
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


def test_a_refused_request_raises_and_is_not_retried_forever(server: openai.OpenAI) -> None:
    marker = Marker("</think>", (5,), (5,))
    rollout = Rollout([2] * 200, Budget(8, 8), marker, context=100_000)
    rollout.request = type(rollout.request)([2] * 1000, 8, stop_at_marker=True)  # longer than the server's context
    with pytest.raises(openai.BadRequestError):
        stream_server(server, "nano", [rollout], marker, {"temperature": 0.0})
