"""Efforts: the table of budget.json, the levels of a scale, and what chat templates are told."""

import json
from pathlib import Path

import pytest

from e1_trl.budget import Budget
from e1_trl.checkpoints.budget_file import FILE, BudgetInfo, Effort
from e1_trl.checkpoints.efforts import make_efforts, template_arguments

QWEN = "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
GPT_OSS = '{%- if reasoning_effort is not defined %}{%- set reasoning_effort = "medium" %}{% endif %}'
QWEN_38 = "{% if reasoning_effort not in ['xhigh', 'medium', 'low'] %}{{ raise_exception('no') }}{% endif %}"
NEMOTRON = "{% if low_effort %}short{% elif medium_effort %}some{% endif %}{{ enable_thinking }}"


@pytest.mark.parametrize(
    ("template", "word", "told"),
    [
        ("{{ messages }}", "high", {}),
        (QWEN, "none", {"enable_thinking": False}),
        (QWEN, "max", {"enable_thinking": True}),
        (QWEN_38, "high", {"reasoning_effort": "medium"}),
        (QWEN_38, "max", {"reasoning_effort": "xhigh"}),
        (QWEN_38, "none", {}),
        (NEMOTRON, "minimal", {"low_effort": True, "medium_effort": False, "enable_thinking": True}),
        (NEMOTRON, "medium", {"low_effort": False, "medium_effort": True, "enable_thinking": True}),
        (NEMOTRON, "none", {"low_effort": False, "medium_effort": False, "enable_thinking": False}),
        ("Reasoning: {{ reasoning_effort }}", "minimal", {"reasoning_effort": "low"}),  # it names no levels
        (GPT_OSS, "max", {"reasoning_effort": "high"}),  # its default is no list of levels
        ("{% if not thinking is defined %}</think>{% endif %}", "low", {"thinking": True}),  # DeepSeek V3.1's
        ("{{ message.thinking }} {{ 'thinking' }} {# thinking #} Do your thinking: {{ question }}", "low", {}),
    ],
)
def test_a_template_is_told_what_it_reads(template: str, word: str, told: dict[str, object]) -> None:
    assert template_arguments(template, word) == told


def test_efforts_are_shares_of_the_default_that_fit_the_context() -> None:
    efforts = make_efforts({}, Budget(64, 32), QWEN, most=200)
    assert {word: str(each.budget) for word, each in efforts.items()} == {
        "low": "16+32",
        "medium": "64+32",
        "high": "200+32",
        "none": "0+32",
    }
    assert efforts["none"].chat_template_kwargs == {"enable_thinking": False}
    named = {"low": Effort(Budget(8, 8), {"enable_thinking": False}), "turbo": Effort(Budget(9, 9))}
    efforts = make_efforts(named, Budget(None, 32), QWEN, most=200)
    assert efforts["low"] == named["low"] and efforts["turbo"] == named["turbo"] and len(efforts) == 3


def test_efforts_in_a_file_are_texts_or_hold_what_the_template_is_told(tmp_path: Path) -> None:
    told = {"budget": "4096+1024", "chat_template_kwargs": {"reasoning_effort": "high"}}
    BudgetInfo("</think>", "</think>", 1, Budget(64, 32)).write(tmp_path)
    content = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps({**content, "efforts": {"low": "256+1024", "high": told}}))
    read = BudgetInfo.read(tmp_path / FILE)
    expected = {"low": Effort(Budget(256, 1024)), "high": Effort(Budget(4096, 1024), {"reasoning_effort": "high"})}
    assert read.efforts == expected
    read.write(tmp_path)
    assert BudgetInfo.read(tmp_path / FILE).efforts == expected
