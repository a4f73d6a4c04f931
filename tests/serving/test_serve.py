"""`e1 serve` and `e1 chat` in front of a real vLLM server of the nano model."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from conftest import BASE, SERVED_CONTEXT
from proxies import conversation, proxy_of, send
from transformers import AutoTokenizer
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

from e1_trl.budget import Budget, Marker, ThinkingClose
from e1_trl.checkpoints.budget_file import BudgetInfo
from e1_trl.checkpoints.model_card import BaseModel, CardInputs
from e1_trl.engines.engine import SamplingSettings, run
from e1_trl.engines.server import ServerEngine
from e1_trl.problems.prompts import tokenize
from e1_trl.rollout import Completion, Rollout, ThinkingEnd

pytestmark = pytest.mark.engine

TOKENIZER = AutoTokenizer.from_pretrained(BASE)
GREEDY = SamplingSettings(temperature=0.0)
ANYWHERE = {"model": "nano", "temperature": 0, "return_token_ids": True}


@pytest.fixture(scope="module")
def problems(nano_data: Path) -> list[str]:
    return [json.loads(line)["problem"] for line in (nano_data / "test.jsonl").read_text().splitlines()[:6]]


def evaluated(server: openai.OpenAI, problems: list[str], budget: Budget, marker: Marker) -> list[Completion]:
    close = ThinkingClose(marker, SERVED_CONTEXT)
    rollouts = [Rollout(tokenize(TOKENIZER, conversation(each), {}), budget, close) for each in problems]
    run(ServerEngine(str(server.base_url), "nano", close, GREEDY), rollouts)
    return [rollout.completion for rollout in rollouts]


def events(text: str) -> list[dict[str, Any]]:
    *told, done = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert done == "[DONE]"
    return list(map(json.loads, told))


def ask(url: str, chat: bool, stream: bool, problem: str, **fields: Any) -> tuple[list[int], str, str, str]:
    """Return token ids, how the thinking ended, and the text of thinking and solution."""
    own = {"messages": conversation(problem)} if chat else {"prompt": tokenize(TOKENIZER, conversation(problem), {})}
    path = "chat/completions" if chat else "completions"
    answer = httpx.post(f"{url}/{path}", json={**ANYWHERE, **own, "stream": stream, **fields}, timeout=120)
    assert answer.status_code == 200, answer.text
    if not stream:
        (choice,) = answer.json()["choices"]
        message = choice.get("message", {"reasoning_content": "", "content": choice.get("text")})
        return choice["token_ids"], choice["thinking_end"], message["reasoning_content"], message["content"]
    choices = [choice for event in events(answer.text) for choice in event["choices"]]
    deltas = [choice.get("delta", {"content": choice.get("text")}) for choice in choices]
    texts = ["".join(delta.get(name) or "" for delta in deltas) for name in ("reasoning_content", "content")]
    ids = [token for choice in choices for token in choice.get("token_ids", [])]
    return ids, choices[-1]["thinking_end"], texts[0], texts[1]


@pytest.mark.parametrize(
    ("text", "forced"), [pytest.param("</think>", None, marks=pytest.mark.slow), (";c=", "Wait ;c=Wait ")]
)
def test_a_served_answer_is_the_evaluated_one(
    server: openai.OpenAI, problems: list[str], text: str, forced: str | None
) -> None:
    marker = Marker.from_tokenizer(TOKENIZER, text, forced)
    ends = set()
    with proxy_of(server.base_url, marker=text, forced_text=forced) as url, ThreadPoolExecutor(4) as pool:
        for budget in ("0+8", "20+8", "40+16", "unlimited+8"):
            expected = evaluated(server, problems, Budget.parse(budget), marker)
            for chat, stream in ((True, True), (True, False), (False, True), (False, False)):
                fields = {"model": f"nano@{budget}"}
                asked = [pool.submit(ask, url, chat, stream, problem, **fields) for problem in problems]
                for ours, future in zip(expected, asked, strict=True):
                    ids, end, thinking, solution = future.result()
                    assert (ids, end) == (ours.token_ids.tolist(), ours.thinking_end)
                    closed = ours.thinking_tokens + ours.close_tokens
                    thought = TOKENIZER.decode(ours.token_ids[:closed].tolist()).removesuffix(text)
                    answer = TOKENIZER.decode(ours.graded_ids).removesuffix(TOKENIZER.eos_token)
                    assert (thinking, solution) == ((thought, answer) if chat else ("", thought + text + answer))
                    ends.add(end)
    assert ends == {"forced", "closed"}


def test_the_openai_client_sees_both_parts_and_what_was_forced(proxy: str, problems: list[str]) -> None:
    client = openai.OpenAI(base_url=proxy, api_key="unused")
    assert {model.id for model in client.models.list()} >= {"nano", "nano@64+32", "nano@16+32"}
    asked: dict[str, Any] = {"model": "nano", "messages": conversation(problems[0]), "temperature": 0}
    whole = client.chat.completions.create(**asked, extra_body={"thinking_budget": 20, "solution_budget": 8})
    message = whole.choices[0].message
    usage = whole.usage
    assert whole.choices[0].thinking_end == "forced" and message.reasoning_content == message.reasoning
    assert usage.completion_tokens_details.reasoning_tokens == 20
    details = usage.completion_tokens_details.model_dump()
    assert details["forced_tokens"] == 1 and usage.completion_tokens == 21 + details["solution_tokens"]
    stream = client.chat.completions.create(
        **asked,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"thinking_budget": 20, "solution_budget": 8},
    )
    *chunks, last = stream
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(getattr(delta, "reasoning_content", "") for delta in deltas) == message.reasoning_content
    assert "".join(delta.content or "" for delta in deltas) == message.content
    assert deltas[0].role == "assistant" and last.usage == usage and not last.choices
    told = [place for place, chunk in enumerate(chunks) if getattr(chunk.choices[0], "thinking_end", None)]
    assert [hasattr(delta, "reasoning_content") for delta in deltas[: told[0]]] == [True] * told[0]
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    thought = message.reasoning_content
    stopped = client.chat.completions.create(**asked, stop=["="], extra_body={"thinking_budget": 20})
    assert stopped.choices[0].message.reasoning_content == thought and "=" in thought
    assert "=" not in stopped.choices[0].message.content
    with pytest.raises(openai.BadRequestError, match="n is 2, which this server does not support"):
        client.chat.completions.create(**asked, n=2)


def test_what_a_model_card_says_about_serving_works(
    server: openai.OpenAI, problems: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "nano"
    model.mkdir()
    for file in BASE.iterdir():
        (model / file.name).symlink_to(file)
    CardInputs(BudgetInfo("</think>", "</think>", 1, Budget(8, 6)), BaseModel(str(BASE), None)).publish(model, "nano")
    text = (model / "README.md").read_text()
    commands, native = re.findall(r"```bash\n(.*?)\n```", text, re.S)
    serve, _, budgeted = commands.splitlines()
    parser = make_arg_parser(FlexibleArgumentParser())
    assert parser.parse_args(shlex.split(serve)[3:]).model == "nano"
    config = parser.parse_args(shlex.split(native)[3:]).reasoning_config
    assert config.reasoning_end_str == "</think>"  # as the server was started with
    assert shlex.split(budgeted)[2:] == ["--upstream", "http://localhost:8000/v1", "--model", "nano"]

    (program,) = re.findall(r"```python\n(.*?)```", text, re.S)
    with proxy_of(server.base_url, model=str(model), thinking_budget=None, solution_budget=None) as url:
        program = program.replace("http://localhost:8100/v1", url).replace("What is 17 * 23?", problems[0])
        exec(program)
    thinking, rest = capsys.readouterr().out.split(" ", 1)
    assert thinking and re.search(r"forced_tokens=1, solution_tokens=[456]", rest) and "reasoning_tokens=8" in rest

    asked = json.loads(re.search(r"asked with `(.*?)`", text)[1].join("{}"))  # type: ignore[index]
    assert asked == {"thinking_token_budget": 8, "max_tokens": 15}  # as tests/engines/test_server.py asks


def test_seeds_are_kept(proxy: str, problems: list[str]) -> None:
    def sampled(seed: int | None) -> list[int]:
        return ask(proxy, True, False, problems[0], temperature=1.0, seed=seed, thinking_budget=30)[0]

    assert sampled(3) == sampled(3) != sampled(4)


def total(server: openai.OpenAI, name: str) -> float:
    """Read one of the server's counters."""
    metrics = httpx.get(str(server.base_url).replace("/v1/", "/metrics")).text
    lines = [line for line in metrics.splitlines() if line.startswith(f"vllm:{name}_total{{")]
    return sum(float(line.split()[-1]) for line in lines)


@pytest.mark.parametrize("stream", [True, False])
def test_clients_that_go_away_free_their_requests(server: openai.OpenAI, problems: list[str], stream: bool) -> None:
    clients = 64
    tokens = 150 + 32
    with proxy_of(server.base_url, sampling='{"ignore_eos": true}', marker="Wait Wait Wait Wait") as url:
        asked = {**ANYWHERE, "messages": conversation(problems[0]), "stream": stream, "thinking_budget": 150}
        body = json.dumps(asked).encode()
        for wait in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2):  # until they leave in the middle: machines differ
            before = total(server, "generation_tokens")
            connections = [send(url, body, len(body)) for _ in range(clients)]
            time.sleep(wait)
            for each in connections:
                each.close()
            # The server answers others at once, and samples nothing more for those that left.
            assert ask(url, True, False, problems[1], thinking_budget=150)[0]
            sampled = total(server, "generation_tokens") - before
            time.sleep(1)
            if tokens < sampled == total(server, "generation_tokens") - before < (clients + 1) * tokens:
                return
    pytest.fail("all was sampled for clients that had left")


def test_a_chat_remembers_marks_and_changes_its_budget(
    server: openai.OpenAI, problems: list[str], tmp_path: Path
) -> None:
    model = tmp_path / "nano"
    model.mkdir()
    for file in BASE.iterdir():
        (model / file.name).symlink_to(file)
    BudgetInfo("</think>", "</think>", 1, Budget(64, 32)).write(model)
    said = f"{problems[0]}\n/budget 8+4\n/clear\n{problems[0]}\n/budget 8\n/help\n"
    line = ["--upstream", str(server.base_url), "--model", str(model), "--served_model_name", "nano"]
    done = subprocess.run(
        [sys.executable, "-m", "e1_trl.serving.chat", *line, "--sampling", '{"temperature": 0}'],
        input=said, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "Unclosed" not in done.stderr
    for budget in ("64+32", "8+4"):
        (completion,) = evaluated(server, problems[:1], Budget.parse(budget), Marker.from_tokenizer(TOKENIZER))
        forced = completion.thinking_end is ThinkingEnd.FORCED
        thought = TOKENIZER.decode(completion.parts[0]).removesuffix("</think>")
        assert thought + (" ‖</think>‖\n" if forced else "\n") in done.stdout
        counts = f"{completion.thinking_tokens} + {completion.solution_tokens} tokens"
        assert f"{completion.thinking_end}, {counts}" in done.stdout and f"of {budget}" in done.stdout
    assert "must read '<thinking>+<solution>'" in done.stdout and "Ctrl-D ends" in done.stdout


@pytest.mark.slow
def test_a_chat_starts_a_server_of_its_own(problems: list[str]) -> None:
    line = ["--model", str(BASE), "--budget", "8+4"]
    done = subprocess.run(
        [sys.executable, "-m", "e1_trl.serving.chat", *line], input=f"{problems[0]}\n", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "tokens" in done.stdout and "of 8+4" in done.stdout, done.stderr


@pytest.mark.slow
def test_a_chat_whose_server_does_not_start_shows_the_first_error(tmp_path: Path) -> None:
    shutil.copytree(BASE, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    line = [sys.executable, "-m", "e1_trl.cli", "chat", "--model", str(tmp_path / "model"), "--budget", "8+4"]
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1 and "starting vLLM" in done.stdout
    assert "e1 chat: the server did not start: RuntimeError: Cannot find any model weights" in done.stderr


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """The chat's own server shares the cores with the others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
