"""Rollouts on a real engine: vLLM in this process, on CPU, with the nano base."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import BASE
from transformers import AutoTokenizer, ByT5Tokenizer
from vllm import LLM, envs
from vllm.config import VllmConfig
from vllm.platforms import current_platform
from vllm.v1.engine.core import EngineCore
from vllm.v1.engine.detokenizer import SlowIncrementalDetokenizer

from benchmarks.engines import barrier
from e1_trl.budget import Budget, ThinkingClose
from e1_trl.engines.engine import InFlight, SamplingSettings
from e1_trl.engines.engine import run as stream
from e1_trl.engines.local import LocalEngine, sampling_params
from e1_trl.marker import Marker
from e1_trl.rollout import Completion, Request, Rollout, Segment, Stop, ThinkingEnd

pytestmark = pytest.mark.engine

TOKENIZER = AutoTokenizer.from_pretrained(BASE)
MARKER = Marker.from_tokenizer(TOKENIZER)
CONTEXT = 256
SLOTS = 8


@pytest.fixture(scope="module")
def synchronous(start_engine: Callable[..., LLM]) -> LLM:
    """An engine as it runs on CPU."""
    return start_engine(max_model_len=CONTEXT, max_num_seqs=SLOTS, async_scheduling=False)


@pytest.fixture(scope="module")
def asynchronous(start_engine: Callable[..., LLM]) -> LLM:
    """An engine as it runs on CUDA: it schedules and starts a step before it reads what the one before has sampled.

    vLLM's CPU build can do so, but always says no to it.
    """
    settle = current_platform.check_and_update_config

    def settle_the_rest(config: VllmConfig) -> None:
        chosen = config.scheduler_config.async_scheduling
        settle(config)
        config.scheduler_config.async_scheduling = chosen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(current_platform, "check_and_update_config", settle_the_rest)
        llm = start_engine(max_model_len=CONTEXT, max_num_seqs=SLOTS, async_scheduling=True)
    assert core(llm).async_scheduling and core(llm).batch_queue_size == 2
    assert llm.llm_engine.model_executor.driver_worker.model_runner.use_async_scheduling
    return llm


@pytest.fixture(params=["synchronous", "asynchronous"])
def llm(request: pytest.FixtureRequest) -> LLM:
    return request.getfixturevalue(request.param)


def core(llm: LLM) -> EngineCore:
    return llm.llm_engine.engine_core.engine_core


def run(
    llm: LLM,
    prompt_ids: list[list[int]],
    budget: Budget,
    marker: Marker = MARKER,
    scheduler: Callable[[LocalEngine, list[Rollout]], None] = stream,
    concurrency: int | None = None,
    **extra: Any,
) -> list[Completion]:
    rollouts = [Rollout(ids, budget, ThinkingClose(marker, CONTEXT)) for ids in prompt_ids]
    scheduler(LocalEngine(llm, marker, SamplingSettings(0.0, extra=extra), concurrency), rollouts)
    return [rollout.completion for rollout in rollouts]


@pytest.mark.parametrize(
    "text",
    [
        *("0+16", "20+16", "unlimited"),
        *(pytest.param(text, marks=pytest.mark.slow) for text in ("60+16", "unlimited+16", "20+unlimited")),
    ],
)
def test_streaming_and_barrier_sample_the_same_tokens(llm: LLM, prompt_ids: list[list[int]], text: str) -> None:
    budget = Budget.parse(text)
    streamed = run(llm, prompt_ids, budget)
    assert [c.token_ids for c in streamed] == [c.token_ids for c in run(llm, prompt_ids, budget, scheduler=barrier)]
    if budget.thinking == 20:
        assert {c.thinking_end for c in streamed} == {ThinkingEnd.FORCED}
    if budget.thinking is None:
        assert ThinkingEnd.CLOSED in {c.thinking_end for c in streamed}


def test_the_engine_stops_at_a_marker_of_several_tokens(llm: LLM, prompt_ids: list[list[int]]) -> None:
    marker = Marker.from_tokenizer(TOKENIZER, ";c=", "Wait ;c=")
    assert len(marker.ids) == 3 and len(marker.forced_ids) == 4
    for completion in run(llm, prompt_ids, Budget(60, 16), marker):
        thinking = TOKENIZER.decode(completion.token_ids[: completion.thinking_tokens].tolist())
        assert completion.thinking_end is ThinkingEnd.CLOSED
        assert thinking.endswith(";c=") and thinking.count(";c=") == 1
    forced = run(llm, prompt_ids, Budget(2, 16), marker)
    assert all(completion.token_ids[2:6].tolist() == list(marker.forced_ids) for completion in forced)


def test_nothing_is_sampled_by_what_needs_cudas_compiler() -> None:
    assert envs.VLLM_USE_FLASHINFER_SAMPLER is False  # as importing e1_trl.engines leaves it; vLLM's default is True


@pytest.mark.parametrize("text", ["</think>", ";c="])
def test_a_request_in_flight_shows_how_its_segment_begins(llm: LLM, prompt_ids: list[list[int]], text: str) -> None:
    marker = Marker.from_tokenizer(TOKENIZER, text)
    seen: dict[int, list[Segment]] = {}
    ended: dict[int, Segment] = {}

    def look(in_flight: InFlight[int]) -> None:
        for key, segment in in_flight():
            seen.setdefault(key, []).append(segment)

    requests = [(at, Request(ids, 60, stop_at_marker=True)) for at, ids in enumerate(prompt_ids)]
    LocalEngine(llm, marker, SamplingSettings(0.0)).serve(requests, lambda *end: ended.update([end]) or (), look)
    assert seen.keys() == ended.keys()
    for key, parts in seen.items():
        whole = list(ended[key].token_ids)
        lengths = [len(part.token_ids) for part in parts]
        assert lengths[0] == 1 and lengths == sorted(lengths)
        for part in parts:
            assert list(part.token_ids) == whole[: len(part.token_ids)]
            assert part.stop is Stop.LENGTH


def test_no_sequence_waits_for_the_slowest_thinker_and_prefixes_are_reused(
    llm: LLM, prompt_ids: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = llm.llm_engine
    step = engine.step
    steps = [0]
    solutions = []

    def watched_step() -> list[Any]:
        steps[0] += 1
        outputs = step()
        solutions.extend((steps[0], o) for o in outputs if MARKER.ids[0] in o.prompt_token_ids)
        return outputs

    def count(scheduler: Callable[[LocalEngine, list[Rollout]], None]) -> int:
        # Six sequences in eight slots, of very different lengths.
        rollouts = [Rollout(ids, Budget(None, 16), ThinkingClose(MARKER, CONTEXT)) for ids in prompt_ids[:6]]
        steps[0] = 0
        scheduler(LocalEngine(llm, MARKER, SamplingSettings(temperature=0.0)), rollouts)
        return steps[0]

    monkeypatch.setattr(engine, "step", watched_step)
    streamed = count(stream)
    # The first is done before the slowest thinker could begin its own solution of 16 tokens.
    assert min(at for at, _ in solutions) < streamed - 16
    recomputed = [len(output.prompt_token_ids) - output.num_cached_tokens for _, output in solutions]
    assert max(recomputed) <= engine.vllm_config.cache_config.block_size
    assert streamed <= count(barrier)


def test_an_interrupted_run_leaves_the_engine_usable(llm: LLM, prompt_ids: list[list[int]]) -> None:
    expected = run(llm, prompt_ids, Budget(20, 8))
    engine = llm.llm_engine
    step = engine.step
    steps = iter(range(5))

    def failing_step() -> list[Any]:
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return step()

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(engine, "step", failing_step)
        run(llm, prompt_ids, Budget(20, 8))
    assert not engine.has_unfinished_requests()
    # What was sampled for the aborted requests may come now, and is for nobody.
    assert [c.token_ids for c in run(llm, prompt_ids, Budget(20, 8))] == [c.token_ids for c in expected]


def test_a_second_marker_in_the_solution_is_just_a_token(llm: LLM, prompt_ids: list[list[int]]) -> None:
    # A large bias makes the solution nothing but markers.
    completions = run(llm, prompt_ids[:4], Budget(0, 5), logit_bias={MARKER.ids[0]: 100.0})
    for completion in completions:
        assert completion.solution_ids == [MARKER.ids[0]] * 5
        assert completion.truncated


@pytest.mark.parametrize("concurrency", [None, 5])
@pytest.mark.parametrize(
    ("marker_text", "text", "ends"),
    [
        ("</think>", "150+16", {ThinkingEnd.FORCED, ThinkingEnd.CLOSED}),
        (";c=", "60+16", {ThinkingEnd.CLOSED}),
    ],
)
def test_an_engine_that_answers_a_step_late_samples_the_same_within_budgets(
    synchronous: LLM,
    asynchronous: LLM,
    prompt_ids: list[list[int]],
    marker_text: str,
    text: str,
    ends: set[ThinkingEnd],
    concurrency: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marker = Marker.from_tokenizer(TOKENIZER, marker_text, marker_text)
    budget = Budget.parse(text)
    step = asynchronous.llm_engine.step
    returned = []
    in_flight = []

    def watched_step() -> list[Any]:
        in_flight.append(asynchronous.llm_engine.get_num_unfinished_requests())
        returned.append(step())
        return returned[-1]

    monkeypatch.setattr(asynchronous.llm_engine, "step", watched_step)
    late = run(asynchronous, prompt_ids, budget, marker, concurrency=concurrency)
    assert [] in returned and max(in_flight) == (concurrency or len(prompt_ids))
    assert {completion.thinking_end for completion in late} == ends
    for ours, theirs in zip(late, run(synchronous, prompt_ids, budget, marker, concurrency=concurrency), strict=True):
        assert ours.token_ids == theirs.token_ids
        assert (ours.thinking_end, ours.truncated) == (theirs.thinking_end, theirs.truncated)
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=0.001, nan_ok=True)
        forced = ours.thinking_end is ThinkingEnd.FORCED
        assert ours.thinking_tokens == budget.thinking if forced else ours.thinking_tokens <= budget.thinking
        assert ours.solution_tokens == 16 if ours.truncated else ours.solution_tokens <= 16


def sleep_and_wake(llm: LLM) -> None:
    """As a training does between two generations; a CPU keeps the memory."""
    llm.sleep(level=2)
    llm.wake_up(tags=["weights"])
    assert llm.reset_prefix_cache()
    llm.wake_up(tags=["kv_cache"])


@pytest.mark.parametrize("between", [LLM.reset_prefix_cache, sleep_and_wake], ids=["awake", "asleep"])
def test_what_one_generation_leaves_in_flight_is_nothing_to_the_next(
    synchronous: LLM,
    asynchronous: LLM,
    prompt_ids: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    between: Callable[[LLM], bool | None],
) -> None:
    # So that vLLM adds no random letters to a request's name, and those of both generations are the same.
    monkeypatch.setattr(envs, "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION", True, raising=False)
    budget = Budget(20, 8)
    expected = run(synchronous, prompt_ids, budget)
    engine = LocalEngine(asynchronous, MARKER, SamplingSettings(0.0))
    rollouts = [Rollout(ids, budget, ThinkingClose(MARKER, CONTEXT)) for ids in prompt_ids]
    for part in (rollouts[:6], rollouts[6:]):
        stream(engine, part)
        assert len(core(asynchronous).batch_queue) == 1  # a step of requests that had ended when it was read
        assert between(asynchronous) is not False  # else prefixes of old weights would stay
    assert [rollout.completion.token_ids for rollout in rollouts] == [c.token_ids for c in expected]


def test_a_marker_of_added_tokens_is_found_with_a_tokenizer_in_python() -> None:
    """vLLM's detokenizer of such a tokenizer would write `<|close|> think <|sep|>`, which is no marker."""
    tokenizer = ByT5Tokenizer()
    tokenizer.add_tokens(["<|close|>", "<|sep|>"])
    marker = Marker.from_tokenizer(tokenizer, "<|close|>think<|sep|>")
    parameters = sampling_params(Request([1], 99, stop_at_marker=True), marker, SamplingSettings())
    request: Any = SimpleNamespace(sampling_params=parameters, prompt_token_ids=[1], prompt_embeds=None, request_id="0")
    detokenizer = SlowIncrementalDetokenizer(tokenizer, request)
    assert detokenizer.update([*tokenizer.encode("4.", add_special_tokens=False), *marker.ids], False) == marker.text
