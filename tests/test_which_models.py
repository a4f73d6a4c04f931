"""Which models work: what is published of each chat template is what is read from it, and the engine agrees."""

import json
from pathlib import Path

import pytest
from conftest import ROOT

from e1_trl.marker import PromptState
from experiments.families.__main__ import read
from experiments.which_models.__main__ import RESULTS
from experiments.which_models.measure import Row, Shares, describe, measure
from experiments.which_models.miniature import make_base, make_tokenizer
from experiments.which_models.page import show, show_families
from experiments.which_models.templates import thinking_renderings

FOUND = thinking_renderings()


def published() -> list[Row]:
    rows = json.loads(RESULTS.read_text())["rows"]
    for row in rows:
        row["arguments"] = tuple(row["arguments"])
        row["answers"] = {name: Shares(**shares) for name, shares in row["answers"].items()}
    return [Row(**row) for row in rows]


def faults(rows: list[Row]) -> list[str]:
    """Name rows that are all forced at a loose budget, are not answered, or end otherwise than their prompt says."""
    wrong = []
    for row in rows:
        where = f"{row.template} ({', '.join(row.arguments)})"
        if not row.answers:
            if row.advice is None or row.state != PromptState.NOTHING.value:
                wrong.append(f"{where}: no answers, though it thinks")
            continue
        loose, tight, none = (row.answers[name] for name in ("loose", "tight", "none"))
        if row.state == PromptState.CLOSED.value:
            is_as_said = {each.prompt for each in (loose, tight, none)} == {1.0}
        else:
            is_as_said = loose.closed > 0.5 and tight.forced > 0.5 and none.forced == 1.0
        if not is_as_said or min(each.answered for each in (loose, tight, none)) < 0.5:
            wrong.append(f"{where}: {row.answers}")
        if loose.right < 0.5 or none.right < 0.5 or tight.right < 0.05:
            wrong.append(f"{where}: wrong answers, {row.answers}")
    return wrong


def test_what_is_published_of_each_template_is_what_is_read_from_it() -> None:
    tokenizer = make_tokenizer(FOUND)
    assert [describe(each, tokenizer, {}) for each in FOUND] == [
        Row(**{**vars(row), "answers": {}}) for row in published()
    ]
    page = (ROOT / "docs" / "models.md").read_text()
    assert f"<!-- templates -->\n{show(published())}<!-- /templates -->" in page
    assert f"<!-- families -->\n{show_families([*read().values()])}<!-- /families -->" in page


def test_no_published_row_is_all_forced_or_not_answered() -> None:
    assert faults(published()) == []
    (row, *_) = (row for row in published() if row.state == "opened")
    forced = Shares(closed=0, forced=1, eos=0, prompt=0, answered=1, right=1)
    assert len(faults([Row(**{**vars(row), "answers": {**row.answers, "loose": forced}})])) == 1


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(1800)  # it trains for some minutes
def test_a_miniature_thinks_and_answers_through_the_engine_in_the_words_of_each_template(tmp_path: Path) -> None:
    make_base(FOUND, tmp_path)
    assert faults(measure(FOUND, tmp_path / "base")) == []
