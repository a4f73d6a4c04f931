"""The table of closes: its rows from made-up answers, and its page from the published ones."""

import json
from dataclasses import asdict

import pandas as pd
import pytest
from conftest import ROOT
from fabricated import cell, right

from e1_trl.report.document import Report
from e1_trl.report.markdown import around_section
from experiments.closing.document import RESULTS, ThinkingClose, as_table, measured
from experiments.results import Results


def test_a_close_whose_answers_are_read_without_a_box_has_a_row_by_boxes_only() -> None:
    hard, words = cell(right(5, 10), 24), cell(right(7, 10), 24, method="s1_no_wait")
    words["unboxed"] = [problem >= 4 for problem in range(10)]
    answers = pd.concat([hard, words], ignore_index=True)
    report = json.loads(json.dumps(asdict(Report.of(answers))))
    found = {close.close: close for close in measured("smollm2", "m", report, answers)}
    assert [round(close.accuracy, 2) for close in found.values()] == [0.5, 0.7, 0.4]
    strict = found["s1_no_wait, boxes only"]
    assert strict.forced_ratio == 1 and strict.difference is not None
    assert strict.difference[0] == pytest.approx(-0.1)
    assert "message after it, boxes only" in as_table(list(found.values()))


def test_the_page_has_the_closes_as_the_results_have_them() -> None:
    page = ROOT / "docs" / "closing.md"
    found = [ThinkingClose(**row) for row in Results()[RESULTS.stem]]
    for experiment in ("first_zero", "smollm2"):
        ours = as_table([close for close in found if close.experiment == experiment])
        assert page.read_text() == ours.join(around_section(page, experiment)), experiment
