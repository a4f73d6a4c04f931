import re

import pytest
from conftest import BASE
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from e1_trl.budget import Budget, Close, Marker

parts = st.one_of(st.none(), st.integers(0, 10_000))
budgets = st.builds(lambda t, s: Budget(t, s if s is None else s + 1), parts, parts)


def closing(forced: int, context: int) -> Close:
    return Close(Marker("</think>", (1,), (1,) * forced, close_tokens=1), context)


@given(budgets)
def test_a_budget_survives_being_written_and_read(budget: Budget) -> None:
    assert Budget.parse(str(budget)) == budget


@pytest.mark.parametrize("text", ["", "1024", "1024+", "+8", "-1+8", "1e3+8", "a+b", "8+0", "1+2+3", "unlimited+"])
def test_a_malformed_budget_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError) as error:
        Budget.parse(text)
    assert "\n" not in str(error.value)


@given(budgets, st.integers(1, 500), st.integers(1, 20), st.integers(2, 5000))
def test_prompt_thinking_forced_close_and_solution_fit_the_context_or_are_refused(
    budget: Budget, prompt: int, forced: int, context: int
) -> None:
    close = closing(forced, context)
    try:
        thinking = budget.thinking_limit(prompt, close)
    except ValueError as error:
        assert prompt + (budget.thinking or 0) + forced + (budget.solution or 1) > context
        if shorter := re.search(r"set max_prompt_length to (\d+) or less$", str(error)):
            budget.thinking_limit(int(shorter[1]), close)
            with pytest.raises(ValueError, match="does not fit"):
                budget.thinking_limit(int(shorter[1]) + 1, close)
        else:
            with pytest.raises(ValueError, match=r"lower the budget$"):
                budget.thinking_limit(1, close)
        return
    solution = budget.solution_limit(prompt + thinking + forced, context)
    assert thinking >= 0
    assert solution >= 1
    assert prompt + thinking + forced + solution <= context
    if budget.thinking is not None:
        assert thinking == budget.thinking
    if budget.solution is not None:
        assert solution == budget.solution


def test_unlimited_parts_take_what_the_context_leaves() -> None:
    assert Budget(None, 10).thinking_limit(prompt=5, close=closing(1, 100)) == 84
    assert Budget(None, None).thinking_limit(prompt=5, close=closing(1, 100)) == 93
    assert Budget(20, None).solution_limit(used=26, context=100) == 74


def test_the_forced_text_belongs_to_the_thinking_up_to_its_marker() -> None:
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    for text, forced_text, closing in (
        ("</think>", None, 1),
        ("</think>", "Wait </think>", 2),
        ("</think>", "Wait </think>\\boxed{", 2),
        ("</think>", "Wait ", 0),
        (";c=", "Wait ;c=a", 4),
    ):
        marker = Marker.from_tokenizer(tokenizer, text, forced_text)
        assert marker.close_tokens == closing
        assert tokenizer.decode(list(marker.forced_ids[:closing])).endswith(text if closing else "")


def test_a_marker_needs_tokens() -> None:
    with pytest.raises(ValueError, match="must have at least one token"):
        Marker.from_tokenizer(AutoTokenizer.from_pretrained(BASE), "")


def test_the_words_of_the_nano_language_are_one_token_each_for_every_loader() -> None:
    tokenizer = AutoTokenizer.from_pretrained(BASE)  # which gives a Qwen2 model Qwen2's pre-tokenizer
    assert [len(tokenizer.encode(word)) for word in ("Wait ", "\\boxed{", "</think>")] == [1, 1, 1]
