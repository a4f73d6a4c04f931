"""A recipe may name another as its base: one level, said in one line where that is not so."""

from pathlib import Path

import pytest
import yaml
from conftest import ROOT

from e1_trl import train
from e1_trl.errors import UserError, one_line
from e1_trl.recipes import base_of, fields_of
from e1_trl.training.launch import command
from e1_trl.training.named_rewards import make_rewards
from e1_trl.training.recipe_as_run import parse_recipe

NANO = ROOT / "experiments" / "nano" / "recipe.yaml"


def write(file: Path, **fields: object) -> Path:
    file.write_text(yaml.safe_dump(fields))
    return file


def test_a_recipe_says_what_its_base_does_not(tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", learning_rate=1e-6, seed=3, accelerate_config="cpu")
    recipe = write(tmp_path / "recipe.yaml", base="base.yaml", seed=4)
    assert fields_of(recipe) == {"learning_rate": 1e-6, "seed": 4, "accelerate_config": "cpu"}
    assert "cpu.yaml" in " ".join(command(["--config", str(recipe)]))
    named = write(tmp_path / "named.yaml", base="nano", seed=4)
    assert fields_of(named) == {**yaml.safe_load(NANO.read_text()), "seed": 4}
    assert base_of(NANO) == {}
    mixed = write(tmp_path / "mixed.yaml", seed=3, datasets=[{"path": "org/two"}], test_split_size=0.1)
    assert fields_of(write(recipe, base=mixed.name, dataset_name="org/one")) == {"seed": 3, "dataset_name": "org/one"}


def test_a_base_is_not_named_on_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="base stands in a recipe's file"):
        train.main(["--config", str(NANO), "--base", "nano"])


def test_a_base_that_is_missing_or_has_one_itself_is_refused(tmp_path: Path) -> None:
    first = write(tmp_path / "first.yaml", base="second.yaml")
    with pytest.raises(ValueError, match=r"second\.yaml is neither a file nor one of our recipes: "):
        fields_of(first)
    write(tmp_path / "second.yaml", base="first.yaml")
    with pytest.raises(ValueError, match=r"first\.yaml: its base second\.yaml has a base itself, first\.yaml"):
        fields_of(first)
    (tmp_path / "second.yaml").write_text("seed: 1\nlora_r: 8\nseed: 2\n")
    with pytest.raises(ValueError, match=r"second\.yaml: seed is set twice"):
        fields_of(first)
    (tmp_path / "second.yaml").write_text("- nothing")
    with pytest.raises(ValueError, match=r"second\.yaml must be a YAML file of lines"):
        fields_of(first)


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ({"learning_rat": 1e-6}, "recipe.yaml: learning_rat is unknown; did you mean learning_rate?"),
        ({"thinking_budget": "many"}, "thinking_budget is 'many'; it must be a number of tokens"),
    ],
)
def test_a_training_refuses_a_base_in_one_line(
    base: dict[str, object], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "base.yaml", output_dir=str(tmp_path), use_cpu=True, bf16=False, **base)
    recipe = write(tmp_path / "recipe.yaml", base="base.yaml", report_to="none")
    with pytest.raises(UserError) as end:
        train.main(["--config", str(recipe)])
    assert message in one_line(end.value)


@pytest.mark.parametrize(("name", "tokens"), [("Open-RS-1.5B", 3584), ("One-Shot-RLVR-1.5B", 8192)])
def test_the_recipes_of_others_are_whole_and_cut_at_their_papers_length(name: str, tokens: int, tmp_path: Path) -> None:
    words = ["--config", str(ROOT / "recipes" / f"{name}.yaml"), "--output_dir", str(tmp_path), "--bf16", "false"]
    script, args, model, _ = parse_recipe(words)
    make_rewards(script.reward_funcs, args.reward_weights, None)
    assert args.budgets.completion_tokens(forced=1) == tokens and args.budgets.largest.cuts_thinking
    assert model.model_name_or_path == "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"
    rollouts = args.per_device_train_batch_size * args.gradient_accumulation_steps * 8  # GPUs
    assert args.generation_batch_size == rollouts and rollouts % args.num_generations == 0
