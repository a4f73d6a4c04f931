"""A recipe and the launcher's configuration that contradict each other, before anything is loaded."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import test_config
from conftest import NANO, ROOT

from e1_trl.errors import UserError
from e1_trl.train import main

config = partial(test_config.config, bf16=None)


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
        config(**fields)
    assert "\n" not in str(error.value)


def test_a_launcher_without_a_precision_leaves_it_to_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    for launchers, fields in (("no", {"bf16": True}), ("no", {"bf16": False}), ("bf16", {}), ("bf16", {"bf16": True})):
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launchers)
        assert config(**fields).mixed_precision == ("bf16" if fields.get("bf16", True) else "no")


def test_gpus_that_pytorch_cannot_use_are_named_before_transformers_looks_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("e1_trl.training.config.gpu_fault", lambda: "the driver is too old")
    for bf16 in (True, False):
        with pytest.raises(UserError, match=r"^the driver is too old$"):
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
