"""A kind of answer of one's own: the module in docs/extend.md, named as the grader."""

import re
from pathlib import Path

import pytest
from conftest import ROOT
from datasets import Dataset

from e1_trl.answers.grade import Outcome
from e1_trl.answers.kinds import make_grader
from e1_trl.problems.arguments import ProblemArguments
from e1_trl.problems.load import make_problems

(LETTERS,) = re.findall(
    r"<!-- letters.py -->\n```python\n(.*?)```", (ROOT / "docs" / "extend.md").read_text(), re.DOTALL
)
DATACLASS = LETTERS.replace("class Letters", "from dataclasses import dataclass\n@dataclass\nclass Letters")
# By name; the second one's version is one of the instance.
MODULES = {"letters": LETTERS, "dataclass_letters": DATACLASS.replace("    version =", "    version: str =")}


@pytest.mark.parametrize("name", MODULES)
def test_a_third_kind_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    file = tmp_path / f"{name}.py"
    file.write_text(MODULES[name])
    monkeypatch.chdir(tmp_path)
    arguments = ProblemArguments(grader=name)
    rows = [{"problem": "Which is prime?", "choices": "A) 4 B) 5", "answer": "B"}]
    (row,) = make_problems(Dataset.from_list(rows), "choices", arguments)
    assert row["prompt"][0]["content"] == (
        "Which is prime?\nA) 4 B) 5\nPut the letter of your choice within \\boxed{}."
    ) and row["answers"] == ["B"]
    with make_grader(arguments, workers=1) as grader:
        solutions = [r"4 is not, so \boxed{B}", r"\boxed{B}, no: \boxed{A}", r"\boxed{five}"]
        grades = grader.grade(solutions, [row["answers"]] * 3)
        assert [each.outcome for each in grades] == [Outcome.CORRECT, Outcome.WRONG, Outcome.UNPARSEABLE]
        before = grader.version
    assert arguments.answer_type.show(row) == "answers          ['B']"
    assert before.startswith("letters 2, ") and make_grader(arguments, workers=1).version == before
    file.write_text(MODULES[name].replace("A-J", "A-E"))
    assert make_grader(arguments, workers=1).version != before, "what is graded by the old file would be kept"


@pytest.mark.parametrize(
    ("grader", "expected"),
    [
        ("other", r"grader is 'other'; it must be mathematics or programs, or a module with a KIND .*No module"),
        ("math", r"grader is 'math'; it must be .*KIND"),
        (".letters", r"grader is '\.letters'; it must be"),
    ],
)
def test_what_is_no_kind_is_refused_in_one_line(grader: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as error:
        _ = ProblemArguments(grader=grader).answer_type
    assert "\n" not in str(error.value)
