"""The GPU recipes at reduced size: what is substituted, what is published, and some of them run."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_stub import Hub, serving_hub
from safetensors.torch import load, load_file

from e1_trl.budget import Budget, Marker
from e1_trl.errors import UserError
from e1_trl.plan.architecture import KNOWN
from e1_trl.report.markdown import around_section
from e1_trl.training.config import E1Config
from e1_trl.training.launch import command
from e1_trl.training.recipe_as_run import parse_recipe
from tests.reduced import substitutions
from tests.reduced.__main__ import DOCUMENT, missing, outcome, read
from tests.reduced.case import Case, cases
from tests.reduced.found import Found, outcomes
from tests.reduced.run import e1, prepare, train
from tests.reduced.stand_ins import DATA, FAMILIES, HEAD, reduced

CASES = cases([])
BUDGET = Budget(16, 16)
# Recipes of models beyond the paper, and how their prompts end.
TODAYS = {
    "E1-Qwen3-1.7B": "<|im_start|>assistant\n",
    "E1-Qwen3-4B": "<|im_start|>assistant\n",
    "E1-Qwen3.5-4B": "<|im_start|>assistant\n<think>\n",
    "E1-SmolLM3-3B": "<|im_start|>assistant\n",
    "E1-gpt-oss-20b": "<|start|>assistant",
}
# A process alone on a CPU refuses these two.
UNPARSED = ("bf16", "ddp_backend")
# What follows from budget, batches, model and `use_cpu`; and where a run stands.
DERIVED = {"steps_per_generation", "max_completion_length", "vllm_max_model_length", "model_init_kwargs"}
DERIVED |= {"dataloader_pin_memory", "resume_from_checkpoint"}


def options(given: dict[str, Any]) -> list[str]:
    """As a person would write them."""
    return [word for name, value in given.items() for word in (f"--{name}", str(value).replace("True", "true"))]


def parsed(words: list[str]) -> dict[str, Any]:
    """Every field of what `e1_trl.train` makes of its arguments."""
    for name in UNPARSED:
        if f"--{name}" in words:
            at = words.index(f"--{name}")
            words = [*words[:at], *words[at + 2 :]]
    found = parse_recipe([*words, "--bf16", "false"])
    return {field.name: getattr(each, field.name) for each in found for field in fields(each)}


def as_on_gpus(case: Case) -> list[str]:
    """The arguments of `e1_trl.train` on a node, without bfloat16."""
    return ["--config", str(case.recipe_file), *options(case.passed)]


def test_every_recipe_has_run_as_it_is_now_and_the_document_has_its_row() -> None:
    rows = read()
    stale = missing(rows, CASES)
    assert not stale, f"run `make recipes`: {'; '.join(map(str, stale))}"
    published = outcome(rows).join(around_section(DOCUMENT, "rows"))
    assert DOCUMENT.read_text() == published, f"run `make recipes`: {DOCUMENT.name}"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_field_of_a_recipe_changes_but_the_substituted_ones(case: Case) -> None:
    line = command(case.command(case.accelerate_file)[1:])
    on_gpus, here = parsed(as_on_gpus(case)), parsed(line[line.index("e1_trl.train") + 1 :])
    named = substitutions.of_recipe(case.fields, case.accelerate).keys()
    changed = {name for name in on_gpus if on_gpus[name] != here[name]}
    assert changed - DERIVED - {"accelerate_config"} <= named
    assert named >= set(UNPARSED if case.accelerate["num_processes"] > 1 else ["bf16"])
    for name in named - set(UNPARSED):
        assert here[name] == case.overrides[name]
    # Two steps learn from one generation, there and here.
    for recipe, accelerate in (
        (case.fields, case.accelerate),
        ({**case.fields, **case.overrides}, case.reduced_accelerate()),
    ):
        rollouts = recipe["per_device_train_batch_size"] * recipe["gradient_accumulation_steps"]
        assert recipe["generation_batch_size"] == substitutions.STEPS * rollouts * accelerate["num_processes"]


@pytest.mark.parametrize("model", KNOWN)
def test_the_random_model_is_of_the_kind_of_the_real_one(model: str) -> None:
    small = reduced(KNOWN[model], kv_heads=2)
    assert small.keys() - KNOWN[model].keys() <= {"vision_config"}
    real = KNOWN[model].get("text_config", KNOWN[model])
    small = small.get("text_config", small)
    assert small.keys() == real.keys() and small["vocab_size"] == real["vocab_size"]
    assert (small["hidden_size"], small["num_attention_heads"], small["num_key_value_heads"]) == (4 * HEAD, 4, 2)
    widths = [each["intermediate_size"] / each["hidden_size"] for each in (small, real)]
    assert widths[0] == pytest.approx(widths[1], rel=0.06)


RIGHT = Found(
    loss=[0.1, -0.1],
    grad_norm=[0.5, 0.5],
    gap=1e-6,
    moved=[1e-6, 2e-6],
    validated=[0, 1, 2],
    outcomes={"correct": 8, "wrong": 24},
    isolation="namespaces",
    sampled=32.0,
    seconds=60.0,
)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"loss": [0.1]}, "the losses are"),
        ({"loss": [0.1, float("nan")]}, "the losses are"),
        ({"grad_norm": [0.5, 0.0]}, "the gradients' norms"),
        ({"gap": float("nan")}, "nats apart"),
        ({"moved": [1e-6, 1e-6]}, "did not follow the first"),
        ({"validated": [0, 2]}, "there was validation after the steps [0, 2]"),
        ({"validated": []}, "there was validation after the steps []"),
        ({"outcomes": {"no_program": 32}}, "programs were graded"),
        ({"outcomes": {"correct": 8, "wrong": 8, "ungraded": 16}}, "the grader failed"),
        ({"sampled": 0.0}, "vLLM sampled"),
    ],
)
def test_a_run_that_did_not_do_what_it_should_is_no_row(wrong: dict[str, Any], said: str) -> None:
    assert list(RIGHT.faults(BUDGET, validates=True)) == []
    (fault,) = replace(RIGHT, **wrong).faults(BUDGET, validates=True)
    assert said in fault


@pytest.fixture
def tokenizers() -> None:
    for folder in (DATA / "tokenizers" / words.copy for words in FAMILIES.values()):
        if not folder.is_dir():
            pytest.skip(f"{folder} is absent: real tokenizers are not part of the project")


@pytest.mark.parametrize("case", [case for case in CASES if case.recipe in TODAYS], ids=str)
def test_a_recipe_opens_the_thinking_in_its_familys_template_and_names_a_marker_of_it(
    case: Case, tokenizers: None
) -> None:
    name = case.fields["model_name_or_path"]
    tokenizer = FAMILIES[KNOWN[name]["model_type"]].load()
    question = [{"role": "user", "content": "What is 1 plus 2?"}]
    given = {"tokenize": False, "add_generation_prompt": True, **case.fields["chat_template_kwargs"]}
    prompt = str(tokenizer.apply_chat_template(question, **given))
    marker = Marker.from_tokenizer(tokenizer, case.fields.get("marker") or "</think>")
    assert prompt.endswith(TODAYS[case.recipe]) and marker.text not in prompt
    assert tokenizer.decode(marker.ids) == marker.text and tokenizer.eos_token_id not in marker.ids
    ((switch, _),) = case.fields["chat_template_kwargs"].items()  # which the template reads
    other = {"enable_thinking": False, "reasoning_effort": "high"}[switch]
    assert tokenizer.apply_chat_template(question, **{**given, switch: other}) != prompt


def trained(case: Case, folder: Path, hub: Hub | None = None) -> Path:
    """Train both steps of a case in one go, upload the model if there is a hub, and return the folder it is in."""
    prepare(case, folder)
    log = folder.with_suffix(".log")
    try:
        if case.fields.get("grader") == "programs":
            e1(["validate", "--config", str(case.recipe_file)], folder, log)
        if hub:
            train(case, folder, log, hub.environment, push_to_hub="true", hub_model_id="org/e1")
        else:
            train(case, folder, log)
    except UserError as error:
        pytest.fail(f"{error}\n{log.read_text()[-3000:]}")
    output: Path = folder / case.fields["output_dir"]
    history = json.loads((output / "trainer_state.json").read_text())["log_history"]
    assert [entry["grad_norm"] > 0 for entry in history if "grad_norm" in entry] == [True, True]
    return output


@pytest.mark.slow
def test_the_recipe_with_a_server_is_sound_in_the_mode_that_its_case_has_not(tokenizers: None, tmp_path: Path) -> None:
    case, log = Case("E1-Math-1.5B-server", "zero2_4gpus"), tmp_path / "log"
    prepare(case, tmp_path / "run")
    log.write_text("")
    here = "--accelerate_config cpu --dtype float32 --bf16 false --use_cpu true --generation_batch_size 32 "
    here += "--gradient_accumulation_steps 1 --dry_run true"
    e1(["train", "--config", str(case.recipe_file), *here.split()], tmp_path / "run", log)
    assert "1024+1024" in log.read_text() and "3073" in log.read_text()


@pytest.mark.engine
@pytest.mark.distributed
@pytest.mark.alone
def test_a_recipe_of_programs_trains_under_zero3_with_a_tensor_parallel_engine_and_is_uploaded_once(
    tokenizers: None, sandbox: None, tmp_path: Path
) -> None:
    case = Case("E1-Code-14B", "zero3")
    with serving_hub() as hub:
        output = trained(case, tmp_path / "run", hub)
        (commit,) = hub.commits("org/e1")
    assert outcomes(output / "completions")["correct"] > 0
    assert {"model.safetensors", "README.md", "budget.json", "e1/recipe.yaml"} <= commit.files.keys()
    assert all(content == (output / path).read_bytes() for path, content in commit.files.items())
    random = load_file(tmp_path / "run" / case.fields["model_name_or_path"] / "model.safetensors")
    uploaded = load(commit.files["model.safetensors"])
    assert uploaded.keys() == random.keys()
    assert 0 < max((uploaded[name] - random[name]).abs().max().item() for name in random) < 1e-4
    assert "16+16 tokens" in commit.files["README.md"].decode()


@pytest.mark.engine
@pytest.mark.distributed
@pytest.mark.alone
def test_a_recipe_of_mathematics_trains_under_zero2(tokenizers: None, tmp_path: Path) -> None:
    case = Case("E1-Math-1.5B", "zero2")
    output = trained(case, tmp_path / "run")
    reached, on_gpus = torch.load(output / "training_args.bin", weights_only=False), parsed(as_on_gpus(case))
    differ = {field.name for field in fields(E1Config) if getattr(reached, field.name) != on_gpus[field.name]}
    assert differ - DERIVED <= substitutions.of_recipe(case.fields, case.accelerate).keys()
