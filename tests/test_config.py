from pathlib import Path

import pytest
from conftest import BASE, ROOT, SHARED
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from trl import ModelConfig, TrlParser

from e1_trl.budget import Marker
from e1_trl.train import E1ScriptArguments, prepare
from e1_trl.trainer import E1Config

ONE = Marker("</think>", (1,), (1,))
FOUR = Marker("</think>", (1,), (2, 3, 1, 4))


def config(**fields: object) -> E1Config:
    fixed = {"output_dir": "unused", "report_to": "none", "use_cpu": True, "bf16": False}
    return E1Config(**{**fixed, **fields})  # type: ignore[arg-type]


def test_completion_and_engine_lengths_follow_from_the_budget() -> None:
    args = config(thinking_budget=100, solution_budget=50, max_prompt_length=20)
    assert args.settle_lengths(FOUR, model_context=1000) == 174
    assert (args.max_completion_length, args.vllm_max_model_length) == (154, 174)
    assert args.settle_lengths(FOUR, model_context=1000) == 174  # settled lengths stay as they are


def test_an_unlimited_part_takes_the_models_context() -> None:
    args = config(thinking_budget=None, solution_budget=50, max_prompt_length=20)
    assert args.settle_lengths(ONE, model_context=1000) == 1000


def test_a_completion_length_that_contradicts_the_budget_is_refused() -> None:
    args = config(thinking_budget=100, solution_budget=50, max_completion_length=256)
    with pytest.raises(ValueError, match=r"max_completion_length is 256, but the budget 100\+50 .* makes it 151"):
        args.settle_lengths(ONE, model_context=4096)


def test_a_budget_that_does_not_fit_the_context_is_refused() -> None:
    with pytest.raises(ValueError, match=r"prompt of 1024 tokens with budget 1024\+1024 .* context of 2048"):
        config().settle_lengths(ONE, model_context=2048)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"thinking_budget": -1}, "thinking budget is -1 tokens"),
        ({"solution_budget": 0}, "solution budget is 0 tokens"),
        ({"use_vllm": False}, "use_vllm is false"),
        ({"vllm_structured_outputs_regex": "a+"}, "vllm_structured_outputs_regex"),
        ({"generation_kwargs": {"max_tokens": 5}}, "generation_kwargs sets \\['max_tokens'\\]"),
        ({"generation_kwargs": {"seed": 5}}, "generation_kwargs sets \\['seed'\\]"),
    ],
)
def test_contradictions_are_refused_in_one_line(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        config(**fields)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("recipe", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_parses_and_can_be_overridden(recipe: object) -> None:
    parser = TrlParser((E1ScriptArguments, E1Config, ModelConfig))
    script_args, training_args, model_args = parser.parse_args_and_config(
        ["--config", str(recipe), "--bf16", "false", "--use_cpu", "true", "--thinking_budget", "7"]
    )
    assert training_args.budget.thinking == 7
    assert model_args.model_name_or_path and script_args.dataset_name


def test_the_papers_recipes_take_a_generation_of_1024_rollouts_in_two_mini_batches() -> None:
    parser = TrlParser((E1ScriptArguments, E1Config, ModelConfig))
    for name in ("E1-Math-1.5B", "E1-Math-7B"):
        _, args, _ = parser.parse_args_and_config(
            ["--config", str(ROOT / "recipes" / f"{name}.yaml"), "--bf16", "false", "--use_cpu", "true"]
        )
        gpus = 8
        assert args.generation_batch_size == 128 * args.num_generations == 1024
        assert args.per_device_train_batch_size * gpus * args.gradient_accumulation_steps == 64 * args.num_generations
        generations = args.max_steps * 64 // 128
        assert generations == 200


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dataset_name": "missing.jsonl"}, "no file missing.jsonl"),
        ({"dataset_name": None}, "must name a model .* and a dataset"),
        ({"problem_column": "question"}, "no column 'question'"),
    ],
)
def test_bad_data_is_refused_before_a_model_loads(fields: dict[str, object], message: str, nano_data: object) -> None:
    script_args = E1ScriptArguments(**{"dataset_name": str(nano_data), **fields})  # type: ignore[arg-type]
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        prepare(
            script_args,
            config(thinking_budget=64, solution_budget=32, max_prompt_length=64),
            ModelConfig(model_name_or_path=str(BASE)),
        )
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("scripted", "trained", "message"),
    [
        ({"reward_funcs": ["acuracy"]}, {}, "unknown reward 'acuracy'; available are accuracy, format"),
        ({}, {"reward_weights": [1.0, 2.0]}, "reward_weights has 2 values for the 1 rewards accuracy"),
        ({}, {"eval_budgets": ["8+8"], "eval_steps": 0.1}, "eval_steps is 0.1; eval_budgets need a whole number"),
        ({}, {"resume_from_checkpoint": "true"}, "there is no checkpoint in .* to resume from"),
        ({"eval_benchmark": "aime"}, {"eval_budgets": ["8+8"]}, "unknown benchmark 'aime'"),
    ],
)
def test_a_bad_recipe_is_refused_before_a_model_loads(
    scripted: dict[str, object], trained: dict[str, object], message: str, nano_data: Path, tmp_path: Path
) -> None:
    training_args = config(
        thinking_budget=64, solution_budget=32, max_prompt_length=64, **{"output_dir": str(tmp_path), **trained}
    )
    with pytest.raises(ValueError, match=message) as error:
        prepare(
            E1ScriptArguments(dataset_name=str(nano_data), **scripted),  # type: ignore[arg-type]
            training_args,
            ModelConfig(model_name_or_path=str(BASE)),
        )
    assert "\n" not in str(error.value)


@pytest.fixture(params=["deepseek-r1-distill-qwen", "qwen3"])
def real_tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    folder = SHARED / "tokenizers" / request.param
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent: real tokenizers are not part of the project")
    return PreTrainedTokenizerFast.from_pretrained(folder)


def test_the_marker_of_real_tokenizers_is_one_token(real_tokenizer: PreTrainedTokenizerBase) -> None:
    marker = Marker.from_tokenizer(real_tokenizer)
    assert len(marker.ids) == 1
    assert marker.ids == marker.forced_ids == (real_tokenizer.convert_tokens_to_ids("</think>"),)


@pytest.mark.parametrize(
    "forced_text",
    [
        "\n</think>\n\n",
        "Considering the limited time by the user, I have to give the solution now.\n</think>\n\n",
        "\n</think>\n\nFinal Answer:",
    ],
)
def test_a_longer_forced_text_holds_the_marker_as_one_token(
    real_tokenizer: PreTrainedTokenizerBase, forced_text: str
) -> None:
    marker = Marker.from_tokenizer(real_tokenizer, forced_text=forced_text)
    assert marker.forced_ids.count(marker.ids[0]) == 1
    assert real_tokenizer.decode(marker.forced_ids) == forced_text


def test_a_tokenizer_without_the_marker_spells_it_in_several_tokens(real_tokenizer: PreTrainedTokenizerBase) -> None:
    marker = Marker.from_tokenizer(real_tokenizer, text="</reasoning>")
    assert len(marker.ids) > 1
    assert real_tokenizer.decode(marker.ids) == "</reasoning>"
