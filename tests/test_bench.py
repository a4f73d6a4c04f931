"""What the benchmarks compute from what they measure. The measurements themselves are `make bench`."""

import json
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from trl.extras.profiling import ProfilingContext

from benchmarks.bench_training import PHASES, Step, summary, time_phases
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


def test_steps_are_summed_up_by_their_medians_and_the_ratios_of_their_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProfilingContext, "_log_metrics", ProfilingContext._log_metrics)
    phases = time_phases()
    for name in ("_prepare_inputs", "vLLM.generate", "a_reward", "vLLM.generate"):
        with ProfilingContext(f"E1Trainer.{name}", report_to=[]):
            pass
    assert phases.keys() == {*PHASES.values()} and {phase for phase, seconds in phases.items() if seconds} == {
        "all of the preparation",
        "generation",
    }

    def steps(*walls: float, requests: int) -> list[Step]:
        return [Step(wall, {**phases, "generation": wall / 2}, requests, 102, 36_604, 24, 24) for wall in walls]

    text = summary({"e1": steps(1.0, 2.0, 4.5, requests=512), "grpo": steps(2.0, 2.0, 3.0, requests=256)})
    assert "| the step | 2.000 s | 2.000 s | +0.000 s |" in text and "| generation | 1.000 s | 1.000 s |" in text
    assert "| requests to vLLM | 512 | 256 | +256 |" in text
    assert text.endswith("in a round: 1.00 (0.50 to 1.50).\n")
