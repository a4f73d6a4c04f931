"""Engine over HTTP: the same tokens as in process, and how it behaves when a server fails, waits or hangs."""

import copy
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from accelerate import Accelerator
from conftest import BASE, SERVED_CONTEXT, options
from server_stub import TOKEN, ServerStub
from transformers import AutoTokenizer
from vllm import LLM

import e1_trl.engines.server
from e1_trl.budget import Budget, ThinkingClose
from e1_trl.engines import colocated
from e1_trl.engines.colocated import ServedEngine
from e1_trl.engines.engine import EngineError, SamplingSettings, run
from e1_trl.engines.local import LocalEngine
from e1_trl.engines.server import MOST_IN_FLIGHT, ServerEngine
from e1_trl.evaluation.arguments import parse
from e1_trl.evaluation.prepare import prepare
from e1_trl.evaluation.sample import reach
from e1_trl.evaluation.store import Store
from e1_trl.marker import Marker
from e1_trl.rollout import Completion, Request, Rollout, ThinkingEnd

ABORTED = 0  # in place of a status: the request is given up, as by a vLLM that is being stopped
GREEDY = SamplingSettings(temperature=0.0)
TOKENIZER = AutoTokenizer.from_pretrained(BASE)
CLOSE = ThinkingClose(Marker.from_tokenizer(TOKENIZER), SERVED_CONTEXT)


@pytest.mark.engine
def test_server_and_process_sample_the_same_tokens_and_neither_a_banned_one(
    server: openai.OpenAI, start_engine: Callable[..., LLM], prompt_ids: list[list[int]]
) -> None:
    llm = start_engine(max_model_len=SERVED_CONTEXT, logprobs_mode="processed_logprobs")
    wait = TOKENIZER.convert_tokens_to_ids("Wait ")

    def sample(marker: Marker, budgets: Sequence[Budget], sampling: SamplingSettings) -> list[Completion]:
        close = ThinkingClose(marker, SERVED_CONTEXT)
        asked = [(ids, budget) for budget in budgets for ids in prompt_ids[:16]]
        local, remote = ([Rollout(ids, budget, close) for ids, budget in asked] for _ in range(2))
        run(LocalEngine(llm, marker, sampling), local)
        run(ServerEngine(str(server.base_url), "nano", close, sampling), remote)
        for ours, theirs in zip(local, remote, strict=True):
            assert ours.completion.token_ids == theirs.completion.token_ids
            assert ours.completion.thinking_end is theirs.completion.thinking_end
            assert ours.completion.logprobs == pytest.approx(theirs.completion.logprobs, abs=0.001, nan_ok=True)
        return [rollout.completion for rollout in local]

    # One marker of a single token, and one of several with a longer forced text.
    markers = (CLOSE.marker, Marker.from_tokenizer(TOKENIZER, ";c=", "Wait ;c="))
    budgets = (Budget(0, 8), Budget(None, 8), Budget(20, 8))
    single, several = (sample(marker, budgets, GREEDY) for marker in markers)
    assert {each.thinking_end for each in (*single, *several)} >= {ThinkingEnd.CLOSED, ThinkingEnd.FORCED}
    assert any(wait in each.token_ids for each in single)
    banned = SamplingSettings(temperature=0.0, logit_bias={wait: -100.0})
    assert not any(wait in each.token_ids for each in sample(CLOSE.marker, [Budget(None, 8)], banned))


def connect(stub: ServerStub, concurrency: int = MOST_IN_FLIGHT, seed: int | None = None) -> ServerEngine:
    return ServerEngine(stub.url, "m", ThinkingClose(CLOSE.marker, 100), GREEDY, seed, concurrency)


def stub_of(respond: Callable[[int], int]) -> ServerStub:
    """Make a stub that answers with one token, or fails with the status that `respond` returns for the first token."""

    def answer(body: dict[str, Any]) -> Any:
        status = respond(body["prompt"][0])
        return {200: TOKEN, ABORTED: {**TOKEN, "finish_reason": "abort"}}.get(status, status)

    return ServerStub(answer)


def requests_of(firsts: Iterable[int]) -> list[tuple[int, Request]]:
    return [(first, Request([first], 1, stop_at_marker=False)) for first in firsts]


@pytest.fixture
def end() -> Iterator[threading.Event]:
    """Set after the test, so that requests that hang until then end."""
    event = threading.Event()
    yield event
    event.set()


def test_a_server_that_lacks_something_is_refused_in_one_line() -> None:
    url = ServerStub(models=[{"id": "nano", "max_model_len": 100}]).url
    for address, model, context, expected in (
        (url, "nano", 101, "context of 100 tokens, and the budgets need 101; restart it with --max-model-len 101"),
        (url, "other", 100, "serves nano, not 'other'; set served_model_name"),
        ("http://127.0.0.1:9/v1", "nano", 100, "no answer from http://127.0.0.1:9/v1: Cannot connect .*; start a"),
        ("http://127.0.0.1:99999/v1", "nano", 100, "no answer from http://127.0.0.1:99999/v1: "),
    ):
        with pytest.raises(EngineError, match=expected) as error:
            ServerEngine(address, model, ThinkingClose(CLOSE.marker, context), GREEDY)
        assert "\n" not in str(error.value)


def test_a_refusal_ends_it_at_once_and_loses_nothing_that_was_finished(end: threading.Event) -> None:
    others = threading.Event()
    followed = []

    def respond(first: int) -> int:
        if first in (1, 2):
            {1: others, 2: end}[first].wait(timeout=60)
        return 400 if first == 1 else 200

    def follow(key: int, _: object) -> list[tuple[int, Request]]:
        followed.append(key)
        if len(followed) == 2:
            others.set()
        return []

    with pytest.raises(EngineError, match="refused a request, or stayed away: no"):
        connect(stub_of(respond), concurrency=4).serve(requests_of((1, 2, 3, 4)), follow)
    assert sorted(followed) == [3, 4]


def test_a_refusal_without_a_text_says_its_status() -> None:
    stub = stub_of(lambda first: 308)
    with pytest.raises(EngineError, match=rf"stayed away: {stub.url} answered with status 308$"):
        connect(stub).serve(requests_of((1,)), lambda *_: [])


@pytest.mark.parametrize("status", [429, 503, ABORTED])
def test_a_server_that_is_away_for_a_while_is_asked_again(status: int) -> None:
    answered: list[int] = []
    tries: list[int] = []

    def respond(first: int) -> int:
        tries.append(first)
        return 200 if tries.count(first) == 3 else status

    connect(stub_of(respond)).serve(requests_of((1, 2)), lambda key, _: answered.append(key) or [])
    assert sorted(answered) == [1, 2] and len(tries) == 6


def test_a_server_that_goes_away_in_a_training_has_lost_its_weights() -> None:
    tries: list[int] = []

    def respond(first: int) -> int:
        tries.append(first)
        return 200 if first == 2 and tries.count(2) == 3 else ABORTED

    engine = ServerEngine(stub_of(respond).url, "m", ThinkingClose(CLOSE.marker, 100), GREEDY, is_trained=True)
    engine.serve(requests_of((2,)), lambda key, _: [])  # a connection that broke, say
    with pytest.raises(EngineError, match="aborted a request; start it again, and resume from a checkpoint"):
        engine.serve(requests_of((1,)), lambda key, _: [])
    assert tries.count(1) == 1 + e1_trl.engines.server.BRIEF


def test_a_program_that_gave_up_does_not_wait_for_what_is_still_in_flight(end: threading.Event) -> None:
    stub = stub_of(lambda first: 400 if first == 1 else 200 if end.wait() else 0)
    program = f"""
from e1_trl.budget import ThinkingClose
from e1_trl.marker import Marker
from e1_trl.engines.engine import SamplingSettings
from e1_trl.engines.server import ServerEngine
from e1_trl.rollout import Request

close = ThinkingClose(Marker("</think>", (5,), (5,), 1), 100)
engine = ServerEngine({stub.url!r}, "m", close, SamplingSettings())
engine.serve([(first, Request([first], 1, False)) for first in (2, 1)], lambda key, segment: [])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "the server refused a request" in done.stderr and "Unclosed" not in done.stderr


def test_a_whole_batch_is_in_flight_at_once_though_few_files_may_be_open() -> None:
    batch = 1010
    together = threading.Barrier(batch, timeout=60)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
    try:
        answered: list[int] = []
        # Each request in flight waits for all others, and so do the second requests.
        engine = connect(stub_of(lambda first: 200 if together.wait() >= 0 else 0))
        engine.serve(
            requests_of(range(batch)),
            lambda key, _: answered.append(key) or requests_of([key] * (len(answered) <= batch)),
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert sorted(answered) == sorted([*range(batch), *range(batch)])


def one_token_each(number: int) -> list[Rollout]:
    """Rollouts of two requests each: a token of thinking, and one of solution."""
    return [Rollout([7], Budget(1, 1), ThinkingClose(CLOSE.marker, 100)) for _ in range(number)]


def seeds_of(stub: ServerStub) -> list[int | None]:
    return [body.get("seed") for body in stub.bodies]


def test_every_request_of_a_training_has_a_seed_of_its_own_and_a_resumed_one_the_same() -> None:
    def seeds(*generations: tuple[bool, int, int], seed: int = 42) -> list[int | None]:
        stub = ServerStub()
        for generation in generations:
            ServedEngine(Accelerator(cpu=True), connect(stub, seed=seed)).complete(one_token_each(8), generation)
        return seeds_of(stub)

    drawn = seeds((True, 0, 1), (True, 0, 2), (True, 1, 1), (False, 1, 1))
    assert len(drawn) == len(set(drawn)) == 4 * 8 * 2
    assert set(seeds((True, 0, 2), (True, 1, 1))) < set(drawn) and not set(seeds((True, 0, 1), seed=43)) & set(drawn)


def test_each_process_receives_its_own_completions_once_the_main_one_early(monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts = one_token_each(2)
    received: list[tuple[int, int]] = []
    stub = ServerStub()
    count = lambda row, completion: received.append((row, len(stub.bodies)))  # noqa: E731
    sent: list[list[list[Completion]]] = []
    monkeypatch.setattr(colocated, "gather_object", lambda own: [*own, *copy.deepcopy(own)])
    monkeypatch.setattr(
        colocated, "broadcast_object_list", lambda objects, from_process: sent.append(objects) or objects
    )
    main, other = (SimpleNamespace(process_index=index) for index in range(2))
    own = ServedEngine(main, connect(stub, concurrency=1)).complete(copy.deepcopy(rollouts), (), count)  # type: ignore[arg-type]
    assert received == [(0, 2), (1, 4)] and len(stub.bodies) == 8 and own == sent[0][0][:2]
    received.clear()
    monkeypatch.setattr(colocated, "broadcast_object_list", lambda objects, from_process: sent[0])
    assert ServedEngine(other, None).complete(rollouts, (), count) == sent[0][0][2:]  # type: ignore[arg-type]
    assert received == [(0, 8), (1, 8)]


def test_the_forks_of_each_processs_thought_are_served_together(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets = [Budget(1, 1), Budget(3, 1)]
    own = [Rollout([7], budget, ThinkingClose(CLOSE.marker, 100)) for budget in budgets]

    def respond(body: Any) -> Any:
        return {**TOKEN, "text": "x" * body["max_tokens"], "token_ids": [3] * body["max_tokens"]}

    stub = ServerStub(respond)
    monkeypatch.setattr(colocated, "gather_object", lambda own: [*own, *copy.deepcopy(own)])
    monkeypatch.setattr(colocated, "broadcast_object_list", lambda objects, from_process: objects)
    engine = ServedEngine(SimpleNamespace(process_index=0), connect(stub, seed=1))  # type: ignore[arg-type]
    completions = engine.complete(own, (True, 0, 1), forks=2)
    assert [each.thinking_tokens for each in completions] == [1, 3]
    assert sorted(body["max_tokens"] for body in stub.bodies) == [1, 1, 1, 1, 3, 3]
    assert len(set(seeds_of(stub))) == 6


def test_every_request_of_an_evaluation_has_a_seed_of_its_own_or_none(nano_data: Path, tmp_path: Path) -> None:
    def seeds(name: str, samples: int, *more: object) -> list[int | None]:
        stub = ServerStub()
        line = ["--base_url", stub.url, "--served_model_name", "m", "--methods", "separate", "--budgets", "1+1"]
        line += ["--max_problems", 2, "--max_model_length", 100, "--samples", samples, *more]
        work = prepare(parse(options(nano_data, tmp_path / name, *line)))
        with Store.open(tmp_path / name, work.facts) as store:
            reach(work.plan, store, work.model.start)
        return seeds_of(stub)

    at_once = seeds("at-once", 2)
    assert len(at_once) == len(set(at_once)) == 8
    assert {*seeds("grown", 1), *seeds("grown", 2)} == set(at_once)  # also from a server that has restarted
    assert not set(seeds("other", 2, "--seed", 1)) & set(at_once)
    assert seeds("without", 2, "--request_seeds", "false") == [None] * 8


def test_requests_that_follow_wait_for_room() -> None:
    lock = threading.Lock()
    in_flight: list[int] = []
    most: list[int] = []

    def respond(first: int) -> int:
        with lock:
            in_flight.append(first)
            most.append(len(in_flight))
        time.sleep(0.02)
        with lock:
            in_flight.remove(first)
        return 200

    answered: list[int] = []
    forks = {1: (11, 12, 13), 2: (21, 22, 23)}
    engine = connect(stub_of(respond), concurrency=2)
    engine.serve(requests_of((1, 2, 3)), lambda key, _: answered.append(key) or requests_of(forks.get(key, ())))
    assert max(most) == 2 and sorted(answered) == [1, 2, 3, 11, 12, 13, 21, 22, 23]


def test_a_server_may_be_slow_but_not_hang(end: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e1_trl.engines.server, "BUSY", 2.0)
    monkeypatch.setattr(e1_trl.engines.server, "SLOWEST", 50.0)
    answered: list[int] = []

    def respond(first: int) -> int:
        end.wait(first * 0.5)  # seconds
        return 200

    with pytest.raises(EngineError, match="has ended no request for 2 s; does it hang") as error:
        connect(stub_of(respond)).serve(requests_of((1, 2, 3, 1000)), lambda key, _: answered.append(key) or [])
    assert answered == [1, 2, 3]
    assert "\n" not in str(error.value)
