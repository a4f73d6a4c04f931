"""The first hour on a node: the verdicts, from the log of a run at reduced size; what is started, and how it ends."""

import json
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
from trl.extras.profiling import ProfilingContext

from e1_trl.plan.memory import memory
from e1_trl.plan.smoke import checks
from e1_trl.plan.smoke.__main__ import main
from e1_trl.plan.smoke.checks import CHECKED, GAP, Check, Verdict
from e1_trl.plan.smoke.first_hour import FirstHour
from e1_trl.plan.smoke.report import Report, rows, without_the_user
from e1_trl.plan.smoke.subject import Subject
from e1_trl.plan.smoke.timed import write_down
from e1_trl.plan.smoke.training import FIELDS, Phase, Training
from e1_trl.report.provenance import Provenance
from e1_trl.training.launch import command
from tests.reduced.run import ACCELERATE

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
PHASES = [
    Phase("E1Trainer.sync_weights", 0, 0.4258),
    Phase("E1Trainer.vLLM.generate", 0, 4.5197),
    Phase("E1Trainer._prepare_inputs", 0, 9.5678),
    Phase("E1Trainer.sync_weights", 2, 0.1047),
    Phase("E1Trainer.vLLM.generate", 2, 4.3609),
    Phase("E1Trainer._calculate_rewards", 2, 0.0102),
    Phase("E1Trainer._prepare_inputs", 2, 7.3338),
    Phase("E1Trainer.compute_loss", 3, 0.7897),
]
# As vLLM prints them.
ASLEEP = (
    "INFO 11-22 18:00:00 [gpu_worker.py:303] Sleep mode freed 45.02 GiB memory, 9.87 GiB memory is still in use.\n"
    "INFO 11-22 18:00:00 [abstract.py:355] It took 0.912345 seconds to fall asleep.\n"
)
AWAKE = "INFO 11-22 18:00:00 [abstract.py:373] It took 0.212345 seconds to wake up tags ['weights'].\n"
RECORDED = Training(fault=None, steps=STEPS, phases=PHASES, peak=0, printed="", seconds=131.0)


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


@pytest.fixture
def subject(node: Path) -> Subject:
    return Subject.on_gpus(str(RECIPE), None, None, {})


def test_a_recorded_training_passes() -> None:
    made = [
        checks.ran("", RECORDED),
        checks.finite("", RECORDED),
        checks.moved("", 2e-6),
        checks.gap("", RECORDED, 2, 0.01, ""),
        checks.resumed("", RECORDED, replace(RECORDED, phases=PHASES[3:])),
    ]
    assert [check.verdict for check in made] == [PASSED] * 5, rows(made)


@pytest.mark.parametrize(
    "wrong",
    [
        logged(3, **{GAP: 0.0101}),
        logged(1, **{GAP: math.nan}),
        logged(3, **{GAP: None}),
        replace(RECORDED, steps=STEPS[:2]),
        replace(RECORDED, steps=[]),
    ],
    ids=["above", "NaN", "not logged", "no step 3", "no step"],
)
def test_a_gap_that_is_too_large_or_no_number_or_not_there_fails(wrong: Training) -> None:
    check = checks.gap("log-probability gap", wrong, 2, 0.01, "")
    assert check.verdict is FAILED and "at steps 1, 3" in check.measured


def test_a_gap_is_asked_for_at_every_step_that_begins_a_generation() -> None:
    assert checks.gap("", RECORDED, 1, 0.01, "").verdict is FAILED
    assert checks.gap("", RECORDED, 4, 0.01, "").verdict is PASSED


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
    assert checks.compared("", wrong, RECORDED, 2, 0.01, "").verdict is FAILED
    assert checks.resumed("", RECORDED, wrong).verdict is FAILED
    assert checks.resumed("", replace(RECORDED, fault="it ended before it could be killed"), RECORDED).verdict is FAILED


def test_a_run_that_began_anew_has_not_resumed() -> None:
    check = checks.resumed("", RECORDED, RECORDED)
    assert check.verdict is FAILED and check.measured.startswith("went on after step 0")


def test_weights_must_have_been_compared_before_every_generation() -> None:
    assert checks.weights("", RECORDED, 2).verdict is FAILED
    both = replace(RECORDED, steps=[{**entry, CHECKED: 339.0} for entry in STEPS])
    assert checks.weights("", both, 2).verdict is PASSED
    assert checks.weights("", logged(1, **{CHECKED: 339.0}), 2).verdict is FAILED
    assert checks.weights("", logged(1, **{CHECKED: 0.0}), 4).verdict is FAILED


def test_the_phases_are_those_of_the_last_generation_and_add_up_to_it() -> None:
    found = checks.phases(RECORDED, 2)
    assert found == pytest.approx(
        {"decoding": 4.3609, "sending weights": 0.1047, "scoring and grading": 2.8682, "learning": 7.0371}, abs=1e-3
    )
    assert sum(found.values()) == pytest.approx(11.145536 + 3.225389)
    assert checks.phases(RECORDED, 8) == {}
    assert checks.phases(replace(RECORDED, phases=[]), 2) == {}


def test_what_only_a_gpu_has_is_not_run_on_a_cpu(subject: Subject) -> None:
    made = [
        checks.peak("", RECORDED, subject.setup, ()),
        checks.sleep("", RECORDED, 2, subject.setup, ()),
        checks.seconds("", "learning", RECORDED, 2, subject.setup, ()),
    ]
    assert [(check.verdict, check.measured[:8]) for check in made] == [(NOT_RUN, "on a CPU")] * 3
    assert "7.0 s" in made[2].measured


def test_peak_memory_and_seconds_are_held_against_the_plan(subject: Subject) -> None:
    taken = memory(subject.setup, subject.cards[0].bytes)
    planned = max(taken.generation, taken.training)
    for share, verdict in ((1.0, PASSED), (1.3, FAILED), (0.4, FAILED)):
        measured = replace(RECORDED, peak=int(share * planned))
        assert checks.peak("", measured, subject.setup, subject.cards).verdict is verdict
    # 15 to 19 seconds of decoding are planned for an H100.
    for decoded, verdict in ((16.0, PASSED), (90.0, FAILED), (1.0, FAILED)):
        took = [Phase("E1Trainer.vLLM.generate", 2, decoded), Phase("E1Trainer._prepare_inputs", 2, decoded + 20)]
        measured = replace(RECORDED, phases=took)
        assert checks.seconds("", "decoding", measured, 2, subject.setup, subject.cards).verdict is verdict
    unknown = (replace(subject.cards[0], name="NVIDIA L40S"),)
    check = checks.seconds("", "decoding", RECORDED, 2, subject.setup, unknown)
    assert check.verdict is NOT_RUN and "no NVIDIA L40S" in check.measured


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


def test_on_gpus_the_recipe_is_trained_as_it_is(subject: Subject, node: Path) -> None:
    line = command([*subject.words, "--max_steps", "4"])
    assert line[line.index("e1_trl.train") + 1 :] == ["--config", str(RECIPE), "--max_steps", "4"]
    assert line[line.index("--config_file") + 1] == str(ROOT / "accelerate_configs" / "zero2.yaml")
    assert line[line.index("--num_processes") + 1] == "8"
    assert subject.fields == yaml.safe_load(RECIPE.read_text())
    assert FIELDS.keys() <= {"max_steps", "logging_steps", "save_strategy", "save_steps", "push_to_hub", "report_to"}
    assert (subject.generation, len(subject.cards)) == (2, 8)
    assert "-i" not in (node / "called").read_text()


def test_given_fields_reach_the_training_and_the_plan(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    (node / "said").write_text(EIGHT.splitlines()[0])
    subject = Subject.on_gpus("E1-Math-1.5B", "zero3", 1, {"gradient_accumulation_steps": 32})
    assert subject.words[-2:] == ("--gradient_accumulation_steps", "32")
    assert (subject.setup.gpus, subject.setup.zero, subject.generation) == (1, 3, 2)
    assert "-i 3" in (node / "called").read_text()


def test_too_few_gpus_are_refused_in_one_line(node: Path) -> None:
    (node / "said").write_text(EIGHT.splitlines()[0])
    with pytest.raises(SystemExit, match=r"^e1_trl.plan.smoke: zero2 starts 8 processes, and there are 1 GPUs[^\n]*$"):
        main(["E1-Math-1.5B"])


@pytest.mark.slow
def test_trainings_that_take_too_long_are_ended_each_with_a_verdict_and_a_report(tmp_path: Path) -> None:
    reduced = Subject.reduced(str(RECIPE), None, {}, tmp_path)
    assert reduced.case is not None
    (tmp_path / ACCELERATE).write_text(yaml.safe_dump(reduced.case.reduced_accelerate()))
    hour = FirstHour(replace(reduced, limit=1.0), tmp_path)
    before = set(psutil.Process().children(recursive=True))  # of other tests in this process, such as a grader's
    made = list(hour.checks())
    assert [check.verdict for check in made if check.name in ("base run", "kill -9 and resume")] == [FAILED, FAILED]
    assert (made[-2].name, made[-2].verdict) == ("tensor parallel 2", FAILED)
    assert "it took longer than 1 s" in made[-2].measured
    assert {check.verdict for check in made[1:-3]} == {NOT_RUN} == {made[-1].verdict}
    assert set(psutil.Process().children(recursive=True)) <= before
    Report(reduced, {"hub_token": "hf_abcdefghijklmno"}, made, hour.trainings, Provenance.here([])).write(tmp_path)
    for name in ("report.md", "report.json"):
        written = (tmp_path / name).read_text()
        assert str(ROOT) not in written and "hf_abc" not in written
    assert "## base: it took longer than 1 s; the end of its log" in (tmp_path / "report.md").read_text()
    assert rows(made) in (tmp_path / "report.md").read_text()
    assert json.loads((tmp_path / "report.json").read_text())["trainings"].keys() == {
        "base",
        "killed",
        "tensor-parallel",
    }


def test_a_check_that_cannot_be_made_hides_none_of_the_others(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = FirstHour(replace(subject, words=("--config", "absent")), tmp_path)
    monkeypatch.setattr("e1_trl.plan.smoke.first_hour.find_spec", lambda name: None)
    made = list(hour.checks())
    assert [check.verdict for check in made] == [FAILED, FAILED, FAILED, NOT_RUN]
    assert "absent is neither a file" in made[0].measured and "e1-trl[flash]" in made[3].measured


def test_a_fault_names_the_last_error_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "base.log"
    log.write_text(
        "[rank0]: ImportError: no triton\n[rank0]: RuntimeError: step 0: vLLM's weights are stale\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n===\n"
    )
    read = Training.read(tmp_path, log, "it ended with status 1", peak=0, seconds=1.0)
    assert read.fault == "it ended with status 1: RuntimeError: step 0: vLLM's weights are stale"
    assert Training.read(tmp_path, log, None, peak=0, seconds=1.0).fault is None


def test_a_phase_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProfilingContext, "_log_metrics", ProfilingContext._log_metrics)
    write_down(tmp_path / "seconds")
    for main_process in (True, False):
        with ProfilingContext("E1Trainer.sync_weights", report_to=[], is_main_process=main_process, step=2):
            pass
    (line,) = (tmp_path / "seconds").read_text().splitlines()
    phase = Phase(**json.loads(line))
    assert (phase.name, phase.step) == ("E1Trainer.sync_weights", 2) and 0 <= phase.seconds < 1


def test_a_report_names_neither_the_user_nor_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    said = f"alice: /home/alice/models, /scratch/alice/x, {ROOT}/runs, 0123456789abcdef, hf_abcdefghijklmno, malice"
    assert without_the_user(said) == "<user>: ~/models, /scratch/<user>/x, ./runs, <WANDB_API_KEY>, <token>, malice"


def test_a_table_has_a_row_a_check() -> None:
    assert rows([Check.of("gap", False, "nan", "0.1")]).splitlines()[-1] == "| gap | FAILED | nan | 0.1 |"
