"""The paper's Table 1: what was measured beside what was published, from tables of answers made up for it."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml
from conftest import ROOT
from contests import FIRST, NEVER, WITH_POINTS
from fabricated import cell, right, stored

from e1_trl.report.markdown import around_section
from experiments.table1 import __main__ as table1
from experiments.table1 import document
from experiments.table1.ratings import Standings


@pytest.fixture
def evaluated(tmp_path: Path) -> Path:
    other = cell(right(9, 10, 2), 1024, 1024, method="truncation")  # which an earlier evaluation left there
    for model, gain in (("base", 0), ("e1", 2)):
        parts = {
            "livecodebench": [cell(right(2 + gain, 10, 2), 1024, 1024), cell(right(5, 10, 2), None, None), other],
            "codeforces": [attempts(1 + gain), attempts(1 + gain, unconstrained=True)],
            "aime2024": [cell(right(1 + gain, 10), 1024, 1024), cell(right(4, 10), None, None)],
        }
        for benchmark, cells in parts.items():
            table = pd.concat(cells, ignore_index=True)
            table.loc[table["thinking_budget"].isna(), "method"] = "unconstrained"
            title = "codeforces-sample-tests" if benchmark == "codeforces" else benchmark
            stored(tmp_path / benchmark / model, table.assign(model=model, benchmark=title))
    return tmp_path


def attempts(solved: int, unconstrained: bool = False) -> pd.DataFrame:
    """Eight attempts at the three problems of a contest, of which so many are solved at once."""
    outcomes = [FIRST if i < solved else NEVER for i in range(3)]
    table = cell(outcomes, *((None, None) if unconstrained else (1024, 1024)))
    return table.assign(problem_id=["1" + "ABC"[problem] for problem in table["problem"]], grader="programs")


def lines_of(text: str, model: str) -> list[list[str]]:
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if row[0] == model]


def test_models_stand_beside_the_published_rows(evaluated: Path) -> None:
    benchmarks = ["--benchmarks", "livecodebench", "codeforces", "aime2024"]
    arguments, shared = table1.parse(["--models", "base", "e1", "--output", str(evaluated), *benchmarks, "--seed", "3"])
    assert shared == ["--seed", "3"]
    table1.write(arguments)
    text = (evaluated / "table1.md").read_text()
    ours, without = lines_of(text, "e1")
    assert ours[1] == "1024+1024" and ours[2].startswith("40.0 (") and ours[5].startswith("30.0 (") and ours[4] == ""
    assert without[1] == "unlimited" and ours[-1] == "here"
    assert "codeforces-sample-tests" in text and "share solved in one attempt" in text
    (theirs,) = [row for row in lines_of(text, "E1-Code-14B") if row[1] == "1024+1024"]
    assert theirs[2:] == ["37.3", "1457, 78.1th", "88.3", "17.9", "paper"]
    assert (evaluated / "figure5.png").stat().st_size > 1000
    assert json.loads((evaluated / "table1.json").read_text())["provenance"]["seeds"] == [7]


def test_with_standings_codeforces_is_a_rating(evaluated: Path) -> None:
    file = evaluated / "standings.json"
    harder = replace(WITH_POINTS, problems={**WITH_POINTS.problems, "D": 2000.0})
    Standings({900: 50, 1100: 50}, {1: harder}).write(file)
    words = ["--models", "base", "e1", "--output", str(evaluated), "--benchmarks", "codeforces"]
    table1.write(table1.parse([*words, "--standings", str(file)])[0])
    text = (evaluated / "table1.md").read_text()
    (base, _), (e1, _) = lines_of(text, "base"), lines_of(text, "e1")
    ratings = [int(row[3].split(" ")[0]) for row in (base, e1)]
    assert ratings[0] < ratings[1] and "th" in e1[3]
    assert "rating, with its 95% interval over 1 contests" in text
    assert "Problems of these contests that were not asked (1) count as not solved." in text


def test_each_model_is_evaluated_where_the_table_looks_for_it(evaluated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    done = SimpleNamespace(returncode=0)
    commands = SimpleNamespace(run=lambda line, check: asked.append(" ".join(line)) or done)
    monkeypatch.setattr(table1, "subprocess", commands)
    for models in (["e1"], ["base", "e1"]):
        table1.main(["--models", *models, "--output", str(evaluated), "--benchmarks", "aime2024"])
    for model, line in zip(("e1", "base", "e1"), asked, strict=True):
        assert f" --model {model} --benchmark aime2024 --output {evaluated}/aime2024/{model} " in line


def test_the_documents_have_the_published_rows_as_they_are_now() -> None:
    results = ROOT / "docs" / "results"
    again = "run `python -m experiments.table1.document`"
    assert (results / "table1.md").read_text() == document.as_markdown(*document.read(results / "table1.json")), again
    page = results / "expected.md"
    assert page.read_text() == document.expected().join(around_section(page, "expected")), again


def test_the_page_on_the_paper_has_the_published_numbers() -> None:
    published = yaml.safe_load(document.PUBLISHED.read_text())
    entries = [entry for entry in published["mathematics"] if "aime2024" in entry]
    right = {(entry["model"], entry["budget"]): entry["aime2024"] for entry in entries}
    base = "DeepScaleR-1.5B-Preview"
    models = (base, f"{base}, in the paper", "E1-Math-1.5B", "E1-Math-1.5B, second round")
    card, paper, e1, second = ([right[model, budget] for budget in document.BUDGETS[:4]] for model in models)
    said = " ".join((ROOT / "docs" / "recipes.md").read_text().split())
    assert f"{paper[0]} and {card[0]}% at 512+1024, {paper[3]} and {card[3]}% at 3072+1024" in said
    assert f"is {e1[1] - paper[1]:.1f} points by the one and {e1[1] - card[1]:.1f} by the other" in said
    lost = [one - two for one, two in zip(e1, second, strict=True)]
    ablations = " ".join((ROOT / "docs" / "ablations.md").read_text().split())
    assert f"is {min(lost):.1f} to {max(lost):.1f} points below its first at all four budgets" in ablations


def test_a_recipe_says_what_its_authors_report_at_each_budget() -> None:
    published = yaml.safe_load(document.PUBLISHED.read_text())
    said = [
        (entry["recipe"], f"{entry[benchmark]:.1f} at {entry['budget']}")
        for section, benchmark in (("table1", "livecodebench"), ("mathematics", "aime2024"))
        for entry in published[section]
        if "recipe" in entry and benchmark in entry and entry["budget"] in document.BUDGETS[:-1]
    ]
    assert len(said) == 41
    for recipe, number in said:
        assert number in (ROOT / "recipes" / f"{recipe}.yaml").read_text(), f"{recipe}: {number}"
