"""Tokens of an answer are counted as a rollout counts them, and what may become a stop text is held back."""

from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.marker import Marker, PromptState
from e1_trl.rollout import Rollout, Segment, Stop
from e1_trl.serving.model import Limits
from e1_trl.serving.response import TokenCount, hold_back, join

OPENER = (4,)
MARKERS = (((5,), (5,)), ((6, 7), (6, 7)), ((6, 7), (8, 6, 7, 9)), ((5,), (5, 9, 9)))
EOS = 1


def marker_of(ids: tuple[int, ...], forced: tuple[int, ...]) -> Marker:
    place = next(n for n in range(len(forced)) if forced[n : n + len(ids)] == ids)
    openers = {"opener": "<o>", "opener_ids": OPENER, "empty_ids": OPENER + forced}
    return Marker("m", ids, forced, place + len(ids), **openers, decode=decode)


def decode(ids: Sequence[int], **_: Any) -> str:
    return "".join({3: "\n", 4: "<o>"}.get(token, "x") for token in ids)


def sampled(tokens: Iterator[int], most: int, close: tuple[int, ...] | None) -> Segment:
    """Sample up to the marker, if it ends the segment, to the end of the sequence, or so many tokens."""
    ids: list[int] = []
    while len(ids) < most:
        ids.append(next(tokens))
        if ids[-1] == EOS:
            return Segment(ids, Stop.EOS)
        if close is not None and tuple(ids[-len(close) :]) == close:
            return Segment(ids, Stop.MARKER)
    return Segment(ids, Stop.LENGTH)


@given(
    st.sampled_from(MARKERS),
    st.integers(0, 9),
    st.integers(1, 5),
    st.lists(st.sampled_from([1, 2, 3, 5, 6, 7]), min_size=20, max_size=20),
    st.lists(st.integers(1, 4), min_size=30, max_size=30),
)
def test_tokens_are_counted_as_a_rollout_counts_them(
    texts: tuple[Any, Any], thinking: int, solution: int, tokens: list[int], sizes: list[int]
) -> None:
    marker = marker_of(*texts)
    source = iter(tokens)
    rollout = Rollout([*OPENER], Budget(thinking, solution), ThinkingClose(marker, 99))
    while (request := rollout.request) is not None:
        rollout.receive(sampled(source, request.max_tokens, marker.ids if request.stop_at_marker else None))
    expected = rollout.completion
    count = TokenCount(Limits(PromptState.OPENED, thinking, marker.forced_ids, solution, {}), marker)
    ids = [*expected.token_ids.tolist(), *tokens]  # which go on, as vLLM's may
    ids = ids if expected.truncated else expected.token_ids.tolist()
    whole = list(ids)
    for size in sizes:
        if count.add(ids[:size]) < size:
            break
        del ids[:size]
    count.finish("stop")
    assert count.end == expected.thinking_end and count.ids == expected.token_ids.tolist(), whole
    assert (count.thinking, count.forced) == (expected.thinking_tokens, expected.forced_tokens)
    assert count.solution_ids == expected.solution_ids and count.is_full == (len(count.solution_ids) == solution)


def test_a_thinking_that_the_model_opens_or_the_prompt_closed_is_counted() -> None:
    marker = marker_of((5,), (5,))

    def counted(state: PromptState, thinking: int, forced: tuple[int, ...], ids: list[int]) -> tuple[Any, ...]:
        count = TokenCount(Limits(state, thinking, forced, 3, {}), marker)
        count.add(ids)
        count.finish("stop")
        return count.end, count.thinking, count.forced, count.solution_ids

    nothing = PromptState.NOTHING
    assert counted(nothing, 0, (4, 5), [4, 5, 2, 1]) == ("forced", 0, 2, [2, 1])
    assert counted(nothing, 3, (5,), [4, 2, 2, 5, 1]) == ("forced", 3, 1, [1])
    assert counted(nothing, 9, (5,), [4, 2, 5, 2, 1]) == ("closed", 3, 0, [2, 1])
    assert counted(nothing, 9, (5,), [2, 2, 1]) == ("none", 0, 0, [2, 2, 1])
    assert counted(nothing, 9, (5,), [2, 4, 5, 2, 2]) == ("none", 0, 0, [2, 4, 5])  # its budget is a solution's
    assert counted(nothing, 3, (5,), [3, 3, 4, 2, 2, 5, 1]) == ("forced", 5, 1, [1])  # behind blanks
    assert counted(nothing, 9, (5,), [3, 3, 2, 1]) == ("none", 0, 0, [3, 3, 2])
    assert counted(PromptState.CLOSED, 0, (), [2, 5, 2, 2, 2]) == ("prompt", 0, 0, [2, 5, 2])


def test_tokens_of_a_thinking_that_goes_on_are_its_own() -> None:
    count = TokenCount(Limits(PromptState.OPENED, 9, (5,), 3, {}), marker_of((5,), (5,)))
    count.add([2, 2, 2])  # as far as a client came that has left
    assert count.parts == (3, 0, 0) and count.solution_ids == []


def test_a_close_that_vllm_completes_is_forced() -> None:
    marker = marker_of((6, 7), (6, 7))
    count = TokenCount(Limits(PromptState.OPENED, 3, (6, 7), 3, {}), marker)
    count.add([2, 2, 6, 7, 2])  # by vLLM's second model runner, where the first forces 6, 7 after the 6
    assert (count.end, count.thinking, count.forced, count.solution_ids) == ("forced", 3, 1, [2])


@given(st.text(alphabet="ab", max_size=8), st.lists(st.text(alphabet="ab", min_size=1, max_size=3), max_size=2))
def test_what_may_become_a_word_is_held_back(text: str, words: list[str]) -> None:
    shown, held = hold_back(text, words)
    assert shown + held == text and (not held or any(word.startswith(held) for word in words))
    longer = range(len(held) + 1, len(text) + 1)
    assert not any(word.startswith(text[-size:]) for word in words for size in longer)


def test_parts_of_an_answer_become_one() -> None:
    whole: dict[str, Any] = {}
    begun = {"index": 0, "id": "c", "type": "function", "function": {"name": "f"}}
    arguments = [{"index": 0, "function": {"arguments": text}} for text in ('{"a"', ": 1}")]
    parts: list[dict[str, Any]] = [
        {"message": {"role": "assistant", "content": ""}, "logprobs": None},
        {"message": {"reasoning": "a"}, "logprobs": {"content": [1]}},
        {"message": {"reasoning": "b", "tool_calls": [begun, arguments[0]]}, "logprobs": {"content": [2]}},
        {"message": {"tool_calls": [arguments[1]]}, "finish_reason": "tool_calls"},
    ]
    for part in parts:
        whole = join(whole, part)
    function = {"name": "f", "arguments": '{"a": 1}'}
    message = {"role": "assistant", "content": "", "reasoning": "ab", "tool_calls": [{**begun, "function": function}]}
    assert whole == {"message": message, "logprobs": {"content": [1, 2]}, "finish_reason": "tool_calls"}
