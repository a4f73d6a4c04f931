"""Budgets of requests, what passes to vLLM, and refusals."""

from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from e1_trl.budget import Budget
from e1_trl.checkpoints.budget_file import Effort
from e1_trl.errors import UserError
from e1_trl.serving.request import BudgetPresets, ParsedRequest, parse_request

EFFORTS = {
    "none": Effort(Budget(0, 40), {"enable_thinking": False}),
    "low": Effort(Budget(25, 40), {"enable_thinking": True}),
    "high": Effort(Budget(400, 80)),
}
PRESETS = BudgetPresets(
    "ORG/E1",
    Budget(100, 40),
    EFFORTS,
    sampling={"temperature": 0.6, "top_k": 20},
    most=Budget(500, 200),
    drop=("seen",),
)
MESSAGES = [{"role": "user", "content": "a=1;a?"}]


def ask(presets: BudgetPresets = PRESETS, **fields: Any) -> ParsedRequest:
    return parse_request({"model": "ORG/E1", "messages": MESSAGES, **fields}, presets, forced=1)


@pytest.mark.parametrize(
    ("fields", "budget"),
    [
        ({}, "100+40"),
        ({"thinking_budget": 7}, "7+40"),
        ({"thinking_token_budget": 7, "solution_budget": 9}, "7+9"),
        ({"reasoning": {"max_tokens": 7, "summary": "auto"}}, "7+40"),
        ({"thinking": {"type": "enabled", "budget_tokens": 7}}, "7+40"),
        ({"thinking": {"type": "adaptive"}}, "100+40"),
        ({"thinking": {"type": "disabled"}}, "0+40"),
        ({"reasoning": {"enabled": False}, "reasoning_effort": "high"}, "0+40"),
        ({"thinking_budget": 7, "thinking_budget_tokens": 7}, "7+40"),
        ({"thinking_budget": 0}, "0+40"),
        ({"reasoning_effort": "low"}, "25+40"),
        ({"reasoning": {"effort": "high"}}, "400+80"),
        ({"reasoning_effort": "low", "thinking_budget": 7}, "7+40"),
        ({"model": "ORG/E1@12+34", "reasoning_effort": "low"}, "12+34"),
        ({"model": "ORG/E1@12+34", "thinking_budget": 12}, "12+34"),
        ({"model": "ORG/E1@0+34", "reasoning_effort": "none"}, "0+34"),
        ({"max_tokens": -1}, "100+40"),
        ({"max_tokens": None, "thinking_budget": None, "tools": [], "n": 1, "user": "me"}, "100+40"),
        # A limit keeps a quarter of the solution budget, and the forced close, for the end; more of them below.
        ({"max_completion_tokens": 100, "max_tokens": 100}, "89+40/100"),
        ({"max_tokens": 1}, "0+40/1"),
        ({"max_tokens": 47, "model": "ORG/E1@12+34"}, "12+34/47"),
        ({"max_tokens": 8}, "5+40/8"),  # a limit below the solution budget leaves the thinking most of it
    ],
)
def test_the_budget_of_a_request(fields: dict[str, Any], budget: str) -> None:
    assert str(ask(**fields).budget) == budget


def test_unlimited_is_also_minus_one_and_a_limit_bounds_it() -> None:
    trained = BudgetPresets("m", Budget(1024, 1024), {})
    assert str(parse_request({"max_tokens": 256}, trained, 1).budget) == "191+1024/256"  # as of a harness
    presets = BudgetPresets("m", Budget(100, 40), {})
    for fields in ({"thinking_token_budget": -1}, {"thinking_budget": "unlimited"}):
        assert str(parse_request(fields, presets, 1).budget) == "unlimited+40"
        assert str(parse_request({**fields, "max_tokens": 50}, presets, 1).budget) == "39+40/50"
    assert str(parse_request({"model": "m@unlimited", "max_tokens": 50}, presets, 1).budget) == "37+unlimited/50"


@pytest.mark.parametrize(
    ("word", "used"),
    [("none", "none"), ("minimal", "low"), ("low", "low"), ("medium", "low"), ("high", "high"), ("max", "high")],
)
def test_a_level_of_effort_is_the_nearest_that_the_model_has(word: str, used: str) -> None:
    asked = ask(reasoning_effort=word)
    assert asked.effort == used and asked.budget == EFFORTS[used].budget
    assert asked.body.get("chat_template_kwargs", {}) == EFFORTS[used].chat_template_kwargs
    own = ask(reasoning_effort=word, chat_template_kwargs={"enable_thinking": True, "tone": "dry"})
    assert own.body["chat_template_kwargs"] == {"enable_thinking": True, "tone": "dry"}


def test_an_effort_turns_no_thinking_on_that_has_no_budget() -> None:
    assert ask(reasoning_effort="low", thinking_budget=0).body["chat_template_kwargs"] == {"enable_thinking": False}


def test_an_effort_that_a_template_is_told_is_told_to_vllm_too() -> None:
    told = {word: Effort(Budget(8, 8), {"reasoning_effort": word}) for word in ("none", "high", "loud")}
    presets = BudgetPresets("ORG/E1", Budget(8, 8), told)
    assert ask(presets, reasoning_effort="high").body["reasoning_effort"] == "high"
    for fields in ({"reasoning_effort": "none"}, {"reasoning_effort": "loud"}, {}):
        assert "reasoning_effort" not in ask(presets, **fields).body
    completion = parse_request({"prompt": "a", "reasoning_effort": "high"}, presets, 1)
    assert "reasoning_effort" not in completion.body


def test_a_refusal_lists_no_effort_that_is_refused() -> None:
    with pytest.raises(UserError, match=r"'low'; it must be one of none$"):
        ask(BudgetPresets("ORG/E1", Budget(None, 8), {"none": Effort(Budget(0, 8))}), reasoning_effort="low")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"documents": [{"text": "a"}]}, "documents is not served with budgets"),
        ({"messages": [{"role": "function", "content": "a"}]}, "the role 'function'"),
        ({"thinking_budget": 7, "thinking_token_budget": 8}, "thinking_budget is 7, thinking_token_budget is 8"),
        ({"reasoning_effort": "none", "thinking_budget": 7}, "budget is 7, reasoning_effort.none is 0; send one"),
        ({"reasoning_effort": "none", "model": "ORG/E1@12+34"}, "model.thinking is 12, reasoning_effort.none is"),
        ({"thinking": {"type": "disabled", "budget_tokens": 7}}, "thinking.budget_tokens is 7, reasoning_effort"),
        ({"max_tokens": 7, "max_completion_tokens": 8}, "max_completion_tokens is 8"),
        ({"reasoning_effort": "low", "reasoning": {"effort": "high"}}, "reasoning.effort is 'high'"),
        ({"model": "ORG/E1@12+34", "solution_budget": 35}, "model.solution is 34; send one of them"),
        ({"reasoning_effort": ["low"]}, "reasoning_effort is \\['low'\\]"),
        ({"reasoning_effort": "turbo"}, "it must be one of none, low, high$"),
        ({"reasoning": "low"}, "reasoning is 'low'; it must be a JSON object"),
        ({"thinkng_budget": 7}, "thinkng_budget is an unknown field; did you mean one of .*, thinking_budget"),
        ({"chat_template_kwargs": {"thinking_budget": 7}}, "chat_template_kwargs is .* and no budget"),
        ({"chat_template_kwargs": 3}, "chat_template_kwargs is 3"),
        ({"max_tokens": 80, "solution_budget": 90}, "max_tokens is 80, and 0 \\+ 1 \\+ 90 tokens of"),
        ({"max_tokens": 46, "model": "ORG/E1@12+34"}, "max_tokens is 46, and 12 \\+ 1 \\+ 34 tokens of"),
        ({"max_tokens": 90, "thinking_budget": 89}, "max_tokens is 90, and 89 \\+ 1 \\+ 1 tokens of"),
        ({"thinking_budget": 501}, r"the budget is 501\+40; at most 500\+200 is allowed"),
        ({"solution_budget": 201}, r"the budget is 100\+201; at most 500\+200 is allowed"),
        ({"thinking_budget": "unlimited"}, r"the budget is unlimited\+40; at most"),
        ({"thinking_budget": -2}, "thinking_budget is -2"),
        ({"thinking_budget": "7"}, "thinking_budget is '7'"),
        ({"solution_budget": 0}, "solution_budget is 0"),
        ({"max_tokens": True}, "max_tokens is True"),
        ({"model": "ORG/E1@x"}, "budget 'x' must read"),
        ({"messages": [{"role": "judge", "content": "a"}]}, "the role 'judge'; it must be one of system, dev"),
        ({"messages": ["a"]}, "the role None"),
        ({"stop": [""]}, "stop is"),
        ({"model": "ORG/E1@" + "9" * 5000 + "+8"}, "is neither a number of tokens nor"),
        ({"prompt": "a", "echo": True}, "echo is not served with budgets; ask vLLM itself"),
        ({"truncate_prompt_tokens": -1}, "truncate_prompt_tokens is not served"),
        ({"use_beam_search": True}, "use_beam_search is not served with budgets"),
        ({"include_reasoning": False, "prompt": "a"}, "the text of a completion holds"),
    ],
)
def test_what_contradicts_itself_or_would_be_ignored_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        ask(**fields)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="JSON object"):
        parse_request([], PRESETS, 1)


@pytest.mark.parametrize("name", ["ORG/OTHER", ["ORG/E1"]])
def test_another_model_is_not_found(name: Any) -> None:
    with pytest.raises(web.HTTPNotFound) as error:
        ask(model=name)
    assert error.value.text == f"the model {name!r} is not served; ORG/E1[@THINKING+SOLUTION] is"


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
    without = ask(**fields).budget
    assert without.thinking is not None and without.solution is not None
    try:
        budget = ask(**fields, max_tokens=most).budget
    except UserError:
        assert (thinking or 0) + 1 + (solution or 1) > most
        return
    assert budget.total == most and budget.thinking is not None and budget.solution == without.solution
    assert thinking in (None, budget.thinking) and budget.thinking <= without.thinking
    if thinking is None:  # nothing is kept that a natural close of the thinking could use
        kept = without.solution if solution is not None else max(1, min(without.solution, most) // 4)
        assert budget.thinking == max(0, min(without.thinking, most - 1 - kept))


def test_what_asks_for_no_budget_passes_to_vllm() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    sent = {"tools": tools, "tool_choice": "auto", "response_format": {"type": "json_object"}, "n": 2, "logprobs": True}
    sent |= {"seed": 3, "temperature": 0, "a field of 2027": 1, "ignore_eos": False, "chat_template_kwargs": {"x": 1}}
    own = {"model": "ORG/E1", "messages": MESSAGES, "top_k": 20}
    assert ask(**sent).body == {**own, **sent}
    # Empty values ask for nothing, and vLLM refuses some of them; without tools it refuses their choice.
    empty = {"tools": [], "functions": [], "stop": "", "logit_bias": {}, "suffix": "", "seed": None}
    assert ask(**empty, tool_choice="auto", seen=3).body == {"temperature": 0.6, **own}
    assert "reasoning_effort" not in ask(reasoning_effort="high", thinking={"type": "disabled"}).body
    assert ask(echo=False, prompt_logprobs=None).body["echo"] is False
    thought = [{"role": "assistant", "reasoning_content": "a"}]
    assert ask(messages=thought).body["messages"] == [{"role": "assistant", "reasoning": "a"}]  # as vLLM renames it
    asked = ask(stop="\n", include_reasoning=False)
    preset = BudgetPresets("ORG/E1", Budget(8, 8), {}, sampling={"stop": ["a"], "max_tokens": 9})
    assert (ask(preset).stop, ask(preset).budget.total, "stop" in ask(preset).body) == (["a"], 9, False)
    assert asked.stop == ["\n"] and asked.hides_thinking
    assert ask(reasoning={"exclude": True}).hides_thinking and not ask().hides_thinking


def test_a_developer_is_the_system_where_the_template_knows_no_developer() -> None:
    message = {"role": "developer", "content": [{"type": "text", "text": "a"}], "name": "me"}
    assert ask(messages=[message]).body["messages"] == [{**message, "role": "system"}]
    knows = BudgetPresets("ORG/E1", Budget(8, 8), {}, template="{% if m.role in ('developer', 'judge') %}")
    both = [message, {**message, "role": "judge"}]
    assert ask(knows, messages=both).body["messages"] == both
