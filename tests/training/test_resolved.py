"""The recipe as it was run, which is published with the model."""

from pathlib import Path

import pytest
import yaml

from e1_trl.training.config import E1Config
from e1_trl.training.recipe_as_run import parse_recipe, resolved

RECIPE = """
model_name_or_path: org/base
dataset_name: {output}
exclude: {output}/idle.jsonl
local_benchmarks: {output}
output_dir: {output}
env: {{WANDB_MODE: offline}}
model_init_kwargs: {{token: hf_secret, attn_implementation: eager}}
push_to_hub: false
hub_model_id: me/e1
learning_rate: 1.0e-06
thinking_budget: 512
report_to: none
bf16: false
use_cpu: true
"""
OVERRIDES = [
    *("--thinking-budget", "1024", "--scale_rewards=none", "--hub_strategy", "checkpoint"),
    *("--vllm_importance_sampling_correction", "false", "--resume_from_checkpoint", "true"),
]


def test_it_has_what_file_and_command_line_say_but_nothing_that_is_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    (tmp_path / "run").mkdir()
    file.write_text(RECIPE.format(output=tmp_path / "run"))
    argv = ["--config", str(file), *OVERRIDES]
    recipe = resolved(argv, parse_recipe(argv))
    written = yaml.safe_load(RECIPE.format(output=tmp_path / "run"))
    for own in ("env", "push_to_hub", "hub_model_id", "output_dir", "exclude", "local_benchmarks"):
        del written[own]
    written["dataset_name"] = "run"
    written["model_init_kwargs"] = {"attn_implementation": "eager"}
    changed = {"thinking_budget": 1024, "scale_rewards": "none", "vllm_importance_sampling_correction": False}
    assert recipe == {**written, **changed}
    joined = [f"--config={file}", *OVERRIDES]
    assert resolved(joined, parse_recipe(joined)) == recipe
    asked = [*argv, "--vllm_mode", "server", "--vllm_server_base_url", "http://me:word@host:8000/a@b"]
    assert resolved(asked, parse_recipe(asked))["vllm_server_base_url"] == "http://host:8000/a@b"

    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(recipe))
    _, repeated, model, _ = parse_recipe(["--config", str(again)])
    assert repeated.thinking_budget == 1024 and repeated.learning_rate == 1e-6
    assert model.model_name_or_path == "org/base" and not repeated.push_to_hub


NAMED = {"dataset_name": "org/one", "dataset_config": "main"}
MIXED: dict[str, object] = {"datasets": [{"path": "org/two"}], "test_split_size": 0.1}


@pytest.mark.parametrize(
    ("data", "line", "published"),
    [
        (MIXED, ["--dataset_name", "org/one", "--dataset-config=main"], NAMED),
        (NAMED, ["--datasets", "{path: org/two}", "--test_split_size", "0.1"], MIXED),
        (NAMED | MIXED, [], NAMED | MIXED),  # for the data's reader to refuse
    ],
)
def test_data_on_the_command_line_replace_those_of_the_recipe(
    data: dict[str, object], line: list[str], published: dict[str, object], tmp_path: Path
) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(data | {"output_dir": str(tmp_path), "use_cpu": True, "bf16": False}))
    argv = ["--config", str(file), *line]
    parsed = parse_recipe(argv)
    assert {name for name in resolved(argv, parsed) if name[:4] in ("data", "test")} == published.keys()
    given = {**vars(parsed[0]), **vars(parsed[-1])}
    assert {name for name in {**NAMED, **MIXED} if given[name]} == published.keys()


@pytest.mark.parametrize(
    ("processes", "published"),
    [
        (8, {"accelerate_config": "zero2", "gradient_accumulation_steps": 8, "steps_per_generation": 20}),
        (4, {"accelerate_config": "zero2", "gradient_accumulation_steps": 4, "steps_per_generation": 10}),
        (16, {"accelerate_config": "zero2", "gradient_accumulation_steps": 16, "steps_per_generation": 40}),
        (3, {"accelerate_config": None, "gradient_accumulation_steps": 8, "steps_per_generation": 20}),
    ],
)
def test_it_has_the_batch_that_was_trained_when_its_own_number_of_processes_repeats_it(
    processes: int, published: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(RECIPE.format(output=tmp_path) + "accelerate_config: zero2\nsteps_per_generation: 20\n")
    argv = ["--config", str(file), "--gradient_accumulation_steps", "8"]
    parsed = parse_recipe(argv)
    monkeypatch.setattr(E1Config, "world_size", processes)
    recipe = resolved(argv, parsed)
    assert {name: recipe.get(name) for name in published} == published
