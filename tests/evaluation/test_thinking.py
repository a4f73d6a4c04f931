"""The thinking that `mixed` takes from another evaluation."""

import sys
from pathlib import Path

import pytest
from conftest import ROOT

from e1_trl.budget import Budget
from e1_trl.evaluation.methods import MIXED, Cell
from e1_trl.evaluation.sampling_plan import Goal
from e1_trl.evaluation.thinking import Thinking
from e1_trl.report.samples import FACTS
from e1_trl.rollout import Segment, Stop


def test_an_answer_without_thinking_is_a_thought_that_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "tests" / "report")])
    from fabricated import cell, stored

    table = cell([[True]], None, None, method="unconstrained")
    stored(tmp_path, table.assign(thinking_end="none", thinking_tokens=0, forced_tokens=0, token_ids=[[4, 5, 6]]))
    (tmp_path / FACTS).write_text("{}")
    thinking = Thinking.read(tmp_path, {})
    assert {place: list(each.token_ids) for place, each in thinking.segments.items()} == {(0, 0): [4, 5, 6]}
    (segment,) = thinking.segments.values()
    assert isinstance(segment, Segment) and segment.stop is Stop.EOS
    thinking.check([Goal(Cell(MIXED, Budget(16, 8)), 1, 1)], [0])
