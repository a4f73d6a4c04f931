"""The command line of every command: its help, and what it says of names and values that are wrong."""

import re
from argparse import SUPPRESS
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from conftest import BASE, ROOT

from e1_trl import cli
from e1_trl.arguments import read_value
from e1_trl.cli import COMMANDS
from e1_trl.command_line import CommandParser
from e1_trl.errors import UserError

# Words that lean on another option, or say nothing.
LEANING = re.compile(r"[Tt]he same|so does|\(default: (None|)\)|unset|^Of |^What |^In |^How ")
FOLDER = str(ROOT / "docs")  # one that is there


def parser_of(name: str) -> CommandParser:
    made = import_module("e1_trl.evaluation.arguments" if name == "eval" else COMMANDS[name].module).make_parser()
    assert isinstance(made, CommandParser)
    return made


@pytest.mark.parametrize("name", COMMANDS)
def test_help_stands_alone_in_groups_with_what_is_required_first(name: str) -> None:
    made = parser_of(name)
    assert made.prog == f"e1 {name}" and made.description and f"  e1 {name} " in made.description
    shown = [group for group in made._action_groups if any(each.help != SUPPRESS for each in group._group_actions)]
    required = [each for each in made._actions if each.required or not each.option_strings]
    if required:
        assert shown[0].title == "required" and set(required) <= set(shown[0]._group_actions)
    for each in made._actions:
        if each.help == SUPPRESS:
            continue
        help = each.help or ""
        assert help[:1].isupper() and not LEANING.search(help), (each.option_strings, help)
    printed = made.format_help()
    assert printed.startswith(f"usage: e1 {name} ") and "Default: None" not in printed


def test_what_serving_and_evaluation_need_is_shown_as_required() -> None:
    for name, needed in {"serve": ["--model", "--upstream"], "chat": ["--model"], "eval": ["--model"]}.items():
        (group,) = [each for each in parser_of(name)._action_groups if each.title == "required"]
        assert [each.option_strings[0] for each in group._group_actions] == needed


AT_A_SERVER = ["--model", str(BASE), "--upstream", "http://127.0.0.1:9/v1", "--budget", "8+8"]
# What each command needs, and a function of it, which is replaced by a bug.
NEEDED = {
    "train": (["--config", "nano"], "e1_trl.training.launch.resource"),
    "plan": (["E1-Math-1.5B"], "e1_trl.plan.setup.Architecture.of"),
    "fetch": (["--config", "nano"], "e1_trl.training.fetch.resource"),
    "smoke": (["E1-Math-1.5B", "--cpu"], "e1_trl.plan.smoke.command.Hour"),
    "validate": (["--config", "nano_code"], "e1_trl.training.validate.validate"),
    "eval": ([*AT_A_SERVER[:2], "--benchmark", "amc", "--budgets", "8+8"], "e1_trl.evaluation.prepare.load_benchmark"),
    "report": ([FOLDER], "e1_trl.report.samples.read"),
    "serve": (AT_A_SERVER, "e1_trl.serving.model.BudgetInfo.find"),
    "chat": (AT_A_SERVER, "e1_trl.serving.model.BudgetInfo.find"),
    "card": ([FOLDER], "e1_trl.checkpoints.budget_file.BudgetInfo.read"),
}


@pytest.mark.parametrize("bug", [ValueError("a bug"), OSError(5, "a bug")])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_bug_in_a_command_keeps_its_traceback(name: str, bug: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    needed, within = NEEDED[name]
    monkeypatch.setattr(within, Mock(side_effect=bug))
    with pytest.raises(type(bug)) as raised:
        cli.main([name, *needed])
    assert raised.value is bug


def ended(name: str, option: str, value: object) -> str:
    """Return the message with which a command ends that has this option besides what it needs."""
    with pytest.raises(SystemExit) as error:
        cli.main([name, *NEEDED[name][0], option, str(value)])
    assert isinstance(error.value.code, str)  # printed to stderr, with the status 1
    return error.value.code


COUNT = "it must be a whole number, 1 or more"
SHARE = "it must be a number, above 0 and at most 1"
POSITIVE = "it must be a number, above 0"
NATURAL = "it must be a whole number, 0 or more"
WRONG: list[tuple[str, str, object, str]] = [
    ("train", "num_processes", 0, COUNT),
    ("plan", "vllm_gpu_memory_utilization", 1.5, SHARE),
    ("plan", "gradient_accumulation_steps", 0, COUNT),
    ("plan", "max_prompt_length", "abc", COUNT),
    ("plan", "per_device_train_batch_size", "[8]", COUNT),
    ("plan", "beta", "small", "it must be a number, 0 or more"),
    ("plan", "use_peft", "perhaps", "it must be true or false"),
    ("plan", "thinking_budget", "{a", "which is not YAML"),
    ("plan", "gpu_memory", "nan", POSITIVE),
    ("fetch", "max_prompt_length", 0, COUNT),
    ("smoke", "num_processes", 0, COUNT),
    ("smoke", "largest_gap", "wide", POSITIVE),
    ("smoke", "num_generations", 0, "it must be a whole number, 2 or more"),
    ("validate", "tried", 0, COUNT),
    ("validate", "grading_time_limit", 0, POSITIVE),
    ("eval", "samples", 0, COUNT),
    ("eval", "top_p", 5, SHARE),
    ("eval", "temperature", -1, "it must be a number, 0 or more"),
    ("eval", "min_p", 2, "it must be a number, from 0 to 1"),
    ("eval", "top_k", -1, NATURAL),
    ("eval", "max_model_length", 0, COUNT),
    ("eval", "independent", "perhaps", "it must be true or false"),
    ("eval", "base_url", "localhost:8000", "it must be a string, such as http://host:8000/v1"),
    ("report", "page_problems", -1, NATURAL),
    ("serve", "port", 99_999, "it must be a whole number, from 1 to 65535"),
    ("serve", "upstream", "localhost:8000/v1", "it must be a string, such as http://host:8000/v1"),
    ("chat", "budget", "8", "must read"),
    ("card", "page_problems", "all", NATURAL),
]


def test_every_command_has_a_value_that_is_wrong_below() -> None:
    assert {name for name, *_ in WRONG} == COMMANDS.keys()


@pytest.mark.parametrize(("name", "option", "value", "said"), WRONG)
def test_a_value_that_is_wrong_is_one_line(
    name: str, option: str, value: object, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ended(name, f"--{option}", value)
    assert line.startswith(f"e1 {name}: ") and "\n" not in line
    assert option in line and said in line


# These hand what they do not know to the parser of recipes: see tests/training/test_config.py.
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("train", "fetch", "smoke")])
def test_an_option_that_is_unknown_names_the_nearest(name: str) -> None:
    known = next(each for each in parser_of(name).names if each.startswith("--") and len(each) > 6)
    typo = known[:-2] + known[-1]
    said = ended(name, typo, 5)
    assert re.search(rf"{typo[2:]} is unknown; did you mean (--)?{known[2:]}\?", said)


@pytest.mark.parametrize(
    ("hint", "value", "read"),
    [
        (int, "8", 8),
        (float, "1e-6", 1e-6),
        (float, 3, 3),
        (bool, "No", False),
        (list[str], "8+8", ["8+8"]),
        (int | None, None, None),
        (dict[str, Any] | str | int | None, "64", "64"),
        (dict[str, Any] | str | int | None, 64, 64),
        (str, 7, "7"),
        (Path, "here", Path("here")),
        (list[str] | None, "all-linear", ["all-linear"]),
    ],
)
def test_a_text_or_a_value_of_yaml_is_read_as_it_is_annotated(hint: Any, value: Any, read: Any) -> None:
    got = read_value("field", value, hint)
    assert (type(got), got) == (type(read), read)


@pytest.mark.parametrize(
    ("hint", "value", "wanted"),
    [
        (int, True, "a whole number"),
        (int, 8.5, "a whole number"),
        (int, None, "a whole number"),
        (bool, 2, "true or false"),
        (float, "wide", "a number"),
        (list[int], ["1", "x"], "a list, each entry a whole number"),
        (str, ["a"], "a string"),
        (dict[str, Any], "a", "a mapping"),
        (int | None, [], "a whole number"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(hint: Any, value: Any, wanted: str) -> None:
    with pytest.raises(UserError, match=rf"^field is .*; it must be {wanted}$"):
        read_value("field", value, hint)
