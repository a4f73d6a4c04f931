"""The first hour on a node: the verdicts, from the log of a run at reduced size; what is started, and how it ends."""

import math
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from conftest import ROOT

from e1_trl.errors import UserError
from e1_trl.plan.memory import memory
from e1_trl.plan.setup import Launch
from e1_trl.plan.smoke import checks
from e1_trl.plan.smoke.__main__ import FirstHour, main, report, rows
from e1_trl.plan.smoke.checks import COMPARED, GAP, Check
from e1_trl.plan.smoke.training import Card, Training, cards, kill_tree
from e1_trl.training.launch import command
from tests.reduced import smoke
from tests.reduced.run import environment

RECIPE = ROOT / "recipes" / "E1-Math-1.5B.yaml"
EIGHT = "81559, 1024\n" * 8  # MiB
SETUP = Launch.read(str(RECIPE), None, None, []).setup  # every second step begins a generation

# Of E1-Math-1.5B on two CPU processes.
STEPS: dict[int, dict[str, float]] = {
    1: {"step": 1, "loss": 0.268758, "step_time": 15.78539, GAP: 0.001111, COMPARED: 339.0},
    2: {"step": 2, "loss": -0.292512, "step_time": 5.016885},
    3: {"step": 3, "loss": -0.186542, "step_time": 11.145536, GAP: 0.001103, COMPARED: 339.0},
    4: {"step": 4, "loss": 0.162827, "step_time": 3.225389},
}
RECORDED = Training(fault=None, steps=STEPS, peak=0, printed="", seconds=131.0)
KILLED = replace(RECORDED, steps={step: STEPS[step] for step in (1, 2)})
CUT = replace(RECORDED, steps={step: STEPS[step] for step in (1, 2, 3)})
FAILED = replace(RECORDED, fault="it ended with status 1")


def logged(at: int, **changed: float) -> Training:
    """The recorded training with other values in the log of a step."""
    return replace(RECORDED, steps={**STEPS, at: {**STEPS[at], **changed}})


def without(at: int, name: str) -> Training:
    return replace(RECORDED, steps={**STEPS, at: {key: held for key, held in STEPS[at].items() if key != name}})


@pytest.mark.parametrize(
    ("check", "right", "measured"),
    [
        (checks.ran("", RECORDED), True, ", 0.163 at steps 1, 2, 3, 4 in 131 s"),
        (checks.ran("", FAILED), False, "it ended with status 1; "),
        (checks.ran("", CUT), False, "steps 1, 2, 3 in"),
        (checks.moved(2e-6), True, "by 2.0e-06 from step 2 to 4"),
        (checks.moved(0.0), False, "by 0.0e+00"),
        (checks.moved(math.nan), False, "by nan"),
        (checks.gap("", RECORDED, SETUP, 0.01), True, "0.00111, 0.0011 nats at steps 1, 3"),
        (checks.gap("", RECORDED, replace(SETUP, steps=4.0), 0.01), True, "0.00111 nats at steps 1"),
        (checks.gap("", RECORDED, replace(SETUP, steps=1.0), 0.01), False, "at steps 1, 2, 3, 4"),
        (checks.gap("", logged(3, **{GAP: 0.0101}), SETUP, 0.01), False, "at steps 1, 3"),
        (checks.gap("", logged(1, **{GAP: math.nan}), SETUP, 0.01), False, "nan, "),
        (checks.gap("", logged(3, **{GAP: None}), SETUP, 0.01), False, ", nan nats"),
        (checks.ran("", logged(2, loss=math.nan)), False, ", nan, "),
        (checks.gap("", without(3, GAP), SETUP, 0.01), False, "0.00111, nan nats"),
        (checks.gap("", replace(RECORDED, steps={}), SETUP, 0.01), False, "nan, nan"),
        (checks.weights(RECORDED, SETUP), True, "339, 339 tensors compared at steps 1, 3"),
        (checks.weights(without(3, COMPARED), SETUP), False, "339, nan"),
        (checks.weights(logged(1, **{COMPARED: 0.0}), SETUP), False, "0, 339"),
        (checks.resumed("", KILLED, RECORDED), True, "went on after step 2; steps 1, 2, 3, 4 in the log"),
        (checks.resumed("", KILLED, logged(1, step_time=15.9)), False, "went on after step 1"),
        (checks.resumed("", KILLED, CUT), False, "steps 1, 2, 3 in the log"),
        (checks.resumed("", KILLED, FAILED), False, "resumed: it ended with status 1; "),
        (checks.resumed("", replace(KILLED, fault="ended before"), RECORDED), False, "killed: ended before; "),
    ],
)
def test_a_verdict_is_on_what_was_logged(check: Check, right: bool, measured: str) -> None:
    assert check.right is right and measured in check.measured, rows([check])


def test_peak_memory_is_held_against_the_plan() -> None:
    eight = [Card(int(79.6 * 2**30), 0)] * 8
    taken = memory(SETUP, eight[0].bytes)
    planned = max(taken.generation, taken.training)
    for share, right in ((1.0, True), (1.3, False), (0.4, False)):
        assert checks.peak(replace(RECORDED, peak=int(share * planned)), SETUP, eight).right is right
    assert checks.peak(RECORDED, SETUP, []).verdict == "not run"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the driver's tool, on a node of eight GPUs; it takes down how it is called."""
    (tmp_path / "said").write_text(EIGHT)
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\nexec cat {tmp_path}/said\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def test_the_gpus_are_those_that_may_be_used(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cards() == [Card(81559 * 2**20, 2**30)] * 8 and "-i" not in (node / "called").read_text()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    cards()
    assert "-i 3" in (node / "called").read_text()
    (node / "said").write_text(EIGHT.splitlines()[0])
    with pytest.raises(UserError, match=r"^zero2 starts 8 processes, and there are 1 GPUs here[^\n]*$"):
        main(["E1-Math-1.5B"])


def hour_of(folder: Path, accelerate_config: str | None, processes: int | None, *words: str) -> FirstHour:
    launch = Launch.read(str(RECIPE), accelerate_config, processes, words)
    return FirstHour(launch, launch.setup, [], folder, limit=1.0, largest_gap=0.01)


def test_the_recipe_is_trained_as_it_is_but_for_the_given_fields(tmp_path: Path) -> None:
    line = command([*hour_of(tmp_path, None, None).words, "--max_steps", "4"])
    files = ["--config", str(RECIPE), "--accelerate_config", "zero2"]
    assert line[line.index("e1_trl.train") + 1 :] == [*files, "--max_steps", "4"]
    assert line[line.index("--config_file") + 1] == str(ROOT / "accelerate_configs" / "zero2.yaml")
    assert line[line.index("--num_processes") + 1] == "8"
    hour = hour_of(tmp_path, "zero3", 1, "--gradient_accumulation_steps", "32", "--reward_funcs", "[accuracy, own.f]")
    assert hour.words[-5:] == ["--gradient_accumulation_steps", "32", "--reward_funcs", "accuracy", "own.f"]
    assert (hour.setup.gpus, hour.setup.zero, hour.setup.steps) == (1, 3, 2)


@pytest.mark.slow
def test_trainings_that_take_too_long_are_ended_each_with_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    hour = hour_of(tmp_path, "cpu_zero3", None, "--hub_token", "hf_abcdefghijklmno")
    before = set(psutil.Process().children(recursive=True))  # of other tests in this process, such as a grader's
    made = list(hour.checks())
    assert set(psutil.Process().children(recursive=True)) <= before
    assert [check.name for check in made] == ["base run", "kill -9 and resume", "tensor parallel 2"], rows(made)
    assert {check.verdict for check in made} == {"FAILED"} and "it took longer than 1 s" in made[-1].measured
    text = report(hour, made)
    assert rows(made) in text and "## base: it took longer than 1 s; the end of its log" in text
    assert '"tensor-parallel": []' in text and "hf_abc" not in text


def test_a_check_that_cannot_be_made_hides_none_of_the_others(tmp_path: Path) -> None:
    hour = hour_of(tmp_path, None, None)
    broken = replace(hour, launch=replace(hour.launch, recipe=Path("absent")))
    made = list(broken.checks())
    assert [check.verdict for check in made] == ["FAILED"] * 3
    assert "absent is neither a file" in made[0].measured


def test_a_fault_names_the_last_error_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "base.log"
    log.write_text(
        "[rank0]: ImportError: no triton\n[rank0]: RuntimeError: step 0: vLLM's weights are stale\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n===\n"
    )
    read = Training.read(tmp_path, log, "it ended with status 1", peak=0, seconds=1.0)
    assert read.fault == "it ended with status 1: RuntimeError: step 0: vLLM's weights are stale"
    assert Training.read(tmp_path, log, None, peak=0, seconds=1.0).fault is None


def test_killing_a_program_ends_its_children_in_sessions_of_their_own() -> None:
    child = "import time; time.sleep(60)"
    parent = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)\n"
        "print('up', flush=True)\ntime.sleep(60)"
    )
    process = psutil.Popen([sys.executable, "-c", parent], stdout=-1, start_new_session=True)
    with process.stdout:
        assert process.stdout.readline() == b"up\n"
    (worker,) = process.children()
    kill_tree(process.pid)
    assert not worker.is_running() and process.wait() == -signal.SIGKILL


def test_a_reduced_recipe_is_handed_to_the_same_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def become(_: str, words: list[str], variables: dict[str, str]) -> None:
        assert Path.cwd() == folder and variables["DS_ACCELERATOR"] == "cpu"
        started.extend(words)

    started: list[str] = []
    folder = tmp_path / "runs" / "smoke-reduced" / RECIPE.stem
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(smoke, "RUNS", tmp_path / smoke.RUNS)
    monkeypatch.setattr(smoke, "prepare", lambda case, tokenizer, folder: folder.mkdir(parents=True))
    monkeypatch.setattr(smoke, "load_tokenizer", lambda name: None)
    monkeypatch.setattr(os, "execve", become)
    smoke.main([str(RECIPE), "--beta", "0.1"])
    assert started[3:8] == ["smoke", RECIPE.name, "--cpu", "--largest_gap", "0.01"]
    assert started[-2:] == ["--beta", "0.1"]
    fields: dict[str, Any] = yaml.safe_load((folder / RECIPE.name).read_text())
    assert (fields["thinking_budget"], fields["bf16"], fields["accelerate_config"]) == (16, False, "accelerate.yaml")
