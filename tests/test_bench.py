"""What the benchmarks compute from what they measure. The measurements themselves are `make bench`."""

import itertools
import json
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT
from trl.extras.profiling import ProfilingContext

from benchmarks.bench_training import REST, Phases, Step, summary
from benchmarks.results import arguments, publish, spread
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


def test_the_published_documents_have_every_section() -> None:
    for name in ("bench", "train_step", "programs"):
        around_section(ROOT / "docs" / "results" / "bench.md", name)
    around_section(ROOT / "docs" / "evaluation.md", "sweep")


def test_steps_are_summed_up_by_their_medians_and_the_ratios_of_their_rounds() -> None:
    def steps(*walls: float, requests: int) -> list[Step]:
        return [Step(wall, {"generation": wall / 2}, requests, 102, 36_604, 24_576, 24_576) for wall in walls]

    text = summary({"e1": steps(1.0, 2.0, 4.5, requests=512), "grpo": steps(2.0, 2.0, 3.0, requests=256)})
    assert "| the step | 2.000 s | 2.000 s | +0.000 s |" in text and "| generation | 1.000 s | 1.000 s |" in text
    assert "| requests to vLLM | 512 | 256 | +256 |" in text
    assert text.endswith("in a round: 1.00 (0.50 to 1.50).\n")
    assert spread([3.0, 1.0, 2.0]) == "2.00 (1.00 to 3.00)"


def test_the_phases_of_a_step_add_up_and_hold_what_is_timed_within_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProfilingContext, "__enter__", ProfilingContext.__enter__)
    monkeypatch.setattr(ProfilingContext, "__exit__", ProfilingContext.__exit__)
    clock = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    phases = Phases()

    def timed(name: str) -> ProfilingContext:
        return ProfilingContext(f"E1Trainer.{name}", report_to=[])

    start = next(clock)
    with timed("_prepare_inputs"):
        with timed("vLLM.generate"):
            pass
        with timed("_calculate_rewards"), timed("a_reward"):
            pass
        with timed("_get_per_token_logps_and_entropies"):
            pass
    preparation = next(clock) - start
    with timed("compute_loss"), timed("_get_per_token_logps_and_entropies"):
        pass
    taken = phases.take(100.0)
    assert sum(taken.values()) == pytest.approx(100.0)
    assert taken["rewards"] > taken["generation"] == taken["scoring"] > 0
    assert taken["loss, forward"] == taken["rewards"]  # each with one context inside
    parts = ("generation", "rewards", "scoring", "rest of the preparation")
    assert 0 < taken["rest of the preparation"] < sum(taken[part] for part in parts) < preparation
    assert phases.take(1.0)[REST] == 1.0
