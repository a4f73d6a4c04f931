"""Limits of a request, and prompts in which a thinking budget of 0 is closed; no server is asked."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import BASE
from transformers import AutoTokenizer

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.checkpoints.budget_file import BudgetInfo
from e1_trl.errors import UserError
from e1_trl.marker import Marker, PromptState
from e1_trl.serving.model import Limits, Model, ModelArguments, read_model
from e1_trl.serving.request import BudgetPresets, ParsedRequest

TOKENIZER = AutoTokenizer.from_pretrained(BASE)
MARKER = Marker.from_tokenizer(TOKENIZER)
LONG = replace(MARKER, opener_ids=(27, 28, 29))
PLAIN, OPENED, BEGUN = (
    TOKENIZER.encode(f"<|user|>a=1;a?<|assistant|>{text}", add_special_tokens=False)
    for text in ("", "<think>", "<think>a=1</think>\\boxed")
)


def limits_of(
    prompts: list[list[int]],
    budget: str,
    context: int = 64,
    marker: Marker = MARKER,
    excess: int = 0,
    total: int | None = None,
) -> Limits:
    upstream: Any = None  # is not asked
    model = Model(upstream, ThinkingClose(marker, context), BudgetPresets("nano", Budget(0, 8), {}), excess)
    asked = replace(Budget.parse(budget), total=total)
    return asyncio.run(model.limit(ParsedRequest(asked, None, {"prompt": prompts})))


@pytest.mark.parametrize(
    ("prompts", "budget", "more", "thinking", "tokens"),
    [
        ([[2, 4]], "8+6", {}, 8, 15),
        ([[2, 4, 27, 27]], "8+6", {}, 10, 15),  # vLLM counts those of the prompt
        ([[2, 4, 5, 3, 4]], "8+6", {}, 8, 15),
        ([[2, 3]], "8+6", {}, 7, 15),  # the model opens it, within its budget
        ([[2, 4, 5]], "8+6", {}, None, 6),
        ([[2, 4]], "unlimited+6", {}, 64 - 2 - 7, 64 - 2),
        ([[2, 4], [3, 2, 4]], "unlimited+6", {}, 64 - 3 - 7, 64 - 3),  # the least that is left
        ([[2, 4]], "8+unlimited", {}, 8, 64 - 2),
        ([[2, 4]], "8+6", {"total": 10}, 8, 10),
        ([[2, 4]], "8+6", {"excess": 2}, 6, 15),  # what vLLM lets a thinking have beyond its budget is kept back
        ([[2, 4]], "2+6", {"excess": 2}, 0, 7),
        ([[2, 3]], "1+6", {"marker": LONG}, 0, 3 + 7),  # the opener takes none of the solution
        ([[2, 3]], "3+6", {"marker": LONG}, 0, 3 + 7),
        ([[2, 3]], "8+6", {"marker": LONG}, 5, 8 + 7),
    ],
)
def test_budgets_become_limits_of_one_request(
    prompts: list[list[int]], budget: str, more: dict[str, Any], thinking: int | None, tokens: int
) -> None:
    fields = limits_of(prompts, budget, **more).fields
    assert (fields.get("thinking_token_budget"), fields["max_tokens"]) == (thinking, tokens)


def test_presets_are_a_models_budget_without_its_total_and_the_sampling_that_is_named(tmp_path: Path) -> None:
    model = shutil.copytree(BASE, tmp_path / "model")
    BudgetInfo("</think>", "</think>", 1, Budget(8, 6, 10)).write(model)
    presets, *_ = read_model(ModelArguments(model=str(model), sampling='{"repetition_penalty": 1.2}'))
    assert (presets.default, presets.sampling) == (Budget(8, 6), {"repetition_penalty": 1.2})


def test_a_prompt_that_opens_nothing_and_may_not_think_is_closed_and_no_other() -> None:
    found = limits_of([PLAIN, PLAIN], "0+8")
    closed = [*PLAIN, *MARKER.empty_ids]
    assert (found.state, found.fields) == (PromptState.CLOSED, {"prompt": [closed, closed], "max_tokens": 8})
    assert found.prompts == (len(closed), len(closed))
    for prompt, budget in ((PLAIN, "4+8"), (OPENED, "0+8"), (BEGUN, "0+8")):
        assert "prompt" not in limits_of([prompt], budget).fields


@pytest.mark.parametrize("prompts", [[PLAIN, OPENED], [OPENED, PLAIN], [[27, 4, 27], [27, 4]]])
def test_prompts_that_hold_different_parts_of_a_thinking_are_refused(prompts: list[list[int]]) -> None:
    with pytest.raises(UserError, match="different parts of a thinking"):
        limits_of(prompts, "0+8")


def test_a_prompt_whose_opener_vllm_would_miss_is_refused() -> None:
    marker = replace(MARKER, opener_ids=(27, 28))  # two tokens, which the prompt has as one
    with pytest.raises(UserError, match="merges '<think>' with what is beside it"):
        limits_of([OPENED], "8+8", marker=marker)


def test_a_closed_prompt_without_room_for_an_answer_is_refused() -> None:
    tokens = len(PLAIN) + len(MARKER.empty_ids)
    assert limits_of([PLAIN], "0+8", context=tokens + 1).fields["max_tokens"] == 1
    with pytest.raises(UserError, match=f"the prompt has {tokens} tokens, and the context of the model {tokens}"):
        limits_of([PLAIN], "0+8", context=tokens)
