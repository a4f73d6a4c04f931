"""README, CONTRIBUTING, docs/ and examples/: links, commands, metrics and messages that they name exist."""

import ast
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from e1_trl.cli import COMMANDS
from e1_trl.errors import TROUBLESHOOTING
from e1_trl.rollout import ThinkingEnd
from e1_trl.training.advantages import make_advantage
from e1_trl.training.config import E1Config
from e1_trl.training.groups import Group, advantages_of
from e1_trl.training.lengths import LENGTH_REWARDS
from e1_trl.training.progress import ENDS

FOLDERS = ("docs", "examples", "experiments")
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *(file for name in FOLDERS for file in sorted((ROOT / name).rglob("*.md")))]
HISTORY = {"LOG.md"}  # names what is gone
METRIC = re.compile(r"(thinking|solution|reward|grading|seconds|memory|weights|eval_budget)/(\w+)")


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", without_code(document.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(document.read_text())):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def test_every_command_that_a_document_names_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.M))
    for document in DOCUMENTS:
        if document.name not in HISTORY:
            text = document.read_text()
            assert set(re.findall(r"(?:`|^)make ([a-z0-9]+)", text, re.M)) <= targets, document.name
            assert set(re.findall(r"(?:`|^)e1 ([a-z]+)", text, re.M)) <= COMMANDS.keys(), document.name


def test_the_table_of_policies_links_every_recipe_of_a_system_and_nothing_that_is_not_there() -> None:
    page = ROOT / "docs" / "policies.md"
    cells = re.findall(r"^\|.*\| (.*) \|$", page.read_text(), re.M)  # the last of each row
    links = [link.partition("#")[0] for cell in cells for link in re.findall(r"\]\(([^)\s]+)\)", cell)]
    linked = {(page.parent / link).resolve() for link in links}
    recipes = {file.resolve() for file in (ROOT / "experiments" / "systems").glob("*.yaml")}
    assert sorted(file.stem for file in recipes - linked) == []
    assert [str(file) for file in linked if not file.exists()] == []


def test_every_length_reward_is_named_where_rewards_are_explained() -> None:
    page = (ROOT / "docs" / "training.md").read_text()
    assert [name for name in LENGTH_REWARDS if f"`{name}`" not in page] == []


def test_every_metric_that_the_training_logs_is_explained() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    for file in (ROOT / "e1_trl" / "training").glob("*.py"):
        constants = [node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)]
        for named in filter(None, (METRIC.fullmatch(text) for text in constants if isinstance(text, str))):
            assert re.search(rf"`({named[1]}/(<budget>/)?)?{named[2]}`", page), named[0]
    for end in ENDS:  # in names made of it
        assert f"{end}_ratio`" in page and f"`reward/{end}`" in page


TROUBLES = (ROOT / TROUBLESHOOTING).read_text()
# What others say, by the words that people search for.
OF_LIBRARIES = """
CUDA out of memory, OutOfMemoryError, OOM, Killed, exit code 137, No available memory for the cache blocks
Free memory on device, is less than desired GPU memory utilization, Watchdog caught collective operation timeout
ZeRORuntimeException, Your setup doesn't support bf16/gpu, driver on your system is too old
Failed to find C compiler, Python.h: No such file or directory, No space left on device, Disk quota exceeded
PytorchStreamWriter failed writing file, offline mode is enabled, OfflineModeIsEnabled
Cannot find an appropriate cached snapshot folder, couldn't find them in the cached files
"""


def texts_of(*files: Path) -> str:
    """Read the package's modules and these files."""
    return "".join(file.read_text() for file in [*(ROOT / "e1_trl").rglob("*.py"), *files])


def test_every_message_that_the_page_of_troubles_quotes_is_one_of_ours() -> None:
    lines = [" ".join(said.split()) for said in re.findall(r"^\*(`[^*]*`)\*$", TROUBLES, re.M)]  # below the headings
    # Without what differs from case to case.
    quoted = {part.strip() for line in lines for text in re.findall("`([^`]+)`", line) for part in text.split("…")}
    flat = re.sub(r'"\s*\n?\s*f?"', "", texts_of(ROOT / "Makefile")).replace("{name}", "SIGKILL")
    others = set(re.split(r", |\n", OF_LIBRARIES))
    assert others - {""} <= quoted, "listed, and no longer on the page"
    ours = quoted - others
    assert len(ours) > 10 and {each for each in ours if each not in flat} == set()


def test_options_and_columns_of_the_page_of_troubles_exist() -> None:
    named = set(re.findall(r"`(?:--)?([a-z]+(?:_[a-z0-9]+)+)\b", TROUBLES))
    sources = texts_of(*ROOT.glob("recipes/*.yaml"))
    assert {each for each in named if each not in sources} <= {"frac_reward_zero_std"}  # TRL's metric


EXAMPLES = dict(re.findall(r"<!-- (\w+)\.py -->\n```python\n(.*?)```", (ROOT / "docs" / "extend.md").read_text(), re.S))


def example(name: str) -> dict[str, Any]:
    """Run one of the modules of docs/extend.md, and return its names."""
    names: dict[str, Any] = {}
    exec(EXAMPLES[name], names)
    return names


def test_the_reward_of_the_page_on_extending_rewards_short_thinking_that_closed() -> None:
    brevity = example("my_rewards")["brevity"]
    assert brevity([100, 600, 100], ["closed", "closed", "forced"], solution_text=[""] * 3) == [1, 0, 0]


def test_the_advantage_of_the_page_on_extending_blames_no_thought_that_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_advantages.py").write_text(EXAMPLES["my_advantages"])
    monkeypatch.syspath_prepend(tmp_path)
    args = E1Config(str(tmp_path), thinking_budget=8, solution_budget=8, bf16=False, use_cpu=True)
    patient = make_advantage({"name": "my_advantages.patient", "wrong": 0.1}, args)
    assert patient is not None
    ends = [ThinkingEnd.CLOSED, ThinkingEnd.FORCED, ThinkingEnd.CLOSED, ThinkingEnd.CLOSED]
    group = Group("", [True, False, False, None], [5, 8, 8, 5], [9] * 4, [True] * 4, [False] * 4, ends=ends)
    rewards = [1.0, 0.0, 0.0, math.nan]
    found = advantages_of([group], rewards, patient)
    assert found[0] == pytest.approx((1.1545, 1.1545), abs=1e-3) and found[3] == (0, 0)  # (1 - 1/3) / 0.57735
    assert found[1] == pytest.approx((0, -0.0577), abs=1e-3) and found[2] == pytest.approx((-0.0577,) * 2, abs=1e-3)


def test_the_kind_of_answer_of_the_page_on_extending_grades_letters() -> None:
    grader = example("letters")["KIND"].grader(None, 1)
    grades = grader.grade(
        [r"\boxed{\text{(B) Vitamin C}}, not D", r"\boxed{I}", "It is", r"\boxed{?}"], [["B"], ["A"]] * 2
    )
    assert [str(grade.outcome) for grade in grades] == ["correct", "wrong", "unboxed", "unparseable"]


def test_the_example_of_a_row_of_ones_own_has_the_name_of_no_published_row() -> None:
    (name,) = {*re.findall(r"experiments\.systems (\w+)\.yaml --", (ROOT / "docs" / "systems.md").read_text())}
    rows = json.loads((ROOT / "docs" / "results" / "systems.json").read_text())
    assert name not in {row["system"] for row in rows}
