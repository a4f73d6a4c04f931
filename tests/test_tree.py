"""The tree of samples, without an engine: a small deterministic language takes the model's place."""

import hashlib
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e1_trl import tree
from e1_trl.budget import Budget, ThinkingClose
from e1_trl.evaluation.methods import METHODS, MIXED, Cell, MethodOptions, Question, Setting, make_cells
from e1_trl.marker import Marker
from e1_trl.rollout import Completion, Request, Rollout, Segment, Stop
from e1_trl.tree import Branch, Phase, StoredSegment, Tree

MARKER, EOS, WAIT = 0, 1, 2
CONTEXT = 120
PROMPT = [7, 7, 7]


def sample_greedily(request: Request, seed: int, marker: tuple[int, ...] = (MARKER,)) -> Segment:
    """What a "model" says after a prefix: a function of the prefix alone, as greedy decoding is."""
    tokens: list[int] = []
    while len(tokens) < request.max_tokens:
        sequence = [*request.prompt_ids, *tokens]
        token = hashlib.sha256(f"{seed} {sequence}".encode()).digest()[0] % 24
        tokens.append(token)
        if token == EOS:
            return Segment(tokens, Stop.EOS)
        # As the engine does, look for the marker in what was sampled for this request only.
        if request.stop_at_marker and tuple(tokens[-len(marker) :]) == marker:
            return Segment(tokens, Stop.MARKER)
    return Segment(tokens, Stop.LENGTH)


def setting(forced: tuple[int, ...] = (MARKER,), waits: int = 2) -> Setting:
    marker = Marker("\0", (MARKER,), forced, close_tokens=forced.index(MARKER) + 1)
    return Setting(
        close=ThinkingClose(marker, CONTEXT),
        s1_marker=Marker("\0", (MARKER,), (MARKER, 9, 9), close_tokens=1),
        wait_ids=(WAIT, 3),
        options=MethodOptions(s1_waits=waits),
        decode=lambda ids: "".join(map(chr, ids)),
    )


def start(tree: Tree[Cell], cell: Cell, prompt: list[int], shared: Setting) -> None:
    tree.start(cell, METHODS[cell.method].complete(tree, Question(prompt, cell.budget), shared))


def grow(
    wanted: list[Cell],
    shared: Setting,
    seed: int,
    saved: list[StoredSegment] = (),  # type: ignore[assignment]
    independent: bool = False,
    serve: Callable[[Request], None] = lambda request: None,
) -> tuple[dict[Cell, Completion], list[StoredSegment]]:
    tree: Tree[Cell] = Tree(0, 0, shared.close.marker, shared.decode, saved, independent)
    for cell in wanted:
        start(tree, cell, PROMPT, shared)
    legs, queue = [], list(tree.requests())
    rng = random.Random(seed)
    while queue:
        (_, branch), request = queue.pop(rng.randrange(len(queue)))  # segments finish in any order
        serve(request)
        legs.append(tree.receive(branch, sample_greedily(request, seed, shared.close.marker.ids)))
        queue += tree.requests()
    assert tree.finished
    return tree.completions, legs


budgets = st.lists(
    st.builds(Budget, st.one_of(st.none(), st.integers(0, 40)), st.integers(1, 20)), min_size=1, max_size=4
)
METHOD_NAMES = [name for name in METHODS if name != MIXED]


@given(budgets, st.integers(0, 10**6), st.sampled_from([(MARKER,), (5, MARKER, 6)]))
@settings(max_examples=200, deadline=None)
def test_a_shared_tree_answers_as_separate_rollouts_do(at: list[Budget], seed: int, forced: tuple[int, ...]) -> None:
    shared = setting(forced)
    results, _ = grow(make_cells(["separate"], at), shared, seed)
    for budget in at:
        rollout = Rollout(PROMPT, budget, shared.close)
        while rollout.request is not None:
            rollout.receive(sample_greedily(rollout.request, seed))
        assert results[Cell("separate", budget)] == rollout.completion


@given(budgets, st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_sharing_changes_no_answer_of_any_method(at: list[Budget], seed: int) -> None:
    wanted = make_cells(METHOD_NAMES, at)
    shared, shared_legs = grow(wanted, setting(), seed)
    apart, apart_legs = grow(wanted, setting(), seed, independent=True)
    assert shared == apart
    assert sum(len(leg.token_ids) for leg in shared_legs) <= sum(len(leg.token_ids) for leg in apart_legs)


@given(budgets, budgets, st.integers(0, 10**6), st.one_of(st.just(1.0), st.floats(0, 1)))
@settings(max_examples=200, deadline=None)
def test_what_is_saved_is_never_sampled_again(first: list[Budget], more: list[Budget], seed: int, kept: float) -> None:
    _, legs = grow(make_cells(METHOD_NAMES, first), setting(), seed)
    rng = random.Random(seed)
    saved = [leg for leg in legs if rng.random() < kept]  # any part of a run may have been lost
    wanted = make_cells(METHOD_NAMES, [*first, *more])
    fresh, _ = grow(wanted, setting(), seed)
    resumed, new = grow(wanted, setting(), seed, saved=sorted(saved, key=lambda leg: leg.start))
    assert resumed == fresh
    if kept == 1:
        done = {(leg.branch, leg.start + i) for leg in legs for i in range(len(leg.token_ids))}
        assert not done & {(leg.branch, leg.start + i) for leg in new for i in range(len(leg.token_ids))}


@given(budgets, st.integers(0, 10**6), st.floats(0, 1))
@settings(max_examples=200, deadline=None)
def test_no_two_requests_are_called_the_same_and_a_resumed_run_calls_them_as_before(
    at: list[Budget], seed: int, kept: float
) -> None:
    def called(requests: list[Request]) -> dict[tuple[object, int], Request]:
        return {(request.name, len(request.prompt_ids)): request for request in requests}

    asked: list[Request] = []
    grow(make_cells(METHOD_NAMES, at), setting(), seed, serve=asked.append)
    assert len(called(asked)) == len(asked)
    asked.clear()
    wanted = make_cells(["separate", "truncation"], at)
    _, legs = grow(wanted, setting(), seed, serve=asked.append)
    rng, again = random.Random(seed), list[Request]()
    saved = sorted((leg for leg in legs if rng.random() < kept), key=lambda leg: leg.start)
    grow(wanted, setting(), seed, saved=saved, serve=again.append)
    assert called(again).items() <= called(asked).items()


def test_what_is_left_of_a_lost_thought_is_not_put_behind_another() -> None:
    wanted = make_cells(["separate"], [Budget(4, 4), Budget(12, 4)])
    seeds = [seed for seed in range(100) if any(leg.start for leg in grow(wanted, setting(), seed)[1])]
    for seed in seeds:
        left_over = [leg for leg in grow(wanted, setting(), seed)[1] if leg.start]
        resampled, legs = grow(wanted, setting(), seed + 1, saved=left_over)
        saved = sorted([*left_over, *legs], key=lambda leg: leg.start)
        assert grow(wanted, setting(), seed + 2, saved=saved) == (resampled, [])
    assert len(seeds) > 20


def test_a_long_thought_is_sampled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = make_cells(METHOD_NAMES, [Budget(20, 8), Budget(None, None)])
    whole = [grow(wanted, setting(), seed)[0] for seed in range(20)]
    monkeypatch.setattr(tree, "SEGMENT_TOKENS", 3)
    parts = [grow(wanted, setting(), seed) for seed in range(20)]
    assert [results for results, _ in parts] == whole
    assert max(len(leg.token_ids) for _, legs in parts for leg in legs) == 3


def test_a_marker_of_several_tokens_is_found_where_two_legs_meet() -> None:
    text = {3: "</", 4: "think", 5: ">", 6: "x"}
    marker = Marker("</think>", (3, 4, 5), (3, 4, 5), close_tokens=3)
    branch = Branch("b", PROMPT, Phase.THINKING)
    decode = lambda ids: "".join(text[i] for i in ids)  # noqa: E731
    branch.extend([6, 6, 3], Stop.LENGTH, marker, decode)
    branch.extend([4, 5, 6, 6], Stop.LENGTH, marker, decode)
    assert branch.token_ids.tolist() == [6, 6, 3, 4, 5] and branch.stop is Stop.MARKER
    assert branch.first(5).stop is Stop.MARKER and branch.first(4).stop is Stop.LENGTH


def test_a_request_that_waits_to_be_submitted_is_not_made_again() -> None:
    shared = setting()
    tree: Tree[Cell] = Tree(0, 0, shared.close.marker, shared.decode)
    for cell in make_cells(["separate", "no_thinking"], [Budget(4, 5), Budget(8, 5)]):
        start(tree, cell, PROMPT, shared)
    submitted = []
    waiting = iter(tree.requests())
    for (_, branch), request in waiting:  # one at a time, as an engine with one slot takes them
        submitted.append((branch.name, len(branch.token_ids)))
        tree.receive(branch, sample_greedily(request, 3))
        submitted += [(branch.name, len(branch.token_ids)) for (_, branch), _ in tree.requests()]
    assert len(submitted) == len(set(submitted))


def test_thinking_is_sampled_once_and_forked_at_every_budget() -> None:
    at = [Budget(t, 5) for t in (8, 16, 24, None)]
    seed = next(s for s in range(1000) if len(sample_greedily(Request(PROMPT, 100, True), s).token_ids) > 30)
    asked: list[Request] = []
    _, legs = grow(make_cells(["separate"], at), setting(), seed, serve=asked.append)
    thinking = [leg for leg in legs if leg.branch.startswith(Phase.THINKING)]
    assert len({leg.branch for leg in thinking}) == 1
    assert [leg.start for leg in thinking] == [0, 8, 16, 24]
    prefixes = [len(request.prompt_ids) - len(PROMPT) for request in asked if not request.stop_at_marker]
    assert {9, 17, 25} <= set(prefixes)
