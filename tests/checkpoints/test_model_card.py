"""The model card: what it says, where that comes from, and whose text it leaves alone."""

import ast
import json
import re
import shlex
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml
from hub_stub import faults
from huggingface_hub import ModelCard

from e1_trl.budget import Budget
from e1_trl.checkpoints import model_card
from e1_trl.checkpoints.budget_file import BudgetInfo, find_file
from e1_trl.checkpoints.checkpoint import ORIGIN as ORIGIN_FILE
from e1_trl.checkpoints.model_card import EARLIER, BaseModel, license_of, publish
from e1_trl.provenance import Provenance

TRAINED = BudgetInfo("</think>", "</think>", 1, Budget(1024, 512))
ORIGIN = BaseModel("org/base", "c" * 40, {"license": "mit"}, ("org/data",), instruction="Put it in \\boxed{}.")
RECIPE = {"model_name_or_path": "org/base", "learning_rate": 1e-6}
SERVED = "python -m vllm.entrypoints.openai.api_server --model"
CONFIG = """--reasoning-config '{"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}'"""
BUDGETED = f"{CONFIG}\npip install .  # in a checkout of e1_trl\ne1 serve --upstream http://localhost:8000/v1 --model"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a model that was trained, with a card and without weights."""
    Provenance("abc", "2026-01-02", "a machine", (42,)).write(tmp_path)
    (tmp_path / "trainer_state.json").write_text(json.dumps({"global_step": 400}))
    publish(tmp_path, TRAINED, ORIGIN, RECIPE, "me/e1", None, "org/more", "mine")
    return tmp_path


def card(folder: Path) -> ModelCard:
    return ModelCard((folder / "README.md").read_text())


def code(card: ModelCard, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", card.text, re.S)


def test_every_statement_of_the_card_stands_in_a_file_beside_it(folder: Path) -> None:
    data, text = card(folder).data.to_dict(), card(folder).text
    assert (data["base_model"], data["base_model_relation"]) == ("org/base", "finetune")
    assert (data["license"], data["datasets"]) == ("mit", ["org/data", "org/more"])
    assert {"elastic-reasoning", "trl", "mine"} <= set(data["tags"])
    assert faults((folder / "README.md").read_text()) == []
    assert text.startswith("\n# e1\n")
    assert "1,024 tokens of thinking" in text and "`</think>` is appended" in text and "512 tokens of solution" in text
    for said in ("c" * 40, "org/data", "1024+512", "| 400 |", "abc; 2026-01-02; a machine; seed 42", "trl 1."):
        assert said in text
    linked = set(re.findall(r"\]\((?!http)([^)]+)\)", text))
    assert linked == {"budget.json", "e1/recipe.yaml", "e1/versions.txt"}
    assert all((folder / file).is_file() for file in linked)
    assert yaml.safe_load((folder / "e1/recipe.yaml").read_text()) == RECIPE
    assert BudgetInfo.read(folder / "budget.json") == TRAINED


def test_a_card_names_the_step_of_the_best_weights(folder: Path) -> None:
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 400, "best_global_step": 240}))
    for recipe, said in (
        (RECIPE, "| steps | 400 |\n"),
        ({**RECIPE, "load_best_model_at_end": True}, "of step 240 |\n"),
    ):
        publish(folder, TRAINED, ORIGIN, recipe)
        assert said in card(folder).text


def test_a_checkpoint_has_the_budgets_and_the_base_of_its_run(folder: Path) -> None:
    checkpoint = folder / "checkpoint-240"
    checkpoint.mkdir()
    assert BudgetInfo.find(str(checkpoint)) == TRAINED
    assert find_file(str(checkpoint), ORIGIN_FILE, None) == folder / ORIGIN_FILE
    replace(TRAINED, marker="</end>").write(checkpoint)
    assert BudgetInfo.find(str(checkpoint)) == replace(TRAINED, marker="</end>")
    (folder / "other").mkdir()
    assert BudgetInfo.find(str(folder / "other")) is None


def test_a_card_says_that_budgets_were_scheduled(folder: Path) -> None:
    publish(folder, TRAINED, ORIGIN, {**RECIPE, "thinking_budget": {"choice": [0, 1024], "per": "row"}})
    said = (
        'trained at budgets of at most 1024+512 ([budget.json](budget.json), `thinking_budget: {"choice": [0, 1024], '
    )
    assert said + '"per": "row"}`): up to 1,024 tokens of thinking' in card(folder).text


@pytest.mark.parametrize(
    ("conversations", "forced_text", "budget"),
    [
        (True, "</think>", Budget(1024, 512)),
        (True, "\nEnough.\n</think>\n", Budget(None, None)),
        (False, "\nEnough.\n</think>\n", Budget(1024, 512)),
        (False, "</think>", Budget(0, 8)),
    ],
)
def test_the_commands_and_the_program_of_the_card_are_well_formed(
    tmp_path: Path, conversations: bool, forced_text: str, budget: Budget
) -> None:
    origin = replace(ORIGIN, conversations=conversations, chat_template_kwargs={"enable_thinking": True})
    publish(tmp_path, BudgetInfo("</think>", forced_text, 3, budget), origin, RECIPE, "me/e1")
    (program,) = code(card(tmp_path), "python")
    assert "None" not in program
    named = {node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)}
    assert "me/e1" in named
    assert any(isinstance(text, str) and text.endswith("Put it in \\boxed{}.") for text in named)
    assert ("messages" in program) == ("'enable_thinking': True" in program) == conversations
    (commands,) = code(card(tmp_path), "bash")
    serve, *budgeted = commands.splitlines()
    *served, config = shlex.split(serve)
    assert served == [*SERVED.split(), "me/e1", "--reasoning-config"]
    assert json.loads(config) == {"reasoning_start_str": "<think>", "reasoning_end_str": forced_text}
    assert budgeted == f"{BUDGETED} me/e1".splitlines()[1:]
    assert ('"max_tokens": ' in card(tmp_path).text) == (budget.thinking is not None)
    publish(tmp_path, BudgetInfo("Answer:", "Answer:", 3, budget), origin, RECIPE, "me/e1")
    assert '"reasoning_start_str": "<think>"' in code(card(tmp_path), "bash")[0]  # as `e1 serve` asks for


def test_of_a_model_in_a_folder_nothing_is_invented(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    origin = BaseModel.of(str(base), None)
    assert (origin.commit, origin.hub_base, origin.license) == (None, None, {})
    publish(tmp_path, TRAINED, origin, revision="branch", dataset_name=str(base))
    text = (tmp_path / "README.md").read_text()
    assert "None" not in text and f"# {tmp_path.name}\n" in text and "recipe" not in text and "branch" not in text
    assert not {"base_model", "base_model_relation", "license", "datasets"} & card(tmp_path).data.to_dict().keys()


def test_the_license_is_the_bases_own(tmp_path: Path) -> None:
    own = {"license": "other", "license_name": "own", "license_link": "https://own.org"}
    for written, expected in {
        "---\nlicense: other\nlicense_name: own\nlicense_link: https://own.org\nlanguage: en\n---\n": own,
        "---\nlicense: [mit, apache-2.0]\nlicense_link: LICENSE\n---\n": {"license": ["mit", "apache-2.0"]},
        "---\nlicense: [broken\n---\n": {},
        "no metadata": {},
    }.items():
        (tmp_path / "README.md").write_text(written)
        assert license_of(str(tmp_path), None) == expected


def test_your_own_words_are_kept_between_their_lines_and_the_rest_is_written_anew(folder: Path) -> None:
    file = folder / "README.md"
    (folder / EARLIER.format(3)).write_text("learning_rate: 1.0e-06\n")
    (folder / "e1" / "results-sums.md").write_text("of other weights")
    mine = "<!-- yours -->\n## Thanks\n\nTo {{ everybody }}.\n<!-- /yours -->"
    file.write_text(file.read_text().replace("<!-- yours -->\n<!-- /yours -->", mine).replace("512", "513"))
    publish(folder, replace(TRAINED, budget=Budget(2048, 512)), ORIGIN, hub_id="me/e1")
    assert mine in card(folder).text and "513" not in card(folder).text and "2,048 tokens" in card(folder).text
    assert EARLIER.format(3) in card(folder).text and not (folder / "e1" / "results-sums.md").exists()
    once = file.read_text()
    model_card.write(folder, "me/e1")
    assert file.read_text() == once and not (folder / "_README.md").exists()


@pytest.mark.parametrize(
    "old", ["---\ntags: [\n---\n# Mine\n", "# E1\n<!-- e1:serving -->\nold\n<!-- /e1:serving -->\n"]
)
def test_a_foreign_readme_is_kept_beside_the_card(folder: Path, old: str, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "README.md").write_text(old)
    model_card.write(folder, "me/e1")
    assert (folder / "_README.md").read_text() == old and "is kept as _README.md" in caplog.text
    assert faults((folder / "README.md").read_text()) == [] and "# Mine" not in card(folder).text


def test_a_model_on_a_branch_is_served_from_there_and_an_adapter_with_its_base(folder: Path) -> None:
    model_card.write(folder, "me/e1", revision="run-2")
    assert code(card(folder), "bash")[0] == f"{SERVED} me/e1 --revision run-2 {BUDGETED} me/e1 --revision run-2\n"
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "org/base", "r": 12}))
    model_card.write(folder, "me/e1")
    adapter = f"{SERVED} org/base --revision {'c' * 40} --enable-lora --max-lora-rank 16 --lora-modules me/e1=me/e1 "
    assert code(card(folder), "bash")[0] == f"{adapter}{BUDGETED} me/e1\n"
    model_card.write(folder, "me/e1", revision="run-2")
    local = f"hf download me/e1 --revision run-2 --local-dir lora\n{adapter.replace('=me/e1', '=./lora')}"
    assert code(card(folder), "bash")[0] == f"{local}{BUDGETED} me/e1 --revision run-2\n"
    data = card(folder).data.to_dict()
    assert (data["library_name"], data["base_model_relation"]) == ("peft", "adapter")
    for settings, why in (({"use_dora": True, "r": 12}, "use_dora"), ({"peft_type": "IA3"}, "peft_type")):
        written = {"base_model_name_or_path": "org/base", **settings}
        (folder / "adapter_config.json").write_text(json.dumps(written))
        publish(folder, TRAINED, ORIGIN, hub_id="me/e1")
        said = f"# vLLM does not serve this adapter ({why}): merge it into its base, and serve that\n"
        assert code(card(folder), "bash")[0].startswith(said)


WRONG_EFFORTS = ({"budget": "8+8", "kwargs": {}}, {"budget": "8+8", "chat_template_kwargs": 3}, {}, 3)
WRONG = [[], {}, *({**asdict(TRAINED), "efforts": {"low": e}} for e in WRONG_EFFORTS)]


@pytest.mark.parametrize("content", ["", *map(json.dumps, WRONG)])
def test_a_budget_json_of_another_making_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "budget.json").write_text(content)
    with pytest.raises(ValueError, match=r"budget.json cannot be read as the budgets of a trained model"):
        BudgetInfo.find(str(tmp_path))
