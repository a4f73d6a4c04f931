import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.marker import Marker
from e1_trl.rollout import Completion, Request, Rollout, Segment, Stop, ThinkingEnd

EOS, CLOSE, OPEN = 0, 1, 2
CLOSED, FORCED, TOTAL = ThinkingEnd.CLOSED, ThinkingEnd.FORCED, ThinkingEnd.TOTAL
MARKER = Marker("</think>", (CLOSE,), (CLOSE,), close_tokens=1)
LONG_MARKER = Marker("</think>", (CLOSE,), (7, 8, CLOSE, 9), close_tokens=3)
PIECES = Marker("</think>", (5, 6, 7), (5, 6, 7), close_tokens=3)
WORDS = Marker("</think>", (CLOSE,), (7, 8), close_tokens=0)  # the forced text holds no marker


def sample(request: Request, policy: list[int]) -> Segment:
    """What an engine does with a policy that would go on as `policy`, then stop."""
    token_ids: list[int] = []
    for token in [*policy, EOS][: request.max_tokens]:
        token_ids.append(token)
        if token == EOS:
            return Segment(token_ids, Stop.EOS, [-float(t) for t in token_ids])
        if token == CLOSE and request.stop_at_marker:
            return Segment(token_ids, Stop.MARKER, [-float(t) for t in token_ids])
    return Segment(token_ids, Stop.LENGTH, [-float(t) for t in token_ids])


def complete(
    thinking: list[int], solution: list[int], budget: Budget, marker: Marker = MARKER, context: int = 1000
) -> Completion:
    rollout = Rollout([3, 3, 3], budget, ThinkingClose(marker, context))
    if rollout.request is not None and rollout.request.stop_at_marker:
        rollout.receive(sample(rollout.request, thinking))
    if rollout.request is not None:
        rollout.receive(sample(rollout.request, solution))
    return rollout.completion


@pytest.mark.parametrize(
    ("thinking", "solution", "budget", "tokens", "end"),
    [
        pytest.param([4, 4, CLOSE], [5], Budget(10, 10), [4, 4, CLOSE, 5, EOS], CLOSED, id="a natural close"),
        pytest.param([4, 4, CLOSE], [5], Budget(3, 10), [4, 4, CLOSE, 5, EOS], CLOSED, id="the last token"),
        pytest.param([4, EOS], [5], Budget(10, 10), [4, EOS], ThinkingEnd.EOS, id="EOS while thinking"),
        pytest.param([CLOSE], [5] * 9, Budget(10, 4), [CLOSE, 5, 5, 5, 5], CLOSED, id="a solution that is cut"),
        pytest.param([CLOSE], [OPEN, CLOSE, 6], Budget(9, 9), [CLOSE, OPEN, CLOSE, 6, EOS], CLOSED, id="markers"),
        # A total budget cuts wherever it ends.
        pytest.param([4] * 9, [5] * 9, Budget(None, None, 5), [4] * 5, TOTAL, id="thinking is cut, not closed"),
        pytest.param([4] * 9, [5] * 9, Budget(5, 9, 5), [4] * 5, TOTAL, id="both budgets at once"),
        pytest.param([4] * 9, [5] * 9, Budget(3, 9, 5), [4, 4, 4, CLOSE, 5, 5], FORCED, id="forced tokens are free"),
        pytest.param([4, CLOSE], [5] * 9, Budget(None, None, 5), [4, CLOSE, 5, 5, 5], CLOSED, id="a cut by the total"),
        pytest.param([4] * 4 + [CLOSE], [5], Budget(None, 9, 5), [4] * 4 + [CLOSE], CLOSED, id="nothing is left"),
    ],
)
def test_a_completion_is_what_was_sampled_within_its_budget_and_what_was_forced(
    thinking: list[int], solution: list[int], budget: Budget, tokens: list[int], end: ThinkingEnd
) -> None:
    completion = complete(thinking, solution, budget)
    assert completion.token_ids.tolist() == tokens and completion.thinking_end is end
    assert completion.truncated == (tokens[-1] != EOS)
    forced = [CLOSE] if end is FORCED else []
    closed = tokens.index(CLOSE) + 1 if CLOSE in tokens else len(tokens)
    assert completion.parts == (tokens[: closed - len(forced)], forced, tokens[closed:])
    assert completion.solution_ids == completion.graded_ids == tokens[closed:]
    assert completion.loss_mask.count(0) == len(forced)


def test_which_closes_are_trained_on_is_said_apart_from_which_are_sampled() -> None:
    forced, closed = complete([4] * 20, [5], Budget(3, 10), LONG_MARKER), complete([4, CLOSE], [5], Budget(3, 10))
    assert [forced.trained_mask(closes, 1) for closes in ("sampled", "all", "none")] == [
        [1] * 3 + [0] * 4 + [1] * 2,
        [1] * 9,
        [1] * 3 + [0] * 4 + [1] * 2,
    ]
    assert [closed.trained_mask(closes, 1) for closes in ("sampled", "all", "none")] == [[1] * 4, [1] * 4, [1, 0, 1, 1]]
    assert closed.trained_mask("none", 3) == [0, 0, 1, 1]
    assert complete([4, EOS], [5], Budget(3, 10)).trained_mask("none", 1) == [1, 1]


def test_unlimited_budgets_are_bounded_by_the_context_alone() -> None:
    for thinking in ([4] * 200, [4, CLOSE]):
        completion = complete(thinking, [5] * 200, Budget(None, None), context=100)
        assert 3 + len(completion.token_ids) == 100


@pytest.mark.parametrize(
    ("marker", "graded"),
    [(MARKER, [5, EOS]), (PIECES, [5, EOS]), (LONG_MARKER, [9, 5, EOS]), (WORDS, [7, 8, 5, EOS])],
)
def test_what_is_graded_is_all_that_follows_the_marker(marker: Marker, graded: list[int]) -> None:
    forced = complete([4] * 9, [5], Budget(3, 10), marker)
    assert forced.graded_ids == graded and forced.solution_ids == [5, EOS]
    closed = complete([4, CLOSE], [5], Budget(3, 10), marker)
    assert closed.graded_ids == closed.solution_ids == [5, EOS]
    assert complete([4, EOS], [5], Budget(3, 10), marker).graded_ids == []


def test_parts_that_do_not_add_up_are_refused() -> None:
    parts = {"forced_tokens": 0, "close_tokens": 0, "solution_tokens": 0, "truncated": False}
    with pytest.raises(ValueError, match=r"3 \+ 0 \(0 to close\) \+ 0 tokens has 2 token ids"):
        Completion(array("i", [1, 2]), ThinkingEnd.EOS, thinking_tokens=3, **parts)


policies = st.lists(st.integers(0, 9), max_size=40)
positive = st.one_of(st.none(), st.integers(1, 30))
budgets = st.builds(Budget, st.one_of(st.none(), st.integers(0, 30)), positive, positive)
markers = st.sampled_from([MARKER, LONG_MARKER, PIECES, WORDS])


@given(policies, policies, budgets, markers)
def test_every_completion_keeps_the_invariants(
    thinking: list[int], solution: list[int], budget: Budget, marker: Marker
) -> None:
    context = 100
    completion = complete(thinking, solution, budget, marker, context)
    length = len(completion.token_ids)
    assert completion.logprobs is not None
    assert length == len(completion.loss_mask) == len(completion.logprobs)
    assert 3 + length <= context
    if budget.thinking is not None:
        assert completion.thinking_tokens <= budget.thinking
    if budget.solution is not None:
        assert completion.solution_tokens <= budget.solution

    forced = range(completion.thinking_tokens, completion.thinking_tokens + completion.forced_tokens)
    for i in range(length):
        assert (completion.loss_mask[i] == 0) == (i in forced) == math.isnan(completion.logprobs[i])
    assert completion.parts[1] == [completion.token_ids[i] for i in forced] == list(marker.forced_ids) * bool(forced)
    assert (completion.thinking_end is FORCED) == bool(forced)
    if completion.thinking_end is ThinkingEnd.EOS:
        assert completion.token_ids[-1] == EOS and completion.solution_tokens == 0
    if completion.thinking_end is CLOSED:
        assert completion.token_ids[completion.thinking_tokens - 1] == CLOSE


def test_an_answer_that_nobody_asked_for_is_refused() -> None:
    rollout = Rollout([3], Budget(4, 4), ThinkingClose(MARKER, 100))
    with pytest.raises(ValueError, match="not finished"):
        _ = rollout.completion
    with pytest.raises(ValueError, match="5 tokens came for a request of 4"):
        rollout.receive(Segment([4] * 5, Stop.LENGTH))
    with pytest.raises(ValueError, match="2 tokens came with 1 log-probabilities"):
        rollout.receive(Segment([4] * 2, Stop.EOS, [0.0]))
    with pytest.raises(ValueError, match="stopped after 3 of 4 tokens: its context or a limit"):
        rollout.receive(Segment([4] * 3, Stop.LENGTH))
    rollout.receive(Segment([4, EOS], Stop.EOS))
    with pytest.raises(ValueError, match="finished"):
        rollout.receive(Segment([], Stop.EOS))
