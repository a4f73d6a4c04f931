"""The card of a trainer that somebody makes without a recipe."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import BASE
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from test_config import config
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerState
from trl import GRPOTrainer

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.checkpoints.budget_file import BudgetInfo, Effort
from e1_trl.checkpoints.model_card import BaseModel
from e1_trl.errors import UserError
from e1_trl.marker import Marker
from e1_trl.training.callbacks import MasterWeights, ResumedFields, StartChecks
from e1_trl.training.cards import write_cards
from e1_trl.training.trainer import E1Trainer
from experiments.families.models import FAMILIES

ORIGIN = BaseModel("org/base", "c" * 40, datasets=("org/data",))
SCHEDULE = {"stages": {0: 16, 10: 8}}


class WithoutEngine(E1Trainer):
    """E1Trainer as far as a card tells of it."""

    def __init__(self, folder: Path, **fields: Any):
        args = config(output_dir=str(folder), solution_budget=8, save_only_model=True, **fields)
        args.use_vllm = False
        tokenizer = AutoTokenizer.from_pretrained(BASE)
        model = AutoModelForCausalLM.from_pretrained(BASE)
        rows = Dataset.from_dict({"prompt": ["1"] * 8})
        GRPOTrainer.__init__(self, model, lambda **_: [], args, rows, processing_class=tokenizer)
        self.thinking_close, self.budgets = ThinkingClose(Marker.from_tokenizer(tokenizer), 128), args.budgets
        self.base = (model.name_or_path, None)
        self.write_card = None


def make_checkpoint(run: Path, step: int) -> Path:
    checkpoint = run / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    TrainerState(global_step=step).save_to_json(str(checkpoint / "trainer_state.json"))
    return checkpoint


def test_a_trainer_that_was_asked_for_cards_writes_them_with_every_checkpoint(tmp_path: Path) -> None:
    trainer = WithoutEngine(tmp_path / "mine", thinking_budget=SCHEDULE)
    write_cards(trainer)
    trainer.save_model(str(tmp_path / "mine"))
    assert not (tmp_path / "mine" / "budget.json").exists()  # TRL asks for a card at a checkpoint and an upload alone
    trainer._save_checkpoint(trainer.model, trial=None)
    assert BudgetInfo.read(tmp_path / "mine" / "budget.json") == BudgetInfo("</think>", "</think>", 1, Budget(16, 8))
    assert BaseModel.read(tmp_path / "mine") == BaseModel(BASE.name, None)
    assert not (tmp_path / "mine" / "e1" / "recipe.yaml").exists()
    assert "16 tokens of thinking" in (tmp_path / "mine" / "README.md").read_text()


def test_tables_of_a_trainer_that_uploads_stay_out_of_the_upload(tmp_path: Path) -> None:
    trainer = WithoutEngine(tmp_path, thinking_budget=8)
    write_cards(trainer)
    assert not (tmp_path / "completions").exists()
    trainer.args.push_to_hub = trainer.args.log_completions = True
    write_cards(trainer)
    assert (tmp_path / "completions").readlink() == Path("_completions")


def test_a_model_that_reads_images_gets_the_files_for_them_that_its_base_has(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "preprocessor_config.json").write_text("{}")
    trainer = WithoutEngine(tmp_path / "run", thinking_budget=8)
    trainer.base = (str(base), None)
    write_cards(trainer, ORIGIN)
    assert not (tmp_path / "run" / "preprocessor_config.json").exists()  # a text model's base may have some
    trainer.model.config = FAMILIES["Gemma 3, images"]()
    write_cards(trainer, ORIGIN)
    assert {each.name for each in (tmp_path / "run").glob("*processor*")} == {"preprocessor_config.json"}


class OwnOptimizer(WithoutEngine):
    def create_optimizer(self, *arguments: Any) -> Any:
        return super().create_optimizer(*arguments)


@pytest.mark.parametrize(("kind", "resets"), [(WithoutEngine, True), (OwnOptimizer, False)])
def test_rates_of_a_users_own_optimizer_are_left_alone(kind: type[WithoutEngine], resets: bool, tmp_path: Path) -> None:
    trainer = kind(tmp_path, thinking_budget=8)
    trainer._add_callbacks([])
    (fields,) = (each for each in trainer.callback_handler.callbacks if isinstance(each, ResumedFields))
    assert fields._own is resets


@pytest.mark.parametrize("deepspeed", [True, False])
def test_the_masters_of_a_policy_begin_at_the_checkpoint_it_was_loaded_from(deepspeed: bool, tmp_path: Path) -> None:
    trainer = WithoutEngine(tmp_path, thinking_budget=8)
    trainer.is_deepspeed_enabled = deepspeed
    trainer._add_callbacks([])
    begun = [each._checkpoint for each in trainer.callback_handler.callbacks if isinstance(each, MasterWeights)]
    assert begun == [str(BASE)] * deepspeed


def test_an_origin_and_a_recipe_are_written_as_they_are_given(tmp_path: Path) -> None:
    trainer = WithoutEngine(tmp_path, thinking_budget=8)
    write_cards(trainer, ORIGIN, {"learning_rate": 1e-6})
    trainer.hub_model_id = "me/e1"  # as late as an upload sets it
    trainer.create_model_card(model_name="e1", dataset_name="org/more", tags=["mine"])
    assert BaseModel.read(tmp_path).datasets == ("org/data", "org/more")
    assert (tmp_path / "e1" / "recipe.yaml").read_text() == "learning_rate: 1.0e-06\n"
    text = (tmp_path / "README.md").read_text()
    assert "- mine\n" in text and "me/e1" in text


@pytest.mark.parametrize(("steps", "weights"), [((21, 22), b""), ((20, 20), b"the best")])
def test_resumed_runs_keep_efforts_recipes_and_results(steps: tuple[int, int], weights: bytes, tmp_path: Path) -> None:
    trainer = WithoutEngine(tmp_path, thinking_budget=8)
    write_cards(trainer, ORIGIN, {"learning_rate": 1e-6})
    trainer.create_model_card()
    efforts = {"low": Effort(Budget(4, 8))}
    replace(BudgetInfo.read(tmp_path / "budget.json"), efforts=efforts).write(tmp_path)
    results = tmp_path / "e1" / "results-aime.md"
    results.touch()
    (tmp_path / "model.safetensors").touch()
    checkpoint = make_checkpoint(tmp_path, 20)
    write_cards(trainer, replace(ORIGIN, datasets=("org/later",)), {"learning_rate": 5e-7}, checkpoint)
    trainer.hub_model_id = "me/e1"
    for trainer.state.global_step in (0, 20):  # before the checkpoint is loaded, and after
        trainer.create_model_card()
    assert results.exists() and "me/e1" in (tmp_path / "README.md").read_text()
    assert not [*tmp_path.glob("e1/recipe-*")]

    (tmp_path / "model.safetensors").write_bytes(weights)  # others only by load_best_model_at_end
    for trainer.state.global_step in steps:
        trainer.create_model_card()
    assert BudgetInfo.read(tmp_path / "budget.json").efforts == efforts and not results.exists()
    assert BaseModel.read(tmp_path).datasets == ("org/data", "org/later")
    recipes = [(tmp_path / "e1" / name).read_text() for name in ("recipe-until-20.yaml", "recipe.yaml")]
    assert recipes == ["learning_rate: 1.0e-06\n", "learning_rate: 5.0e-07\n"]
    assert ", after [e1/recipe-until-20.yaml](e1/recipe-until-20.yaml) up to" in (tmp_path / "README.md").read_text()


def test_a_training_that_goes_on_in_another_folder_takes_its_history_along(tmp_path: Path) -> None:
    first = WithoutEngine(tmp_path / "first", thinking_budget=8)
    write_cards(first, ORIGIN, {"learning_rate": 1e-6})
    first.create_model_card()
    (tmp_path / "first" / "e1" / "recipe-until-10.yaml").write_text("learning_rate: 2.0e-06\n")
    second = WithoutEngine(tmp_path / "second", thinking_budget=8)
    checkpoint = make_checkpoint(tmp_path / "first", 20)
    write_cards(second, replace(ORIGIN, datasets=("org/later",)), {"learning_rate": 5e-7}, checkpoint)
    for second.state.global_step in (20, 21, 22):
        second.create_model_card()
    assert BaseModel.read(tmp_path / "second").datasets == ("org/data", "org/later")
    names = ("recipe-until-10.yaml", "recipe-until-20.yaml", "recipe.yaml")
    recipes = [(tmp_path / "second" / "e1" / name).read_text() for name in names]
    assert recipes == ["learning_rate: 2.0e-06\n", "learning_rate: 1.0e-06\n", "learning_rate: 5.0e-07\n"]
    assert not (tmp_path / "first" / "e1" / "recipe-until-20.yaml").exists()

    third = WithoutEngine(tmp_path / "third", thinking_budget=8)
    write_cards(third, ORIGIN, {"learning_rate": 2e-6}, make_checkpoint(tmp_path / "second", 15))
    third.state.global_step = 16
    third.create_model_card()
    recipes = {each.name: each.read_text() for each in (tmp_path / "third" / "e1").glob("recipe*")}
    until = {"recipe-until-10.yaml": "2.0e-06", "recipe-until-15.yaml": "1.0e-06", "recipe.yaml": "2.0e-06"}
    assert recipes == {name: f"learning_rate: {rate}\n" for name, rate in until.items()}

    write_cards(second, ORIGIN, checkpoint=make_checkpoint(tmp_path / "copied", 20))  # with nothing beside it
    second.create_model_card()
    assert BaseModel.read(tmp_path / "second").datasets == ("org/data",)


def test_only_the_main_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = WithoutEngine(tmp_path, thinking_budget=8)
    write_cards(trainer, ORIGIN)
    monkeypatch.setattr(trainer, "is_world_process_zero", lambda: False)
    trainer.create_model_card()
    assert not (tmp_path / "budget.json").exists()


def test_without_cards_the_card_is_trls(tmp_path: Path) -> None:
    WithoutEngine(tmp_path, thinking_budget=8).create_model_card(model_name="mine")
    assert "# Model Card for mine" in (tmp_path / "README.md").read_text()
    assert not (tmp_path / "budget.json").exists()


def test_budgets_of_evaluations_need_a_validation(tmp_path: Path) -> None:
    trainer = WithoutEngine(tmp_path, thinking_budget=8)
    trainer.args.eval_budgets, trainer.validation = ["8+8"], None
    trainer._add_callbacks([])
    (checks,) = (each for each in trainer.callback_handler.callbacks if isinstance(each, StartChecks))
    with pytest.raises(UserError, match=r"^eval_budgets needs trainer\.add_callback\(Validation"):
        checks.on_train_begin(trainer.args, trainer.state, trainer.control)
    trainer.validation = dict
    checks.on_train_begin(trainer.args, trainer.state, trainer.control)


def test_the_model_of_an_adapter_is_found_below_torch_compile(tmp_path: Path) -> None:
    trainer = WithoutEngine(tmp_path, thinking_budget=8)
    adapted = get_peft_model(trainer.model, LoraConfig(r=2, target_modules=["q_proj"]))
    for model in (trainer.model, adapted, torch.compile(adapted, backend="eager")):
        assert trainer._causal_model(model) is trainer.model
