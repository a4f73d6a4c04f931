"""The recipe as it was run, which is published with the model."""

from pathlib import Path

import yaml
from trl import DatasetMixtureConfig, ModelConfig, TrlParser

from e1_trl.training.config import E1Config, E1ScriptArguments
from e1_trl.training.resolved import resolved

RECIPE = """
model_name_or_path: org/base
dataset_name: org/data
output_dir: {output}
env: {{WANDB_MODE: offline}}
hub_token: hf_secret
learning_rate: 1.0e-06
thinking_budget: 512
report_to: none
bf16: false
use_cpu: true
"""


def test_it_has_what_file_and_command_line_say_but_no_token(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(RECIPE.format(output=tmp_path / "run"))
    overrides = [
        "--thinking-budget",
        "1024",
        "--scale_rewards=none",
        "--hub_strategy",
        "checkpoint",
        "--no_vllm_importance_sampling_correction",
    ]
    argv = ["--config", str(file), *overrides]
    parser = TrlParser((E1ScriptArguments, E1Config, ModelConfig, DatasetMixtureConfig))
    recipe = resolved(argv, parser.parse_args_and_config(argv))
    written = yaml.safe_load(RECIPE.format(output=tmp_path / "run"))
    del written["env"], written["hub_token"]
    changed = {
        "thinking_budget": 1024,
        "scale_rewards": "none",
        "hub_strategy": "checkpoint",
        "vllm_importance_sampling_correction": False,
    }
    assert recipe == {**written, **changed}

    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(recipe))
    repeated = parser.parse_args_and_config(["--config", str(again)])
    assert repeated[1].thinking_budget == 1024 and repeated[1].hub_strategy == "checkpoint"
