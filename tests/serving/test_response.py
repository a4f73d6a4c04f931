"""Tokens of an answer are counted as a rollout counts them, and what may become a stop text is held back."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.marker import Marker, PromptState
from e1_trl.rollout import Rollout, Segment, Stop
from e1_trl.serving.model import Limits
from e1_trl.serving.request import ParsedRequest
from e1_trl.serving.response import Choice, hold_back, join

OPENER = (4,)
EOS = 1


def decode(ids: Sequence[int], **_: Any) -> str:
    return "".join({3: "\n", 4: "<o>"}.get(token, "x") for token in ids)


# A marker's ids, the forced ones, and the number of these that close the thinking.
FORCED = [((5,), (5,), 1), ((6, 7), (6, 7), 2), ((6, 7), (8, 6, 7, 9), 3), ((5,), (5, 9, 9), 1)]
MARKERS = [Marker("m", ids, forced, close, "<o>", OPENER, OPENER + forced, decode) for ids, forced, close in FORCED]


def graded(count: Choice) -> list[int]:
    return count.ids[count.thinking + count.close :]


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
    marker: Marker, thinking: int, solution: int, tokens: list[int], sizes: list[int]
) -> None:
    source = iter(tokens)
    rollout = Rollout([*OPENER], Budget(thinking, solution), ThinkingClose(marker, 99))
    while (request := rollout.request) is not None:
        rollout.receive(sampled(source, request.max_tokens, marker.ids if request.stop_at_marker else None))
    expected = rollout.completion
    count = choice_of("opened", thinking, solution, marker)
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
    assert graded(count) == expected.graded_ids and count.is_full == (count.parts[2] == solution)


@pytest.mark.parametrize(
    ("state", "thinking", "forced", "ids", "expected"),
    [
        ("nothing", 0, (4, 5), [4, 5, 2, 1], ("forced", 0, 2, [2, 1])),
        ("nothing", 3, (5,), [4, 2, 2, 5, 1], ("forced", 3, 1, [1])),
        ("nothing", 9, (5,), [4, 2, 5, 2, 1], ("closed", 3, 0, [2, 1])),
        ("nothing", 9, (5,), [2, 2, 1], ("none", 0, 0, [2, 2, 1])),
        ("nothing", 9, (5,), [2, 4, 5, 2, 2], ("none", 0, 0, [2, 4, 5])),  # its budget is a solution's
        ("nothing", 3, (5,), [3, 3, 4, 2, 2, 5, 1], ("forced", 5, 1, [1])),  # behind blanks
        ("nothing", 9, (5,), [3, 3, 2, 1], ("none", 0, 0, [3, 3, 2])),
        ("closed", 0, (), [2, 5, 2, 2, 2], ("prompt", 0, 0, [2, 5, 2])),
        ("opened", 9, (5,), [2, 2], (None, 2, 0, [])),  # as far as a client came that has left
        # By vLLM's second model runner, where the first forces 6, 7 after the 6.
        ("opened", 3, (6, 7), [2, 2, 6, 7, 2], ("forced", 3, 1, [2])),
    ],
)
def test_a_thinking_is_counted_from_where_it_is_opened_to_where_it_is_closed(
    state: str, thinking: int, forced: tuple[int, ...], ids: list[int], expected: tuple[Any, ...]
) -> None:
    asked = ParsedRequest(Budget(thinking, 3), None, {})
    count = Choice(Limits(PromptState(state), thinking, forced, {}), MARKERS[1 if 6 in forced else 0], asked)
    count.add(ids)
    if expected[0] is not None:
        count.finish("stop")
    assert (count.end, count.thinking, count.forced, graded(count)) == expected


TEXTS = {4: "<t>", 5: "</t>", 6: "", 20: "a", 21: "b", 22: "c", 23: "d", 30: "\n", 31: "box{", 32: "Wait"}
TEXTS |= {40: "</", 41: "t>", 42: "<", 43: "t>", 50: "\ud83e", 51: "\udebf"}  # two halves of a character


def spell(ids: Sequence[int], **_: Any) -> str:
    text = "".join(TEXTS[token] for token in ids)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


TAGGED = Marker("</t>", (5,), (5,), 1, "<t>", (4,), (), spell)


def choice_of(
    state: str = "opened", thinking: int = 8, solution: int = 3, marker: Marker = TAGGED, stop: Sequence[str] = ()
) -> Choice:
    asked = ParsedRequest(Budget(thinking, solution), None, {}, stop)
    return Choice(Limits(PromptState(state), thinking, marker.forced_ids, {}), marker, asked)


def told(choice: Choice, token_ids: list[int], **delta: Any) -> dict[str, Any]:
    """Return how a choice tells an event."""
    part = {"index": 0, "delta": delta, "token_ids": token_ids}
    choice.take(part)
    return part


def shown(state: str, ids: list[int], forced: list[int], close: int, sizes: list[int], parsed: bool) -> Any:
    """Return how vLLM's answer of these tokens is told where the first `sizes` of them end events, at 3+3."""
    marker = Marker("</t>", (close,), tuple(forced), forced.index(close) + 1, "<t>", (4,), (), spell)
    choice = choice_of(state, 3, 3, marker)
    texts = ["", ""]
    for start, end in pairwise([0, *sizes]):
        # vLLM holds back half a character; its parser drops the marker, and takes what is behind for the content.
        whole = [spell(ids[:place]).rstrip("\ufffd") for place in (start, end)]
        delta = {"content": whole[1].removeprefix(whole[0])}
        if parsed:
            place = ids.index(close)
            parts = [spell(ids[min(start, place) : min(end, place)]), spell(ids[max(start, place + 1) : end])]
            delta = {"reasoning": parts[0], "content": parts[1]}
        part = {"index": 0, "delta": delta, "token_ids": ids[start:end]}
        if end == len(ids):
            part["finish_reason"] = "stop"
        if not choice.done:
            choice.take(part)
            texts = [old + (delta.get(name) or "") for old, name in zip(texts, ("reasoning", "content"), strict=True)]
    return *texts, choice.end


@pytest.mark.parametrize(
    ("state", "ids", "expected", "forced", "close", "parsed"),
    [
        ("opened", [20, 5, 21, 50, 51, 22, 23], ("a", "b\U0001fabf", "closed"), [5], 5, False),
        ("opened", [5, 20, 21], ("", "ab", "closed"), [5], 5, True),
        ("opened", [20, 21, 5, 22, 23, 20, 20], ("ab", "cda", "closed"), [5], 5, True),
        ("opened", [21, 6, 22, 23], ("b", "cd", "closed"), [6], 6, False),  # a special token as marker
        ("nothing", [30, 20, 21, 22, 23], ("", "\nab", "none"), [5], 5, False),
        ("nothing", [30, 4, 20, 5, 30, 22, 23], ("a", "\ncd", "closed"), [5], 5, False),
        ("opened", [20, 21, 22, 32, 5, 30, 31, 23], ("abcWait", "\nbox{d", "forced"), [32, 5, 30, 31], 5, False),
        ("opened", [40, 41, 20, 5, 21], ("</t>a", "b", "forced"), [5], 5, False),  # in other tokens than the marker's
        ("opened", [40, 41, 20], ("</t>a", "", "eos"), [5], 5, False),
        ("opened", [20, 5, 40, 41, 21], ("a", "</t>b", "closed"), [5], 5, False),
        ("opened", [20, 4, 21, 5, 22], ("a<t>b", "c", "forced"), [5], 5, False),
        ("closed", [20, 5, 21, 22], ("", "a</t>b", "prompt"), [5], 5, False),
    ],
)
def test_tokens_that_come_together_are_told_as_those_that_come_alone(
    state: str, ids: list[int], expected: tuple[str, ...], forced: list[int], close: int, parsed: bool
) -> None:
    inner = range(1, len(ids))
    for ends in (each for size in range(len(ids)) for each in combinations(inner, size)):
        assert shown(state, ids, forced, close, [*ends, len(ids)], parsed) == expected, ends


@given(st.text(alphabet="ab", max_size=8), st.lists(st.text(alphabet="ab", min_size=1, max_size=3), max_size=2))
def test_what_may_become_a_word_is_held_back(text: str, words: list[str]) -> None:
    shown, held = hold_back(text, words)
    assert shown + held == text and (not held or any(word.startswith(held) for word in words))
    longer = range(len(held) + 1, len(text) + 1)
    assert not any(word.startswith(text[-size:]) for word in words for size in longer)


def test_an_answer_ends_at_the_first_of_its_stop_texts() -> None:
    part = told(choice_of("closed", 0, 9, stop=("c", "b")), [20, 21, 22, 23], content="abcd")
    assert (part["delta"], part["stop_reason"]) == ({"content": "a"}, "b")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([([42], "<"), ([43], "t>"), ([20], "a"), ([5], "</t>"), ([21], "b")], ("a", "b")),
        ([([42], "<"), ([20], "a"), ([21], "b")], ("", "<ab")),
    ],
)
def test_text_that_may_become_an_opener_is_held_back(
    events: list[tuple[list[int], str]], expected: tuple[str, str]
) -> None:
    choice = choice_of("nothing", 8, 8, replace(TAGGED, opener_ids=(42, 43)))
    deltas = [told(choice, ids, content=text)["delta"] for ids, text in events]
    assert tuple("".join(delta.get(name) or "" for delta in deltas) for name in ("reasoning", "content")) == expected


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


@pytest.mark.parametrize("sizes", [[1, 2, 3], [1, 3], [3]])
def test_a_blank_that_the_tokenizer_leaves_out_stays_in_front_of_a_solution(sizes: list[int]) -> None:
    def decode(ids: Sequence[int], **_: Any) -> str:
        return "".join({7: "a", 5: "</t>", 8: " b"}[token] for token in ids).removeprefix(" ")

    choice = choice_of("opened", 8, 8, replace(TAGGED, decode=decode))
    texts = ["a", "</t>", " b"]
    solution = ""
    for start, end in pairwise([0, *sizes]):
        part = told(choice, [7, 5, 8][start:end], content="".join(texts[start:end]))
        solution += part["delta"].get("content") or ""
    assert solution == " b"


@pytest.mark.parametrize(
    ("state", "before", "end", "parts"),
    [("opened", None, "closed", (1, 0, 3)), ("closed", "prompt", "prompt", (0, 0, 3))],
)
def test_a_tool_that_is_called_from_inside_the_thinking_ends_it(
    state: str, before: str | None, end: str, parts: tuple[int, ...]
) -> None:
    choice = choice_of(state)
    assert told(choice, [20], reasoning="a").get("thinking_end") == before
    last = told(choice, [21, 22, 23], tool_calls=[{"index": 0, "function": {"name": "f", "arguments": "{}"}}])
    assert (last["thinking_end"], last["finish_reason"], choice.parts) == (end, "length", parts)


def test_a_tool_call_within_the_budget_takes_no_text_beyond_it_along() -> None:
    choice = choice_of()
    events = [("a</t>", [20, 5]), (None, [31]), ("bcd", [21, 22, 23])]
    assert [told(choice, ids, content=text)["delta"]["content"] for text, ids in events] == ["", "", "bc"]
    assert choice.done
