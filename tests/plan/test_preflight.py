"""Each row of the preflight fails for what it looks for, on a node that is pretended as far as a CPU needs it."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from conftest import ROOT

from e1_trl.errors import UserError
from e1_trl.plan.smoke import preflight
from e1_trl.plan.smoke.command import main
from e1_trl.training.cuda import Card, gpu_fault, visible_cards
from e1_trl.training.launch import command


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a stand-in for `nvidia-smi`, which prints the file `said` and takes down how it is called."""
    (tmp_path / "said").write_text("81559, 4, 580.95.05\n" * 2)  # MiB
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\nexec cat {tmp_path}/said\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def test_the_gpus_are_those_that_may_be_used(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert visible_cards() == [Card(81559 * 2**20, 4 * 2**20, "580.95.05")] * 2
    assert "-i" not in (node / "called").read_text()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    visible_cards()
    assert "-i 3" in (node / "called").read_text()
    (node / "said").write_text("[N/A], [N/A], 580.95.05\n")  # as of a part of a GPU
    assert visible_cards() == [Card(0, 0, "580.95.05")]
    (node / "said").write_text("No devices were found\n")
    assert visible_cards() == []


def test_a_node_without_gpus_or_with_too_few_starts_nothing(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(node)
    for listed in ("", "[N/A], [N/A], 580.95.05\n"):  # without its memory there is nothing to plan with
        (node / "said").write_text(listed)
        with pytest.raises(UserError, match=r"^nvidia-smi lists no GPU here; --cpu tries the recipe without one$"):
            main(["E1-Math-1.5B"])
    with pytest.raises(UserError, match=r"^--only is .*'speed'.* one of preflight, base, "):
        main(["E1-Math-1.5B", "--only", "base", "speed"])
    with pytest.raises(UserError, match="pass --num_processes 4 --gradient_accumulation_steps 8"):
        main(["E1-Math-1.5B", "--cpu", "--num_processes", "4"])
    assert not (node / "runs").exists()


def test_a_build_of_pytorch_that_cannot_use_the_gpus_fails_and_says_why(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    fault = gpu_fault()
    assert fault is not None and "\n" not in fault
    assert "with driver 580.95.05, and" in fault and "for CUDA 13.0 cannot use them (" in fault
    assert "needs driver 580 or newer" in fault
    monkeypatch.setattr(torch.version, "cuda", "11.8")
    assert "needs driver 525 or newer" in str(gpu_fault())
    monkeypatch.setattr(torch.version, "cuda", None)
    row = preflight.pytorch()
    assert row.right is False and row.measured == gpu_fault()
    found = f"nvidia-smi lists 2 GPUs with driver 580.95.05, and PyTorch {torch.__version__} is a build without CUDA; "
    assert row.measured.startswith(f"{found}run `make clean` and `make install DEVICE=gpu`")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpu_fault() is None
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    (node / "said").write_text("")
    assert gpu_fault() is None


def test_a_training_without_a_launcher_is_not_moved_to_cpus_by_gpus_that_cannot_be_used(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accelerate.commands.config.default_config_file", str(node / "none"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    recipe = node / "own.yaml"
    recipe.write_text("max_steps: 3\n")
    line = ["--config", str(recipe)]
    with pytest.raises(UserError, match=r"^nvidia-smi lists 2 GPUs .*\. To train on CPUs all the same, set accelerate"):
        command(line, gpus=0)
    with pytest.raises(UserError, match=r"^nvidia-smi lists 2 GPUs "):
        command([*line, "--use_cpu", "false"], gpus=0)
    for asked in (["--use_cpu", "true"], ["--accelerate_config", "cpu"], ["--dry_run", "true"]):
        assert command([*line, *asked], gpus=0)
    (node / "said").write_text("")
    assert command(line, gpus=0)


def test_a_missing_compiler_or_header_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Python.h").touch()
    (tmp_path / "gcc").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert preflight.compiler(str(tmp_path)).right
    row = preflight.compiler(str(tmp_path / "include"))
    assert (row.right, row.measured) == (False, f"no {tmp_path}/include/Python.h")
    (tmp_path / "gcc").unlink()
    row = preflight.compiler(str(tmp_path))
    assert (row.right, row.measured) == (False, "no gcc or clang on PATH")


def test_gpus_that_are_missing_or_in_use_fail_and_are_listed(node: Path) -> None:
    assert preflight.free_gpus(2).right
    row = preflight.free_gpus(4)
    assert (row.right, row.measured, row.expected) == (False, "2 visible", "4, with under 1 GB in use")
    (node / "said").write_text("81559, 30000, 580.95.05\n" * 2)
    row = preflight.free_gpus(1)
    assert (row.right, row.measured) == (False, "2 visible; in use: GPU 0 (31.5 GB)")


def test_too_little_disk_fails_also_in_a_folder_that_is_yet_to_be_made(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "runs" / "smoke"):
        assert preflight.space("free disk", folder, 1, "").right
        row = preflight.space("free disk", folder, 10**18, "free some")
        assert row.right is False and row.measured.endswith(f" GB free in {tmp_path}")
        assert row.expected == "1000000000.0 GB; else free some"


@pytest.mark.distributed
@pytest.mark.slow
def test_processes_sum_a_tensor_and_a_limit_ends_those_that_hang() -> None:
    row = preflight.all_reduce(2, on_gpu=False)
    assert row.right and row.measured.startswith("0.001 GB over 2 processes, "), row
    children = {*psutil.Process().children(recursive=True)}
    row = preflight.all_reduce(2, on_gpu=False, limit=0.5)  # in which they import PyTorch
    assert (row.right, row.measured) == (False, "it took longer than 0.5 s")
    assert {*psutil.Process().children(recursive=True)} <= children


@pytest.mark.distributed
@pytest.mark.slow
def test_the_command_prints_a_line_for_each_row_and_its_status_says_whether_one_failed() -> None:
    command = [sys.executable, "-m", "e1_trl.plan.smoke.preflight"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    names = [line[8:].partition(":")[0] for line in lines]
    rows = ["driver and PyTorch", "C compiler", "free GPUs", "free disk", "shared memory", "all-reduce"]
    assert [name for name in names if name in rows] == rows, done.stdout + done.stderr
    assert done.returncode == any(line.startswith("FAILED") for line in lines)
