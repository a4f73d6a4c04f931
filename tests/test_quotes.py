"""Numbers in prose: each quote stands in its document, and changes with the results."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from experiments.quotes.check import QUOTES, failures
from experiments.results import FOLDER, Results, only
from experiments.systems.measure import pack, unpack


@pytest.mark.parametrize("document", QUOTES)
def test_a_document_says_what_the_results_say(document: str) -> None:
    wrong = failures((ROOT / document).read_text(), document, QUOTES[document](Results()))
    assert not wrong, "\n".join(wrong)


def changed(value: Any, rng: random.Random, name: str = "") -> Any:
    """The same content with other numbers and answers, but for budgets and bases, by which rows are found."""
    if isinstance(value, dict):
        return {key: changed(each, rng, key) for key, each in value.items()}
    if isinstance(value, list):
        return [changed(each, rng, name) for each in value]
    if name == "right" and isinstance(value, str):
        return pack(1 - unpack(value, 1))
    if isinstance(value, str):  # ratios are written out
        return re.sub(r"\d+\.\d\d\b", lambda number: f"{float(number[0]) * rng.uniform(1.5, 3):.2f}", value)
    if isinstance(value, bool) or not isinstance(value, int | float) or "budget" in name or name == "base":
        return value
    if name == "stories":  # two of them become one
        return value // 2
    return type(value)(value * rng.uniform(1.5, 3) + 0.03 * rng.uniform(1, 2))


def test_no_quote_stays_as_it_is_when_the_results_change(tmp_path: Path) -> None:
    rng, others = random.Random(0), [tmp_path / name for name in "abc"]  # in two of them a number may stay by chance
    for file in FOLDER.glob("*.json"):
        for other in others:
            other.mkdir(exist_ok=True)
            (other / file.name).write_text(json.dumps(changed(json.loads(file.read_text()), rng)))
    for document, quotes in QUOTES.items():
        for ours, *theirs in zip(quotes(Results()), *(quotes(Results(other)) for other in others), strict=True):
            assert {ours} != {*theirs}, f"{document}: no number of “{ours}” comes from the results"


def test_a_row_that_is_not_there_or_twice_is_an_error() -> None:
    rows = [{"model": "a"}, {"model": "b"}, {"model": "b"}]
    assert only(rows, model="a") == {"model": "a"}
    for model, count in (("b", 2), ("c", 0)):
        with pytest.raises(LookupError, match=f"'model': '{model}'}}, found {count}"):
            only(rows, model=model)
