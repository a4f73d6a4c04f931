"""Limits of a request, and prompts in which a thinking budget of 0 is closed; no server is asked."""

import asyncio
from typing import Any

import pytest
from conftest import BASE
from transformers import AutoTokenizer

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.marker import Marker, PromptState
from e1_trl.serving.model import Limits, Model
from e1_trl.serving.request import BudgetPresets, ParsedRequest, RefusedError

TOKENIZER = AutoTokenizer.from_pretrained(BASE)
MARKER = Marker.from_tokenizer(TOKENIZER)
PLAIN, OPENED, BEGUN = (
    TOKENIZER.encode(f"<|user|>a=1;a?<|assistant|>{text}", add_special_tokens=False)
    for text in ("", "<think>", "<think>a=1</think>\\boxed")
)


def limits_of(prompts: list[list[int]], thinking: int, context: int = 64) -> Limits:
    upstream: Any = None  # is not asked
    model = Model(upstream, ThinkingClose(MARKER, context), BudgetPresets("nano", Budget(0, 8), {}))
    asked = ParsedRequest(Budget(thinking, 8), None, "nano", {"prompt": prompts})
    return asyncio.run(model.limit(asked))


def test_a_prompt_that_opens_nothing_and_may_not_think_is_closed() -> None:
    found = limits_of([PLAIN, PLAIN], 0)
    closed = [*PLAIN, *MARKER.empty_ids]
    assert (found.state, found.fields) == (PromptState.CLOSED, {"prompt": [closed, closed], "max_tokens": 8})
    assert found.prompts == (len(closed), len(closed))
    assert "prompt" not in limits_of([PLAIN], 4).fields


@pytest.mark.parametrize("prompt", [OPENED, BEGUN])
def test_other_prompts_stay_as_they_are(prompt: list[int]) -> None:
    assert "prompt" not in limits_of([prompt], 0).fields


@pytest.mark.parametrize("prompts", [[PLAIN, OPENED], [OPENED, PLAIN]])
def test_prompts_that_hold_different_parts_of_a_thinking_are_refused(prompts: list[list[int]]) -> None:
    with pytest.raises(RefusedError, match="different parts of a thinking"):
        limits_of(prompts, 0)


def test_a_closed_prompt_without_room_for_an_answer_is_refused() -> None:
    tokens = len(PLAIN) + len(MARKER.empty_ids)
    assert limits_of([PLAIN], 0, context=tokens + 1).fields["max_tokens"] == 1
    with pytest.raises(RefusedError, match=f"the prompt has {tokens} tokens, and the context of the model {tokens}"):
        limits_of([PLAIN], 0, context=tokens)
