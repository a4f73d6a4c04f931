"""Numbers in prose: each quote stands in its document, and a number that is changed on either side is found."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from experiments.quotes.__main__ import main
from experiments.quotes.check import QUOTES, failures, plain, uncovered
from experiments.results import FOLDER, Results, only


@pytest.mark.parametrize("document", QUOTES)
def test_a_document_says_what_the_results_say(document: str) -> None:
    wrong = failures((ROOT / document).read_text(), document, QUOTES[document](Results()))
    assert not wrong, "\n".join(wrong)


def changed(value: Any, rng: random.Random, name: str = "") -> Any:
    """The same content with other numbers, but for the budgets, by which rows are found."""
    if isinstance(value, dict):
        return {key: changed(each, rng, key) for key, each in value.items()}
    if isinstance(value, list):
        return [changed(each, rng, name) for each in value]
    if isinstance(value, str):  # ratios are written out
        return re.sub(r"\d+\.\d\d\b", lambda number: f"{float(number[0]) * rng.uniform(1.5, 3):.2f}", value)
    if isinstance(value, bool) or not isinstance(value, int | float) or "budget" in name:
        return value
    return type(value)(value * rng.uniform(1.5, 3) + 0.03 * rng.uniform(1, 2))


def test_no_quote_stays_as_it_is_when_the_results_change(tmp_path: Path) -> None:
    rng = random.Random(0)
    for file in FOLDER.glob("*.json"):
        (tmp_path / file.name).write_text(json.dumps(changed(json.loads(file.read_text()), rng)))
    for document, quotes in QUOTES.items():
        for ours, theirs in zip(quotes(Results()), quotes(Results(tmp_path)), strict=True):
            assert ours != theirs, f"{document}: no number of “{ours}” comes from the results"


@pytest.mark.parametrize("document", QUOTES)
def test_a_number_that_is_changed_in_a_document_is_found_with_what_it_should_be(document: str) -> None:
    page = plain((ROOT / document).read_text())
    for quote in map(plain, QUOTES[document](Results())):
        place = page.index(quote) + re.search(r"\d(?!.*\d)", quote).start()  # its last digit
        wrong = page[:place] + str((int(page[place]) + 1) % 10) + page[place + 1 :]
        said = "\n".join(failures(wrong, document, QUOTES[document](Results())))
        assert f"{document}: expected “{quote}”" in said


def test_a_failure_says_what_stands_there_instead() -> None:
    (wrong,) = failures("It takes\n44.5 **tokens** and −0.3 more.", "a.md", ["takes 44.9 tokens and -0.2"])
    assert wrong == "a.md: expected “takes 44.9 tokens and -0.2” by docs/results, found “takes 44.5 tokens and -0.3”"
    (gone,) = failures("It is fast.", "a.md", ["takes 44.9 tokens"])
    assert gone.endswith("found no such words: change the quote in experiments/quotes")


def test_numbers_in_no_quote_are_listed_without_code_tables_and_budgets() -> None:
    text = "At 64+32 it takes 45 tokens of 90.\n```\n1\n```\n<!-- t -->\n| 2 |\n<!-- /t -->\n[three](results/4.md)"
    assert uncovered(text, ["takes 45 tokens"]) == ["At it takes # tokens of 90. [three]"]


def test_a_row_that_is_not_there_or_twice_is_an_error() -> None:
    rows = [{"model": "a"}, {"model": "b"}, {"model": "b"}]
    assert only(rows, model="a") == {"model": "a"}
    for model, count in (("b", 2), ("c", 0)):
        with pytest.raises(LookupError, match=f"'model': '{model}'}}, found {count}"):
            only(rows, model=model)


def test_the_command_counts_what_no_quote_covers(capsys: pytest.CaptureFixture[str]) -> None:
    main(["docs/nano.md"])
    printed = capsys.readouterr().out
    assert re.search(r"^docs/nano\.md: \d+ quotes; \d+ numbers in none\n    … .*0\.65 M parameters", printed, re.M)
