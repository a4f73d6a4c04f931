"""User errors are one line and bugs keep their traceback; one place makes that line."""

import ast
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from conftest import ROOT, python
from transformers import AutoTokenizer

from e1_trl import cli
from e1_trl.budget import Budget, ThinkingClose
from e1_trl.command_line import run_command
from e1_trl.errors import UserError, user_errors
from e1_trl.marker import Marker
from e1_trl.rollout import Rollout

PACKAGE = ROOT / "e1_trl"


@pytest.fixture(autouse=True)
def first_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory, and no rank, which a training in the tests' own process leaves."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCAL_RANK", raising=False)


def test_a_bug_in_a_training_process_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = ValueError("a bug")
    monkeypatch.setattr("e1_trl.train.make_grader", Mock(side_effect=bug))
    words = ["--config", str(ROOT / "experiments" / "nano" / "recipe.yaml"), "--output_dir", "run", "--use_cpu", "true"]
    with pytest.raises(ValueError, match="a bug") as raised:
        run_command("e1 train", lambda: import_module("e1_trl.train").main(words))
    assert raised.value is bug


def test_what_the_user_can_fix_is_one_line_and_a_traceback_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E1_DEBUG", "")
    with pytest.raises(SystemExit, match=r"^e1 plan: [^\n]+$"):
        cli.main(["plan", "nothing"])
    monkeypatch.setenv("E1_DEBUG", "1")
    with pytest.raises(UserError):
        cli.main(["plan", "nothing"])


def test_ctrl_c_ends_a_command_without_a_traceback() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as raised:
        run_command("e1 chat", interrupted)
    assert raised.value.code == 130


@pytest.mark.parametrize(("raises", "status", "said"), [("", 141, ""), ("raise BrokenPipeError", 1, "BrokenPipeError")])
def test_a_reader_that_leaves_ends_a_command_quietly(raises: str, status: int, said: str) -> None:
    """But another pipe that breaks is a bug, and keeps its traceback."""
    code = f"from e1_trl.command_line import run_command\ndef command():\n print('a line')\n {raises}\n"
    reads, writes = os.pipe()
    if status == 141:
        os.close(reads)  # as `head` does
    command = [sys.executable, "-c", f"{code}run_command('e1 plan', command)"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, env=env)
    assert (done.returncode, done.stderr.strip().rpartition("\n")[2]) == (status, said)


def test_another_process_waits_for_the_first_to_say_what_is_wrong() -> None:
    code = (
        "import e1_trl.command_line as line\nimport e1_trl.errors as errors\nline.OTHERS_WAIT = 0.5\n"
        "def wrong(): raise errors.UserError('two\\nlines')\nline.run_command('e1 train', wrong)"
    )
    done = python("-c", code, LOCAL_RANK="1")
    assert (done.returncode, done.stderr) == (1, "e1 train: two lines\n")


def test_what_a_library_does_not_take_is_a_user_error() -> None:
    with (
        pytest.raises(UserError, match=r"^the model nothing/at/all: "),
        user_errors("the model nothing/at/all", OSError),
    ):
        AutoTokenizer.from_pretrained("nothing/at/all/")
    with pytest.raises(UserError, match=r"^the file: while parsing"), user_errors("the file", yaml.YAMLError):
        yaml.safe_load("[1, 2")


def test_a_bug_of_our_own_behind_a_librarys_call_stays_one() -> None:
    unfinished = Rollout([1], Budget(1, 1), ThinkingClose(Marker("</think>", (2,), (2,), 1), context=8))
    with pytest.raises(ValueError, match="the rollout is not finished") as raised, user_errors("a call", ValueError):
        list(map(Rollout.completion.fget, [unfinished]))  # type: ignore[attr-defined]
    assert not isinstance(raised.value, UserError)


def test_only_one_place_turns_an_error_into_the_end_of_a_command() -> None:
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        handlers = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ExceptHandler)]
        if any(re.search(rf"(sys\.exit|SystemExit)\(.*\b{each.name}\b", ast.unparse(each)) for each in handlers):
            found.append(file.relative_to(PACKAGE).as_posix())
    assert found == ["command_line.py"]
