"""What the benchmarks compute from what they measure. The measurements themselves are `make bench`."""

import json
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from benchmarks.bench_training import Step, summary
from benchmarks.results import arguments, in_turns, publish, ratio
from e1_trl.report.markdown import around_section


def test_what_was_measured_goes_into_the_file_and_the_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, document = tmp_path / "bench.json", tmp_path / "benchmark.md"
    document.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n")
    monkeypatch.setattr(sys, "argv", ["bench", "--output", str(output), "--document", str(document)])
    publish(arguments("", "", "bench"), {"rounds": 8}, "new\n")
    record = json.loads(output.read_text())
    assert record["rounds"] == 8 and record["provenance"]["commit"]
    assert document.read_text() == "before\n<!-- bench -->\nnew\n<!-- /bench -->\nafter\n"
    with pytest.raises(ValueError, match="has no section"):
        arguments("", "", "absent")
    for name in ("bench", "train_step", "programs"):
        around_section(ROOT / "docs" / "results" / "bench.md", name)
    around_section(ROOT / "docs" / "evaluation.md", "sweep")


def test_runs_take_turns_and_their_ratios_are_of_the_same_round() -> None:
    order: list[str] = []

    def run(name: str, turn: int) -> float:
        order.append(name)
        return [1.0, 2.0, 4.5][turn] if name == "ours" else [2.0, 2.0, 3.0][turn]

    runs = in_turns({name: lambda turn, name=name: run(name, turn) for name in ("ours", "theirs")}, 3, "")
    assert runs == {"ours": [1.0, 2.0, 4.5], "theirs": [2.0, 2.0, 3.0]}
    assert {*order[0:2]} == {*order[2:4]} == {*order[4:6]} == {"ours", "theirs"}
    assert ratio(runs["ours"], runs["theirs"]) == "1.00 (0.50 to 1.50)"


def test_steps_are_summed_up_by_their_medians_and_the_ratios_of_their_rounds() -> None:
    steps = {"e1": [1.0, 2.0, 4.5], "grpo": [2.0, 2.0, 3.0]}
    text = summary({name: [Step(wall, 24, 24) for wall in walls] for name, walls in steps.items()})
    assert "| the step | 2.000 s | 2.000 s | +0.000 s |" in text
    assert text.endswith("in a round: 1.00 (0.50 to 1.50).\n")
