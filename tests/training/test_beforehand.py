"""Refusals and warnings in front of a training."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from accelerate import DeepSpeedPlugin
from conftest import BASE, NANO
from datasets import Dataset
from peft import AdaLoraConfig, IA3Config, LoraConfig, PromptTuningConfig, get_peft_model
from test_config import config
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from e1_trl.errors import UserError
from e1_trl.train import main
from e1_trl.training.advantages import grpo
from e1_trl.training.beforehand import check_advantage, check_model, check_precision, warn_beforehand
from e1_trl.training.named_rewards import TRLS_REWARDS, format_reward
from e1_trl.training.trainer import E1Trainer
from experiments.families.models import make_model

SHORT = {"thinking_budget": 8, "solution_budget": 8, "max_prompt_length": 64}
ROWS = Dataset.from_dict({"prompt": [[{"role": "user", "content": "a=7;a?"}]] * 8, "answers": [["7"]] * 8})


def small(**fields: Any) -> PreTrainedModel:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return Qwen2ForCausalLM(Qwen2Config(**sizes, vocab_size=8, **fields))


def adapted(model: PreTrainedModel) -> PreTrainedModel:
    return get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))


def test_weights_of_16_bits_are_refused_without_masters_in_fp32(tmp_path: Path) -> None:
    small().bfloat16().save_pretrained(tmp_path)
    refused = [(config(model_init_kwargs={"dtype": name}), str(BASE)) for name in ("bfloat16", "float16")]
    refused += [(config(model_init_kwargs={"dtype": name}), str(tmp_path)) for name in ("auto", None)]
    refused += [(config(), small().bfloat16()), (config(bf16=True), adapted(small()).half())]
    for args, model in refused:
        with pytest.raises(UserError, match=r"^dtype is b?float16, .*: 16-bit weights have no fp32 master copy with"):
            check_precision(args, model)


def test_a_model_whose_sampling_values_are_off_can_be_saved(tmp_path: Path) -> None:
    model = small()
    assert model.generation_config is not None
    model.generation_config.temperature = 0.6
    with pytest.raises(ValueError, match="GenerationConfig is invalid"):
        model.save_pretrained(tmp_path)
    check_model(config(), model)
    model.save_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("fields", "tied", "refused"),
    [
        ({"target_modules": "all-linear"}, True, False),
        ({"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}, True, True),
        ({"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}, True, True),
        ({"target_modules": ["q_proj", "embed_tokens"]}, True, True),
        ({"target_modules": ["q_proj"], "trainable_token_indices": [3]}, True, True),
        ({"target_modules": ["q_proj"], "trainable_token_indices": [3]}, False, True),
        ({"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}, False, False),
    ],
)
def test_an_adapter_that_vllm_would_get_in_part_is_refused(fields: dict[str, Any], tied: bool, refused: bool) -> None:
    model = get_peft_model(small(tie_word_embeddings=tied), LoraConfig(r=2, **fields))
    said = r"^the adapter (trains embeddings that are tied|is LORA with trainable_token_indices)"
    with pytest.raises(UserError, match=said) if refused else nullcontext():
        check_model(config(), model)


def test_an_adapter_that_cannot_be_merged_or_changes_the_reference_is_refused_by_its_configuration() -> None:
    under = {stage: config(bf16=True) for stage in (2, 3)}
    for stage, args in under.items():
        args.deepspeed_plugin = DeepSpeedPlugin(zero_stage=stage)
    refused = [
        (under[2], LoraConfig(), "under ZeRO-2 an adapter's base changes"),
        (config(), AdaLoraConfig(total_step=1), "the adapter is ADALORA, which"),
        (config(), PromptTuningConfig(task_type="CAUSAL_LM"), "the adapter is PROMPT_TUNING with is_prompt_learning"),
        (config(), LoraConfig(layer_replication=[(0, 1), (0, 1)]), "the adapter is LORA with layer_replication"),
        (config(beta=0.1), LoraConfig(init_lora_weights="pissa"), "beta compares with a base, which .* pissa changes"),
        (config(beta=0.1), LoraConfig(bias="lora_only"), "beta compares with a base, which bias lora_only"),
    ]
    for args, adapter, said in refused:
        with pytest.raises(UserError, match=f"^{said}"):
            check_precision(args, str(BASE), adapter)
    for args, adapter in (
        (under[3], LoraConfig(init_lora_weights="pissa")),
        (config(beta=0.1), LoraConfig(use_dora=True)),
        (config(), IA3Config()),
    ):
        check_precision(args, str(BASE), adapter)


def test_a_model_of_which_nothing_is_trained_is_refused_and_an_adapters_file_is_always_the_same(tmp_path: Path) -> None:
    check_model(config(), small().requires_grad_(False))
    with pytest.raises(UserError, match=r"^no weight of the adapter is trained; load it with is_trainable=True"):
        check_model(config(), adapted(small()).requires_grad_(False))
    model = get_peft_model(small(), LoraConfig(r=2, target_modules=["v_proj", "q_proj", "o_proj"]))
    check_model(config(), model)
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "adapter_config.json").read_text())
    assert saved["target_modules"] == ["o_proj", "q_proj", "v_proj"]


def test_what_reads_images_is_not_trained() -> None:
    for name in ("Gemma 3", "Gemma 3, images", "Gemma 4, images", "Qwen3.5, images"):
        model = make_model(name)
        check_model(config(), model)
        frozen = {each.split(".")[1] for each, parameter in model.named_parameters() if not parameter.requires_grad}
        images = {
            "Gemma 3, images": {"vision_tower", "multi_modal_projector"},
            "Gemma 4, images": {"vision_tower", "embed_vision"},
            "Qwen3.5, images": {"visual"},
        }
        assert frozen == images.get(name, set())


def test_an_adapter_of_what_reads_images_is_refused() -> None:
    whole = LoraConfig(r=2, target_modules="all-linear")
    with pytest.raises(UserError, match=r"trains model\.vision_tower\.\S*, which no text reaches"):
        check_model(config(), get_peft_model(make_model("Gemma 3, images"), whole))
    check_model(config(), get_peft_model(make_model("Gemma 3"), whole))
    language = LoraConfig(r=2, target_modules=".*language_model.*_proj")
    check_model(config(), get_peft_model(make_model("Gemma 3, images"), language))


def test_fp32_weights_masters_and_adapters_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small().save_pretrained(tmp_path)
    for args, model in (
        (config(), str(BASE)),
        (config(bf16=True, model_init_kwargs={"dtype": "float32"}), str(BASE)),  # computes in bfloat16 all the same
        (config(model_init_kwargs={"dtype": "auto"}), str(tmp_path)),
        (config(bf16=True), small()),
        (config(), adapted(small().bfloat16())),
        (config(), small().bfloat16().requires_grad_(False)),
    ):
        check_precision(args, model)
    in_16 = config(model_init_kwargs={"dtype": "bfloat16"})
    check_precision(in_16, str(BASE), adapter=LoraConfig())
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")  # which casts what is trained to fp32
    monkeypatch.setenv("FSDP_VERSION", "2")
    check_precision(in_16, str(BASE))
    monkeypatch.delenv("ACCELERATE_USE_FSDP")
    in_16.fsdp, in_16.fsdp_plugin_args = True, {"fsdp_version": 2}
    check_precision(in_16, str(BASE))
    in_16.fsdp = False
    in_16.deepspeed_plugin = DeepSpeedPlugin(zero_stage=2)
    check_precision(in_16, str(BASE))


def test_the_version_of_fsdp_that_would_leave_vllm_its_old_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    message = r"^under FSDP's version 1, vLLM would not get all weights; set fsdp_version to 2"
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")  # of version 1, unless FSDP_VERSION says otherwise
    with pytest.raises(UserError, match=message):
        check_precision(config(), str(BASE))
    monkeypatch.delenv("ACCELERATE_USE_FSDP")
    args = config()
    args.fsdp, args.fsdp_plugin_args = True, {"fsdp_version": 1}
    with pytest.raises(UserError, match=message):
        check_model(args, small())


def test_a_recipe_in_16_bits_without_deepspeed_is_refused_before_it_loads(nano_data: Path, tmp_path: Path) -> None:
    given = ("--dataset_name", nano_data, "--output_dir", tmp_path, "--dtype", "bfloat16", "--use_cpu", "true")
    words = [str(word) for word in ("--config", NANO, *given, "--dry_run", "true")]
    with pytest.raises(UserError, match=r"^dtype is bfloat16, .*; set dtype to float32"):
        main(words)
    main([*words, "--use_peft", "true"])


def test_one_process_loads_policy_and_reference_onto_one_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []

    def load(name: str, **given: Any) -> PreTrainedModel:
        seen.append(given)
        return AutoModelForCausalLM.from_pretrained(name, dtype="float32")

    monkeypatch.setattr("trl.trainer.grpo_trainer.create_model_from_path", load)
    monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", Mock(side_effect=InterruptedError))
    for model in (str(BASE), AutoModelForCausalLM.from_pretrained(BASE, dtype="float32")):
        with pytest.raises(InterruptedError):
            E1Trainer(model, format_reward, config(output_dir=str(tmp_path), **SHORT, beta=0.1), ROWS)
    # A policy, its reference, and the reference of a policy that was loaded before.
    assert [each.get("device_map", "auto") for each in seen] == [None] * 3


def test_the_engine_is_of_the_revision_that_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = Mock(side_effect=InterruptedError)
    monkeypatch.setattr("e1_trl.training.trainer.starting", starts)
    for mode, revision in (("colocate", "later"), ("server", None)):
        fields = {**SHORT, "vllm_mode": mode, "model_init_kwargs": {"revision": "later"}}
        with pytest.raises(InterruptedError):
            E1Trainer(str(BASE), format_reward, config(output_dir=str(tmp_path), **fields), ROWS)
        assert starts.call_args.args == (revision, 1)


def test_a_trainer_refuses_them_before_its_engine_starts() -> None:
    args = config(**SHORT, model_init_kwargs={"dtype": "bfloat16"})
    for model in (str(BASE), AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)):
        with pytest.raises(UserError, match=r"^dtype is bfloat16, "):
            E1Trainer(model, format_reward, args, ROWS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"loss_type": "vespo"}, "^loss_type vespo .* need one advantage of a completion"),
        ({"off_policy_mask_threshold": 0.5}, "off_policy_mask_threshold need one advantage of a completion"),
        ({"multi_objective_aggregation": "normalize_then_sum"}, "^multi_.* is normalize_then_sum, which `advantage`"),
        ({"scale_rewards": "none"}, "^scale_rewards is none, which `advantage` does not read; remove one$"),
    ],
)
def test_settings_of_trls_advantages_are_refused_beside_others(fields: dict[str, Any], message: str) -> None:
    check_advantage(config(), grpo, [])
    check_advantage(config(**fields), None, [])
    with pytest.raises(UserError, match=message) as error:
        check_advantage(config(**fields), grpo, [])
    assert "\n" not in str(error.value)


def warned(caplog: pytest.LogCaptureFixture, model: PreTrainedModel | None = None, **fields: Any) -> str:
    caplog.clear()
    warn_beforehand(config(**fields), model or small(), [format_reward], ["format"])
    return caplog.text


def test_what_a_training_would_not_show_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert not warned(caplog)
    said = "top_p is 0.95: vLLM samples from another distribution than the trainer computes"
    assert said in warned(caplog, top_p=0.95)
    sizes = {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "save_strategy": "steps"}
    assert "save_steps is 3, and a generation lasts 2 optimizer steps: " in warned(caplog, save_steps=3, **sizes)
    assert not warned(caplog, save_steps=4, **sizes)
    assert not warned(caplog, adapted(small()))
    assert "small changes round away, and the base drifts" in warned(caplog, adapted(small()).bfloat16())
    warn_beforehand(config(), small(), [TRLS_REWARDS["think_format_reward"]], ["think"])
    assert "the rewards think see the whole completion" in caplog.text


def test_masked_completions_that_shrink_the_gradient_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    for loss, shrinks in (("grpo", True), ("dr_grpo", True), ("dapo", False), ("cispo", False)):
        text = warned(caplog, loss_type=loss, mask_truncated_completions=True)
        assert (f"mask_truncated_completions with loss_type {loss}: " in text) == shrinks
        assert not warned(caplog, loss_type=loss)


def test_an_evaluation_under_a_schedule_of_budgets_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    schedule = {"thinking_budget": {"stages": {0: 64, 10: 32}}, "solution_budget": 8}
    evaluates = {"eval_strategy": "steps", "eval_steps": 5}
    said = "so their curve mixes policy and budget"
    assert said in warned(caplog, **schedule, **evaluates)
    assert not warned(caplog, **schedule)
    assert not warned(caplog, **schedule, **evaluates, eval_budgets=["64+8"])
    assert not warned(caplog, **evaluates, thinking_budget=64)
