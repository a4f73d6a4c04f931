"""The console script `e1`: its imports, the files and launches it resolves, and its messages when it fails."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from conftest import BASE, ROOT, python

from e1_trl import cli
from e1_trl.budget import Budget
from e1_trl.checkpoints.budget_file import BudgetInfo
from e1_trl.cores import cores
from e1_trl.errors import UserError
from e1_trl.evaluation.arguments import Model
from e1_trl.recipes import fields_of, read_mapping, resource, shipped
from e1_trl.training import launch
from e1_trl.training.launch import command

LAUNCH = [sys.executable, "-m", "accelerate.commands.launch"]

e1 = partial(python, "-m", "e1_trl.cli")
HEAVY = {"accelerate", "datasets", "deepspeed", "matplotlib", "pandas", "scipy", "sympy", "torch", "trl", "vllm"}
SERVING = {"serve", "chat"}


def said_by(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return what a command prints before it ends."""
    with contextlib.suppress(SystemExit):
        cli.main([*words])
    return capsys.readouterr().out


def test_help_names_every_command_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    named = [line.split()[0] for line in said_by(capsys, "--help").splitlines() if line.startswith("  ")]
    assert named == [*cli.COMMANDS]


@pytest.mark.parametrize(
    ("commands", "unwanted"),
    [(cli.COMMANDS.keys() - SERVING, HEAVY | {"numpy", "transformers"}), (SERVING, HEAVY)],
    ids=["all others", "serve and chat"],
)
def test_help_imports_nothing_heavy(commands: set[str], unwanted: set[str]) -> None:
    code = (
        "import contextlib, sys; from e1_trl.cli import main\n"
        f"for words in [[], *([name] for name in {sorted(commands)})]:\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main([*words, '--help'])\n"
        f"    print('heavy:', words, {unwanted} & {{*sys.modules}})"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("heavy: ")] == [
        f"heavy: {words} set()" for words in ([], *([name] for name in sorted(commands)))
    ]
    assert all(f"usage: e1 {name} " in done.stdout for name in commands)


USUAL = ("model_name_or_path", "dataset_name", "output_dir", "num_generations", "learning_rate")


def test_the_help_of_training_lists_the_usual_fields_then_ours_and_says_where_trls_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = said_by(capsys, "train", "--help")
    listed = re.findall(r"^  --(\w+)", printed, re.M)
    assert tuple(listed[4:9]) == USUAL and {"thinking_budget", "max_prompt_length", "dry_run", "exclude"} <= {*listed}
    assert printed.splitlines()[-1] == "Further fields are TRL's and Transformers': `e1 train --help_all` lists them."
    listed = re.findall(r"^  --(\w+)", said_by(capsys, "train", "--help_all"), re.M)
    assert len(listed) == len({*listed}) and {*USUAL, "thinking_budget", "exclude", "loss_type", "lora_r"} <= {*listed}


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert said_by(capsys, "--version") == f"e1_trl {version('e1-trl')}\n"


def test_an_unknown_command_is_named_in_one_line() -> None:
    known = "train, plan, fetch, smoke, validate, eval, report, serve, chat, card"
    with pytest.raises(SystemExit, match=f"^e1: there is no command 'evaluate', only {known}$"):
        cli.main(["evaluate"])


def test_an_unknown_recipe_or_accelerate_configuration_is_one_line_with_the_known_ones() -> None:
    for words, message in (
        (["E1-Math-3B"], "E1-Math-3B is neither a file nor one of our recipes: E1-AceReason-14B, "),
        (["nano", "--accelerate_config", "zero4"], "zero4 is neither a file nor one of our accelerate_configs: cpu, "),
    ):
        with pytest.raises(SystemExit, match=rf"^e1 train: {re.escape(message)}[^\n]*$"):
            cli.main(["train", "--config", *words])


@pytest.mark.parametrize(
    ("written", "given", "gpus", "config", "kept", "chosen"),
    [
        ("accelerate_config: zero2", "", 8, "zero2", "", ""),
        ("accelerate_config: zero2", "--num_processes 4 --accelerate_config=zero3", 8, "zero3", "", ""),
        ("max_steps: 3", "", 8, None, "", ""),  # what Accelerate finds
        ("max_steps: 3", "", 0, "cpu", "", "accelerate_config cpu, bf16 false"),
        ("bf16:", "", 0, "cpu", "", "accelerate_config cpu, bf16 false"),
        ("bf16: true", "", 0, "cpu", "", "accelerate_config cpu"),
        ("max_steps: 3", "--use-cpu=true", 0, "cpu", "--use-cpu=true", "accelerate_config cpu"),
        ("accelerate_config: zero2", "", 0, "zero2", "", "bf16 false"),
        ("accelerate_config: zero2", "--fp16 true", 0, "zero2", "--fp16 true", ""),
        ("bf16: false", "--accelerate_config cpu", 0, "cpu", "", ""),
    ],
)
def test_a_launch_is_as_recipe_and_command_line_say_and_else_as_the_machine_can(
    written: str,
    given: str,
    gpus: int,
    config: str | None,
    kept: str,
    chosen: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    recipe = tmp_path / "own.yaml"
    recipe.write_text(written)
    fields = ["--max_steps", "1", "--gradient_accumulation_steps", "2", "--reward_funcs", "accuracy", "format"]
    words = [f"--config={recipe}", *given.split(), *fields]
    command(words, gpus=8)
    assert capsys.readouterr().out == ""
    launch = ["--config_file", str(resource("accelerate_configs", config))] if config else []
    launch += ["--num_processes", "4"] * ("--num_processes" in given)
    named = ["--config", str(recipe), *(["--accelerate_config", config] if config else [])]
    precision = ["--bf16", "false"] * ("bf16 false" in chosen)
    line = [*LAUNCH, *launch, "-m", "e1_trl.train", *named, *kept.split(), *fields, *precision]
    assert command(words, gpus=gpus) == line
    said = f"e1 train: no GPU found; using {chosen}, which you did not set\n" if chosen else ""
    assert capsys.readouterr().out == said
    assert command(["--max_steps", "3"], gpus=8) == [*LAUNCH, "-m", "e1_trl.train", "--max_steps", "3"]


@pytest.mark.parametrize("recipe", shipped("recipes"))
def test_a_dry_run_of_every_recipe_needs_no_gpu_and_shows_its_steps(
    recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = command(["--config", recipe, "--dry_run", "true"], gpus=0)
    fields = fields_of(resource("recipes", recipe))
    own = read_mapping(resource("accelerate_configs", fields["accelerate_config"]))
    if own.get("use_cpu"):
        assert line[-2:] == ["--dry_run", "true"] and capsys.readouterr().out == ""
        return
    steps = str(own["num_processes"] * fields["gradient_accumulation_steps"])
    words = ["--dtype", "float32", "--bf16", "false", "--gradient_accumulation_steps", steps]
    assert line[len(LAUNCH) : len(LAUNCH) + 2] == ["--config_file", str(resource("accelerate_configs", "cpu"))]
    assert line[-8:] == ["--dry_run", "true", *words]
    used = f"accelerate_config cpu, dtype float32, bf16 false, gradient_accumulation_steps {steps}"
    assert capsys.readouterr().out == f"e1 train: no GPU found; using {used}, for the dry run\n"


def test_a_dry_run_shows_the_batch_that_is_asked_for_and_one_that_is_off_is_none(tmp_path: Path) -> None:
    asked = ["--num_processes", "4", "--gradient_accumulation_steps", "8", "--dry_run"]
    line = command(["--config", "E1-Math-1.5B", *asked], gpus=0)
    assert line[-2:] == ["--gradient_accumulation_steps", "32"] and "--num_processes" not in line
    off = command(["--config", "E1-Math-1.5B", "--dry_run=False"], gpus=0)
    assert off[-1] == "--dry_run=False" and off[len(LAUNCH) + 1] == str(resource("accelerate_configs", "zero2"))
    recipe = tmp_path / "own.yaml"
    recipe.write_text("accelerate_config: zero2\ndry_run: true\n")
    assert "zero2" not in str(command(["--config", str(recipe)], gpus=0))
    assert "zero2" not in str(command(["--config", "E1-Math-1.5B", "--dry_run", "yes"], gpus=0))
    recipe.write_text("accelerate_config: ddp\nfp16: true\n")
    line = command(["--config", str(recipe), "--dry_run", "true"], gpus=0)
    assert line[line.index("--fp16") :][:2] == ["--fp16", "false"]


@pytest.mark.parametrize(
    ("name", "processes", "zero_stage", "precision"),
    [
        ("cpu", 1, None, "no"),
        ("cpu_zero3", 2, 3, "no"),
        ("one_gpu", 1, None, "no"),
        ("ddp", 8, None, "bf16"),
        ("zero2", 8, 2, "bf16"),
        ("zero3", 8, 3, "bf16"),
    ],
)
def test_accelerate_takes_our_configurations(name: str, processes: int, zero_stage: int | None, precision: str) -> None:
    file = str(resource("accelerate_configs", name))
    arguments = launch_command_parser().parse_args(["--config_file", file, "-m", "e1_trl.train"])
    checked, defaults, _ = _validate_launch_command(arguments)
    assert (checked.num_machines, checked.num_processes, checked.mixed_precision) == (1, processes, precision)
    assert (checked.zero_stage if checked.use_deepspeed else None) == zero_stage
    assert checked.multi_gpu == (name == "ddp")
    assert defaults.use_cpu == (name == "cpu")


BATCH = "the recipe's batch is 512 rollouts a step (16 on each of 8 processes x 4), and 4 would make it 256; to keep it"
ALONE = "trains in one process, not in 4; for several, pass --accelerate_config ddp"
FEWER = "zero2 starts 8 processes, one per GPU, and this node shows 4 "


@pytest.mark.parametrize(
    ("given", "gpus", "said"),
    [
        ("", 8, None),
        ("", 4, f"{FEWER}.*; to keep the recipe's batch, pass --num_processes 4 --gradient_accumulation_steps 8"),
        ("", 3, "this node shows 3 .*, pass --num_processes 2 --gradient_accumulation_steps 16"),
        ("", 0, None),
        ("--num_processes 4", 4, f"{re.escape(BATCH)}, pass --num_processes 4 --gradient_accumulation_steps 8"),
        ("--num_processes 4", 0, re.escape(BATCH)),
        ("--accelerate_config one_gpu", 8, "1 would make it 64; to keep it, .*1 --gradient_accumulation_steps 32"),
        ("--num_processes 4 --gradient_accumulation_steps 8", 4, None),
        ("--num_processes 4 --gradient_accumulation_steps=4", 8, None),  # who names it means it
        ("--num-processes 4 --gradient-accumulation-steps 4", 8, None),
        ("--num_processes 7", 8, "7 would make it 448; to keep it, pass --num_processes 4 --gradient_acc.*_steps 8$"),
        ("--accelerate_config one_gpu --num_processes 4", 8, f"one_gpu {ALONE} --num_processes 4 --gradient_.* 8$"),
        ("--accelerate_config cpu --num_processes 4", 0, "cpu trains in one process, not in 4; remove --num_processes"),
        ("--num_processes 4 --dry_run true", 0, None),
        ("--num_processes 4 --gradient_accumulation_steps 8", 2, "zero2 starts 4 processes"),
        ("--num_processes 1 --dry_run true", 8, None),
        ("--accelerate_config cpu --bf16 false --dry_run true", 8, None),
    ],
)
def test_processes_that_the_node_or_the_recipes_batch_does_not_fit_are_refused(
    given: str, gpus: int, said: str | None
) -> None:
    line = ["--config", "E1-Math-1.5B", *given.split()]
    if said is None:
        assert "--config_file" in command(line, gpus=gpus)
        return
    with pytest.raises(UserError, match=said):
        command(line, gpus=gpus)


def test_a_generation_of_several_steps_is_kept_with_other_processes(tmp_path: Path) -> None:
    recipe = tmp_path / "own.yaml"
    recipe.write_text("{base: E1-Math-1.5B, generation_batch_size: null, steps_per_generation: 6}")
    line = command(["--config", str(recipe), "--dry_run", "true"], gpus=0)
    assert line[-4:] == ["--gradient_accumulation_steps", "32", "--steps_per_generation", "48"]
    line = command(["--config", str(recipe), "--dry_run", "true", "--steps_per_generation", "3"], gpus=0)
    assert line[-2:] == ["--steps_per_generation", "24"]
    with pytest.raises(UserError, match=r"--num_processes 4 --gradient_.*_steps 8 --steps_per_generation 12$"):
        command(["--config", str(recipe)], gpus=4)


def test_a_batch_that_is_no_number_is_refused_before_anything_starts(tmp_path: Path) -> None:
    recipe = tmp_path / "own.yaml"
    recipe.write_text("accelerate_config: zero2\nper_device_train_batch_size: lots\n")
    with pytest.raises(UserError, match=r"^per_device_train_batch_size is 'lots'"):
        command(["--config", str(recipe)], gpus=8)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": ""}, 64),
        ({"cpu.max": "0 100000\n"}, 1),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, 64),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 64),
        ({"cpu.max": "9900000 100000\n"}, 64),
        ({}, 64),
    ],
)
def test_a_containers_quota_bounds_the_cores(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert cores(tmp_path) == expected


def test_an_offloaded_optimizer_has_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "cores", lambda: 64)
    line = command(["--config", "E1-Code-14B", "--accelerate_config", "zero3_offload"], gpus=8)
    assert launch_command_parser().parse_args(line[len(LAUNCH) :]).num_cpu_threads_per_process == 8
    assert "--num_cpu_threads_per_process" not in command(["--config", "E1-Code-14B"], gpus=8)


def test_training_without_its_extra_says_what_to_install() -> None:
    code = "import sys; sys.modules['trl'] = None; from e1_trl.cli import main; main(['train', '--config', 'nano'])"
    done = python("-c", code)
    assert done.returncode == 1
    assert done.stderr.startswith("e1 train: TRL is not installed; pip install '.[gpu]' in the checkout of e1_trl")
    assert done.stderr.count("\n") == 1


@pytest.mark.distributed
@pytest.mark.slow
def test_a_recipe_that_is_refused_is_one_line_and_the_launcher_adds_none(nano_data: Path, tmp_path: Path) -> None:
    given = ["--dataset_name", nano_data, "--output_dir", tmp_path / "run", "--thinking_budget", "2000"]
    given += ["--ddp_backend", "gloo", "--gradient_accumulation_steps", "2"]
    done = e1("train", "--config", "nano", "--accelerate_config", "cpu_zero3", *given)
    assert done.returncode == 1 and not re.search("Traceback|Loading weights", done.stdout + done.stderr)
    line = "e1 train: a prompt of 64 tokens with budget 2000+32 and 1 forced tokens does not fit"
    assert done.stderr.splitlines()[-1].startswith(line) and done.stderr.count(line) == 1


@pytest.mark.distributed
@pytest.mark.parametrize("accelerate_config", ["cpu", "cpu_zero3"])
def test_a_process_that_was_killed_is_named_in_a_line(accelerate_config: str, tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text("import os\nif os.environ['RANK'] in ('', '1'):\n    os.kill(os.getpid(), 9)\n")
    code = (
        "from e1_trl.training.launch import _launch\n"
        f"_launch(['--config_file', {str(resource('accelerate_configs', accelerate_config))!r}, '-m', 'dies'])"
    )
    # A training in the tests' own process leaves its rank in the environment.
    done = python("-c", code, RANK="", PYTHONPATH=os.pathsep.join([str(ROOT), str(tmp_path)]))
    rank = 0 if accelerate_config == "cpu" else 1
    said = f"e1 train: process {rank} was killed by SIGKILL, often a sign that memory ran out: docs/troubleshooting.md"
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == said and "Traceback" not in done.stderr


@pytest.mark.distributed
@pytest.mark.parametrize("accelerate_config", ["cpu", "cpu_zero3"])
def test_a_scheduler_that_ends_it_ends_its_processes_with_a_line(accelerate_config: str, tmp_path: Path) -> None:
    sleeps = "import os, sys, time\nprint(os.getpid(), file=open(f'{sys.argv[1]}/pid', 'a'))\ntime.sleep(99)\n"
    (tmp_path / "sleeps.py").write_text(sleeps)
    config = resource("accelerate_configs", accelerate_config)
    code = (
        "from e1_trl.command_line import run_command\nfrom e1_trl.training.launch import _launch\n"
        f"words = ['--config_file', {str(config)!r}, '-m', 'sleeps', {str(tmp_path)!r}]\n"
        "run_command('e1 train', lambda: _launch(words))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True)
    count, file = read_mapping(config)["num_processes"], tmp_path / "pid"
    while not file.exists() or len(file.read_text().split()) < count:
        assert process.poll() is None
        time.sleep(0.1)
    process.terminate()
    _, said = process.communicate()
    assert said == "e1 train: ended by SIGTERM; the same command with --resume_from_checkpoint auto goes on\n"
    assert process.returncode == 1 and not any(map(psutil.pid_exists, map(int, file.read_text().split())))


@pytest.mark.slow
def test_a_comparison_stops_at_the_first_evaluation_that_fails(tmp_path: Path) -> None:
    asked = ["--dataset_name", tmp_path / "nothing", "--budgets", "8+8", "--methods", "separate"]
    done = e1("eval", "--model", BASE, "other/model", "--output", tmp_path / "out", *asked)
    assert done.returncode == 1
    assert done.stdout == f"==> evaluating {BASE}, {tmp_path / 'out' / Model(str(BASE)).folder}\n"
    assert done.stderr.splitlines()[-1] == f"e1 eval: the evaluation of {BASE} failed; the same command resumes"


@pytest.mark.engine
@pytest.mark.slow
def test_models_are_evaluated_one_by_one_and_reported_together(nano_data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(BASE, other)
    BudgetInfo("</think>", "0;</think>", 2, Budget(16, 8)).write(other)
    asked = ["--dataset_name", nano_data, "--budgets", "16+8", "--methods", "separate", "--instruction", ""]
    output = tmp_path / "out"
    few = ["--max_problems", "4", "--enforce_eager", "true"]
    done = e1("eval", "--model", BASE, other, "--output", output, *asked, *few)
    assert done.returncode == 0, done.stderr
    rows = json.loads((output / "results.json").read_text())["rows"]
    assert {row["model"] for row in rows} == {str(BASE), str(other)}
    assert all((output / Model(str(path)).folder / "results.json").exists() for path in (BASE, other))
    assert f'- {other}: forced text "0;</think>"\n' in (output / "report.md").read_text()
