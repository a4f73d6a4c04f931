"""`e1 serve` and `e1 chat` in front of a real vLLM server of the nano model."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from conftest import BASE, SERVED_CONTEXT, reasoning_config, serving
from proxies import conversation, events, eventually, proxy_of, send
from transformers import AutoTokenizer
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.checkpoints.budget_file import BudgetInfo
from e1_trl.checkpoints.model_card import BaseModel, publish
from e1_trl.engines.engine import SamplingSettings, run
from e1_trl.engines.server import ServerEngine
from e1_trl.errors import UserError
from e1_trl.marker import OPENERS, Marker
from e1_trl.ports import free_port
from e1_trl.problems.prompts import tokenize
from e1_trl.rollout import Completion, Request, Rollout, Segment, ThinkingEnd

pytestmark = pytest.mark.engine

TOKENIZER = AutoTokenizer.from_pretrained(BASE)
MARKER = Marker.from_tokenizer(TOKENIZER)
GREEDY = SamplingSettings(temperature=0.0)
NEVER_ENDS = '{"ignore_eos": true, "logit_bias": {"5": -100}}'  # nor samples </think>
ANYWHERE = {"model": "nano", "temperature": 0, "return_token_ids": True}


@pytest.fixture(scope="module")
def problems(nano_data: Path) -> list[str]:
    return [json.loads(line)["problem"] for line in (nano_data / "test.jsonl").read_text().splitlines()[:6]]


def ids_of(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


def evaluated(server: openai.OpenAI, asked: Sequence[tuple[Sequence[int], Budget]], marker: Marker) -> list[Completion]:
    """Return what an evaluation samples of each prompt at its budget, all together."""
    close = ThinkingClose(marker, SERVED_CONTEXT)
    rollouts = [Rollout(prompt, budget, close) for prompt, budget in asked]
    run(ServerEngine(str(server.base_url), "nano", close, GREEDY), rollouts)
    return [rollout.completion for rollout in rollouts]


def ask(url: str, stream: bool, budget: str, **fields: Any) -> tuple[list[int], str, str, str]:
    """Return token ids, how the thinking ended, and the text of thinking and solution."""
    path = "chat/completions" if "messages" in fields else "completions"
    body = {**ANYWHERE, "model": f"nano@{budget}", "stream": stream, **fields}
    answer = httpx.post(f"{url}/{path}", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    if not stream:
        (choice,) = answer.json()["choices"]
        message = choice.get("message", {"content": choice.get("text")})
        return choice["token_ids"], choice["thinking_end"], message.get("reasoning", ""), message["content"]
    choices = [choice for event in events(answer.text) for choice in event["choices"]]
    deltas = [choice.get("delta", {"content": choice.get("text")}) for choice in choices]
    texts = ["".join(delta.get(name) or "" for delta in deltas) for name in ("reasoning", "content")]
    ids = [token for choice in choices for token in choice.get("token_ids", [])]
    return ids, choices[-1]["thinking_end"], texts[0], texts[1]


def check_equal(server: openai.OpenAI, url: str, problems: list[str], marker: Marker) -> set[str]:
    """Compare answers, whole and streamed, as messages and as texts, with those of an evaluation; return their ends."""
    prompts = [tokenize(TOKENIZER, conversation(each), {}) for each in problems]
    # The tokens after <think> are part of the prompt, and none of the budget.
    begun = [[*each, *ids_of(";;")] for each in prompts]
    budgets = ("0+8", "1+1", "20+8", "64+3", "unlimited+8")
    asked = [(prompt, budget) for budget in budgets for prompt in (*prompts, *begun)]
    expected = evaluated(server, [(prompt, Budget.parse(budget)) for prompt, budget in asked], marker)
    of_case = dict(zip([(tuple(prompt), budget) for prompt, budget in asked], expected, strict=True))
    cases = [
        (budget, stream, own, of_case[tuple(prompt), budget])
        for budget in budgets
        for stream in (True, False)
        for prompt, own in (
            *((prompt, {"prompt": prompt}) for prompt in (*prompts, *begun)),
            *((prompt, {"messages": conversation(each)}) for prompt, each in zip(prompts, problems, strict=True)),
        )
    ]
    with ThreadPoolExecutor(32) as pool:
        answers = [*pool.map(lambda case: ask(url, case[1], case[0], **case[2]), cases)]
    for (budget, stream, own, ours), (ids, end, thinking, solution) in zip(cases, answers, strict=True):
        assert (ids, end) == (ours.token_ids.tolist(), ours.thinking_end), (budget, stream, own)
        closed = ours.thinking_tokens + ours.close_tokens
        thought = TOKENIZER.decode(ours.token_ids[:closed].tolist(), skip_special_tokens=True)
        answer = TOKENIZER.decode(ours.graded_ids, skip_special_tokens=True)
        chat = (thought.removesuffix(marker.text), answer)
        assert (thinking, solution) == (chat if "messages" in own else ("", thought + answer))
    return {end for _, end, *_ in answers}


def test_a_served_answer_is_the_evaluated_one(server: openai.OpenAI, problems: list[str]) -> None:
    with proxy_of(server.base_url) as url:
        assert check_equal(server, url, problems[:4], MARKER) == {"forced", "closed"}


@pytest.mark.slow
def test_a_close_of_several_tokens_is_served_as_it_is_evaluated(problems: list[str]) -> None:
    with serving(free_port(), reasoning_config=reasoning_config(";c=")) as (server, _):
        with proxy_of(server.base_url, marker=";c=") as url:
            ends = check_equal(server, url, problems[:4], Marker.from_tokenizer(TOKENIZER, ";c="))
        forced = {"marker": ";c=", "forced_text": "Wait ;c=Wait "}
        with pytest.raises(UserError, match="does not close a thinking as this"), proxy_of(server.base_url, **forced):
            pass
    assert ends == {"forced", "closed", "eos"}


@pytest.mark.slow
def test_an_opener_of_several_tokens_keeps_the_budget(problems: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPENERS, "</think>", "<think>;")  # as "<think>" is three tokens of many models
    config = json.dumps({"reasoning_start_str": "<think>;", "reasoning_end_str": "</think>"})
    prompts = [
        [*tokenize(TOKENIZER, conversation(each), {}), *ids_of(begun)] for each in problems for begun in (";", ";;")
    ]
    asked = [(prompt, budget) for budget in ("0+8", "2+8", "20+8", "64+3") for prompt in prompts]
    with serving(free_port(), reasoning_config=config) as (server, _), proxy_of(server.base_url) as url:
        marker = Marker.from_tokenizer(TOKENIZER)
        assert len(marker.opener_ids) == 2
        expected = evaluated(server, [(prompt, Budget.parse(budget)) for prompt, budget in asked], marker)
        with ThreadPoolExecutor(32) as pool:
            answers = [*pool.map(lambda case: ask(url, False, case[1], prompt=case[0]), asked)]
    for ours, (ids, end, *_) in zip(expected, answers, strict=True):
        assert (ids, end) == (ours.token_ids.tolist(), ours.thinking_end)
    assert {end for _, end, *_ in answers} >= {"forced", "closed"}


SWITCH = """{{ '<|assistant|>' }}{% set off = enable_thinking is defined and not enable_thinking %}
{%- if off or not plain %}<think>{% endif %}{% if off %}</think>{% endif %}"""


@pytest.mark.slow
def test_a_server_with_a_parser_keeps_formats_for_the_solution_and_closed_prompts(
    problems: list[str], tmp_path: Path
) -> None:
    model = shutil.copytree(BASE, tmp_path / "nano")
    template = (BASE / "chat_template.jinja").read_text().replace("{{ '<|assistant|><think>' }}", SWITCH)
    assert SWITCH in template
    (model / "chat_template.jinja").write_text(template)
    asked = {"messages": conversation(problems[0])}
    regex = {"structured_outputs": {"regex": r"\\boxed\{[89]\}"}}
    with (
        serving(free_port(), model=model, reasoning_parser="deepseek_r1") as (server, _),
        proxy_of(server.base_url, model=str(model)) as url,
    ):
        assert check_equal(server, url, problems[:2], MARKER) <= {"forced", "closed"}
        closed = tokenize(TOKENIZER, conversation(problems[0]), {}) + ids_of("</think>")
        engine = ServerEngine(str(server.base_url), "nano", ThinkingClose(MARKER, SERVED_CONTEXT), GREEDY)
        found: list[Segment] = []
        engine.serve([(0, Request(closed, 8, stop_at_marker=False))], lambda _, segment: found.append(segment) or ())
        ids = list(found[0].token_ids)
        expected = (ids, "prompt", "", TOKENIZER.decode(ids).removesuffix("<|end|>"))
        for stream in (True, False):
            off = {"chat_template_kwargs": {"enable_thinking": False}}
            assert ask(url, stream, "20+8", **asked, **off) == expected
            assert ask(url, stream, "0+8", **asked, reasoning_effort="none") == expected
            opens_nothing = {"chat_template_kwargs": {"plain": True}}
            assert ask(url, stream, "0+8", **asked, **opens_nothing) == expected
            plain = closed[: -len(ids_of("<think></think>"))]
            assert ask(url, stream, "0+8", prompt=plain)[:2] == expected[:2]
            assert ask(url, stream, "1+8", **asked, **opens_nothing)[1] != "prompt"
            _, end, thinking, solution = ask(url, stream, "20+8", **asked, **regex)
            assert end == "forced" and len(thinking) >= 20 and solution in (r"\boxed{8}", r"\boxed{9}")
            both = ask(url, stream, "20+8", **asked, stream_interval=7)
            assert both == ask(url, stream, "20+8", **asked)


@pytest.mark.parametrize("stream", [True, False])
def test_several_answers_and_prompts_are_one_request(proxy: str, problems: list[str], stream: bool) -> None:
    prompts = [tokenize(TOKENIZER, conversation(each), {}) for each in problems[:3]]
    many = {**ANYWHERE, "model": "nano@20+8", "prompt": prompts, "stream": stream}
    many |= {"stream_options": {"include_usage": True}} if stream else {}
    done = httpx.post(f"{proxy}/completions", json=many, timeout=120)
    told = events(done.text) if stream else [done.json()]
    usage = told[-1]["usage"]
    for index, prompt in enumerate(prompts):
        choices = [choice for each in told for choice in each["choices"] if choice["index"] == index]
        ids = [token for choice in choices for token in choice["token_ids"]]
        assert ids == ask(proxy, False, "20+8", prompt=prompt)[0]
    details = usage["completion_tokens_details"]
    assert usage["prompt_tokens"] == sum(map(len, prompts)) and details["forced_tokens"] == 3
    parts = ("reasoning_tokens", "forced_tokens", "solution_tokens")
    assert usage["completion_tokens"] == sum(details[name] for name in parts)
    drawn = {**ANYWHERE, "messages": conversation(problems[0]), "n": 3, "temperature": 1, "logprobs": True, "seed": 1}
    whole = httpx.post(f"{proxy}/chat/completions", json=drawn, timeout=120).json()
    assert [len(each["logprobs"]["content"]) for each in whole["choices"]] == [
        len(each["token_ids"]) for each in whole["choices"]
    ]
    mixed = {**many, "prompt": [prompts[0], ids_of("<|user|>a=1;a?<|assistant|>")]}
    assert "send them one by one" in httpx.post(f"{proxy}/completions", json=mixed, timeout=120).text
    greedy = httpx.post(f"{proxy}/chat/completions", json={**drawn, "temperature": 0}, timeout=120)
    assert greedy.status_code == 400 and "n must be 1 when using greedy sampling" in greedy.text  # vLLM's own words


def test_a_limit_takes_nothing_that_a_thinking_that_closes_needs(server: openai.OpenAI, problems: list[str]) -> None:
    """What vLLM itself answers within `max_tokens`, the proxy answers, too, but for a quarter of the solution."""
    prompts = [[*tokenize(TOKENIZER, conversation(problem), {}), *ids_of(";;")] for problem in problems]
    cases = [{"prompt": prompt, "max_tokens": limit, "temperature": 0} for prompt in prompts for limit in (48, 64, 80)]
    with proxy_of(server.base_url, budget="192+32") as url, ThreadPoolExecutor(8) as pool:
        ours = pool.map(lambda asked: httpx.post(f"{url}/completions", json=asked, timeout=120).json(), cases)
        theirs = pool.map(lambda asked: server.completions.create(model="nano", **asked).choices[0], cases)
        answers = [*zip(cases, ours, theirs, strict=True)]
    closed = 0
    for asked, whole, own in answers:
        limit = asked["max_tokens"]
        assert whole["usage"]["completion_tokens"] <= limit
        thinking, closes, _ = own.text.partition("</think>")
        kept = 8  # of a solution budget of 32 tokens, and the forced close
        if own.finish_reason == "stop" and closes and len(ids_of(thinking)) < limit - 1 - kept:
            closed += 1
            assert (whole["choices"][0]["thinking_end"], whole["choices"][0]["text"]) == ("closed", own.text)
    assert closed


def test_what_a_model_card_says_about_serving_works(
    server: openai.OpenAI, problems: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copytree(BASE, tmp_path / "nano")
    trained = BudgetInfo("</think>", "</think>", 1, Budget(8, 6))
    publish(model, trained, BaseModel(str(BASE), None), hub_id="nano")
    text = (model / "README.md").read_text()
    (commands,) = re.findall(r"```bash\n(.*?)\n```", text, re.S)
    serve, _, budgeted = commands.splitlines()
    served = make_arg_parser(FlexibleArgumentParser()).parse_args(shlex.split(serve)[3:])
    assert served.model == "nano" and served.reasoning_config.reasoning_end_str == "</think>"
    assert shlex.split(budgeted)[2:] == ["--upstream", "http://localhost:8000/v1", "--model", "nano"]

    (program,) = re.findall(r"```python\n(.*?)```", text, re.S)
    with proxy_of(server.base_url, model=str(model), budget=None) as url:
        program = program.replace("http://localhost:8100/v1", url).replace("What is 17 * 23?", problems[0])
        exec(program)
    thinking, rest = capsys.readouterr().out.split(" ", 1)
    assert thinking and re.search(r"forced_tokens=1, solution_tokens=[456]", rest) and "reasoning_tokens=8" in rest

    asked = json.loads(re.search(r"asked with `(.*?)`", text)[1].join("{}"))  # type: ignore[index]
    assert asked == {"thinking_token_budget": 8, "max_tokens": 15}  # as tests/serving/test_limits.py expects


def total(server: openai.OpenAI, name: str) -> float:
    """Read one of the server's counters."""
    metrics = httpx.get(str(server.base_url).replace("/v1/", "/metrics")).text
    lines = [line for line in metrics.splitlines() if line.startswith(f"vllm:{name}_total{{")]
    return sum(float(line.split()[-1]) for line in lines)


def stands(server: openai.OpenAI, name: str) -> bool:
    """Return whether a counter does not change for a second."""
    before = total(server, name)
    time.sleep(1)
    return total(server, name) == before


@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_clients_that_go_away_free_their_requests(server: openai.OpenAI, problems: list[str], stream: bool) -> None:
    clients = 64
    tokens = 150 + 32
    with proxy_of(server.base_url, sampling=NEVER_ENDS) as url:
        asked = {**ANYWHERE, "messages": conversation(problems[0]), "stream": stream, "thinking_budget": 150}
        body = json.dumps(asked).encode()
        for wait in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2):  # until they leave in the middle: machines differ
            before = total(server, "generation_tokens")
            connections = [send(url, body) for _ in range(clients)]
            time.sleep(wait)
            for each in connections:
                each.close()
            # The server answers others at once, and samples nothing more for those that left.
            assert ask(url, False, "150+8", messages=conversation(problems[1]))[0]
            assert eventually(lambda: stands(server, "generation_tokens"), 120)
            if tokens < total(server, "generation_tokens") - before < (clients + 1) * tokens:
                return
    pytest.fail("all was sampled for clients that had left")


def chat(said: str, *options: object) -> "subprocess.CompletedProcess[str]":
    """Run `e1 chat` with these lines typed."""
    line = [sys.executable, "-m", "e1_trl.cli", "chat", *map(str, options)]
    return subprocess.run(line, input=said, capture_output=True, text=True, check=False)


def test_a_chat_remembers_marks_and_changes_its_budget(
    server: openai.OpenAI, problems: list[str], tmp_path: Path
) -> None:
    model = shutil.copytree(BASE, tmp_path / "nano")
    BudgetInfo("</think>", "</think>", 1, Budget(64, 32)).write(model)
    said = f"{problems[0]}\n/budget 8+4\n/clear\n{problems[0]}\n/budget 8\n/help\n"
    sampling = json.dumps({"temperature": 0, "stop": [";"]})  # thoughts have it, and it must not end them
    at = ["--upstream", server.base_url, "--model", model, "--served_model_name", "nano"]
    done = chat(said, *at, "--sampling", sampling)
    assert done.returncode == 0 and "Unclosed" not in done.stderr
    for budget in ("64+32", "8+4"):
        prompt = tokenize(TOKENIZER, conversation(problems[0]), {})
        (completion,) = evaluated(server, [(prompt, Budget.parse(budget))], MARKER)
        forced = completion.thinking_end is ThinkingEnd.FORCED
        thought = TOKENIZER.decode(completion.parts[0]).removesuffix("</think>")
        assert ";" in thought
        assert thought + (" ‖</think>‖\n" if forced else "\n") in done.stdout
        counts = f"{completion.thinking_tokens} + {completion.solution_tokens} tokens"
        assert f"{completion.thinking_end}, {counts}" in done.stdout and f"of {budget}" in done.stdout
    assert "must read '<thinking>+<solution>'" in done.stdout and "Ctrl-D ends" in done.stdout


@pytest.mark.slow
def test_a_chat_starts_a_server_of_its_own(problems: list[str]) -> None:
    said = f"{problems[1]}\na=7;b=a-2;c=b+2;d=c+6;d?;e=1;e?\n"  # the second does not fit
    done = chat(said, "--model", BASE, "--budget", "8+4", "--", "--max-model-len", 40)
    assert done.returncode == 0 and "starting vLLM" in done.stdout and "of 8+4" in done.stdout, done.stderr
    assert "tokens, and the context of the model 40" in done.stdout


@pytest.mark.slow
def test_a_chat_whose_server_does_not_start_shows_the_first_error(tmp_path: Path) -> None:
    shutil.copytree(BASE, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    done = chat("", "--model", tmp_path / "model", "--budget", "8+4")
    assert done.returncode == 1 and "starting vLLM" in done.stdout
    assert "RuntimeError: Cannot find any model weights" in done.stderr
    assert "e1 chat: the server did not start" in done.stderr


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """The chat's own server shares the cores with the others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
