"""A recipe and the launcher's configuration that contradict each other, before anything is loaded."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import DeepSpeedPlugin
from conftest import NANO, ROOT

from e1_trl.errors import UserError
from e1_trl.train import main
from e1_trl.training.config import E1Config
from e1_trl.training.launched import check_launcher


def config(**fields: Any) -> E1Config:
    return E1Config(**{"output_dir": "unused", "report_to": "none", "use_cpu": True, **fields})


@pytest.mark.parametrize(
    ("launchers", "fields", "said"),
    [
        ("bf16", {"fp16": True, "bf16": False}, r"is fp16 in the recipe \(fp16: true, bf16: false\) and bf16 in the A"),
        ("fp16", {}, r"is bf16 in the recipe \(fp16: false, bf16: true\) and fp16 in the Accelerate configuration"),
        ("bf16", {"bf16": False}, r"is no in the recipe \(fp16: false, bf16: false\) and bf16 in the Accelerate conf"),
        ("no", {"fp16": True, "bf16": True}, "fp16 and bf16 are both true"),
        ("no", {"fp16": True}, "fp16 is true and use_cpu is true: only GPUs compute in fp16"),
    ],
)
def test_precisions_that_contradict_each_other_are_refused(
    launchers: str, fields: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launchers)
    with pytest.raises(UserError, match=said) as error:
        config(**fields)
    assert "\n" not in str(error.value)


def test_a_launcher_without_a_precision_leaves_it_to_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    for launchers, fields in (("no", {"bf16": True}), ("no", {"bf16": False}), ("bf16", {}), ("bf16", {"bf16": True})):
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launchers)
        assert config(**fields).mixed_precision == ("bf16" if fields.get("bf16", True) else "no")


@pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch uses its GPUs")
def test_gpus_that_pytorch_cannot_use_are_named_before_transformers_looks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 81559, 4, 580.95.05\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for bf16 in (True, False):
        with pytest.raises(UserError, match=r"^nvidia-smi lists 1 GPUs with driver 580.95.05, and PyTorch [^\n]*$"):
            config(use_cpu=False, bf16=bf16)
    config(bf16=False)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    config(use_cpu=False, bf16=False)


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
    assert config(bf16=False, ddp_backend="gloo").ddp_backend is None


def test_deepspeeds_configuration_is_held_against_the_recipe() -> None:
    args = config(bf16=False, gradient_accumulation_steps=4)
    args.deepspeed_plugin = DeepSpeedPlugin(zero_stage=2, gradient_accumulation_steps=8, gradient_clipping=0.5)
    said = (
        "^gradient_accumulation_steps=4 in the recipe, gradient_accumulation_steps=8 in DeepSpeed's; "
        r"max_grad_norm=1\.0 in the recipe, gradient_clipping=0\.5 in DeepSpeed's \(deepspeed_config of [^\n]*$"
    )
    with pytest.raises(UserError, match=said):
        check_launcher(args)


@pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch uses its GPUs")
def test_processes_that_would_each_train_alone_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(UserError, match=r"^the launcher started 2 processes, and each would train alone: [^\n]*$"):
        config(bf16=False)
