"""Budgets of requests, and refusals."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e1_trl.budget import Budget
from e1_trl.serving.request import BudgetPresets, ParsedRequest, RefusedError, parse_request

PRESETS = BudgetPresets(Budget(100, 40), {"low": Budget(25, 40), "high": Budget(400, 80)}, most=Budget(500, 200))
MESSAGES = [{"role": "user", "content": "a=1;a?"}]


def ask(chat: bool = True, **fields: Any) -> ParsedRequest:
    own: dict[str, Any] = {"messages": MESSAGES} if chat else {"prompt": "a=1;a?"}
    return parse_request(
        {"model": "ORG/E1", **own, **fields}, chat, "ORG/E1", PRESETS, {"temperature": 0.6, "top_k": 20}
    )


@pytest.mark.parametrize(
    ("fields", "budget"),
    [
        ({}, "100+40"),
        ({"thinking_budget": 7}, "7+40"),
        ({"thinking_token_budget": 7, "solution_budget": 9}, "7+9"),
        ({"reasoning": {"max_tokens": 7}}, "7+40"),
        ({"thinking_budget": 7, "thinking_budget_tokens": 7}, "7+40"),
        ({"thinking_budget": 0}, "0+40"),
        ({"reasoning_effort": "low"}, "25+40"),
        ({"reasoning": {"effort": "high"}}, "400+80"),
        ({"model": "ORG/E1@12+34"}, "12+34"),
        ({"max_tokens": 1000}, "100+40"),
        ({"max_tokens": 100}, "60+40"),
        ({"max_completion_tokens": 100, "max_tokens": 100}, "60+40"),
        ({"max_tokens": 40}, "0+40"),
        ({"max_tokens": 10}, "0+10"),
        ({"max_tokens": 100, "reasoning_effort": "high"}, "20+80"),
        ({"max_tokens": 100, "thinking_budget": 90}, "90+10"),
        ({"max_tokens": 100, "solution_budget": 90}, "10+90"),
        ({"max_tokens": 46, "model": "ORG/E1@12+34"}, "12+34"),
        ({"max_tokens": None, "thinking_budget": None, "tools": [], "n": 1, "user": "me"}, "100+40"),
    ],
)
def test_the_budget_of_a_request(fields: dict[str, Any], budget: str) -> None:
    assert ask(**fields).budget == Budget.parse(budget)


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"thinking_budget": 7, "thinking_token_budget": 8}, 400, "thinking_budget is 7, thinking_token_budget is 8"),
        ({"max_tokens": 7, "max_completion_tokens": 8}, 400, "max_tokens is 7, max_completion_tokens is 8"),
        ({"reasoning_effort": "low", "reasoning": {"effort": "high"}}, 400, "reasoning.effort is 'high'"),
        ({"reasoning_effort": "low", "thinking_budget": 7}, 400, "send one of them"),
        ({"reasoning_effort": "low", "model": "ORG/E1@12+34"}, 400, "send one of them"),
        ({"model": "ORG/E1@12+34", "solution_budget": 34}, 400, "send one of them"),
        ({"reasoning_effort": ["low"]}, 400, "reasoning_effort is \\['low'\\]"),
        ({"reasoning": False}, 400, "reasoning is False"),
        ({"stream_options": {"include_usage": "yes"}}, 400, "takes include_usage, true or false"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, 400, "a text as content"),
        (
            {"messages": [{"role": "user", "content": "a", "prefix": True}]},
            400,
            "prefix is an unknown field of a message",
        ),
        ({"reasoning_effort": "minimal"}, 400, "it must be one of low, high"),
        ({"max_tokens": 100, "thinking_budget": 100}, 400, "max_tokens is 100, and the budget 100\\+40"),
        ({"max_tokens": 45, "model": "ORG/E1@12+34"}, 400, "max_tokens is 45, and the budget 12\\+34"),
        ({"thinking_budget": 501}, 400, "the thinking budget is 501 tokens; it must be 500 or less"),
        ({"thinking_budget": "unlimited"}, 400, "the thinking budget is unlimited tokens"),
        ({"thinking_budget": -1}, 400, "thinking_budget is -1"),
        ({"thinking_budget": "7"}, 400, "thinking_budget is '7'"),
        ({"solution_budget": 0}, 400, "solution_budget is 0"),
        ({"max_tokens": True}, 400, "max_tokens is True"),
        ({"model": "ORG/E1@x"}, 404, "the model's name: budget 'x'"),
        ({"model": "ORG/OTHER"}, 404, "'ORG/OTHER' is not served; ORG/E1 and ORG/E1@THINKING\\+SOLUTION are"),
        ({"model": ["ORG/E1"]}, 404, "is not served"),
        ({"n": 2}, 400, "n is 2, which this server does not support"),
        ({"logprobs": True}, 400, "logprobs is True"),
        ({"logprobs": 0}, 400, "logprobs is 0"),
        ({"tools": [{"type": "function"}]}, 400, "tools is"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format is"),
        ({"reasoning": {"exclude": True}}, 400, "it takes effort and max_tokens"),
        ({"reasoning": "low"}, 400, "it takes effort and max_tokens"),
        ({"min_tokens": 3}, 400, "min_tokens is an unknown field, and no field is ignored"),
        ({"stop": [""]}, 400, "stop is"),
        ({"stream": "yes"}, 400, "stream is 'yes'; it must be true or false"),
        ({"seed": 1.5}, 400, "seed is 1.5"),
        ({"temperature": "hot"}, 400, "temperature is 'hot'; it must be a number"),
        ({"stream_options": {"chunks": 1}}, 400, "it takes include_usage"),
        ({"messages": []}, 400, "messages is missing"),
        ({"messages": [{"role": "user"}]}, 400, "it must have a role, and a text as content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "a text as content"),
    ],
)
def test_what_contradicts_itself_or_would_be_ignored_is_refused(
    fields: dict[str, Any], status: int, message: str
) -> None:
    with pytest.raises(RefusedError, match=message) as error:
        ask(**fields)
    assert error.value.status == status and "\n" not in str(error.value)


@given(
    st.integers(1, 300),
    st.one_of(st.none(), st.integers(0, 200)),
    st.one_of(st.none(), st.integers(1, 100)),
    st.sampled_from([None, "low", "high"]),
)
def test_max_tokens_bounds_both_parts_and_leaves_the_solution_some(
    most: int, thinking: int | None, solution: int | None, effort: str | None
) -> None:
    fields = {"thinking_budget": thinking, "solution_budget": solution, "reasoning_effort": effort}
    try:
        without = ask(**fields).budget
    except RefusedError:
        return  # a budget and an effort
    try:
        budget = ask(**fields, max_tokens=most).budget
    except RefusedError:
        assert thinking is not None or solution is not None
        assert (thinking or 0) + (solution or 1) > most
        return
    assert budget.thinking is not None and budget.solution is not None and budget.solution >= 1
    assert budget.thinking + budget.solution <= most
    assert budget.thinking <= (without.thinking or 0) and budget.solution <= (without.solution or 0)
    assert thinking in (None, budget.thinking) and solution in (None, budget.solution)
    if most >= (without.thinking or 0) + (without.solution or 0):
        assert budget == without


def test_what_a_request_says_besides() -> None:
    asked = ask(temperature=0, stop="\n", seed=3, stream=True, stream_options={"include_usage": True})
    assert asked.sampling == {"temperature": 0, "top_k": 20} and asked.stop == ["\n"] and asked.seed == 3
    assert asked.stream and asked.include_usage and not asked.return_token_ids
    parts = [{"type": "text", "text": "a=1;"}, {"type": "text", "text": "a?"}]
    assert ask(messages=[{"role": "user", "content": parts, "name": "me"}]).prompt == [{**MESSAGES[0], "name": "me"}]
    for prompt in ("a=1;a?", [3, 4], [[3, 4]], ["a=1;a?"]):
        nested = isinstance(prompt, list) and not isinstance(prompt[0], int)
        assert ask(chat=False, prompt=prompt).prompt == (prompt[0] if nested else prompt)
    for prompt in (None, [], [1.5], [[1], [2]], ["a", "b"], 3, [True], [-1]):
        with pytest.raises(RefusedError, match="prompt"):
            ask(chat=False, prompt=prompt)
    for body in ([], "x", None):
        with pytest.raises(RefusedError, match="JSON object"):
            parse_request(body, True, "m", PRESETS, {})
