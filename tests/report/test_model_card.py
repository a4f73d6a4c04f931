"""The model card: what it says, where that comes from, and whose text it leaves alone."""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hub_stub import faults
from huggingface_hub import ModelCard

from e1_trl.budget import Budget
from e1_trl.checkpoints import model_card
from e1_trl.checkpoints.budget_file import Trained
from e1_trl.checkpoints.model_card import write_details
from e1_trl.checkpoints.origin import Origin, license_of
from e1_trl.checkpoints.usage import SERVER
from e1_trl.report.provenance import Provenance

TRAINED = Trained("</think>", "</think>", 1, Budget(1024, 512))
ORIGIN = Origin(
    base="org/base",
    commit="c" * 40,
    license={"license": "mit"},
    datasets=("org/data",),
    instruction="Put it in \\boxed{}.",
)
RECIPE = {"model_name_or_path": "org/base", "learning_rate": 1e-6}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a model that was trained, without weights."""
    write_details(tmp_path, TRAINED, ORIGIN, RECIPE)
    Provenance("abc", "2026-01-02", "a machine", (42,)).write(tmp_path)
    (tmp_path / "trainer_state.json").write_text(json.dumps({"global_step": 400}))
    return tmp_path


def card(folder: Path) -> ModelCard:
    return ModelCard((folder / "README.md").read_text())


def code(card: ModelCard, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", card.text, re.S)


def test_the_metadata_name_what_is_known_and_nothing_that_the_hub_refuses(folder: Path) -> None:
    model_card.write(folder, "me/e1", tags=["mine"])
    data = card(folder).data.to_dict()
    assert (data["base_model"], data["base_model_relation"]) == ("org/base", "finetune")
    assert (data["license"], data["datasets"], data["pipeline_tag"]) == ("mit", ["org/data"], "text-generation")
    assert {"elastic-reasoning", "trl", "mine"} <= set(data["tags"])
    assert faults((folder / "README.md").read_text()) == []


def test_every_number_of_the_card_stands_in_a_file_beside_it(folder: Path) -> None:
    model_card.write(folder, "me/e1")
    text = card(folder).text
    assert "1,024 tokens of thinking" in text and "512 tokens of solution" in text
    for said in (
        "org/base",
        "c" * 40,
        "org/data",
        "1024+512",
        "| 400 |",
        "abc; 2026-01-02; a machine; seed 42",
        "trl 1.",
    ):
        assert said in text
    linked = set(re.findall(r"\]\((?!http)([^)]+)\)", text))
    assert linked == {"budget.json", "e1/recipe.yaml", "e1/versions.txt"}
    assert all((folder / file).is_file() for file in linked)
    assert yaml.safe_load((folder / "e1/recipe.yaml").read_text()) == RECIPE
    assert Trained.read(folder / "budget.json") == TRAINED


@pytest.mark.parametrize("conversations", [True, False])
@pytest.mark.parametrize("forced_text", ["</think>", "\nEnough.\n</think>\n"])
@pytest.mark.parametrize("budget", [Budget(1024, 512), Budget(None, None), Budget(0, 8)], ids=str)
def test_the_commands_and_the_program_of_the_card_are_well_formed(
    folder: Path, conversations: bool, forced_text: str, budget: Budget
) -> None:
    origin = replace(ORIGIN, conversations=conversations)
    write_details(folder, Trained("</think>", forced_text, 3, budget), origin, RECIPE)
    model_card.write(folder, "me/e1")
    (program,) = code(card(folder), "python")
    assert "None" not in program and ("max_tokens=0" not in program)
    named = {node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)}
    limits = {budget.thinking or 16_384, budget.solution or 16_384} if budget.thinking != 0 else {budget.solution}
    assert {"me/e1", forced_text, *limits} <= named
    assert ("</think>" in named) or budget.thinking == 0
    assert any(isinstance(text, str) and text.endswith("Put it in \\boxed{}.") for text in named)
    assert ("apply_chat_template" in program) == conversations
    commands = code(card(folder), "bash")
    assert commands[0] == "python -m vllm.entrypoints.openai.api_server --model me/e1\n"
    limited = budget.thinking is not None
    assert len(commands) == 1 + limited
    assert ('"max_tokens": ' in card(folder).text) == limited


def test_of_a_model_in_a_folder_nothing_is_invented(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    origin = Origin.of(str(base), None)
    assert (origin.commit, origin.hub_base, origin.license) == (None, None, {})
    write_details(tmp_path, TRAINED, origin, None)
    model_card.write(tmp_path, str(tmp_path))
    text = (tmp_path / "README.md").read_text()
    assert "None" not in text and f"# {tmp_path.name}\n" in text and "recipe" not in text
    assert not {"base_model", "license", "datasets"} & card(tmp_path).data.to_dict().keys()


def test_the_license_is_the_bases_own(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    for written, expected in {
        "---\nlicense: other\nlicense_name: own\nlicense_link: LICENSE\nlanguage: en\n---\n": {
            "license": "other",
            "license_name": "own",
            "license_link": "LICENSE",
        },
        "---\nlicense: [broken\n---\n": {},
        "no metadata": {},
    }.items():
        readme.write_text(written)
        assert license_of(str(tmp_path), None) == expected


def test_what_somebody_has_written_into_a_card_is_kept(folder: Path) -> None:
    model_card.write(folder, "me/e1")
    file = folder / "README.md"
    edited = file.read_text().replace("A model trained with", "My best model, trained with")
    edited = edited.replace("license: mit", "license: apache-2.0\nlanguage: en").replace(
        "## Serve it", "## To be replaced"
    )
    file.write_text(edited + "\n## Thanks\n\nTo everybody.\n")
    write_details(folder, replace(TRAINED, budget=Budget(2048, 512)), ORIGIN, RECIPE)
    model_card.write(folder, "me/e1")
    text, data = card(folder).text, card(folder).data.to_dict()
    assert "My best model" in text and text.endswith("## Thanks\n\nTo everybody.\n")
    assert (data["license"], data["language"]) == ("apache-2.0", "en")
    assert "## Serve it" in text and "To be replaced" not in text and "2,048 tokens" in text
    once = file.read_text()
    model_card.write(folder, "me/e1")
    assert file.read_text() == once


def test_a_section_that_lost_a_line_is_refused_however_often_it_is_written(folder: Path) -> None:
    model_card.write(folder, "me/e1")
    file = folder / "README.md"
    file.write_text(file.read_text().replace("<!-- /e1:serving -->\n", "My own words.\n"))
    before = file.read_text()
    for _ in range(2):
        with pytest.raises(ValueError, match="<!-- e1:serving --> and <!-- /e1:serving --> must stand there once each"):
            model_card.write(folder, "me/e1")
    assert file.read_text() == before


def test_what_an_earlier_origin_brought_goes_with_it(folder: Path) -> None:
    model_card.write(folder, "me/e1")
    file = folder / "README.md"
    file.write_text(file.read_text().replace("- org/data", "- org/data\n- my/own"))
    write_details(folder, TRAINED, Origin(str(folder), None, datasets=("org/new",)), RECIPE)
    model_card.write(folder, "me/e1")
    data = card(folder).data.to_dict()
    assert not {"base_model", "base_model_relation", "license"} & data.keys()
    assert data["datasets"] == ["my/own", "org/new"]


def test_a_model_on_a_branch_is_served_from_there(folder: Path) -> None:
    model_card.write(folder, "me/e1", revision="run-2")
    assert (
        code(card(folder), "bash")[0] == "python -m vllm.entrypoints.openai.api_server --model me/e1 --revision run-2\n"
    )
    assert "from_pretrained(\"me/e1\", revision='run-2')" in card(folder).text


def test_a_card_of_another_making_gets_the_sections_at_its_end(folder: Path) -> None:
    file = folder / "README.md"
    file.write_text("---\nbase_model: " + str(folder) + "\ntags: [lora, 'base_model:adapter:x']\n---\n# Mine\n")
    write_details(folder, TRAINED, Origin(str(folder), None), RECIPE)
    model_card.write(folder, "me/e1")
    assert card(folder).text.startswith("# Mine\n") and "## How it was trained" in card(folder).text
    assert "lora" in card(folder).data.tags and faults(file.read_text()) == []


def test_a_card_whose_metadata_are_broken_is_refused_and_left_as_it_is(folder: Path) -> None:
    file = folder / "README.md"
    file.write_text("---\ntags: [\n---\n# Mine\n")
    with pytest.raises(ValueError, match=r"README.md: the metadata between the lines --- cannot be read"):
        model_card.write(folder, "me/e1")
    assert file.read_text() == "---\ntags: [\n---\n# Mine\n"


def test_an_adapter_is_served_with_its_base(folder: Path) -> None:
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "org/base", "r": 12}))
    model_card.write(folder, "me/e1")
    command = code(card(folder), "bash")[0]
    assert command == f"{SERVER} org/base --enable-lora --max-lora-rank 16 --lora-modules me/e1=me/e1\n"
    data = card(folder).data.to_dict()
    assert (data["library_name"], data["base_model_relation"]) == ("peft", "adapter")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"format": 2}', '{"format": 1, "marker": 3}'],
)
def test_a_budget_json_of_another_making_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    file = tmp_path / "budget.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=r"budget.json does not say a model's budgets as e1_trl writes them"):
        Trained.find(str(tmp_path))
