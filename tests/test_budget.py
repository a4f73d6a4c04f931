import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest
from conftest import BASE
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.engines.engine import end_ids
from e1_trl.errors import UserError
from e1_trl.evaluation.arguments import parse
from e1_trl.evaluation.prepare import prepare
from e1_trl.marker import Marker
from e1_trl.serving.model import Model, ModelArguments
from e1_trl.training.config import E1Config, ModelFacts

parts = st.one_of(st.none(), st.integers(0, 10_000))
positive = st.one_of(st.none(), st.integers(1, 10_000))
budgets = st.builds(Budget, parts, positive)


def closing(forced: int, context: int) -> ThinkingClose:
    return ThinkingClose(Marker("</think>", (1,), (1,) * forced, close_tokens=1), context)


@given(budgets)
def test_a_budget_survives_being_written_and_read(budget: Budget) -> None:
    assert Budget.parse(str(budget)) == budget


@pytest.mark.parametrize("text", ["", "1024", "1024+", "+8", "-1+8", "1e3+8", "a+b", "8+0", "1+2+3", "unlimited+"])
def test_a_malformed_budget_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError) as error:
        Budget.parse(text)
    assert "\n" not in str(error.value)


@given(st.builds(Budget, parts, positive, positive), st.integers(1, 500), st.integers(1, 20), st.integers(2, 5000))
def test_prompt_thinking_forced_close_and_solution_fit_the_context_or_are_refused(
    budget: Budget, prompt: int, forced: int, context: int
) -> None:
    close = closing(forced, context)
    try:
        thinking = budget.thinking_limit(prompt, close)
    except ValueError as error:
        assert (
            prompt + (budget.completion_tokens(forced) or (budget.thinking or 0) + forced + (budget.solution or 1))
            > context
        )
        if shorter := re.search(r"lower the budget, or set max_prompt_length to (\d+) or less$", str(error)):
            budget.thinking_limit(int(shorter[1]), close)
            with pytest.raises(ValueError, match="does not fit"):
                budget.thinking_limit(int(shorter[1]) + 1, close)
        else:
            with pytest.raises(ValueError, match=r"lower the budget$"):
                budget.thinking_limit(1, close)
        if (longest := budget.longest_prompt(close)) > 0:
            budget.thinking_limit(longest, close)
            assert longest < prompt
        return
    assert budget.longest_prompt(close) >= (prompt if budget.completion_tokens(forced) else min(prompt, context // 2))
    appended = 0 if budget.cuts_thinking else forced
    solution = budget.solution_limit(thinking, prompt + thinking + appended, context)
    assert prompt + thinking + appended + solution <= context
    assert thinking >= 0 and (solution >= 1 or budget.cuts_thinking)
    for sampled, most in (
        (thinking, budget.thinking),
        (solution, budget.solution),
        (thinking + solution, budget.total),
    ):
        assert most is None or sampled <= most
    if budget.thinking is not None:
        assert thinking == (budget.total if budget.cuts_thinking else budget.thinking)
    if (longest := budget.completion_tokens(forced)) is not None:
        assert thinking + appended + solution <= longest


def test_unlimited_parts_take_what_the_context_leaves() -> None:
    assert Budget(None, 10).thinking_limit(prompt=5, close=closing(1, 100)) == 84
    assert Budget(None, None).thinking_limit(prompt=5, close=closing(1, 100)) == 93
    assert Budget(20, None).solution_limit(thinking=20, used=26, context=100) == 74


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


@pytest.mark.parametrize(
    ("eos", "marker", "held"),
    [
        ([1, 5], None, r"= \[5\] holds 5, .*eos_token_id \[1, 5\]"),
        (3, "<|assistant|>3", r"= \[3, 9\] holds 3, .*eos_token_id \[1, 3\]"),
        (1, "3<|end|>", r"holds 1, .*eos_token_id \[1\]"),
    ],
)
def test_a_marker_that_holds_the_end_of_a_sequence_is_refused_everywhere(
    eos: int | list[int], marker: str | None, held: str, nano_data: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(BASE, tmp_path / "model")
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))
    told = {} if marker is None else {"marker": marker}
    args = E1Config(str(tmp_path), report_to="none", use_cpu=True, bf16=False, max_prompt_length=64, **told)
    serving = ModelArguments(model=str(model), upstream="http://127.0.0.1:9/v1", budget="8+8", **told)
    words = ["--model", model, "--dataset_name", nano_data, "--budgets", "8+8"]
    words += [] if marker is None else ["--marker", marker]
    for refuse in (
        lambda: ModelFacts.of(args, str(model)),
        lambda: prepare(parse(list(map(str, words)))),
        lambda: asyncio.run(Model.connect(serving)),
    ):
        with pytest.raises(UserError, match=f"^the marker .*{held}"):
            refuse()


def test_a_model_without_a_generation_config_ends_its_sequences_where_its_config_says(tmp_path: Path) -> None:
    model = shutil.copytree(BASE, tmp_path / "model")
    (model / "generation_config.json").unlink()
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "eos_token_id": [3, 6]}))
    tokenizer = AutoTokenizer.from_pretrained(model)
    assert end_ids(str(model), None, tokenizer) == {1, 3, 6}
    marker = Marker.from_tokenizer(tokenizer)
    marker.check(end_ids(str(model), None, tokenizer))
    assert end_ids(str(BASE), None, tokenizer) == {1}


def test_the_words_of_the_nano_language_are_one_token_each_for_every_loader() -> None:
    tokenizer = AutoTokenizer.from_pretrained(BASE)  # which gives a Qwen2 model Qwen2's pre-tokenizer
    assert [len(tokenizer.encode(word)) for word in ("Wait ", "\\boxed{", "</think>")] == [1, 1, 1]


def test_a_total_budget_cuts_what_the_other_two_would_let_through() -> None:
    assert [Budget(t, s, 50).cuts_thinking for t, s in ((None, None), (50, 10), (49, 10), (80, None))] == [1, 1, 0, 1]
    assert Budget(None, None, 50).thinking_limit(prompt=5, close=closing(1, 55)) == 50
    assert Budget(40, 20, 50).solution_limit(thinking=40, used=46, context=100) == 10
    assert Budget(40, 20, 50).solution_limit(thinking=10, used=16, context=100) == 20
    assert [Budget(t, s, 50).completion_tokens(2) for t, s in ((None, None), (40, None), (40, 8))] == [50, 52, 50]
    assert str(Budget(None, None, 50)) == "unlimited/50" and str(Budget(8, 4, 10)) == "8+4/10"
    with pytest.raises(ValueError, match="total budget is 0 tokens"):
        Budget(1, 1, 0)
