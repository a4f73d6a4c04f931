"""The evaluation end to end, by its command line, on the nano base and the real engine."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
import torch
from conftest import BASE, ROOT, SHARED
from scipy.stats import binomtest
from trl import TrlParser
from vllm import LLM
from vllm.config import ReasoningConfig

import e1_trl.evaluation.__main__ as evaluation
from e1_trl.evaluation.__main__ import EvaluationArguments
from e1_trl.evaluation.benchmarks import load_benchmark
from e1_trl.evaluation.store import StoreError

KILLS = 20
KEY = ["problem", "sample", "branch", "start"]
ENGINES: list[LLM] = []
# Without s1's English, which the nano tokenizer has no words for.
WORDS = ["--s1_text", r"\boxed{", "--wait_text", "Wait "]


@pytest.fixture
def one_engine(start_engine: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations in this process use one engine, instead of each its own."""
    if not ENGINES:
        ENGINES.append(start_engine(max_model_len=1024, reasoning_config=ReasoningConfig("", "<think>", "</think>")))
    monkeypatch.setattr(evaluation, "start_engine", lambda *_: ENGINES[0])


def options(data: Path, output: Path, *more: object) -> list[str]:
    fixed = ["--model", BASE, "--enforce_eager", "true", "--dataset_name", data, *WORDS, "--output", output]
    return [str(part) for part in [*fixed, *more]]


def evaluate_here(arguments: Sequence[object]) -> None:
    (parsed,) = TrlParser(EvaluationArguments).parse_args_and_config([str(part) for part in arguments])
    evaluation.evaluate(parsed)


def evaluate(data: Path, output: Path, *more: object) -> None:
    """Run to the end, in this process."""
    evaluate_here(options(data, output, *more))


def command(data: Path, output: Path, *more: object) -> list[str]:
    return [sys.executable, "-m", "e1_trl.evaluation", *options(data, output, *more)]


def rows(output: Path) -> list[dict[str, Any]]:
    return json.loads((output / "results.json").read_text())["rows"]


@pytest.mark.engine
@pytest.mark.usefixtures("one_engine")
@pytest.mark.timeout(1500)
def test_killed_at_random_moments_it_goes_on_and_ends_the_same(nano_data: Path, tmp_path: Path) -> None:
    # Few at a time, so that sampling takes longer than starting and most kills meet it at work.
    methods = ["--methods", "separate", "truncation", "s1", "no_thinking"]
    budgets = ["--budgets", "16+16", "32+16", "64+16"]
    sampled = [*budgets, *methods, "--max_problems", 160, "--temperature", 0, "--concurrency", 2]
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    start = time.monotonic()
    subprocess.run(command(nano_data, undisturbed, *sampled), cwd=ROOT, check=True, capture_output=True)
    whole = time.monotonic() - start

    rng = random.Random(0)
    shards, at_work = 0, 0
    for _ in range(KILLS):
        log = (tmp_path / "log").open("w")
        process = subprocess.Popen(
            command(nano_data, killed, *sampled), cwd=ROOT, stdout=log, stderr=log, start_new_session=True
        )
        # Any time: while it starts, samples, or grades. Most often, soon after it has begun to write.
        deadline = time.monotonic() + rng.uniform(0.2, 0.9) * whole
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.01)
            if len(list(killed.glob("segments/*.parquet"))) > shards:
                shards = 10**9
                deadline = min(deadline, time.monotonic() + rng.uniform(0, 1.5))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        at_work += shards == 10**9
        shards = len(list(killed.glob("segments/*.parquet")))
        legs = pd.concat([pd.DataFrame(columns=KEY), *map(pd.read_parquet, killed.glob("segments/*.parquet"))])
        assert not legs.duplicated(KEY).any(), "what was finished was sampled again"
    assert at_work >= 5
    evaluate(nano_data, killed, *sampled)

    for name in ("results.json", "report.md", "samples.parquet"):
        assert (killed / name).read_bytes() == (undisturbed / name).read_bytes(), name


@pytest.mark.engine
@pytest.mark.usefixtures("one_engine")
def test_more_budgets_and_a_lost_shard_cost_only_what_is_missing(
    nano_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, fresh = tmp_path / "grown", tmp_path / "fresh"
    small = ["--methods", "separate", "--max_problems", 32, "--temperature", 0]
    evaluate(nano_data, folder, *small, "--budgets", "32+16")
    first = pd.concat(pd.read_parquet(shard) for shard in folder.glob("segments/*.parquet"))
    evaluate(nano_data, folder, *small, "--budgets", "32+16", "64+16")
    second = pd.concat(pd.read_parquet(shard) for shard in folder.glob("segments/*.parquet"))
    assert len(second) > len(first) and first.merge(second, on=KEY).shape[0] == len(first)
    evaluate(nano_data, fresh, *small, "--budgets", "32+16", "64+16")
    assert (folder / "samples.parquet").read_bytes() == (fresh / "samples.parquet").read_bytes()

    (shard,) = folder.glob("segments/*.parquet")
    shard.write_bytes(shard.read_bytes()[:-10])
    evaluate(nano_data, folder, *small, "--budgets", "32+16", "64+16")
    assert "damaged, and put aside" in caplog.text and shard.name in caplog.text
    assert (folder / "samples.parquet").read_bytes() == (fresh / "samples.parquet").read_bytes()

    # Nothing is missing, so no engine is started; and grading again needs neither model nor data.
    monkeypatch.setattr(evaluation, "start_engine", lambda *_: pytest.fail("an engine was started for nothing"))
    evaluate(nano_data, folder, *small, "--budgets", "32+16", "64+16")
    evaluate(nano_data, folder, *small, "--budgets", "64+16", "32+16")
    assert [row["thinking_budget"] for row in rows(folder)] == [64, 32]
    monkeypatch.undo()
    monkeypatch.setattr(evaluation, "start_engine", lambda *_: ENGINES[0])
    evaluate(nano_data, folder, *small, "--budgets", "16+16")
    assert [row["thinking_budget"] for row in rows(folder)] == [64, 32, 16]
    before = (folder / "results.json").read_bytes()
    samples = pd.read_parquet(folder / "samples.parquet").assign(correct=False, outcome="wrong")
    samples.to_parquet(folder / "samples.parquet")
    regrade = [sys.executable, "-m", "e1_trl.evaluation.report", str(folder), "--regrade"]
    subprocess.run(regrade, cwd=ROOT, check=True, capture_output=True)
    assert (folder / "results.json").read_bytes() == before


@pytest.mark.engine
@pytest.mark.usefixtures("one_engine")
def test_shared_and_independent_samples_agree_and_so_does_the_engine(nano_data: Path, tmp_path: Path) -> None:
    sampled = ["--budgets", "32+16", "64+16", "128+16", "--max_problems", 400, "--temperature", 1.0]
    evaluate(nano_data, tmp_path / "shared", *sampled, "--methods", "separate", "engine_native")
    evaluate(nano_data, tmp_path / "apart", *sampled, "--methods", "separate", "--independent", "true", "--seed", 1)
    shared = {(row["method"], row["thinking_budget"]): row for row in rows(tmp_path / "shared")}
    apart = {(row["method"], row["thinking_budget"]): row for row in rows(tmp_path / "apart")}
    for budget in (32, 64, 128):
        ours = shared["separate", budget]
        for other in (apart["separate", budget], shared["engine_native", budget]):
            pooled = (ours["accuracy"] + other["accuracy"]) / 2
            # Two samples of one rate: a difference of more than four standard errors has odds of one to 15,000.
            assert abs(ours["accuracy"] - other["accuracy"]) <= 4 * (2 * pooled * (1 - pooled) / 400) ** 0.5 + 1e-9
            assert other["mean_thinking_tokens"] == pytest.approx(ours["mean_thinking_tokens"], rel=0.05)
            assert other["forced_ratio"] == pytest.approx(ours["forced_ratio"], abs=0.12)
    samples = pd.read_parquet(tmp_path / "shared" / "samples.parquet")
    separate = samples[samples["method"] == "separate"]
    prefixes = separate.pivot(index="problem", columns="thinking_budget", values="token_ids")
    assert all(list(small[:32]) == list(large[:32]) for small, large in zip(prefixes[32], prefixes[128], strict=True))
    for row in shared.values():
        total = row["accuracy"] + row["wrong"] + row["unparseable"] + row["censored"]
        assert total == pytest.approx(1)
        assert row["ci_low"] <= row["accuracy"] <= row["ci_high"]
        successes = round(row["accuracy"] * row["problems"])
        wilson = binomtest(successes, row["problems"]).proportion_ci(method="wilson")
        assert (row["ci_low"], row["ci_high"]) == pytest.approx((wilson.low, wilson.high))


@pytest.mark.engine
@pytest.mark.usefixtures("one_engine")
def test_every_method_has_its_rows_and_the_report_its_pictures(nano_data: Path, tmp_path: Path) -> None:
    methods = ["separate", "truncation", "s1", "s1_as_released", "l1_exact", "l1_max", "no_thinking", "unconstrained"]
    budgets = ["16+16", "32+16", "64+16", "unlimited"]
    evaluate(nano_data, tmp_path, "--budgets", *budgets, "--methods", *methods, "--max_problems", 12, "--samples", 2)
    found = rows(tmp_path)
    assert {row["method"] for row in found} == set(methods)
    assert [row["thinking_budget"] for row in found if row["method"] == "separate"] == [16, 32, 64]
    assert {row["solution_budget"] for row in found if row["method"] == "s1_as_released"} == {20}
    assert all(row["samples"] == 2 and row["problems"] == 12 for row in found)
    assert all(row["pass_at_k"]["2"] >= row["pass_at_k"]["1"] == pytest.approx(row["accuracy"]) for row in found)
    by_method = {row["method"]: row for row in found}
    assert by_method["no_thinking"]["mean_thinking_tokens"] == 0
    assert by_method["unconstrained"]["forced_ratio"] == by_method["truncation"]["forced_ratio"] == 0
    samples = pd.read_parquet(tmp_path / "samples.parquet")
    asked = samples[(samples["method"] == "l1_max") & (samples["thinking_budget"] == 32)]
    assert asked["prompt"].str.endswith("Think for maximum 32 tokens.").all()
    cut = samples[samples["method"] == "truncation"]
    assert (cut["token_ids"].map(len) <= cut["thinking_budget"] + cut["solution_budget"]).all()
    results = json.loads((tmp_path / "results.json").read_text())
    assert {line["method"] for line in results["curves"]} >= {"separate", "truncation", "s1"}
    assert any(d["minus_method"] == "separate" and d["method"] == "truncation" for d in results["differences"])
    assert (tmp_path / "accuracy.png").stat().st_size > 10_000 and (tmp_path / "allocation.png").exists()
    assert "pass@2" in (tmp_path / "report.md").read_text()


@pytest.mark.engine
@pytest.mark.usefixtures("one_engine")
def test_one_model_thinks_and_another_answers(nano_data: Path, tmp_path: Path) -> None:
    sampled = ["--budgets", "16+16", "48+16", "--max_problems", 16, "--temperature", 0]
    thinker, mixed = tmp_path / "thinker", tmp_path / "mixed"
    evaluate(nano_data, thinker, *sampled, "--methods", "separate", "--name", "a")
    evaluate(nano_data, mixed, *sampled, "--methods", "mixed", "--thinking_from", thinker, "--name", "b")
    # The two are the same model here, so at temperature 0 nothing may change.
    ours, theirs = (pd.read_parquet(folder / "samples.parquet") for folder in (mixed, thinker))
    assert set(ours["model"]) == {"a → b"} and set(ours["method"]) == {"mixed"}
    assert [list(ids) for ids in ours["token_ids"]] == [list(ids) for ids in theirs["token_ids"]]
    with pytest.raises(ValueError, match="was cut at 48 tokens"):
        evaluate(
            *(nano_data, tmp_path / "more", "--methods", "mixed", "--thinking_from", thinker),
            *("--budgets", "64+16", "--max_problems", 16),
        )


@pytest.mark.engine
@pytest.mark.usefixtures("one_engine")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two processes need two cores")
@pytest.mark.skipif(torch.cuda.device_count() == 1, reason="two processes need two GPUs, or none")
@pytest.mark.parametrize("parallel", ["data", "tensor"])
def test_two_processes_find_what_one_does(nano_data: Path, tmp_path: Path, parallel: str) -> None:
    sampled = ["--budgets", "16+16", "--methods", "separate", "--max_problems", 12, "--temperature", 0]
    evaluate(nano_data, tmp_path / "one", *sampled)
    two = command(nano_data, tmp_path / "two", *sampled, f"--{parallel}_parallel_size", 2)
    # vLLM binds the processes of a tensor-parallel group to a NUMA node each, if it is not told where to.
    cores = {"VLLM_CPU_OMP_THREADS_BIND": "|".join(map(str, sorted(os.sched_getaffinity(0))[:2]))}
    environment = os.environ | (cores if parallel == "tensor" else {})
    subprocess.run(two, cwd=ROOT, env=environment, check=True, capture_output=True)
    assert (tmp_path / "one" / "results.json").read_bytes() == (tmp_path / "two" / "results.json").read_bytes()
    # All of it is in the folder, too: nothing is left to sample.
    assert len(pd.read_parquet(tmp_path / "two" / "segments")) == len(pd.read_parquet(tmp_path / "one" / "segments"))


@pytest.mark.distributed
def test_killed_alone_it_leaves_no_engine_behind(nano_data: Path, tmp_path: Path) -> None:
    parent = psutil.Popen(
        command(nano_data, tmp_path, "--budgets", "16+16", "--data_parallel_size", 2),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while len(engines := parent.children()) < 2:
        assert parent.poll() is None
        time.sleep(0.1)
    parent.kill()
    parent.wait()
    assert not psutil.wait_procs(engines, timeout=10)[1]


@pytest.mark.distributed
def test_samples_that_are_added_later_are_not_those_there_are(nano_data: Path, tmp_path: Path) -> None:
    sampled = ["--budgets", "32+16", "--methods", "separate", "--max_problems", 8, "--temperature", 1]
    for samples in (1, 2):
        two = command(nano_data, tmp_path, *sampled, "--samples", samples)
        subprocess.run(two, cwd=ROOT, check=True, capture_output=True)
    answers = pd.read_parquet(tmp_path / "samples.parquet")
    one, other = (answers[answers["sample"] == i].sort_values("problem") for i in (0, 1))
    assert sum(a.tolist() == b.tolist() for a, b in zip(one["token_ids"], other["token_ids"], strict=True)) < 4


@pytest.mark.distributed
def test_a_revision_of_a_model_on_the_hub_is_found_and_recorded(nano_data: Path, tmp_path: Path) -> None:
    """In a cache as the Hub's client leaves it, and without the Hub. The branch main has no weights."""
    repository = tmp_path / "hub" / "models--someone--nano"
    commits = {"main": "0" * 40, "v1": "1" * 40}
    (repository / "refs").mkdir(parents=True)
    for name, commit in commits.items():
        (repository / "refs" / name).write_text(commit)
        shutil.copytree(BASE, repository / "snapshots" / commit)
    (repository / "snapshots" / commits["main"] / "model.safetensors").unlink()

    sampled = ["--model", "someone/nano", "--revision", "v1", "--budgets", "16+16", "--max_problems", 2]
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    subprocess.run(
        command(nano_data, tmp_path / "out", *sampled), cwd=ROOT, env=environment, check=True, capture_output=True
    )
    assert json.loads((tmp_path / "out" / "run.json").read_text())["model"] == commits["v1"]


def test_what_cannot_work_is_refused_before_a_model_is_loaded(
    nano_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "start_engine", lambda *_: pytest.fail("an engine was started"))
    out, nowhere = tmp_path / "out", "http://127.0.0.1:9/v1"
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    untemplated = tmp_path / "untemplated"
    shutil.copytree(BASE, untemplated)
    (untemplated / "chat_template.jinja").unlink()

    at = ("--budgets", "16+16")
    refused = [
        ("does not fit the context of 1024 tokens", options(nano_data, out, "--budgets", "2000+16")),
        ("'x\\+16': 'x' is neither a number", options(nano_data, out, "--budgets", "x+16")),
        ("unknown method 's2'", options(nano_data, out, *at, "--methods", "s2")),
        ("applies to any budget", options(nano_data, out, "--budgets", "unlimited", "--methods", "s1")),
        ("it must hold at least one row", options(empty, out, *at, "--dataset_split", "train")),
        ("name either a benchmark or a dataset_name", options(nano_data, out, *at, "--benchmark", "amc")),
        ("unknown benchmark 'aime'", ["--model", BASE, "--output", out, *at, "--benchmark", "aime"]),
        ("has no chat template", options(nano_data, out, *at, "--model", untemplated)),
        ("which has no revision 'v1'", options(nano_data, out, *at, "--revision", "v1")),
        ("max_problems is 0; it must be 1 or more", options(nano_data, out, *at, "--max_problems", 0)),
        ("needs thinking_from", options(nano_data, out, *at, "--methods", "mixed")),
        ("no answer from http://127.0.0.1:9/v1", options(nano_data, out, *at, "--base_url", nowhere)),
    ]
    for expected, arguments in refused:
        with pytest.raises((ValueError, OSError), match=expected) as error:
            evaluate_here(arguments)
        assert "\n" not in str(error.value)
    with pytest.raises(StoreError, match=r"sampling = .*0\.6.*this one has .*0\.9.*name another folder"):
        evaluate(nano_data, out, *at, "--base_url", nowhere, "--temperature", 0.9)


@pytest.mark.distributed
def test_the_command_says_what_is_wrong_in_one_line(nano_data: Path, tmp_path: Path) -> None:
    wrong = command(nano_data, tmp_path, "--budgets", "2000+16")
    done = subprocess.run(wrong, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("e1_trl.evaluation: a prompt of")


@pytest.mark.skipif(not SHARED.exists(), reason="the offline datasets are not here")
def test_benchmarks_are_found_in_a_local_folder_with_all_accepted_answers() -> None:
    sizes = {"aime2024": 30, "amc": 83, "math500": 500, "minerva": 272, "olympiadbench": 675, "gsm8k": 1319}
    for name, size in sizes.items():
        assert len(load_benchmark(name, SHARED / "math_eval")) == size
    assert load_benchmark("aime2024", SHARED / "math_eval")[0]["answers"][0].isdecimal()
    assert max(len(row["answers"]) for row in load_benchmark("minerva", SHARED / "math_eval")) > 1
    with pytest.raises(ValueError, match="must hold one file aime2025"):
        load_benchmark("aime2025", SHARED / "math_eval")
