"""The whole stack, through `accelerate launch`: TRL, a colocated CPU vLLM, PEFT, DeepSpeed."""

import contextlib
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from conftest import BASE, ROOT, Train, kill, launch, printed
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from e1_trl.checkout import commit
from e1_trl.ports import free_port
from e1_trl.provenance import Provenance
from e1_trl.report.card import main as card
from e1_trl.report.training_log import TrainingLog

pytestmark = [pytest.mark.engine, pytest.mark.distributed]

GAP = "sampling/sampling_logp_difference/mean"
COMPARED = "weights/compared_tensors"
(MERGE,) = re.findall(r"<!-- merge.py -->\n```python\n(.*?)```", (ROOT / "docs/sharing.md").read_text(), re.DOTALL)
# High enough to move every weight visibly within some steps: weights that do not reach the engine open the gap.
FAST = ("--learning_rate", 1e-3, "--warmup_steps", 0, "--lr_scheduler_type", "constant")


def steps(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for entry in log if "reward" in entry]


def assert_in_sync(log: list[dict[str, Any]], first: int = 0) -> None:
    gaps = [entry[GAP] for entry in steps(log)[first:]]
    assert gaps and max(gaps) < 0.01, gaps
    assert all(entry[COMPARED] > 0 for entry in steps(log))


def test_a_run_logs_the_bookkeeping_and_evaluates_at_the_same_budget(train: Train, tmp_path: Path) -> None:
    log = train(
        *("--beta", 0.01, "--loss_type", "dr_grpo", "--mask_truncated_completions", "true"),
        *("--reward_funcs", "accuracy", "format", "--reward_weights", 1.0, 0.2),
        *("--log_completions", "true", "--num_completions_to_print", 1, "--completions_steps", 2),
        *("--eval_strategy", "steps", "--eval_steps", 3, "--dataset_test_split", "test[:32]"),
        *("--per_device_eval_batch_size", 32, "--num_generations_eval", 1),
    )
    for entry in steps(log):
        ratios = [entry[f"thinking/{end}_ratio"] for end in ("closed", "forced", "eos")]
        assert sum(ratios) == pytest.approx(1)
        assert entry["thinking/mean_tokens"] <= 64 and entry["solution/mean_tokens"] <= 32
        by_end = [entry.get(f"reward/{end}", 0.0) for end in ("closed", "forced", "eos")]
        assert sum(r * b for r, b in zip(ratios, by_end, strict=True)) == pytest.approx(entry["reward"], abs=1e-4)
        assert entry["rewards/format/mean"] > 0
        assert "grading/timed_out" in entry and "grading/unevaluated" in entry and "kl" in entry
    assert_in_sync(log)
    (evaluation,) = [entry for entry in log if "eval_reward" in entry]
    assert evaluation["eval_thinking/mean_tokens"] <= 64

    tables = sorted((tmp_path / "run" / "completions").glob("*.parquet"))
    assert [file.stem for file in tables] == ["completions_00001", "completions_00003"]
    table = pd.read_parquet(tables[0])
    columns = ["thinking_end", "thinking_tokens", "solution_tokens", "solution_truncated", "outcome"]
    assert set(columns) <= set(table.columns)
    assert (table["thinking_tokens"][table["thinking_end"] == "forced"] == 64).all()
    for end, (thinking, close, solution) in zip(table["thinking_end"], table["parts"], strict=True):
        assert close == "</think>" * (end == "forced") and (end == "closed") == thinking.endswith("</think>")
        assert thinking and solution
    ((step, shown), *_) = TrainingLog.read(tmp_path / "run").rollouts(2, 5)
    assert step == 1 and [each["thinking"] for each in shown] == [parts[0] for parts in table["parts"][:5]]
    assert "elastic-reasoning" in (tmp_path / "run" / "README.md").read_text()
    provenance = Provenance.read(tmp_path / "run")
    assert provenance.seeds == (42,)
    assert provenance.commit.removesuffix("-dirty") == commit().removesuffix("-dirty")

    text = printed(tmp_path / "run")
    lines = [line.split(" | ") for line in text.splitlines() if line.startswith("step ")]
    assert [line[0] for line in lines] == ["step 1/3", "step 2/3", "step 3/3", "step 3/3"]
    assert lines[3][1] == "evaluation"
    assert "'grad_norm'" not in text
    shown = text.split("--- thinking ")[1:]
    assert len(shown) == 2 and "┃" not in text  # one of each of two generations
    assert shown[0].startswith("forced after 64 tokens, solution of ") and shown[0].count("‖</think>‖") == 1
    # vLLM says so at each of the three weight syncs.
    assert (tmp_path / "run" / "_libraries.log").read_text().count("RotaryEmbedding: Failed to load weights") == 1


def table_of(output: Path, step: int) -> pd.DataFrame:
    """The rollouts of a step as they were sampled, groups and thoughts together; with each one's thinking."""
    table = pd.read_parquet(output / "completions" / f"completions_{step:05d}.parquet")
    return table.assign(thought=[parts[0] for parts in table["parts"]])


FORKED = ("--log_completions", "true", "--completions_steps", 1)


def test_a_run_on_forks_learns_with_advantages_of_thinking_and_solution(train: Train, tmp_path: Path) -> None:
    log = train(
        *("--thinking_budget", "{log_uniform: [8, 64], forks: 2, per: row}", "--advantage", "brpo", *FORKED),
        *("--reward_funcs", "accuracy", "kimi", "--max_steps", 3, *FAST),
        *("--eval_strategy", "steps", "--eval_steps", 3, "--dataset_test_split", "test[:8]"),
        *("--per_device_eval_batch_size", 8, "--num_generations_eval", 1),
        launched=False,
    )
    assert_in_sync(log)
    table = table_of(tmp_path / "run", 1)
    assert len(table) == 32 and len(set(table["thinking_budget"])) > 8
    for first, second in zip(range(0, 32, 2), range(1, 32, 2), strict=True):
        shorter, longer = table["thought"][first], table["thought"][second]
        assert shorter == longer[: len(shorter)]
        assert table["thinking_budget"][first] <= 23 <= table["thinking_budget"][second]  # 8 x 8 ** (1/2)
    assert (table["thinking_advantage"] != table["solution_advantage"]).any()
    steps_of_training = steps(log)
    sampled = [entry["thinking/sampled_tokens"] for entry in steps_of_training if "thinking/sampled_tokens" in entry]
    assert sampled[0] == pytest.approx(sum(table["thinking_tokens"][1::2]) / 32, abs=1e-3)
    (evaluation,) = [entry for entry in log if "eval_reward" in entry]
    assert evaluation["eval_thinking/sampled_tokens"] == evaluation["eval_thinking/mean_tokens"]
    assert "scale_rewards is group" not in printed(tmp_path / "run")


@pytest.mark.slow
def test_lora_trains_and_reaches_the_engine(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = train(
        *("--use_peft", "true", "--lora_r", 8, "--lora_target_modules", "q_proj", "v_proj", *FAST, "--max_steps", 4),
        launched=False,
    )
    assert_in_sync(log)
    assert (tmp_path / "run" / "adapter_model.safetensors").exists()
    assert "--enable-lora --max-lora-rank 8" in (tmp_path / "run" / "README.md").read_text()

    budgets = tmp_path / "run" / "budget.json"
    budgets.write_text(json.dumps({**json.loads(budgets.read_text()), "curve": ["of the adapter"]}))
    (tmp_path / "run" / "preprocessor_config.json").write_text("{}")  # as a model that also reads images has it
    merged = tmp_path / "merged"
    monkeypatch.setattr(sys, "argv", ["merge.py", str(tmp_path / "run"), str(merged)])
    exec(MERGE, {})
    assert json.loads((merged / "budget.json").read_text())["curve"] == []
    assert (merged / "preprocessor_config.json").exists()
    card([str(merged)])
    ids = torch.arange(10).unsqueeze(0)
    with torch.no_grad():
        base = AutoModelForCausalLM.from_pretrained(BASE)(ids).logits
        expected = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(BASE), tmp_path / "run")(ids).logits
        found = AutoModelForCausalLM.from_pretrained(merged)(ids).logits
    assert (expected - base).abs().max() > 0.01
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert f"python -m vllm.entrypoints.openai.api_server --model {merged}" in (merged / "README.md").read_text()


@pytest.mark.slow
def test_a_tied_output_head_reaches_the_engine(train: Train, tmp_path: Path) -> None:
    tied = tmp_path / "tied"
    model = AutoModelForCausalLM.from_pretrained(BASE, tie_word_embeddings=True)
    model.lm_head.weight = model.model.embed_tokens.weight
    model.save_pretrained(tied)
    AutoTokenizer.from_pretrained(BASE).save_pretrained(tied)
    assert "lm_head.weight" not in load_file(tied / "model.safetensors")
    assert_in_sync(train("--model_name_or_path", tied, "--beta", 0.1, *FAST, "--max_steps", 5, launched=False))


DRAWING_REWARD = """
import os, pickle
from pathlib import Path
import numpy as np
import torch

def reward(completions, **columns):
    rank = os.environ["RANK"]
    with Path(__file__).with_name(f"drawn-{rank}").open("a") as file:
        print(pickle.dumps((np.random.get_state(), torch.get_rng_state().tolist())).hex(), file=file)
    if rank == "0":
        np.random.rand(), torch.rand(1)
    return [0.0] * len(completions)
"""


COUNTING_GRADER = """
import json, os
from dataclasses import replace
from pathlib import Path
from e1_trl.answers.kinds import MATHEMATICS
from e1_trl.answers.mathematics.grader import MathematicsGrader

class Counting(MathematicsGrader):
    begun = []

    def begin(self, solution, references):
        self.begun.append(solution)
        super().begin(solution, references)

    def grade(self, solutions, references):
        with Path(__file__).with_name(f"graded-{os.environ['RANK']}").open("a") as file:
            print(json.dumps([self.begun, solutions]), file=file)
        self.begun.clear()
        return super().grade(solutions, references)

KIND = replace(MATHEMATICS, grader=lambda arguments, workers: Counting(arguments.grading_time_limit, workers))
"""


@pytest.mark.alone
def test_two_processes_share_one_parallel_engine(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # vLLM's CPU build gives every externally launched group the same name in shared memory, so what a killed run left
    # there would stop this one.
    for left_over in Path("/dev/shm").glob("-tp:0-*-cpushm_*"):
        left_over.unlink()
    (tmp_path / "drawing.py").write_text(DRAWING_REWARD)
    (tmp_path / "counting.py").write_text(COUNTING_GRADER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    log = train(
        *("--vllm_tensor_parallel_size", 2, *FAST, "--max_steps", 4, "--ddp_backend", "gloo"),
        *("--reward_funcs", "accuracy", "drawing.reward", "--grader", "counting"),
        *("--thinking_budget", "{nested: [8, 24, 48, 64]}", "--advantage", "per_fork", *FORKED),
        accelerate_config="cpu_zero3",
        launched=False,
    )
    assert len(steps(log)) == 4
    assert_in_sync(log)
    # One of the processes drew numbers of its own between two generations, after which both stand alike again.
    drawn = [(tmp_path / f"drawn-{rank}").read_text().splitlines() for rank in (0, 1)]
    assert drawn[0] == drawn[1] and len(set(drawn[0])) == 4
    # Each of them samples the rollouts of both, and has its own graded as they end, in another order than they stand.
    graded = [(tmp_path / f"graded-{rank}").read_text().splitlines() for rank in (0, 1)]
    for begun, solutions in map(json.loads, graded[0] + graded[1]):
        assert sorted(begun) == sorted(solutions) and begun != solutions and len(solutions) == 32
    assert len(graded[0]) == len(graded[1]) == 4

    table = table_of(tmp_path / "run", 1)
    assert len(table) == 64 and [*table["thinking_budget"]] == [8, 24, 48, 64] * 16
    for row, thought in enumerate(table["thought"]):
        assert thought == table["thought"][row - row % 4 + 3][: len(thought)]
    for group in range(0, 64, 8):
        for fork in range(4):
            rewards = table["accuracy"][[group + fork, group + fork + 4]]
            expected = [*rewards - rewards.mean()]
            for part in ("thinking", "solution"):
                assert [*table[f"{part}_advantage"][rewards.index]] == pytest.approx(expected)
    assert set(table["thinking_advantage"]) == {-0.5, 0.0, 0.5}


@pytest.mark.alone
def test_two_machines_train_with_zero3_in_sync_and_share_an_uneven_evaluation(nano_data: Path, tmp_path: Path) -> None:
    where = ("--main_process_ip", "127.0.0.1", "--main_process_port", free_port())
    group = ("--num_machines", 2, "--num_processes", 2, "--deepspeed_multinode_launcher", "standard", *where)
    outputs = [tmp_path / f"machine-{rank}" for rank in range(2)]
    machines = [
        launch(
            *("--ddp_backend", "gloo", "--output_dir", outputs[0], "--max_steps", 5, *FAST),
            *("--eval_budgets", "96+32", "--eval_steps", 5, "--dataset_test_split", "test[:33]"),
            output=output,
            data=nano_data,
            accelerate_config="cpu_zero3",
            launcher=("--machine_rank", rank, *group),
        )
        for rank, output in enumerate(outputs)
    ]
    try:
        codes = [machine.wait() for machine in machines]
    finally:
        for machine in machines:
            kill(machine)
    assert codes == [0, 0], [printed(output)[-3000:] for output in outputs]
    log = json.loads((outputs[0] / "trainer_state.json").read_text())["log_history"]
    assert len(steps(log)) == 5 and all(entry["grad_norm"] > 0 for entry in steps(log))
    assert_in_sync(log)
    assert [printed(output).count("step 5/5 | reward") for output in outputs] == [1, 0]
    evaluations = [entry for entry in log if "eval_budget/96+32/accuracy" in entry]
    assert [entry["step"] for entry in evaluations] == [0, 5]
    for entry in evaluations:  # a mean over 33 problems, each of them once
        right = entry["eval_budget/96+32/accuracy"] * 33
        assert right == pytest.approx(round(right))
    assert 0 < evaluations[0]["eval_budget/96+32/accuracy"] < 1


def test_a_killed_run_resumes_validated_at_several_budgets(train: Train, nano_data: Path, tmp_path: Path) -> None:
    output = tmp_path / "killed"
    options = (
        *("--max_steps", 4, "--save_strategy", "steps", "--save_steps", 2, *FAST),
        *("--eval_budgets", "16+16", "96+32", "--eval_steps", 2, "--dataset_test_split", "test[:17]"),
        *("--eval_strategy", "steps", "--eval_samples", 2, "--load_best_model_at_end", "true"),
        *("--metric_for_best_model", "eval_budget/96+32/accuracy"),
    )
    process = launch(*options, output=output, data=nano_data, launched=False)
    try:
        while not whole_checkpoints(output):
            assert process.poll() is None, printed(output)[-5000:]
            time.sleep(0.2)
    finally:
        kill(process)
    before = json.loads((output / "checkpoint-2" / "trainer_state.json").read_text())["log_history"]
    assert max(whole_checkpoints(output)) < 4

    log = train(*options, "--resume_from_checkpoint", "true", output=output, launched=False)
    assert [entry["step"] for entry in log if {"loss", "reward"} <= entry.keys()] == [1, 2, 3, 4]
    assert log[: len(before)] == before
    assert_in_sync(log)

    evaluations = [entry for entry in log if "eval_budget/16+16/accuracy" in entry]
    assert [entry["step"] for entry in evaluations] == [0, 2, 4]
    assert not any("reward" in entry for entry in evaluations)
    for entry in evaluations:
        assert entry["eval_budget/16+16/forced_ratio"] >= entry["eval_budget/96+32/forced_ratio"]
        assert entry["eval_budget/16+16/thinking_tokens"] <= 16
        assert 16 < entry["eval_budget/96+32/thinking_tokens"] <= 96
    assert evaluations[0]["eval_budget/96+32/accuracy"] > evaluations[0]["eval_budget/16+16/accuracy"]
    assert evaluations[0] != {**evaluations[2], "step": 0}
    sums = [34 * value for entry in evaluations for name, value in entry.items() if name.startswith("eval_budget/")]
    assert sums == pytest.approx([round(each) for each in sums])  # over two answers to each of 17 problems
    assert any(round(each) % 2 for each in sums)

    state = json.loads((output / "trainer_state.json").read_text())
    accuracies = {entry["step"]: entry["eval_budget/96+32/accuracy"] for entry in evaluations[1:]}
    assert state["best_metric"] == max(accuracies.values()) == accuracies[state["best_global_step"]]
    best = load_file(output / f"checkpoint-{state['best_global_step']}" / "model.safetensors")
    saved = load_file(output / "model.safetensors")
    assert all(torch.equal(saved[name], best[name]) for name in best)


@pytest.mark.slow
def test_another_seed_draws_other_rollouts_and_a_resumed_run_the_same(nano_data: Path, tmp_path: Path) -> None:
    problem = tmp_path / "problem"  # one, so that the order of problems, which follows from the seed, too, is no matter
    problem.mkdir()
    (problem / "train.jsonl").write_text((nano_data / "train.jsonl").read_text().splitlines(keepends=True)[0] * 64)
    at = ("--learning_rate", 0, "--save_strategy", "steps", "--save_steps", 1)
    tables = ("--log_completions", "true", "--completions_steps", 1, "--num_completions_to_print", 1)

    def drawn(runs: dict[str, tuple[object, ...]]) -> list[list[list[str]]]:
        """The rollouts of each step of trainings that start together, which must not take the same port."""
        outputs = [tmp_path / name for name in runs]
        each = zip(runs.values(), outputs, strict=True)
        started = [launch(*at, *tables, *more, output=to, data=problem, launched=False) for more, to in each]
        try:
            assert [run.wait() for run in started] == [0] * len(runs), [printed(to)[-2000:] for to in outputs]
        finally:
            for run in started:
                kill(run)
        files = [sorted((to / "completions").glob("*.parquet")) for to in outputs]
        return [
            [sorted(row[0]["content"] for row in pd.read_parquet(file)["completion"]) for file in run] for run in files
        ]

    resumes = ("--max_steps", 2, "--resume_from_checkpoint", tmp_path / "whole" / "checkpoint-1")
    whole, (other,) = drawn({"whole": ("--max_steps", 2), "other": ("--max_steps", 1, "--seed", 43)})
    ((rest,),) = drawn({"rest": resumes})
    assert len(whole[0]) == len(other) == len(rest) == 32
    assert whole[0] != other and whole[0] != whole[1] == rest


def whole_checkpoints(output: Path) -> list[int]:
    """The steps of the checkpoints of which the last file has been written."""
    found = []
    for state in output.glob("checkpoint-*/trainer_state.json"):
        with contextlib.suppress(ValueError):
            found.append(json.loads(state.read_text())["global_step"])
    return found
