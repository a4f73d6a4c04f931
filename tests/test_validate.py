"""A dataset's own solutions, tried on its tests."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml
from conftest import BASE, NANO, ROOT
from trl import DatasetMixtureConfig

from e1_trl import cli
from e1_trl.answers.grade import Grade, Outcome
from e1_trl.answers.programs.sandbox import isolation
from e1_trl.answers.programs.sandbox.command import SandboxError
from e1_trl.errors import UserError
from e1_trl.problems.prompts import identity
from e1_trl.train import main as train
from e1_trl.training.data import read_split
from e1_trl.training.recipe_as_run import E1ScriptArguments
from e1_trl.training.validate import main, outcomes_of

pytestmark = pytest.mark.usefixtures("sandbox", "datasets_cache")

TESTS = json.dumps({"inputs": ["1\n", "20\n"], "outputs": ["YES", "NO"]})
RIGHT = "print('YES' if int(input()) < 9 else 'NO')"
ROWS: list[dict[str, Any]] = [
    {"problem": "right", "tests": TESTS, "solutions": [RIGHT]},
    {"problem": "in a block", "tests": TESTS, "solutions": [f"```python\n{RIGHT}\n```"]},
    {"problem": "the second is right", "tests": TESTS, "solutions": ["print('banana')", RIGHT]},
    {"problem": "words that are not looked at elsewhere", "tests": TESTS, "solutions": ["print('banana')"]},
    {"problem": "crashes", "tests": TESTS, "solutions": ["1 / 0"]},
    {"problem": "nobody knows", "tests": TESTS, "solutions": []},
]


def recipe(folder: Path, **fields: Any) -> str:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    settings = {
        "dataset_name": str(folder / "rows.jsonl"),
        "grader": "programs",
        "exclude": str(folder / "made" / "failing.jsonl"),
        "model_name_or_path": "of no interest here",
        **fields,
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(settings))
    return str(folder / "recipe.yaml")


@pytest.mark.slow
def test_problems_whose_solutions_fail_are_written_where_the_recipe_leaves_them_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed = {"dataset_name": None, "datasets": [{"path": "json", "data_files": str(tmp_path / "rows.jsonl")}]}
    file = tmp_path / "made" / "failing.jsonl"
    file.parent.mkdir()
    own = [{"id": identity("crashes"), "mean": 0.0}, {"id": "of another set", "outcome": "wrong"}]
    file.write_text("\n".join(map(json.dumps, [*own, {"id": identity("right"), "outcome": "wrong"}])))
    main(["--config", recipe(tmp_path, **mixed, test_split_size=0.5)])  # of which all problems are tried
    printed = capsys.readouterr().out
    first, second, *lines = map(json.loads, file.read_text().splitlines())
    assert [first, second] == own
    assert [(line["problem"], line["outcome"]) for line in lines] == [
        ("words that are not looked at elsewhere", "wrong"),
        ("crashes", "crashed"),
    ]
    assert [line["id"] for line in lines] == [identity(line["problem"]) for line in lines]
    for said in ("2 of 6 problems fail", "kept 2 other lines", "correct 3", "no solution 1"):
        assert said in printed

    paths = {"config": NANO, "dataset_name": tmp_path / "rows.jsonl", "model_name_or_path": BASE, "exclude": file}
    words = [str(word) for name, path in paths.items() for word in (f"--{name}", path)]
    here = "--grader programs --answer_column tests --max_prompt_length 512 --num_generations 8 --use_cpu true "
    here += "--generation_batch_size 8 --per_device_train_batch_size 8 --gradient_accumulation_steps 1 --dry_run true"
    with pytest.raises(UserError, match="loses a part of a question"):  # nano's tokenizer has few words
        train([*words, *here.split(), "--output_dir", str(tmp_path / "run")])
    printed = capsys.readouterr().out
    assert "training         4 prompts" in printed
    assert "tests            2 on stdin, compared by the rule tolerant\n" in printed
    assert "graded           its own solution is correct; a program that does nothing is wrong\n" in printed


@pytest.mark.slow
def test_sets_with_different_columns_are_mixed_as_the_recipes_mix_deepcoders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = {"input": "1", "output": "2", "testtype": "functional", "metadata": {"func_name": "f"}}
    live = {"problem": "live", "tests": json.dumps([call]), "solutions": ["def f(x): return 2 * x"]}
    live |= {"starter_code": "def f(x):", "metadata": json.dumps({"func_name": "f"})}
    piped = {**live, "problem": "piped", "tests": json.dumps([{"input": "1", "output": "2", "testtype": "stdin"}])}
    piped |= {"solutions": ["print(2 * int(input()))"], "starter_code": "", "metadata": "{}"}
    (tmp_path / "live.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (live, piped)))
    files = [
        {"path": "json", "data_files": str(tmp_path / name), "split": "train"} for name in ("rows.jsonl", "live.jsonl")
    ]
    named = recipe(tmp_path, datasets=files, dataset_name=None)
    main(["--config", named])
    assert "2 of 8 problems fail" in capsys.readouterr().out

    code = yaml.safe_load((ROOT / "recipes" / "E1-Code-14B.yaml").read_text())
    asked = {name: code[name] for name in ("grader", "problem_column", "answer_column", "program_prompt")}
    problems = read_split(E1ScriptArguments(**asked), DatasetMixtureConfig(datasets=files), 0, True, "train")
    prompts = [message["content"] for (message,) in problems["prompt"]]
    assert prompts[:6] == [row["problem"] for row in ROWS]
    for prompt, starter in zip(prompts[6:], ("def f(x):", "# YOUR CODE HERE"), strict=True):
        assert f"```python\n{starter}\n```" in prompt and prompt.startswith("You are an expert Python programmer.")


class Answering:
    """A grader that answers as it is told to, one list for each call."""

    faults = (Outcome.UNGRADED,)

    def __init__(self, *calls: list[Outcome]):
        self.calls = list(calls)

    def grade(self, solutions: Sequence[str], references: Sequence[Sequence[str]]) -> list[Grade]:
        outcomes = self.calls.pop(0)
        assert len(outcomes) == len(solutions) == len(references)
        return [Grade(outcome, None) for outcome in outcomes]


def test_a_failing_grader_leaves_no_problem_out() -> None:
    rows = [{"solutions": ["a", "b"], "answers": ["tests"]} for _ in range(4)]
    wrong, right, failed = Outcome.WRONG, Outcome.CORRECT, Outcome.UNGRADED
    grader = Answering([failed, failed, wrong, right], [wrong, right, failed])
    outcomes = outcomes_of(datasets.Dataset.from_list(rows), "solutions", 3, grader)  # type: ignore[arg-type]
    assert outcomes == [failed, right, failed, right] and not grader.calls


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"grader": "mathematics"}, "only programs come with solutions"),
        ({"exclude": None}, "names a file to write"),
        ({"dataset_name": "nowhere.jsonl"}, "no file nowhere.jsonl"),
        ({"solution_column": "known"}, "solution_column is 'known'; it must be one of"),
    ],
)
def test_what_cannot_be_validated_is_one_line(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SystemExit, match=message) as error:
        cli.main(["validate", "--config", recipe(tmp_path, **fields)])
    assert str(error.value).startswith("e1 validate: ") and "\n" not in str(error.value)


def test_a_machine_without_a_sandbox_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: isolation.Isolation) -> None:
        raise SandboxError(f"a box with {kind} does not start: forbidden")

    monkeypatch.setattr(isolation, "attack", refuse)
    with pytest.raises(SystemExit, match="programs cannot be run safely here") as error:
        cli.main(["validate", "--config", recipe(tmp_path)])
    assert "\n" not in str(error.value)
