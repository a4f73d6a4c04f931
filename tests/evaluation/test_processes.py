"""The evaluation by its command line, in processes of its own: killed, in parallel, with adapters, over a server."""

import json
import os
import random
import time
from pathlib import Path

import openai
import pandas as pd
import pytest
import torch
from conftest import BASE, SERVED_CONTEXT, evaluated, kill, results, segments, started
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from e1_trl.checkpoints.checkpoint import Checkpoint
from e1_trl.report import samples

KILLS = 6


@pytest.mark.engine
@pytest.mark.distributed
@pytest.mark.timeout(1500)
@pytest.mark.slow
def test_killed_at_random_it_resumes_and_ends_the_same(server: openai.OpenAI, nano_data: Path, tmp_path: Path) -> None:
    """On a server, which outlives it."""
    served = ["--base_url", server.base_url, "--served_model_name", "nano", "--max_model_length", SERVED_CONTEXT]
    methods = ["--methods", "separate", "truncation", "s1", "no_thinking"]
    budgets = ["--budgets", "16+16", "32+16", "64+16"]
    # Few at a time, so that sampling takes longer than starting.
    sampled = [*served, *budgets, *methods, "--max_problems", 96, "--temperature", 0, "--concurrency", 4]
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    evaluated(nano_data, undisturbed, *sampled)

    rng = random.Random(0)
    at_work = 0
    stored: dict[tuple[object, ...], int] = {}
    for attempt in range(KILLS):
        process = started(nano_data, killed, tmp_path / "log", *sampled)
        if attempt % 3 == 2:  # while it starts
            time.sleep(rng.uniform(0, 5))
        else:  # soon after it has begun to write
            while process.poll() is None and len(segments(killed)) == len(stored):
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 1.5))
            at_work += process.poll() is None
        kill(process)
        assert stored.items() <= segments(killed).items(), "what was stored was sampled again"
        stored = segments(killed)
    assert at_work >= 3
    evaluated(nano_data, killed, *sampled)

    assert stored.items() <= segments(killed).items() and segments(killed).keys() == segments(undisturbed).keys()
    assert (killed / "samples.parquet").read_bytes() == (undisturbed / "samples.parquet").read_bytes()
    assert results(killed) == results(undisturbed)


@pytest.mark.distributed
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two processes need two cores")
@pytest.mark.skipif(torch.cuda.device_count() == 1, reason="two processes need two GPUs, or none")
@pytest.mark.alone
@pytest.mark.timeout(1200)
def test_tensor_parallel_groups_find_the_same(nano_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    sampled = ["--budgets", "16+16", "--methods", "separate", "--max_problems", 48, "--temperature", 0]
    evaluated(nano_data, one, *sampled)
    # vLLM binds the processes of a group to a NUMA node each, if it is not told where to.
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "|".join(map(str, sorted(os.sched_getaffinity(0))[:2])))
    evaluated(nano_data, two, *sampled, "--tensor_parallel_size", 2)
    assert results(one) == results(two)
    # All of it is in the folder, too: nothing is left to sample.
    assert segments(one).keys() == segments(two).keys()


@pytest.mark.distributed
@pytest.mark.slow
def test_samples_that_are_added_later_are_not_those_there_are(nano_data: Path, tmp_path: Path) -> None:
    sampled = ["--budgets", "32+16", "--methods", "separate", "--max_problems", 8, "--temperature", 1]
    for count in (1, 2):
        evaluated(nano_data, tmp_path, *sampled, "--samples", count)
    answers = pd.read_parquet(tmp_path / "samples.parquet")
    one, other = (answers[answers["sample"] == i].sort_values("problem") for i in (0, 1))
    assert sum(a.tolist() == b.tolist() for a, b in zip(one["token_ids"], other["token_ids"], strict=True)) < 4


@pytest.mark.distributed
@pytest.mark.slow
def test_a_lora_adapter_is_evaluated_with_its_base(nano_data: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(BASE), LoraConfig(r=4, target_modules="all-linear"))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:  # which peft leaves at 0
                parameter.normal_(std=0.05)
    adapted.save_pretrained(tmp_path / "adapter")
    AutoTokenizer.from_pretrained(BASE).save_pretrained(tmp_path / "adapter")
    adapted.merge_and_unload().save_pretrained(tmp_path / "merged")
    AutoTokenizer.from_pretrained(BASE).save_pretrained(tmp_path / "merged")

    sampled = ["--budgets", "32+16", "--methods", "separate", "--max_problems", 64, "--temperature", 0]
    sampled += ["--dtype", "float32"]
    answers = {}
    for name in ("adapter", "merged"):  # of which the base alone would answer like neither
        evaluated(nano_data, tmp_path / f"of-{name}", *sampled, "--model", tmp_path / name)
        answers[name] = samples.read(tmp_path / f"of-{name}")["token_ids"].map(list)
    assert (answers["adapter"] == answers["merged"]).mean() > 0.9  # rounding may turn a token where two are close
    manifest = json.loads((tmp_path / "of-adapter" / "run.json").read_text())
    assert manifest["model"] == Checkpoint.find(str(tmp_path / "adapter"), None).fingerprint()
