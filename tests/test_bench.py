"""What the benchmarks compute from what they measure. The measurements themselves are `make bench`."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from transformers import AutoModelForCausalLM, Qwen2Config
from trl.trainer.utils import add_fused_lm_head

from benchmarks.bench_card import LAYOUTS, PADDED, tables
from benchmarks.bench_scoring import Rows
from benchmarks.bench_training import Step, row, summary
from benchmarks.results import arguments, in_turns, publish, publish_rows, ratio
from benchmarks.workloads import OWN, WORKLOADS, Workload
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


def test_rows_take_the_place_of_those_of_their_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "bench.json"
    before = {"provenance": {"commit": "then"}, "rows": [{"kind": "a", "s": 1}, {"kind": "b", "s": 2}]}
    output.write_text(json.dumps(before))
    monkeypatch.setattr(sys, "argv", ["bench", "--output", str(output)])
    parsed = arguments("", "", "bench")
    publish_rows(parsed, "kind", [{"kind": "b", "s": 3}], "")
    record = json.loads(output.read_text())
    assert record["provenance"] == {"commit": "then"}
    kept, new = record["rows"]
    assert kept == {"kind": "a", "s": 1} and new["s"] == 3 and new["provenance"]["commit"]


def test_steps_are_summed_up_by_their_medians_and_the_ratios_of_their_rounds() -> None:
    walls = {"e1": [1.0, 2.0, 4.5], "grpo": [2.0, 2.0, 3.0]}
    steps = {name: [Step(wall, wall / 4, wall / 2, 1.5, 24, 24) for wall in each] for name, each in walls.items()}
    rows = [row("train_step", name, steps) for name in steps]
    assert [each["step_s"] for each in rows] == [2.0, 2.0] and rows[0]["step_ratio"] == "1.00 (0.50 to 1.50)"
    assert rows[1]["trained_tokens_per_s"] == 12 and rows[0]["scoring_and_learning_ratio"] == "1.00 (0.50 to 1.50)"
    line = (
        "| train_step | e1 | 2.000 s | 0.500 s | 1.000 s | 12 | 1.50 GB | 1.00 (0.50 to 1.50) | 1.00 (0.50 to 1.50) |"
    )
    assert line in summary(rows)


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=list(WORKLOADS))
def test_both_trainers_are_given_the_same_lengths_within_the_budget(workload: Workload) -> None:
    if workload.distribution in OWN:
        workload = replace(workload, measured=((3, 0), (64, 32), (50, 20)))
    lengths = workload.lengths(1)
    assert lengths == workload.lengths(1) and len(lengths) == workload.rollouts
    assert all(1 <= one <= workload.thinking and 1 <= other <= workload.solution for one, other in lengths)
    assert (lengths != workload.lengths(2)) is (workload.distribution != "train_step")
    assert (len(set(lengths)) == 1) is (workload.distribution == "train_step")


def test_the_document_has_the_tables_of_what_a_card_was_measured_at() -> None:
    record = json.loads((ROOT / "docs" / "results" / "card.json").read_text())
    page = ROOT / "docs" / "results" / "card.md"
    assert tables(record) in page.read_text() and around_section(page, "card")


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != PADDED])
def test_a_card_is_measured_on_layouts_that_score_alike(layout: str) -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2}
    model = AutoModelForCausalLM.from_config(Qwen2Config(**sizes, **heads))
    add_fused_lm_head(model)
    rows = Rows.draw(torch.tensor([6, 2, 4]), torch.tensor([3, 9, 1]), (3, 32), seed=0)
    real = rows.mask[:, -9:].bool()
    found, expected = (LAYOUTS[name](model, rows)[real] for name in (layout, PADDED))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
