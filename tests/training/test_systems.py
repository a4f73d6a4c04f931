"""Schedules of budgets, targets and rewards that remember, in trainings."""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from conftest import Train

RECIPE = {
    "base": "nano",
    "thinking_budget": {"choice": [8, 64], "per": "problem"},
    "total_budget": {"stages": {0: 100, 1: 90, 2: 50}},
    "reward_funcs": [
        "accuracy",
        "hapo",
        {"name": "laser_d", "lowest": 40, "highest": 90, "step": 10},
        *({"name": "laser", "target": target} for target in (1, 1000)),
    ],
    "scale_rewards": "none",
    "use_cpu": False,  # which would make Accelerate drop DeepSpeed
    "ddp_backend": "gloo",
    "learning_rate": 0,  # a run that resumes samples the same, then
    "save_strategy": "steps",
    "save_steps": 1,
    "log_completions": True,
    "completions_steps": 1,
}


def memory(checkpoint: Path) -> dict[str, Any]:
    """Return the memory of a checkpoint's rewards."""
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    return state["stateful_callbacks"]["RewardState"]["attributes"]


@pytest.mark.engine
@pytest.mark.distributed
@pytest.mark.slow
def test_schedules_and_memory_hold_on_two_processes_and_on_resuming(train: Train, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE))
    # 24 rollouts of a generation are three groups, of which each process has one and a half.
    batch = ("--per_device_train_batch_size", 12, "--gradient_accumulation_steps", 1)
    how = {"recipe": recipe, "accelerate_config": "cpu_zero3", "launched": False}
    log = train(*batch, **how)
    steps = [entry for entry in log if "reward" in entry]
    assert [entry["step"] for entry in steps] == [1, 2, 3]
    means = {name for name in steps[0] if re.fullmatch(r"rewards/\w+/mean", name)}
    names = ("accuracy", "hapo", "laser_d", "laser_4", "laser_5")
    assert means == {f"rewards/{name}/mean" for name in names}
    assert all(entry["rewards/laser_4/mean"] < entry["rewards/laser_5/mean"] for entry in steps if entry["reward"])
    # Only in the last stage is the total less than the larger thinking budget.
    assert [entry["thinking/total_ratio"] > 0 for entry in steps] == [False, False, True]

    tables = sorted((tmp_path / "run" / "completions").glob("*.parquet"))
    for total, file in zip((100, 90, 50), tables, strict=True):
        table = pd.read_parquet(file)
        sampled = table["thinking_tokens"] + table["solution_tokens"]
        assert len(table) == 24 and sampled.max() <= total
        assert (sampled[table["thinking_end"] == "total"] == total).all()
        prompts = table["prompt"].map(str)
        forced = table[table["thinking_end"] == "forced"].groupby(prompts)["thinking_tokens"]
        assert prompts.nunique() == 3 and (forced.nunique() == 1).all() and set(forced.first()) <= {8, 64}

    whole = memory(tmp_path / "run" / "checkpoint-3")
    assert {"1 hapo", "2 laser_d"} <= set(whole) and whole["1 hapo"]["problems"]
    assert len(whole["2 laser_d"]["generations"]) == 3
    again = ("--resume_from_checkpoint", tmp_path / "run" / "checkpoint-1")
    train(*batch, *again, **how, output=tmp_path / "resumed")
    assert memory(tmp_path / "resumed" / "checkpoint-3") == whole != memory(tmp_path / "run" / "checkpoint-1")
