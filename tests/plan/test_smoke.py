"""The first hour on a node: the verdicts, from the log of a run at reduced size; what is started, and how it ends."""

import json
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from conftest import BASE, ROOT
from safetensors.torch import save_file
from transformers import AutoConfig

from e1_trl.budget import Budget
from e1_trl.plan.estimate import memory
from e1_trl.plan.setup import Launch
from e1_trl.plan.smoke import checks, hour
from e1_trl.plan.smoke.checks import COMPARED, GAP, Check, Run, beginnings
from e1_trl.plan.smoke.command import main, page, record_of
from e1_trl.plan.smoke.hour import FIELDS, PARTS, Hour
from e1_trl.processes import handle_ends, kill_tree
from tests.reduced.run import environment

RECIPE = ROOT / "recipes" / "E1-Math-1.5B.yaml"
MODEL = "agentica-org/DeepScaleR-1.5B-Preview"
SETUP = Launch.read(str(RECIPE), None, None, []).setup  # every second step begins a generation
TAKEN = memory(SETUP, 81559 * 2**20)

# Of E1-Math-1.5B on two CPU processes.
STEPS: dict[int, dict[str, float]] = {
    1: {"step": 1, "loss": 0.268758, "step_time": 15.78539, GAP: 0.001111, COMPARED: 339.0},
    2: {"step": 2, "loss": -0.292512, "step_time": 5.016885},
    3: {"step": 3, "loss": -0.186542, "step_time": 11.145536, GAP: 0.001103, COMPARED: 339.0},
    4: {"step": 4, "loss": 0.162827, "step_time": 3.225389},
}
RECORDED = Run(fault=None, peak=0, seconds=131.0, steps=STEPS, validation={}, facts={})
KILLED = replace(RECORDED, steps={step: STEPS[step] for step in (1, 2)})
CUT = replace(RECORDED, steps={step: STEPS[step] for step in (1, 2, 3)})
FAILED = replace(RECORDED, fault="it ended with status 1")
FREED = "Sleep mode freed"
SLEPT = replace(RECORDED, facts={FREED: f"{FREED} 23.1 GiB memory, 5.0 GiB is still in use."})


def logged(at: int, **changed: Any) -> Run:
    """The recorded training with other values in the log of a step."""
    return replace(RECORDED, steps={**STEPS, at: {**STEPS[at], **changed}})


def validated(value: float) -> Run:
    return replace(RECORDED, validation={"eval_budget/1024+1024/accuracy": value, "step": 0})


def filled(share: float) -> Run:
    """The recorded training with this share of the planned memory at its peak."""
    return replace(RECORDED, peak=int(share * max(TAKEN.generation, TAKEN.training)))


@pytest.mark.parametrize(
    ("check", "right", "measured"),
    [
        (checks.ran("", RECORDED), True, ", 0.163 at steps 1, 2, 3, 4; 131 s"),
        (checks.ran("", FAILED), False, "it ended with status 1; "),
        (checks.ran("", CUT), False, "steps 1, 2, 3; "),
        (checks.ran("", KILLED, 2), True, "steps 1, 2; "),
        (checks.moved(2e-6), True, "by 2.0e-06 from step 2 to 4"),
        (checks.moved(0.0), False, "by 0.0e+00"),
        (checks.gap("", RECORDED, beginnings(SETUP), 0.01), True, "0.00111, 0.0011 nats at steps 1, 3"),
        (checks.gap("", logged(3, **{GAP: 0.0101}), beginnings(SETUP), 0.01), False, "at steps 1, 3"),
        (checks.gap("", logged(1, **{GAP: math.nan}), beginnings(SETUP), 0.01), False, "nan, "),
        (checks.gap("", logged(3, **{GAP: None}), beginnings(SETUP), 0.01), False, ", nan nats"),
        (checks.ran("", logged(2, loss=math.nan)), False, ", nan, "),
        (checks.weights(RECORDED, SETUP), True, "339, 339 tensors compared at steps 1, 3"),
        (checks.weights(logged(3, **{COMPARED: None}), SETUP), False, "339, nan"),
        (checks.accuracy(validated(0.096), MODEL), True, "9.6% right (1024+1024)"),
        (checks.accuracy(validated(0.4), MODEL), False, "40.0% right"),
        (checks.accuracy(validated(0.4), "another"), None, "40.0% right"),
        (checks.accuracy(RECORDED, MODEL), None, "no validation"),
        (checks.gap("", logged(3, **{GAP: 0.003}), (1, 3)), False, "0.00111, 0.003 nats"),
        (checks.gap("", RECORDED, beginnings(replace(SETUP, steps=4.0))), None, "0.00111 nats at steps 1"),
        (checks.resumed("", KILLED, RECORDED), True, "went on after step 2; steps 1, 2, 3, 4 in the log"),
        (checks.resumed("", KILLED, logged(1, step_time=15.9)), False, "went on after step 1"),
        (checks.resumed("", KILLED, FAILED), False, "resumed: it ended with status 1; "),
        (checks.resumed("", replace(KILLED, fault="ended before"), RECORDED), False, "killed: ended before; "),
        (checks.weights(RECORDED, replace(SETUP, served=True)), None, "339"),
        (checks.slept(SLEPT, SETUP, 80 * 2**30), True, "24.8 GB freed"),  # a share of 0.3
        (checks.slept(SLEPT, SETUP, 133 * 2**30), False, "24.8 GB freed"),
        (checks.slept(RECORDED, SETUP, 80 * 2**30), False, "0.0 GB freed"),
        (checks.time(RECORDED, SETUP, 16.0, True), True, "14.4 s from step 3 to 4"),
        (checks.time(RECORDED, SETUP, 40.0, True), False, "14.4 s"),
        (checks.time(RECORDED, SETUP, 40.0, False), None, "14.4 s"),
        (checks.peak(filled(1.0), TAKEN), True, "GB (nvidia-smi)"),
        (checks.peak(filled(1.3), TAKEN), False, "GB (nvidia-smi)"),
        (checks.peak(RECORDED, memory(SETUP, 0)), None, "on a CPU"),
    ],
)
def test_a_verdict_is_on_what_was_logged(check: Check, right: bool | None, measured: str) -> None:
    assert check.right is right and measured in check.measured, check


def hour_of(folder: Path, *words: str, limit: float = 1.0) -> Hour:
    return Hour(Launch.read(str(RECIPE), None, None, words), [], folder, limit, largest_gap=0.01)


def test_the_recipe_is_trained_as_it_is_but_for_the_given_fields(tmp_path: Path) -> None:
    line = hour_of(tmp_path).line("base")
    files = ["--config", str(RECIPE), "--accelerate_config", "zero2"]
    fields = {**FIELDS, "output_dir": tmp_path / "output" / "base"}
    given = [word for name, value in fields.items() for word in (f"--{name}", str(value))]
    assert line[line.index("e1_trl.train") + 1 :] == [*files, *given]
    assert line[line.index("--config_file") + 1] == str(ROOT / "accelerate_configs" / "zero2.yaml")
    assert line[line.index("--num_processes") + 1] == "8"
    given = ["--gradient_accumulation_steps", "32", "--reward_funcs", "[accuracy, own.f]", "--exclude", ""]
    given += ["--chat_template_kwargs", '{"enable_thinking": true}', "--metric_for_best_model", "eval_loss"]
    hour = replace(hour_of(tmp_path), launch=Launch.read(str(RECIPE), "zero3", 1, given))
    line = hour.line("base", max_steps=2)
    said = "--gradient_accumulation_steps 32 --reward_funcs accuracy own.f --exclude  --chat_template_kwargs "
    assert f'{said}{{"enable_thinking": true}} --metric_for_best_model  --max_steps 2' in " ".join(line)
    assert (hour.setup.gpus, hour.setup.zero, hour.setup.steps) == (1, 3, 2)


@dataclass(frozen=True)
class Recorded(Hour):
    """An hour whose runs have been recorded: their weights move, and nothing is started."""

    lines: dict[str, list[str]] = field(default_factory=dict)

    def run(self, name: str, line: Sequence[str], output: Path, stop: Path | None = None) -> Run:
        self.lines[name] = [*line]
        for value, folder in enumerate((output / "checkpoint-2", output)):
            folder.mkdir(parents=True, exist_ok=True)
            save_file({"a": torch.full((1,), float(value))}, folder / "model.safetensors")
        return RECORDED


@pytest.mark.parametrize("recipe", [file.stem for file in sorted((ROOT / "recipes").glob("*.yaml"))])
def test_every_recipe_is_evaluated_and_gets_an_adapter_with_values_that_are_taken(recipe: str, tmp_path: Path) -> None:
    hour = Recorded(Launch.read(recipe, None, None, []), [], tmp_path, limit=1.0, largest_gap=0.01)
    for part in ("lora", "evaluation"):
        list(hour.checks(part))
    if line := hour.lines.get("evaluation"):
        budgets = line[line.index("--budgets") + 1 : line.index("--max_model_length")]
        assert len({Budget.parse(each) for each in budgets}) == 2
    if line := hour.lines.get("lora"):
        batch = int(line[line.index("--generation_batch_size") + 1])
        assert batch % hour.launch.fields["num_generations"] == batch % hour.setup.batch == 0


@pytest.mark.parametrize("kind", ["qwen3_moe", "gemma4"])
def test_a_model_of_any_kind_is_tried_with_memory_and_time_open_if_it_cannot_be_planned_for(
    kind: str, tmp_path: Path
) -> None:
    AutoConfig.for_model(kind).save_pretrained(tmp_path / "model")
    hour = hour_of(tmp_path, "--model_name_or_path", str(tmp_path / "model"))
    made = [*Recorded(**vars(hour)).checks("base")]
    assert [check.verdict for check in made[:4]] == ["passed"] * 4
    planned = [check for check in made if "planned" in check.name]
    assert {check.verdict for check in planned} == {"open"}
    assert len(planned) == (2 if kind == "qwen3_moe" else 1)
    assert ("cannot be planned for: 'head_dim'" in planned[0].measured) == (kind == "gemma4")


def test_a_fault_names_the_last_error_of_the_log(tmp_path: Path) -> None:
    said = (
        "[rank0]: ImportError: no triton\n[rank0]: RuntimeError: step 0: vLLM's weights are stale\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n===\n"
        "subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.\n"
    )
    hour = hour_of(tmp_path, limit=60.0)
    made = hour.run("base", [sys.executable, "-c", f"print({said!r}); raise SystemExit(1)"], tmp_path)
    assert made.fault == "it ended with status 1: RuntimeError: step 0: vLLM's weights are stale"
    assert hour.run("base", [sys.executable, "-c", f"print({said!r})"], tmp_path).fault is None


def test_vllms_facts_are_read_from_the_log_the_first_of_each_kind(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        "(EngineCore pid=7) INFO 11-26 01:00:00 [gpu_model_runner.py:88] Using V2 Model Runner\n"
        "INFO 11-26 01:00:01 [core.py:9] init engine (profile, create kv cache) took 61.20 seconds\n"
        "INFO 11-26 01:00:02 [core.py:9] init engine (profile, create kv cache) took 40.00 seconds\n"
        "INFO 11-26 01:00:03 [worker.py:1] Sleep mode freed 23.1 GiB memory, 5.0 GiB memory is still in use.\n"
        "nothing of this [kind]\n"
    )
    assert Run.read(None, 0, 1.0, tmp_path / "log", tmp_path).facts == {
        "Model Runner": "Using V2 Model Runner",
        "init engine": "init engine (profile, create kv cache) took 61.20 seconds",
        "Sleep mode freed": "Sleep mode freed 23.1 GiB memory, 5.0 GiB memory is still in use.",
    }


def test_a_run_that_hangs_leaves_the_stacks_of_all_its_processes(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(
        "import subprocess, sys, threading, time\n\n\n"
        "def waits_in_a_thread():\n    time.sleep(600)\n\n\n"
        "def waits_for_its_child():\n"
        "    subprocess.run([sys.executable, '-c', sys.argv[1]])\n\n\n"
        "for _ in range(6):\n    threading.Thread(target=waits_in_a_thread).start()\nwaits_for_its_child()\n"
    )
    before = set(psutil.Process().children(recursive=True))  # of other tests in this process, such as a grader's
    up = tmp_path / "up"
    child = f"import pathlib, time\ndef child():\n    pathlib.Path({str(up)!r}).touch()\n    time.sleep(600)\nchild()"
    line = [sys.executable, str(tmp_path / "hangs.py"), child]
    for limit in (4.0, 16.0, 64.0):  # until the child is up, on a machine under load
        made = hour_of(tmp_path, limit=limit).run("base", line, tmp_path)
        assert set(psutil.Process().children(recursive=True)) <= before
        assert made.fault is not None and made.fault.startswith(f"it took longer than {limit:g} s")
        if up.exists():
            break
    for function in ("in waits_in_a_thread", "in waits_for_its_child", "in child"):
        assert function in (tmp_path / "base.log").read_text()


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


# A reward function of the user's own, in which a fault can be planted.
OWN = """
import time

def letters(*, solution_text, **_):
    while {hang}:
        time.sleep(1)
    return [len(set(text)) / 10 for text in solution_text]
"""


@pytest.fixture
def try_out(nano_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run `e1 smoke` on the miniature, with a fault; returns the JSON beside the page."""

    def run_smoke(*words: str, hang: bool = False, status: int = 0) -> dict[str, Any]:
        (tmp_path / "own.py").write_text(OWN.format(hang=hang))
        given = {"model_name_or_path": BASE, "dataset_name": nano_data, "reward_funcs": "[accuracy, own.letters]"}
        given |= {"thinking_budget": 16, "solution_budget": 8, "learning_rate": 1e-4, "eval_budgets": "[16+8]"}
        given |= {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "steps_per_generation": 2}
        fields = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        with pytest.raises(SystemExit) as ended:
            main(["nano", "--cpu", *fields, *words])
        assert ended.value.code == status
        folder = tmp_path / "runs" / "smoke" / "nano"
        assert not (folder / "output").exists()
        record: dict[str, Any] = json.loads((folder / "report.json").read_text())
        assert (folder / "report.md").read_text() == page(record) and page(record).count("\n") < 80
        return record

    monkeypatch.chdir(tmp_path)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    return run_smoke


def verdicts(record: dict[str, Any]) -> dict[str, str]:
    return {row["name"]: row["verdict"] for row in record["rows"]}


@pytest.mark.distributed
@pytest.mark.slow
def test_a_part_is_tried_again_alone(
    try_out: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CONFIGURE_LOGGING", "0")  # as our commands have it for themselves
    monkeypatch.setattr(hour, "OTHERS", 8)  # seconds in which the run writes its next checkpoint, too
    record = try_out("--only", "base", "resume", "server", "--hub_token", "hf_abcdefghijklmno")
    said = verdicts(record)
    assert "FAILED" not in said.values() and list(said.values()).count("passed") == 5, page(record)
    assert said["does it resume after kill -9"] == said["do weights arrive in vLLM"] == "passed"
    assert {"base", "killed", "resumed"} == record["runs"].keys() and "hf_abc" not in json.dumps(record)
    assert record["runs"]["base"]["facts"]["init engine"] in page(record)
    seconds = record["runs"]["base"]["steps"]["3"]
    assert min(seconds[f"seconds/{phase}"] for phase in ("sync", "sampling", "scoring")) > 0
    again = try_out("--only", "preflight", "evaluation")
    kept = ("base", "server", "resume")
    assert [row for row in again["rows"] if row["part"] in kept] == record["rows"]
    assert verdicts(again)["evaluation: can it be run"] == "open" and "==> nano on no GPUs" in capsys.readouterr().out


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "hang", "failed"),
    [
        (
            ["--top_p", "0.5", "--largest_gap", "0.01", "--learning_rate", "0"],
            False,
            {"does vLLM sample what is scored": "nats at steps 1, 3", "do steps move the weights": "by 0.0e+00"},
        ),
        (["--limit", "30"], True, {"does it start and end": "it took longer than 30 s"}),
    ],
    ids=["another distribution and steps of nothing", "a hang"],
)
def test_a_planted_fault_fails_its_row(
    words: list[str], hang: bool, failed: dict[str, str], try_out: Callable[..., dict[str, Any]]
) -> None:
    record = try_out("--only", "base", *words, hang=hang, status=1)
    rows = {row["name"]: row["measured"] for row in record["rows"] if row["verdict"] == "FAILED"}
    assert rows.keys() == failed.keys() and all(why in rows[name] for name, why in failed.items()), page(record)
    if hang:
        assert "most recent call first" in Path("runs/smoke/nano/base.log").read_text()


def test_the_page_is_kept_after_each_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def checks_of(hour: Hour, part: str) -> Iterator[Check]:
        if part == "base":
            raise Killed
        yield Check(f"{part}?", True, "measured")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Hour, "checks", checks_of)
    with pytest.raises(Killed):
        main(["nano", "--cpu", "--model_name_or_path", str(BASE)])
    (record,) = (json.loads(file.read_text()) for file in tmp_path.glob("runs/smoke/*/report.json"))
    assert [row["name"] for row in record["rows"]] == ["preflight?"]


def test_a_part_that_cannot_be_run_hides_none_of_the_others(tmp_path: Path) -> None:
    hour = hour_of(tmp_path)
    broken = replace(hour, launch=replace(hour.launch, recipe=Path("absent")))
    made = [(part, check) for part in PARTS[1:] for check in broken.checks(part)]
    verdicts = {part: check.verdict for part, check in made}
    assert verdicts == dict.fromkeys(PARTS[1:], "FAILED") | {"server": "open"}
    assert "absent is neither a file" in made[0][1].measured and "5 FAILED, 1 open" in page(record_of(hour, made))


def test_parts_that_would_end_as_the_base_run_did_are_not_run(tmp_path: Path) -> None:
    hour = hour_of(tmp_path)
    hour.runs["base"] = FAILED
    for part in ("resume", "zero3", "lora"):
        (check,) = hour.checks(part)
        assert check.verdict == "open" and check.measured == "the base run has failed; run this part alone with --only"


class Full(Hour):
    """Its base run and zero3 write a checkpoint and a model, and end there."""

    def _write(self, part: str) -> Iterator[Check]:
        for name in ("checkpoint-2", "model"):
            (self.folder / "output" / part / name).mkdir(parents=True)
        raise OSError("the disk is full")

    def _base(self) -> Iterator[Check]:
        yield from self._write("base")

    def _zero3(self) -> Iterator[Check]:
        yield from self._write("zero3")


def test_of_what_parts_have_written_the_base_runs_model_alone_stays(tmp_path: Path) -> None:
    hour = Full(**vars(hour_of(tmp_path)))
    for part in ("base", "zero3"):
        (check,) = hour.checks(part)
        assert (check.verdict, check.measured) == ("FAILED", "OSError: the disk is full")
    assert [*(tmp_path / "output").glob("*/*")] == [tmp_path / "output" / "base" / "model"]


def test_a_lost_connection_ends_it_unless_nohup_ignores_that() -> None:
    before = {ending: signal.getsignal(ending) for ending in (signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        handle_ends(signal.default_int_handler)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        for ending, handler in before.items():
            signal.signal(ending, handler)
