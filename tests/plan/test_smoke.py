"""The first hour on a node: the verdicts, from the log of a run at reduced size; what is started, and how it ends."""

import math
import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from conftest import ROOT

from e1_trl.plan.memory import memory
from e1_trl.plan.smoke import checks
from e1_trl.plan.smoke.__main__ import main
from e1_trl.plan.smoke.checks import CHECKED, GAP, Verdict
from e1_trl.plan.smoke.first_hour import FirstHour, Subject, report, rows
from e1_trl.plan.smoke.training import Training
from e1_trl.training.launch import command
from tests.reduced import smoke
from tests.reduced.run import environment

PASSED, FAILED, NOT_RUN = Verdict
RECIPE = ROOT / "recipes" / "E1-Math-1.5B.yaml"
EIGHT = "NVIDIA H100 80GB HBM3, 81559, 570.86.15\n" * 8

# Of E1-Math-1.5B on two CPU processes; every second step begins a generation.
STEPS: list[dict[str, float]] = [
    {"step": 1, "loss": 0.268758, "grad_norm": 1.019289, "step_time": 15.78539, GAP: 0.001111},
    {"step": 2, "loss": -0.292512, "grad_norm": 0.816664, "step_time": 5.016885},
    {"step": 3, "loss": -0.186542, "grad_norm": 0.967046, "step_time": 11.145536, GAP: 0.001103},
    {"step": 4, "loss": 0.162827, "grad_norm": 0.990015, "step_time": 3.225389},
]
# As vLLM prints them.
ASLEEP = (
    "INFO 11-22 18:00:00 [gpu_worker.py:303] Sleep mode freed 45.02 GiB memory, 9.87 GiB memory is still in use.\n"
    "INFO 11-22 18:00:00 [abstract.py:355] It took 0.912345 seconds to fall asleep.\n"
)
AWAKE = "INFO 11-22 18:00:00 [abstract.py:373] It took 0.212345 seconds to wake up tags ['weights'].\n"
RECORDED = Training(fault=None, steps=STEPS, peak=0, printed="", seconds=131.0)
KILLED = replace(RECORDED, steps=STEPS[:2])


def logged(at: int, **changed: Any) -> Training:
    """The recorded training with other values in the log of a step; None: without the value."""
    steps = [{**entry, **changed} if entry["step"] == at else entry for entry in STEPS]
    return replace(RECORDED, steps=[{k: v for k, v in entry.items() if v is not None} for entry in steps])


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


def subject_of(accelerate_config: str | None = None, processes: int | None = None, **given: Any) -> Subject:
    return Subject.of(str(RECIPE), accelerate_config, processes, given, on_cpu=False)


@pytest.fixture
def subject(node: Path) -> Subject:
    return subject_of()


def test_a_recorded_training_passes() -> None:
    made = [
        checks.ran("", RECORDED),
        checks.finite("", RECORDED),
        checks.moved("", 2e-6),
        checks.gap("", RECORDED, 2, 0.01),
        checks.resumed("", KILLED, RECORDED),
    ]
    assert [check.verdict for check in made] == [PASSED] * 5, rows(made)


@pytest.mark.parametrize(
    "wrong",
    [
        logged(3, **{GAP: 0.0101}),
        logged(1, **{GAP: math.nan}),
        logged(3, **{GAP: None}),
        KILLED,
        replace(RECORDED, steps=[]),
    ],
    ids=["above", "NaN", "not logged", "no step 3", "no step"],
)
def test_a_gap_that_is_too_large_or_no_number_or_not_there_fails(wrong: Training) -> None:
    check = checks.gap("log-probability gap", wrong, 2, 0.01)
    assert check.verdict is FAILED and "at steps 1, 3" in check.measured


def test_a_gap_is_looked_for_at_every_step_that_begins_a_generation() -> None:
    assert checks.gap("", RECORDED, 1, 0.01).verdict is FAILED
    assert checks.gap("", RECORDED, 4, 0.01).verdict is PASSED


@pytest.mark.parametrize(
    "wrong",
    [logged(2, loss=math.nan), logged(4, grad_norm=0.0), logged(4, grad_norm=math.inf), replace(RECORDED, steps=[])],
)
def test_a_loss_or_gradient_that_teaches_nothing_fails(wrong: Training) -> None:
    assert checks.finite("", wrong).verdict is FAILED


@pytest.mark.parametrize("change", [0.0, math.nan])
def test_weights_that_stand_still_fail(change: float) -> None:
    assert checks.moved("", change).verdict is FAILED


@pytest.mark.parametrize(
    "wrong", [replace(RECORDED, fault="it ended with status 1"), replace(RECORDED, steps=STEPS[:3])]
)
def test_a_run_that_fails_or_logs_no_last_step_fails(wrong: Training) -> None:
    assert checks.ran("", wrong).verdict is FAILED
    assert checks.resumed("", KILLED, wrong).verdict is FAILED


def test_a_run_that_began_anew_or_was_never_killed_has_not_resumed() -> None:
    check = checks.resumed("", KILLED, logged(1, step_time=15.9))
    assert check.verdict is FAILED and check.measured.startswith("went on after step 1")
    assert checks.resumed("", replace(KILLED, fault="it ended before it could be killed"), RECORDED).verdict is FAILED


def test_weights_must_have_been_compared_before_every_generation() -> None:
    assert checks.weights("", RECORDED, 2).verdict is FAILED
    both = replace(RECORDED, steps=[{**entry, CHECKED: 339.0} for entry in STEPS])
    assert checks.weights("", both, 2).verdict is PASSED
    assert checks.weights("", logged(1, **{CHECKED: 339.0}), 2).verdict is FAILED
    assert checks.weights("", logged(1, **{CHECKED: 0.0}), 4).verdict is FAILED


def test_peak_memory_is_held_against_the_plan(subject: Subject) -> None:
    taken = memory(subject.setup, subject.cards[0].bytes)
    planned = max(taken.generation, taken.training)
    for share, verdict in ((1.0, PASSED), (1.3, FAILED), (0.4, FAILED)):
        measured = replace(RECORDED, peak=int(share * planned))
        assert checks.peak("", measured, subject.setup, subject.cards).verdict is verdict
    assert checks.peak("", RECORDED, subject.setup, ()).verdict is NOT_RUN


def test_every_gpu_must_have_slept_after_each_generation_and_freed_its_share(subject: Subject) -> None:
    setup = replace(subject.setup, sleep=True)

    def verdict(printed: str) -> Verdict:
        return checks.sleep("", replace(RECORDED, printed=printed), 2, setup, subject.cards).verdict

    assert verdict((ASLEEP + AWAKE) * 16) is PASSED
    assert verdict((ASLEEP + AWAKE) * 15) is FAILED
    assert verdict(ASLEEP * 16) is FAILED
    assert verdict((ASLEEP.replace("45.02", "4.5") + AWAKE) * 16) is FAILED
    assert verdict("") is FAILED
    assert checks.sleep("", RECORDED, 2, subject.setup, subject.cards).verdict is NOT_RUN
    assert checks.sleep("", RECORDED, 2, setup, ()).verdict is NOT_RUN


def test_vllm_still_prints_what_tells_that_it_sleeps() -> None:
    spec = find_spec("vllm")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "v1"
    source = "".join((folder / file).read_text() for file in ("executor/abstract.py", "worker/gpu_worker.py"))
    for line in (
        "It took %.6f seconds to fall asleep.",
        "It took %.6f seconds to wake up tags",
        "Sleep mode freed %s GiB",
    ):
        assert line in source


def test_the_recipe_is_trained_as_it_is(subject: Subject, node: Path) -> None:
    line = command([*subject.words, "--max_steps", "4"])
    assert line[line.index("e1_trl.train") + 1 :] == ["--config", str(RECIPE), "--max_steps", "4"]
    assert line[line.index("--config_file") + 1] == str(ROOT / "accelerate_configs" / "zero2.yaml")
    assert line[line.index("--num_processes") + 1] == "8"
    assert (subject.generation, len(subject.cards)) == (2, 8)
    assert "-i" not in (node / "called").read_text()


def test_given_fields_reach_the_training_and_the_plan(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    (node / "said").write_text(EIGHT.splitlines()[0])
    subject = subject_of("zero3", 1, gradient_accumulation_steps=32)
    assert subject.words[-2:] == ("--gradient_accumulation_steps", "32")
    assert (subject.setup.gpus, subject.setup.zero, subject.generation) == (1, 3, 2)
    assert "-i 3" in (node / "called").read_text()


def test_too_few_gpus_are_refused_in_one_line(node: Path) -> None:
    (node / "said").write_text(EIGHT.splitlines()[0])
    with pytest.raises(SystemExit, match=r"^e1 smoke: zero2 starts 8 processes, and there are 1 GPUs here[^\n]*$"):
        main(["E1-Math-1.5B"])


@pytest.mark.slow
def test_trainings_that_take_too_long_are_ended_each_with_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    subject = Subject.of(str(RECIPE), "cpu_zero3", None, {"hub_token": "hf_abcdefghijklmno"}, on_cpu=True)
    hour = FirstHour(subject, tmp_path, limit=1.0)
    before = set(psutil.Process().children(recursive=True))  # of other tests in this process, such as a grader's
    made = list(hour.checks())
    assert set(psutil.Process().children(recursive=True)) <= before
    assert [check.verdict for check in made] == [FAILED, *[NOT_RUN] * 6, FAILED, FAILED], rows(made)
    assert [check.name for check in made[-2:]] == ["kill -9 and resume", "tensor parallel 2"]
    assert "it took longer than 1 s" in made[-1].measured
    text = report(subject, made, hour.trainings)
    assert rows(made) in text and "## base: it took longer than 1 s; the end of its log" in text
    assert '"tensor-parallel": []' in text and "hf_abc" not in text


def test_a_check_that_cannot_be_made_hides_none_of_the_others(subject: Subject, tmp_path: Path) -> None:
    hour = FirstHour(replace(subject, words=("--config", "absent")), tmp_path, limit=1.0)
    made = list(hour.checks())
    assert [check.verdict for check in made] == [FAILED, FAILED, FAILED]
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
    fields = yaml.safe_load((folder / RECIPE.name).read_text())
    assert (fields["thinking_budget"], fields["bf16"], fields["accelerate_config"]) == (16, False, "accelerate.yaml")
