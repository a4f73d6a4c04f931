from pathlib import Path

import pytest
from conftest import BASE, DATA, ROOT
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from trl import DatasetMixtureConfig, ModelConfig, TrlParser

from e1_trl.budget import Close, Marker
from e1_trl.training.config import E1Config, E1ScriptArguments, Lengths, settle

ONE = Marker("</think>", (1,), (1,), close_tokens=1)
FOUR = Marker("</think>", (1,), (2, 3, 1, 4), close_tokens=3)


def config(**fields: object) -> E1Config:
    fixed = {"output_dir": "unused", "report_to": "none", "use_cpu": True, "bf16": False}
    return E1Config(**{**fixed, **fields})  # type: ignore[arg-type]


def test_completion_and_engine_lengths_follow_from_the_budget() -> None:
    args = config(thinking_budget=100, solution_budget=50, max_prompt_length=20)
    assert args.lengths(FOUR, model_context=1000) == Lengths(completion=154, context=174)
    assert (args.max_completion_length, args.vllm_max_model_length) == (None, None)


def test_an_unlimited_part_takes_the_models_context() -> None:
    args = config(thinking_budget=None, solution_budget=50, max_prompt_length=20)
    assert args.lengths(ONE, model_context=1000) == Lengths(completion=980, context=1000)


def test_a_completion_length_that_the_budget_exceeds_is_refused() -> None:
    args = config(thinking_budget=100, solution_budget=50, max_completion_length=150)
    with pytest.raises(ValueError, match=r"max_completion_length is 150, but the budget 100\+50 .* up to 151 tokens"):
        args.lengths(ONE, model_context=4096)


def test_a_completion_length_that_the_budget_keeps_stays_as_a_recipe_for_trl_says() -> None:
    args = config(thinking_budget=100, solution_budget=50, max_prompt_length=20, max_completion_length=256)
    assert args.lengths(ONE, model_context=4096) == Lengths(completion=256, context=171)


def test_a_budget_that_does_not_fit_the_context_is_refused() -> None:
    with pytest.raises(ValueError, match=r"prompt of 1024 tokens with budget 1024\+1024 .* context of 2048"):
        config().lengths(ONE, model_context=2048)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"thinking_budget": -1}, "thinking budget is -1 tokens"),
        ({"solution_budget": 0}, "solution budget is 0 tokens"),
        ({"use_vllm": False}, "use_vllm is false"),
        ({"vllm_structured_outputs_regex": "a+"}, "vllm_structured_outputs_regex"),
        ({"use_transformers_continuous_batching": True}, "use_transformers_continuous_batching: no effect"),
        ({"cache_implementation": "static"}, "cache_implementation: no effect"),
        ({"max_tool_calling_iterations": 3}, "max_tool_calling_iterations: no effect"),
        ({"eval_samples": 0}, "eval_samples is 0"),
        (
            {"eval_budgets": ["8+8"], "metric_for_best_model": "eval_budget/16+8/accuracy"},
            r"is 'eval_budget/16\+8/accuracy', and what eval_budgets measure is eval_budget/8\+8/accuracy$",
        ),
        ({"eval_budgets": ["8+8"], "load_best_model_at_end": True, "eval_strategy": "steps"}, "is 'loss', and"),
        ({"report_to": "wandb"}, "report_to names 'wandb', which is not installed; pip install wandb"),
        ({"generation_kwargs": {"max_tokens": 5}}, "generation_kwargs sets \\['max_tokens'\\]"),
        ({"push_to_hub": True, "model_init_kwargs": {"token": "hf_x"}}, "token is set, and would be uploaded inside"),
        (
            {"generation_kwargs": {"presence_penalty": 0.5}},
            "generation_kwargs sets \\['presence_penalty'\\], which cannot hold",
        ),
        (
            {"vllm_mode": "server", "vllm_enable_sleep_mode": True, "vllm_gpu_memory_utilization": 0.5},
            "vllm_enable_sleep_mode, vllm_gpu_memory_utilization: no effect on rollouts that a vLLM server samples",
        ),
        ({"generation_kwargs": {"seed": 5}}, "generation_kwargs sets \\['seed'\\]"),
        (
            {"push_to_hub": True, "hub_token": "hf_x"},
            "hub_token is set, and would be uploaded inside training_args.bin",
        ),
    ],
)
def test_contradictions_are_refused_in_one_line(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        config(**fields)
    assert "\n" not in str(error.value)


def test_the_batch_of_an_evaluation_that_eval_budgets_replace_need_not_be_divisible() -> None:
    batches = {"per_device_train_batch_size": 16, "per_device_eval_batch_size": 8, "num_generations": 16}
    validated = {**batches, "do_eval": True, "eval_strategy": "steps", "eval_steps": 5}
    assert config(**validated, eval_budgets=["8+8"]).num_generations == 16
    with pytest.raises(ValueError, match="must be divisible by the number of generations used for evaluation"):
        config(**validated)


def test_a_server_takes_what_a_recipe_leaves_unset() -> None:
    assert config(vllm_mode="server").vllm_gpu_memory_utilization == config().vllm_gpu_memory_utilization


def test_completions_that_would_be_uploaded_with_the_model_are_refused(tmp_path: Path) -> None:
    def pushed() -> E1Config:
        return config(output_dir=str(tmp_path), push_to_hub=True)

    (tmp_path / "_completions").mkdir()
    (tmp_path / "completions").symlink_to("_completions")
    assert pushed().hub_strategy == "end"
    (tmp_path / "completions").unlink()
    (tmp_path / "completions").mkdir()
    with pytest.raises(ValueError, match="/completions holds a run's completions, which push_to_hub would upload"):
        pushed()


def test_importance_weights_are_a_tokens_own_where_trls_are_a_completions() -> None:
    assert config().vllm_importance_sampling_mode == "token_truncate"
    assert config(vllm_importance_sampling_mode="sequence_mask").vllm_importance_sampling_mode == "sequence_mask"


def test_what_a_model_makes_of_a_configuration_leaves_the_configuration_as_it_was() -> None:
    args = config(thinking_budget=64, solution_budget=32, max_prompt_length=64)
    settled = settle(args, str(BASE))
    assert settled.completion == 97
    assert (args.max_completion_length, args.vllm_max_model_length) == (None, None)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    assert settle(args, str(BASE), tokenizer).tokenizer is tokenizer
    assert settled.close == Close(Marker.from_tokenizer(tokenizer), context=161)


@pytest.mark.parametrize("field", ["dataset_streaming", "ignore_bias_buffers"])
def test_what_trls_script_takes_without_effect_is_refused_by_name(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} is true"):
        E1ScriptArguments(**{field: True})  # type: ignore[arg-type]


RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_parses_and_can_be_overridden(recipe: object) -> None:
    parser = TrlParser((E1ScriptArguments, E1Config, ModelConfig, DatasetMixtureConfig))
    script_args, training_args, model_args, mixture = parser.parse_args_and_config(
        ["--config", str(recipe), "--bf16", "false", "--use_cpu", "true", "--thinking_budget", "7"]
    )
    assert training_args.budgets.largest.thinking == 7
    assert model_args.model_name_or_path and (script_args.dataset_name or mixture.datasets)
    assert (ROOT / "accelerate_configs" / f"{script_args.accelerate_config}.yaml").is_file()


def test_the_papers_recipes_take_a_generation_of_1024_rollouts_in_two_mini_batches() -> None:
    parser = TrlParser((E1ScriptArguments, E1Config, ModelConfig, DatasetMixtureConfig))
    for name in ("E1-Math-1.5B", "E1-Math-7B", "E1-Code-14B", "E1-AceReason-14B"):
        _, args, *_ = parser.parse_args_and_config(
            ["--config", str(ROOT / "recipes" / f"{name}.yaml"), "--bf16", "false", "--use_cpu", "true"]
        )
        gpus = 8
        assert args.generation_batch_size == 128 * args.num_generations == 1024
        assert args.per_device_train_batch_size * gpus * args.gradient_accumulation_steps == 64 * args.num_generations
        generations = args.max_steps * 64 // 128
        assert generations == (30 if "14B" in name else 200)


@pytest.fixture(scope="module", params=["deepseek-r1-distill-qwen", "qwen3"])
def real_tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    folder = DATA / "tokenizers" / request.param
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent: real tokenizers are not part of the project")
    return PreTrainedTokenizerFast.from_pretrained(folder)


def test_the_marker_is_one_token_of_a_real_tokenizer_in_a_longer_forced_text_too(
    real_tokenizer: PreTrainedTokenizerBase,
) -> None:
    for forced_text in (
        "</think>",
        "\n</think>\n\n",
        "Considering the limited time by the user, I have to give the solution now.\n</think>\n\n",
        "\n</think>\n\nFinal Answer:",
    ):
        marker = Marker.from_tokenizer(real_tokenizer, forced_text=forced_text)
        assert marker.ids == (real_tokenizer.convert_tokens_to_ids("</think>"),)
        assert marker.forced_ids.count(marker.ids[0]) == 1
        assert real_tokenizer.decode(marker.forced_ids) == forced_text
    marker = Marker.from_tokenizer(real_tokenizer, text="</reasoning>")  # which it does not have
    assert len(marker.ids) > 1 and real_tokenizer.decode(marker.ids) == "</reasoning>"
