"""Today's families of models in vLLM: the trainer's weights arrive, are sampled with, and one that is stale is named.

Synced as in a training on a CPU, and in place, as on a GPU. What this machine's vLLM cannot do is skipped by its error.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from warm import Program

from experiments.families.models import FAMILIES, make_model, save, write_torchvision

pytestmark = pytest.mark.engine

# By family and way: what the CPU build of vLLM, or Transformers' names of weights, cannot do.
UNABLE = {
    ("Nemotron-H, experts", "cpu"): "is_act_and_mul=False is supported only for CUDA, XPU and ROCm for now",
    ("Nemotron-H, experts", "cuda"): "is_act_and_mul=False is supported only for CUDA, XPU and ROCm for now",
    ("Granite 4, experts", "cpu"): "KeyError: 'layers.0.block_sparse_moe.router.weight'",
    ("Granite 4, experts", "cuda"): "KeyError: 'layers.0.block_sparse_moe.router.weight'",
    # vLLM's reload has moved the sinks to the meta device, and gpt_oss.py copies into them without a loader.
    ("gpt-oss", "cpu"): r"vLLM's model.layers.0.attn.sinks is not what the trainer has just sent",
    ("LFM2", "cpu"): "causal_conv1d_weight_pack: support only width of 4",
}
LIGHT = {("Qwen3-MoE", "cpu"), ("Falcon-H1", "cuda")}
NAMES = {
    "A_log": r"\.A(_log)?$",
    "gate_up_proj": r"\.routed_experts\.w13_weight$",
    "down_proj": r"\.down_proj\.weight$",
    "w2.weight": r"\.w2\.weight$",
}
CASES = [
    pytest.param(name, way, marks=[] if (name, way) in LIGHT else pytest.mark.slow)
    for name in FAMILIES
    for way in ("cpu", "cuda")
    # Of two that differ in what reads images alone, one goes each way.
    if f"{name}, images" not in FAMILIES or way == "cpu"
    if not name.endswith("images") or way == "cuda"
]


@pytest.mark.parametrize(("name", "way"), CASES)
def test_weights_of_a_family_arrive_and_one_that_does_not_is_named(name: str, way: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    Program("experiments.families.measure", [name, way], ROOT, log, os.environ).wait(timeout=500)
    row: dict[str, Any] = json.loads(log.read_text().splitlines()[-1])
    assert row.get("unchanged_gap", 0) < 0.2, row
    if (name, way) in UNABLE:
        error = row["engine"] if row["engine"] != "starts" else row["weights"]
        assert re.search(UNABLE[name, way], error), row
        pytest.skip(error)
    assert row["engine"] == "starts" and row["weights"] == "pass", row
    assert row.get("greedy_tokens_equal", True) and row.get("logprob_gap", 0) < 0.2, row
    expected = next(pattern for part, pattern in NAMES.items() if part in row["stale"])
    assert re.search(expected, row["named"]), row


@pytest.mark.slow
def test_a_model_that_reads_images_is_evaluated_without_what_reads_them(tmp_path: Path) -> None:
    write_torchvision(tmp_path / "packages")
    save(make_model("Gemma 3, images"), tmp_path / "model")  # as trained on texts: without files for images
    (tmp_path / "problems.jsonl").write_text('{"problem": "a=7;a?", "answer": "7"}\n')
    asked = "eval --model model --dataset_name problems.jsonl --budgets 8+8 --methods separate --enforce_eager true"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path / 'packages'}"}
    program = Program("e1_trl.cli", [*asked.split(), "--output", "out"], tmp_path, tmp_path / "log", environment)
    assert program.wait(timeout=300) == 0, (tmp_path / "log").read_text()[-2000:]
    (row,) = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert 0 < row["mean_thinking_tokens"] <= 8
