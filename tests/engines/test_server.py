"""Requests over HTTP, against a real vLLM server."""

import copy
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from accelerate import Accelerator
from conftest import BASE, SERVED_CONTEXT, options
from transformers import AutoTokenizer
from vllm import LLM

import e1_trl.engines.server
from e1_trl.budget import Budget, Marker, ThinkingClose
from e1_trl.engines import colocated
from e1_trl.engines.colocated import ServedEngine
from e1_trl.engines.engine import EngineError, SamplingSettings, run
from e1_trl.engines.local import LocalEngine
from e1_trl.engines.server import MOST_IN_FLIGHT, ServerEngine
from e1_trl.evaluation.arguments import parse
from e1_trl.evaluation.evaluate import evaluate
from e1_trl.evaluation.prepare import prepare
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import load_problems
from e1_trl.problems.prompts import tokenize
from e1_trl.rollout import Completion, Request, Rollout, Segment, ThinkingEnd

pytestmark = pytest.mark.engine

GREEDY = SamplingSettings(temperature=0.0)
MARKER = Marker("</think>", (5,), (5,), close_tokens=1)


def engine(
    url: str, model: str, close: ThinkingClose, concurrency: int = MOST_IN_FLIGHT, seed: int | None = None
) -> ServerEngine:
    return ServerEngine(url, model, close, GREEDY, seed, concurrency)


@pytest.fixture(scope="module")
def prompt_ids(nano_data: Path) -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    problems = load_problems(str(nano_data), "test", ProblemArguments(instruction="")).select(range(16))
    return [tokenize(tokenizer, prompt, {}) for prompt in problems["prompt"]]


def test_server_and_process_sample_the_same_tokens_at_temperature_zero(
    server: openai.OpenAI, start_engine: Callable[..., LLM], prompt_ids: list[list[int]]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    llm = start_engine(max_model_len=SERVED_CONTEXT, logprobs_mode="processed_logprobs")
    ends = set()
    # One marker of a single token, and one of several with a longer forced text.
    for marker in (Marker.from_tokenizer(tokenizer), Marker.from_tokenizer(tokenizer, ";c=", "Wait ;c=")):
        close = ThinkingClose(marker, SERVED_CONTEXT)
        for budget in (Budget(0, 8), Budget(None, 8), Budget(20, 8)):
            local = [Rollout(ids, budget, close) for ids in prompt_ids]
            remote = [Rollout(ids, budget, close) for ids in prompt_ids]
            run(LocalEngine(llm, marker, GREEDY), local)
            run(engine(str(server.base_url), "nano", close), remote)
            for ours, theirs in zip(local, remote, strict=True):
                assert ours.completion.token_ids == theirs.completion.token_ids
                assert ours.completion.thinking_end is theirs.completion.thinking_end
                assert ours.completion.logprobs == pytest.approx(theirs.completion.logprobs, abs=0.001, nan_ok=True)
                ends.add(theirs.completion.thinking_end)
    assert {ThinkingEnd.CLOSED, ThinkingEnd.FORCED} <= ends


def test_a_banned_token_is_sampled_neither_in_process_nor_by_a_server(
    server: openai.OpenAI, start_engine: Callable[..., LLM], prompt_ids: list[list[int]]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    wait = tokenizer.convert_tokens_to_ids("Wait ")
    close = ThinkingClose(Marker.from_tokenizer(tokenizer), SERVED_CONTEXT)
    llm, url = start_engine(max_model_len=SERVED_CONTEXT), str(server.base_url)

    def sampled(bias: dict[int, float] | None, *, served: bool) -> list[list[int]]:
        sampling = SamplingSettings(temperature=0.0, logit_bias=bias)
        rollouts = [Rollout(ids, Budget(None, 8), close) for ids in prompt_ids]
        if served:
            run(ServerEngine(url, "nano", close, sampling), rollouts)
        else:
            run(LocalEngine(llm, close.marker, sampling), rollouts)
        return [list(rollout.completion.token_ids) for rollout in rollouts]

    assert any(wait in ids for ids in sampled(None, served=False))
    without = sampled({wait: -100.0}, served=False)
    assert not any(wait in ids for ids in without) and sampled({wait: -100.0}, served=True) == without


@pytest.mark.slow
def test_vllms_own_thinking_budget_gives_the_same_tokens_as_ours(
    server: openai.OpenAI, prompt_ids: list[list[int]]
) -> None:
    tokenizer, ends = AutoTokenizer.from_pretrained(BASE), set()
    assert {tokenizer.decode(ids[-1]) for ids in prompt_ids} == {"<think>"}  # vLLM counts what comes after it
    close = ThinkingClose(Marker.from_tokenizer(tokenizer), SERVED_CONTEXT)
    for thinking in (20, 150):
        rollouts = [Rollout(ids, Budget(thinking, 16), close) for ids in prompt_ids]
        run(engine(str(server.base_url), "nano", close), rollouts)
        body = {"thinking_token_budget": thinking, "return_token_ids": True}
        most = thinking + close.forced + 16
        for ids, ours in zip(prompt_ids, (rollout.completion for rollout in rollouts), strict=True):
            answer = server.completions.create(
                model="nano", prompt=ids, temperature=0.0, max_tokens=most, extra_body=body
            )
            # What the thinking leaves of its budget is the solution's there, and not here.
            length = len(ours.token_ids) if ours.truncated else None
            assert answer.choices[0].token_ids[:length] == ours.token_ids.tolist()
            ends.add(ours.thinking_end)
    assert ends == {ThinkingEnd.FORCED, ThinkingEnd.CLOSED}


def test_a_server_that_lacks_something_is_refused_in_one_line(server: openai.OpenAI) -> None:
    url = str(server.base_url)
    for address, model, context, expected in (
        (
            url,
            "nano",
            SERVED_CONTEXT + 1,
            f"context of {SERVED_CONTEXT} tokens, and the budgets need {SERVED_CONTEXT + 1}",
        ),
        (url, "other", SERVED_CONTEXT, "serves nano, not 'other'; set served_model_name"),
        ("http://127.0.0.1:9/v1", "nano", SERVED_CONTEXT, "no answer from http://127.0.0.1:9/v1"),
    ):
        with pytest.raises(EngineError, match=expected) as error:
            engine(address, model, ThinkingClose(MARKER, context))
        assert "\n" not in str(error.value)


class Answers(BaseHTTPRequestHandler):
    """One token for every prompt, with the status that the server's `respond` returns for the prompt's first token."""

    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": [{"id": "m", "object": "model", "created": 0, "owned_by": ""}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seeds.append(asked.get("seed"))
        (first, *_) = asked["prompt"]
        choice = {"index": 0, "text": "", "logprobs": None, "finish_reason": "length", "token_ids": [3]}
        body = {"id": "", "object": "text_completion", "created": 0, "model": "m", "choices": [choice]}
        self._send(self.server.respond(first), body)

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class Stub(ThreadingHTTPServer):
    """A server of a model named m, which serves as many requests at a time as there are."""

    request_queue_size = 2048  # connections that are not yet accepted

    def __init__(self, respond: Callable[[int], int]):
        super().__init__(("127.0.0.1", 0), Answers)
        self.respond = respond
        self.seeds: list[int | None] = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: who gave a request up takes no answer."""

    def engine(self, concurrency: int = MOST_IN_FLIGHT, seed: int | None = None) -> ServerEngine:
        return engine(self.url, "m", ThinkingClose(MARKER, 100), concurrency, seed)


@pytest.fixture
def end() -> Iterator[threading.Event]:
    """Set after the test: what hangs until then can end."""
    event = threading.Event()
    yield event
    event.set()


def asked(firsts: Iterable[int]) -> list[tuple[int, Request]]:
    return [(first, Request([first], 1, stop_at_marker=False)) for first in firsts]


def test_a_refusal_ends_it_at_once_and_loses_nothing_that_was_finished(end: threading.Event) -> None:
    others = threading.Event()
    followed = []

    def respond(first: int) -> int:
        if first in (1, 2):
            {1: others, 2: end}[first].wait(timeout=60)
        return 400 if first == 1 else 200

    def follow(key: int, segment: Segment) -> list[tuple[int, Request]]:
        followed.append(key)
        if len(followed) == 2:
            others.set()
        return []

    with pytest.raises(EngineError, match="refused a request"):
        Stub(respond).engine(concurrency=4).serve(asked((1, 2, 3, 4)), follow)
    assert sorted(followed) == [3, 4]


def test_a_server_that_is_away_for_a_while_is_asked_again() -> None:
    answered, tries = [], []

    def respond(first: int) -> int:
        tries.append(first)
        return 200 if tries.count(first) == 3 else 503

    Stub(respond).engine().serve(asked((1, 2)), lambda key, _: answered.append(key) or [])
    assert sorted(answered) == [1, 2] and len(tries) == 6


def test_a_program_that_gave_up_does_not_wait_for_what_is_still_in_flight(end: threading.Event) -> None:
    stub = Stub(lambda first: 400 if first == 1 else 200 if end.wait() else 0)
    program = f"""
from e1_trl.budget import ThinkingClose, Marker
from e1_trl.engines.engine import SamplingSettings
from e1_trl.engines.server import ServerEngine
from e1_trl.rollout import Request

close = ThinkingClose(Marker("</think>", (5,), (5,), 1), 100)
engine = ServerEngine({stub.url!r}, "m", close, SamplingSettings())
engine.serve([(first, Request([first], 1, False)) for first in (2, 1)], lambda key, segment: [])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "the server refused a request" in done.stderr


def test_a_whole_batch_is_in_flight_at_once_though_few_files_may_be_open() -> None:
    batch = 1010  # the client's own limit is 1000
    together = threading.Barrier(batch, timeout=60)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
    try:
        answered = []
        # Whoever is in flight waits for all, and so do the second requests.
        engine = Stub(lambda first: 200 if together.wait() >= 0 else 0).engine()
        engine.serve(
            asked(range(batch)), lambda key, _: answered.append(key) or asked([key] * (len(answered) <= batch))
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert sorted(answered) == sorted([*range(batch), *range(batch)])


def test_every_request_of_a_training_has_a_seed_of_its_own_and_a_resumed_one_the_same() -> None:
    def seeds(*generations: tuple[bool, int, int], seed: int = 42) -> list[int | None]:
        stub = Stub(lambda first: 200)
        for generation in generations:  # the thinking is one token, the solution another
            rollouts = [Rollout([7], Budget(1, 1), ThinkingClose(MARKER, 100)) for _ in range(8)]
            ServedEngine(Accelerator(cpu=True), stub.engine(seed=seed)).complete(rollouts, generation)
        return stub.seeds

    drawn = seeds((True, 0, 1), (True, 0, 2), (True, 1, 1), (False, 1, 1))
    assert len(drawn) == len(set(drawn)) == 4 * 8 * 2
    assert set(seeds((True, 0, 2), (True, 1, 1))) < set(drawn) and not set(seeds((True, 0, 1), seed=43)) & set(drawn)


def test_each_process_is_told_once_of_its_own_rollouts_and_the_main_one_while_others_are_sampled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rollouts = [Rollout([7], Budget(1, 1), ThinkingClose(MARKER, 100)) for _ in range(2)]
    told: list[tuple[int, int]] = []
    stub = Stub(lambda first: 200)
    count = lambda row, completion: told.append((row, len(stub.seeds)))  # noqa: E731
    monkeypatch.setattr(colocated, "gather_object", lambda own: [*own, *copy.deepcopy(own)])
    monkeypatch.setattr(
        colocated, "broadcast_object_list", lambda objects, from_process: sent.append(objects) or objects
    )
    sent: list[list[list[Completion]]] = []
    main, other = (SimpleNamespace(process_index=index) for index in range(2))
    own = ServedEngine(main, stub.engine(concurrency=1)).complete(copy.deepcopy(rollouts), (), count)  # type: ignore[arg-type]
    assert told == [(0, 2), (1, 4)] and len(stub.seeds) == 8 and own == sent[0][0][:2]
    told.clear()
    monkeypatch.setattr(colocated, "broadcast_object_list", lambda objects, from_process: sent[0])
    assert ServedEngine(other, None).complete(rollouts, (), count) == sent[0][0][2:]  # type: ignore[arg-type]
    assert told == [(0, 8), (1, 8)]


def test_every_request_of_an_evaluation_has_a_seed_of_its_own_whenever_it_is_added_or_none(
    nano_data: Path, tmp_path: Path
) -> None:
    def seeds(name: str, samples: int, *more: object) -> list[int | None]:
        stub = Stub(lambda first: 200)
        asked = ["--base_url", stub.url, "--served_model_name", "m", "--methods", "separate", "--budgets", "1+1"]
        asked += ["--max_problems", 2, "--max_model_length", 100, "--samples", samples, *more]
        evaluate(prepare(parse(options(nano_data, tmp_path / name, *asked))))
        return stub.seeds

    at_once = seeds("at-once", 2)
    assert len(at_once) == len(set(at_once)) == 8
    assert {*seeds("grown", 1), *seeds("grown", 2)} == set(at_once)  # by another server, too, as one that restarted
    assert not set(seeds("other", 2, "--seed", 1)) & set(at_once)
    assert seeds("without", 2, "--request_seeds", "false") == [None] * 8


def test_requests_that_follow_wait_for_room() -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def respond(first: int) -> int:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1
        return 200

    answered = []
    forks = {1: (11, 12, 13), 2: (21, 22, 23)}
    engine = Stub(respond).engine(concurrency=2)
    engine.serve(asked((1, 2, 3)), lambda key, _: answered.append(key) or asked(forks.get(key, ())))
    assert most == [2] and sorted(answered) == [1, 2, 3, 11, 12, 13, 21, 22, 23]


def test_a_server_may_be_slow_but_not_hang(end: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e1_trl.engines.server, "BUSY", 4.0)
    answered = list[int]()

    def respond(first: int) -> int:
        end.wait(first)  # seconds
        return 200

    requests = [(first, Request([first], 5, stop_at_marker=False)) for first in (1, 2, 3, 1000)]
    with pytest.raises(
        EngineError, match="has ended no request for 5 s; does it hang"
    ) as error:  # 5 tokens at 5/s, and 4 s
        Stub(respond).engine().serve(requests, lambda key, _: answered.append(key) or [])
    assert answered == [1, 2, 3]
    assert "\n" not in str(error.value)
