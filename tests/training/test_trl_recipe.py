"""A recipe that was written for TRL's `trl grpo`, trained here with nothing added but two budgets."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BASE, outside_a_group

pytestmark = [pytest.mark.engine, pytest.mark.distributed]

RECIPE = f"""\
model_name_or_path: {BASE}
dtype: float32
datasets:
  - path: json
    data_files: sums.jsonl
reward_funcs:
  - accuracy_reward
  - my_rewards.brevity
reward_weights: [1.0, 0.1]
learning_rate: 1.0e-5
lr_scheduler_type: cosine
num_generations: 8
max_completion_length: 128
per_device_train_batch_size: 16
gradient_accumulation_steps: 2
max_steps: 2
temperature: 1.0
use_vllm: true
vllm_mode: colocate
vllm_gpu_memory_utilization: 0.3
gradient_checkpointing: false
logging_steps: 1
output_dir: trained
"""
BUDGETS = """\
thinking_budget: 88
solution_budget: 32
"""


@pytest.mark.slow
def test_it_trains_with_trls_rewards_and_ones_own_under_the_budgets(nano_data: Path, tmp_path: Path) -> None:
    problems = [json.loads(line) for line in (nano_data / "train.jsonl").read_text().splitlines()[:20]]
    with (tmp_path / "sums.jsonl").open("w") as file:
        for problem in problems:
            prompt = [{"role": "user", "content": problem["problem"]}]
            row = {"prompt": prompt, "solution": f"${problem['answer']}$"}
            file.write(json.dumps(row) + "\n")
    (tmp_path / "my_rewards.py").write_text(
        "def brevity(completions, thinking_tokens, **_):\n    return [-tokens / 64 for tokens in thinking_tokens]\n"
    )
    (tmp_path / "recipe.yaml").write_text(RECIPE + BUDGETS)
    line = [sys.executable, "-m", "e1_trl.cli", "train", "--config", "recipe.yaml"]
    environment = {**outside_a_group(), "TORCH_COMPILE_DISABLE": "0"}  # vLLM compiles the model, as it does for users
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-5000:]
    # The usual 1,024 tokens of a prompt do not fit beside the budgets into the context of this model.
    assert "max_prompt_length is unset: 903 tokens, which is what the budgets leave of the context of 1024\n" in text
    log = json.loads((tmp_path / "trained" / "trainer_state.json").read_text())["log_history"]
    steps = [entry for entry in log if "reward" in entry]
    assert len(steps) == 2
    for entry in steps:
        assert entry["thinking/mean_tokens"] <= 88 and entry["solution/mean_tokens"] <= 32
        assert entry["sampling/sampling_logp_difference/mean"] < 0.01 and entry["weights/compared_tensors"] > 0
        assert entry["rewards/brevity/mean"] == pytest.approx(-entry["thinking/mean_tokens"] / 64, abs=1e-4)
    assert 0 < sum(entry["rewards/accuracy_reward/mean"] for entry in steps) < 2
    warning = "the rewards accuracy_reward see the whole completion, thinking included"
    assert text.count(warning) == 1
    lines = [line for line in text.splitlines() if line.startswith("step ")]
    assert [line.split(" | ")[0] for line in lines] == ["step 1/2", "step 2/2"]
