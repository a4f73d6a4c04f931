"""Configurations of a training, and what follows from them with one model."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from accelerate.state import AcceleratorState
from conftest import BASE, DATA, NANO, ROOT
from transformers import AutoTokenizer, PreTrainedTokenizerFast, ProcessorMixin

from e1_trl.budget import Budget, ThinkingClose
from e1_trl.errors import UserError
from e1_trl.marker import Marker
from e1_trl.train import main
from e1_trl.training.config import E1Config, ModelFacts
from e1_trl.training.recipe_as_run import E1ScriptArguments, parse_recipe

ON_CPU = "{output_dir: run, report_to: none, use_cpu: true, bf16: false, "  # a recipe's beginning
ONE = Marker("</think>", (1,), (1,), close_tokens=1)
BEST = {"metric_for_best_model": "eval_reward"}
STEPS = {**BEST, "eval_strategy": "steps", "save_strategy": "steps"}
FOUR = Marker("</think>", (1,), (2, 3, 1, 4), close_tokens=3)


def config(**fields: object) -> E1Config:
    fixed = {"output_dir": "unused", "report_to": "none", "use_cpu": True, "bf16": False}
    return E1Config(**{**fixed, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "marker", "context", "completion"),
    [
        ({}, FOUR, 174, 154),
        ({"thinking_budget": None}, ONE, 1000, 980),  # the model's own
        ({"max_completion_length": 256}, ONE, 171, 256),  # as a recipe for TRL says
    ],
)
def test_lengths_follow_the_budget(fields: dict[str, object], marker: Marker, context: int, completion: int) -> None:
    args = config(**{"thinking_budget": 100, "solution_budget": 50, "max_prompt_length": 20, **fields})
    assert args.vllm_importance_sampling_mode == "token_truncate"
    assert args.disable_dropout and args.router_aux_loss_coef == 0
    before = (args.max_completion_length, args.vllm_max_model_length)
    assert args.fit(marker, model_context=1000) == (ThinkingClose(marker, context), completion)
    assert (args.max_completion_length, args.vllm_max_model_length) == before


def test_a_model_with_files_for_mistral_common_has_its_own_tokenizer(tmp_path: Path) -> None:
    """Mistral's has no chat template, and splits the marker, which is a special token, into ordinary ones."""
    shutil.copytree(BASE, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tekken.json").write_text("{}")
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | {"model_type": "mistral"}))
    facts = ModelFacts.of(config(thinking_budget=8, solution_budget=8), str(tmp_path))
    assert facts.tokenizer.chat_template == AutoTokenizer.from_pretrained(BASE).chat_template


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({}, 1024),
        ({"thinking_budget": 1000}, 2048 - 1000 - 50 - 1),
        ({"eval_budgets": ["100+50", "1500+40"]}, 2048 - 1500 - 40 - 1),
        ({"vllm_max_model_length": 512}, 512 - 100 - 50 - 1),
        ({"thinking_budget": None, "vllm_max_model_length": 512}, 256),  # half, where nothing else bounds the rest
        ({"thinking_budget": {"stages": {0: 100, 9: 1200}}}, 2048 - 1200 - 50 - 1),
        ({"max_prompt_length": 300}, 300),
    ],
)
def test_an_unset_max_prompt_length_is_what_fits_and_says_so(
    fields: dict[str, object], prompt: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = shutil.copytree(BASE, tmp_path / "model")
    settings = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**settings, "max_position_embeddings": 2048}))
    args = config(**{"thinking_budget": 100, "solution_budget": 50, **fields})
    facts = ModelFacts.of(args, str(model))
    assert args.max_prompt_length == prompt
    assert prompt + facts.completion <= facts.thinking_close.context <= (args.vllm_max_model_length or 2048)
    said = [f"max_prompt_length is unset: {prompt} tokens, which is what the budgets leave of the context of "]
    assert [line.rstrip("0123456789") for line in caplog.messages] == said * (prompt not in (300, 1024))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_completion_length": 150}, r"max_completion_length is 150, but the budget 100\+50 .* up to 151 tokens"),
        ({"thinking_budget": {"stages": {0: None, 500: 3000}}}, r"prompt of 1 tokens with budget 3000\+50 .* of 2048"),
        ({"thinking_budget": 1024, "max_prompt_length": 1024}, r"of 1024 tokens with budget 1024\+50 .* of 2048"),
    ],
)
def test_lengths_that_contradict_the_budget_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**{"thinking_budget": 100, "solution_budget": 50, **fields}).fit(ONE, model_context=2048)


def test_a_recipe_or_a_command_line_has_a_budget_or_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.yaml").write_text(ON_CPU + "solution_budget: 32, thinking_budget: {choice: [8, 64], per: row}}")
    (args,) = parse_recipe(["--config", "recipe.yaml"], (E1Config,))
    assert args.budgets.largest == Budget(64, 32) and args.budgets.fixed is None
    assert args.fit(ONE, model_context=10_000)[1] == 64 + 1 + 32
    for given, largest in (
        ("{stages: {0: 40, 20: 30}}", Budget(40, 32)),
        ('{"uniform": [9, 11]}', Budget(11, 32)),
        ("null", Budget(None, 32)),
        ("7", Budget(7, 32)),
    ):
        line = ["--config", "recipe.yaml", "--thinking_budget", given]
        (args,) = parse_recipe(line, (E1Config,))
        assert args.budgets.largest == largest and args.thinking_budget == yaml.safe_load(given)
    (args,) = parse_recipe([*line, "--total_budget", "20"], (E1Config,))
    assert args.budgets.fixed == Budget(7, 32, 20) and args.fit(ONE, model_context=10_000)[1] == 21


def test_a_thought_whose_forks_would_be_on_two_processes_is_refused() -> None:
    args = config(thinking_budget={"nested": [8, 16, 32, 64]}, num_generations=8)
    args.per_device_train_batch_size = 1
    args.steps_per_generation = 4
    args._check_budgets()
    args.steps_per_generation = 6  # of four processes, say: 24 rollouts, three groups of eight
    with pytest.raises(UserError, match=r"^per_device_.* \* steps_per_generation is 6; .* of the 4 forks"):
        args._check_budgets()


def test_a_model_brings_its_context_and_a_tokenizer_unless_one_is_given() -> None:
    args = config(thinking_budget=64, solution_budget=32, max_prompt_length=64)
    facts = ModelFacts.of(args, str(BASE))
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    assert facts.thinking_close == ThinkingClose(Marker.from_tokenizer(tokenizer), context=161)
    assert facts.completion == 97

    class Processor(ProcessorMixin):
        def __init__(self, tokenizer: Any):
            self.tokenizer = tokenizer

    for given in (tokenizer, Processor(tokenizer)):
        assert ModelFacts.of(args, str(BASE), given).tokenizer is tokenizer


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"thinking_budget": -1}, "thinking budget is -1 tokens"),
        ({"solution_budget": 0}, "solution budget is 0 tokens"),
        ({"use_vllm": False}, "use_vllm is false"),
        ({"trained_close": "forced"}, "trained_close is 'forced'; it must be one of sampled, all, none"),
        ({"thinking_budget": {"nested": [8, 16, 64]}}, "^num_generations is 8; expected a multiple of the 3 forks of"),
        ({"eval_samples": 0}, "eval_samples is 0"),
        ({"eval_budgets": ["8+8"], **BEST}, r"is 'eval_reward', and eval_budgets measure eval_budget/8\+8/accuracy$"),
        ({"eval_budgets": ["8+8"], "load_best_model_at_end": True, "eval_strategy": "steps"}, "is 'loss', and"),
        ({**STEPS, "save_total_limit": 1}, "^save_total_limit is 1, and metric_for_best_model keeps .*; set it to 2"),
        ({**STEPS, "eval_steps": 10, "save_steps": 20}, "_steps 10 and save_steps 20: where"),
        ({**STEPS, "eval_steps": 0.3, "save_steps": 0.1}, "eval_steps 0.3 and save_steps 0.1: where"),
        ({**STEPS, "eval_steps": 0.1, "save_steps": 0.05, "max_steps": 390}, "save_steps 0.05: where"),  # 39 and 20
        ({**STEPS, "eval_steps": 20, "save_steps": 0.05, "max_steps": 500}, "save_steps 0.05: where"),
        ({**BEST, "eval_strategy": "epoch", "save_strategy": "steps"}, "strategy epoch and save_strategy steps: where"),
        ({"scale_rewards": "std"}, "scale_rewards is 'std'; it must be one of group, batch, none"),
        ({"loss_type": "DAPO"}, "loss_type is 'DAPO'; it must be one of grpo, "),
        ({"importance_sampling_level": "seq"}, "it must be one of token, sequence"),
        ({"vllm_importance_sampling_mode": "token"}, "it must be one of token_truncate, token_mask"),
        ({"multi_objective_aggregation": "sum"}, "it must be one of sum_then_normalize, "),
        ({"vllm_mode": "colocated"}, "vllm_mode is 'colocated'; it must be one of colocate, server"),
        ({"generation_kwargs": {"temperature": 0.5}}, r"sets \['temperature'\], which have fields of"),
        ({"fp16": True}, "^fp16 is true, and only GPUs compute in it"),  # on a CPU, it would be fp32
        ({"accelerator_config": {"split_batches": True}}, "split_batches and dispatch_batches, which prompts"),
        ({"max_generated_tokens": 9, "logging_strategy": "no"}, "and logging_strategy is no; set it to steps"),
        ({"report_to": ["wandb"]}, "report_to names 'wandb', which is not installed; pip install wandb"),
        ({"restore_callback_states_from_checkpoint": True}, "would replace our callbacks; remove it"),
        ({"vllm_structured_outputs_regex": "a+"}, "vllm_structured_outputs_regex cannot hold"),
        ({"generation_kwargs": {"top_a": 1, "seed": 5, "max_tokens": 5}}, r"sets \['max_tokens', 'seed'\], which"),
        ({"push_to_hub": True, "model_init_kwargs": {"token": "hf_x"}}, "token is set, and would be uploaded inside"),
        ({"push_to_hub": True, "hub_token": "hf_x"}, "hub_token is set, and would be uploaded inside training_args"),
    ],
)
def test_contradictions_are_refused_in_one_line(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        config(**fields)
    assert "\n" not in str(error.value)


def test_the_best_is_chosen_among_validations_that_have_a_checkpoint() -> None:
    shares = {"eval_steps": 0.3, "save_steps": 0.1, "max_steps": 500}
    equal = {"eval_steps": 0.1, "save_steps": 0.1}
    epochs = {"eval_strategy": "epoch", "save_strategy": "epoch", "eval_steps": None}
    best = {"save_strategy": "best", "save_total_limit": 1}
    for each in ({"eval_steps": 20, "save_steps": 10}, shares, equal, best, epochs):
        assert config(**{**STEPS, "eval_steps": 5, **each}).metric_for_best_model == "eval_reward"
    assert config(eval_strategy="steps", eval_steps=10, save_steps=20).eval_steps == 10
    unset = {**STEPS, "metric_for_best_model": "", "eval_steps": 10, "save_steps": 20}
    assert config(**unset).metric_for_best_model is None
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_budget/8+8/accuracy"}
    assert config(eval_budgets=["8+8"], eval_steps=10, save_steps=10, **best).eval_strategy == "steps"


def test_scaling_is_switched_as_in_trl_from_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    for written, meant in (("false", "none"), ("true", "group"), ("batch", "batch")):
        file.write_text(f"{ON_CPU}scale_rewards: {written}}}")
        assert parse_recipe(["--config", str(file)], (E1Config,))[0].scale_rewards == meant
        assert config(scale_rewards=yaml.safe_load(written)).scale_rewards == meant
    plateau = {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch", "save_strategy": "steps"}
    assert config(**plateau).metric_for_best_model == "loss"  # by Transformers, for the rate alone
    assert config(eval_budgets=["8+8"], num_generations_eval=7).num_generations_eval == 1  # of which there is no use


def test_the_batch_of_an_evaluation_that_eval_budgets_replace_need_not_be_divisible() -> None:
    batches = {"per_device_train_batch_size": 16, "per_device_eval_batch_size": 8, "num_generations": 16}
    validated = {**batches, "do_eval": True, "eval_strategy": "steps", "eval_steps": 5}
    assert config(**validated, eval_budgets=["8+8"]).num_generations == 16
    for strategy in ("no", "steps"):
        assert config(**batches, eval_strategy=strategy, logging_steps=1, eval_budgets=["8+8"]).eval_steps == 10
    with pytest.raises(ValueError, match="must be divisible by the number of generations used for evaluation"):
        config(**validated)


def test_completions_that_would_be_uploaded_with_the_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / "_completions").mkdir()
    (tmp_path / "completions").symlink_to("_completions")
    assert config(output_dir=str(tmp_path), push_to_hub=True).hub_strategy == "end"
    (tmp_path / "completions").unlink()
    (tmp_path / "completions").mkdir()
    with pytest.raises(ValueError, match="/completions holds a run's completions, which push_to_hub would upload"):
        config(output_dir=str(tmp_path), push_to_hub=True)


def test_a_reward_for_boxes_is_refused_where_answers_have_none() -> None:
    with pytest.raises(UserError, match="the reward format looks for a box"):
        E1ScriptArguments(grader="programs", reward_funcs=["accuracy", "format"])


RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_parses_and_the_papers_take_a_generation_of_1024_in_two_mini_batches(recipe: Path) -> None:
    words = ["--config", str(recipe), "--bf16", "false", "--use_cpu", "true", "--thinking_budget", "7"]
    script_args, args, model_args, mixture = parse_recipe(words)
    assert args.budgets.largest.thinking == 7
    assert model_args.model_name_or_path and (script_args.dataset_name or mixture.datasets)
    assert (ROOT / "accelerate_configs" / f"{script_args.accelerate_config}.yaml").is_file()
    # In 16 bits what an adapter learns rounds away; gpt-oss in 32 bits fits no GPU, and its recipe says so.
    if args.vllm_mode == "colocate" and model_args.use_peft and recipe.stem != "E1-gpt-oss-20b":
        assert model_args.dtype == "float32"
    if recipe.stem in ("E1-Math-1.5B", "E1-Math-7B", "E1-Code-14B", "E1-AceReason-14B"):
        gpus = 8
        assert args.generation_batch_size == 128 * args.num_generations == 1024
        assert args.per_device_train_batch_size * gpus * args.gradient_accumulation_steps == 64 * args.num_generations
        assert args.max_steps * 64 // 128 == (30 if "14B" in recipe.stem else 200)


COUNT = "it must be a whole number, 1 or more"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("gradient_accumulation_steps: 0", f"gradient_accumulation_steps is 0; {COUNT}"),
        ("num_generations: 1", "num_generations is 1; it must be a whole number, 2 or more"),
        ("temperature: 0", "temperature is 0; it must be a number, above 0"),
        ("vllm_gpu_memory_utilization: 7", "vllm_gpu_memory_utilization is 7; it must be a number, above 0 and at"),
        ("eval_budgets: 7", "budget '7' must read '<thinking>+<solution>'"),
        ("eval_budgets: {8: 8}", "eval_budgets is {8: 8}; it must be a list, each entry a string"),
        ("max_unusable: 2", "max_unusable is 2; it must be a number, from 0 to 1"),
        ("thinking_budgt: 5", "thinking_budgt is unknown; did you mean thinking_budget?"),
        ("--gradient_accumulation_steps 0", f"gradient_accumulation_steps is 0; {COUNT}"),
        ("--max_steps many", "--max_steps is 'many'; it must be a whole number"),
        ("--thinking_budget {a", "thinking_budget is '{a', which is not YAML"),
        ("--thinking_budgt 5", "--thinking_budgt is unknown; did you mean --thinking_budget?"),
    ],
)
def test_a_field_that_is_wrong_is_named_in_one_line(written: str, said: str, tmp_path: Path) -> None:
    words = written.split(" ", 1) if written[0] == "-" else []
    file = tmp_path / "recipe.yaml"
    file.write_text(f"output_dir: run\nuse_cpu: true\nreport_to: none\n{'' if words else written}\n")
    with pytest.raises(UserError) as error:
        parse_recipe(["--config", str(file), "--bf16", "false", *words])
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_text_of_a_file_is_read_as_on_a_command_line(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(
        "output_dir: run\nuse_cpu: true\nreport_to: none\nlearning_rate: 1e-6\nmax_steps: '3'\neval_budgets: 8+8\n"
        "reward_funcs: [accuracy, {name: get_cosine_scaled_reward, max_len: 9}]\nresume_from_checkpoint: true\n"
    )
    script, args, *_ = parse_recipe(["--config", str(file), "--bf16", "false"])
    assert (args.learning_rate, args.max_steps, args.eval_budgets) == (1e-6, 3, ["8+8"])
    assert script.reward_funcs == ["accuracy", {"name": "get_cosine_scaled_reward", "max_len": 9}]
    assert str(args.resume_from_checkpoint).lower() == "true"


@pytest.mark.parametrize("name", ["deepseek-r1-distill-qwen", "qwen3"])
def test_the_marker_is_one_token_of_a_real_tokenizer_in_a_longer_forced_text_too(name: str) -> None:
    if not (DATA / "tokenizers" / name).is_dir():
        pytest.skip(f"{DATA / 'tokenizers' / name} is absent: real tokenizers are not part of the project")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(DATA / "tokenizers" / name)
    for forced_text in (
        "</think>",
        "\n</think>\n\n",
        "Considering the limited time by the user, I have to give the solution now.\n</think>\n\n",
        "\n</think>\n\nFinal Answer:",
    ):
        marker = Marker.from_tokenizer(tokenizer, forced_text=forced_text)
        assert marker.ids == (tokenizer.convert_tokens_to_ids("</think>"),)
        assert marker.forced_ids.count(marker.ids[0]) == 1
        assert tokenizer.decode(marker.forced_ids) == forced_text
    marker = Marker.from_tokenizer(tokenizer, text="</reasoning>")  # which it does not have
    assert len(marker.ids) > 1 and tokenizer.decode(marker.ids) == "</reasoning>"


def test_a_process_alone_takes_one_of_the_gpus_that_it_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretended = {"is_available": True, "device_count": 8, "set_device": None}
    for name, answer in pretended.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)
    args = E1Config(str(tmp_path), report_to="none", bf16=False, per_device_train_batch_size=16)
    AcceleratorState._reset_state(reset_partial_state=True)
    assert (args.n_gpu, args.train_batch_size, args.device.type) == (1, 16, "cuda")


unset = partial(config, bf16=None)


@pytest.mark.parametrize(
    ("launchers", "fields", "said"),
    [
        ("bf16", {"fp16": True, "bf16": False}, r"is fp16 in the recipe \(fp16, bf16\) and bf16 in the Accelerate"),
        ("fp16", {}, r"is bf16 in the recipe \(fp16, bf16\) and fp16 in the Accelerate configuration"),
        ("bf16", {"bf16": False}, r"is no in the recipe \(fp16, bf16\) and bf16 in the Accelerate configuration"),
    ],
)
def test_precisions_that_contradict_each_other_are_refused(
    launchers: str, fields: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launchers)
    with pytest.raises(UserError, match=said) as error:
        unset(**fields)
    assert "\n" not in str(error.value)


def test_a_launcher_without_a_precision_leaves_it_to_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    for launchers, fields in (("no", {"bf16": True}), ("no", {"bf16": False}), ("bf16", {}), ("bf16", {"bf16": True})):
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launchers)
        assert unset(**fields).mixed_precision == ("bf16" if fields.get("bf16", True) else "no")


def test_gpus_that_pytorch_cannot_use_are_named_before_transformers_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("e1_trl.training.config.gpu_fault", lambda: "the driver is too old")
    for bf16 in (True, False):
        with pytest.raises(UserError, match=r"^the driver is too old$"):
            unset(use_cpu=False, bf16=bf16)
    unset(bf16=False)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    unset(use_cpu=False, bf16=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch uses its GPUs")
def test_processes_that_would_each_train_alone_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(UserError, match=r"^each of 2 processes would train alone: on CPUs, [^\n]* ddp_backend: gloo$"):
        unset(bf16=False)


def test_the_refusal_names_both_files(nano_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    given = ["--config", str(NANO), "--accelerate_config", "own.yaml", "--dataset_name", str(nano_data)]
    said = rf"^{NANO} with own.yaml: mixed precision is no in the recipe \("
    with pytest.raises(UserError, match=said):
        main([*given, "--output_dir", str(tmp_path), "--dry_run", "true"])


def test_accelerates_own_launcher_does_not_change_the_recipes_batch_either(tmp_path: Path) -> None:
    given = ["--config", str(ROOT / "recipes" / "E1-Math-1.5B.yaml"), "--use_cpu", "true", "--bf16", "false"]
    said = r"^the recipe's batch is 512 .*, and 1 would make it 64; .* --gradient_accumulation_steps 32$"
    with pytest.raises(UserError, match=said):
        main([*given, "--output_dir", str(tmp_path)])


def test_one_process_alone_needs_no_group_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert unset(bf16=False, ddp_backend="gloo").ddp_backend is None
