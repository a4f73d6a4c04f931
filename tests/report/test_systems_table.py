"""The table of systems: rows from made-up answers, the documents from made-up rows, and every recipe's fields."""

import json
import subprocess
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from conftest import ROOT
from fabricated import cell, stored
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from e1_trl.provenance import Provenance
from e1_trl.recipes import fields_of
from e1_trl.report.markdown import around_section
from e1_trl.training.advantages import make_advantage
from e1_trl.training.beforehand import check_advantage
from e1_trl.training.budgets import Budgets
from e1_trl.training.callbacks import generation_of
from e1_trl.training.named_rewards import make_rewards
from e1_trl.training.recipe_as_run import parse_recipe
from experiments.best_of.make_base import Choice
from experiments.first_zero.make_base import Search
from experiments.systems import __main__ as command
from experiments.systems import document
from experiments.systems.averages import average
from experiments.systems.measure import BANNED, THINKING, Row, mean_over_budgets, measured, references, unpack
from experiments.systems.miniatures import BEST_OF, FIRST_ZERO, MINIATURES, SHORT, Miniature
from experiments.systems.tables import accuracies, at_best_rate, noise, plain, trainings, trial

SEARCH = Search.read("3Aa+4b+2Bc+1d+6Ce+9f+5Dg+4h+1?")  # the first 0 is at c, in B; 14 tokens
PROBLEMS = 4


def answers(method: str, budget: int | None, right: int, length: int = 9) -> pd.DataFrame:
    """Of a method: the first problems right, all after the first tokens of the concise thought, or all of them."""
    tokenizer = AutoTokenizer.from_pretrained(FIRST_ZERO.base)
    correct = [[problem < right] for problem in range(PROBLEMS)]
    solution = None if budget is None else 8
    table = cell(correct, budget, solution, method=method, thinking_tokens=length).assign(prompt=SEARCH.problem)
    thought = tokenizer.convert_tokens_to_ids(SEARCH.concise[:length])
    table["token_ids"] = [[*thought, 5, 6] for _ in range(PROBLEMS)]
    table["thinking_end"] = "forced" if length < len(SEARCH.concise) else "closed"
    table["answer"] = ["B", "C", "A", "A"]
    table["solution_tokens"] = [4, 4, 8, 4]
    return table


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Of evaluations in which a larger budget is right more often, with whole thoughts from 18 tokens on."""
    rights = {budget: min(at, PROBLEMS) for at, budget in enumerate(THINKING)}
    forced = [answers("separate", budget, right, 9 if budget == 9 else 14) for budget, right in rights.items()]
    cut = [answers("truncation", budget, 0) for budget in THINKING]
    others = [answers("no_thinking", 0, 1, 0), answers("unconstrained", None, 4, 14)]
    return stored(tmp_path / "test", *forced, *cut, *others), stored(tmp_path / "validation", *forced[::-1])


def row(folders: tuple[Path, Path]) -> Row:
    return measured(FIRST_ZERO, "base", 42, FIRST_ZERO.base, *folders)


def test_a_row_has_the_means_of_its_answers(folders: tuple[Path, Path]) -> None:
    found = row(folders)
    mean = round((0 + 1 + 2 + 3 + 4 + 4) / 24, 4)
    assert found["mean_accuracy"] == found["validation_mean_accuracy"] == mean
    assert found["mean_accuracy_low"] < mean < found["mean_accuracy_high"]
    budgets = found["budgets"]
    assert [each["accuracy"] for each in budgets] == [0, 0.25, 0.5, 0.75, 1, 1]
    assert {each["accuracy_cut"] for each in budgets} == {0}
    names = ("forced_ratio", "open_ratio", "likeliest_ratio", "escape_ratio")
    shares = [tuple(each[name] for name in names) for each in budgets[:2]]
    assert shares == [(1, 0.5, 0.5, 0.25), (0, None, None, None)]  # A is passed after 9 tokens, the others are alike
    assert (budgets[0]["tokens_right"], budgets[0]["tokens_wrong"]) == (None, 9 + 5)
    others = {"no_thinking_accuracy": 0.25, "unconstrained_accuracy": 1, "unconstrained_tokens": 19}
    assert found.items() >= {**others, "generated_tokens": 0, "steps": 0, "train_seconds": 0}.items()
    kept = unpack(found["right"], len(THINKING) + 2)
    assert kept.mean(axis=1).tolist() == [0, 0.25, 0.5, 0.75, 1, 1, 0.25, 1]
    assert kept[1].tolist() == [1, 0, 0, 0]


def test_what_is_asked_in_the_prompt_counts_for_its_budget(folders: tuple[Path, Path], tmp_path: Path) -> None:
    cells = {budget: (answers("separate", budget, 4), answers("truncation", budget, 2)) for budget in THINKING}
    asked = [stored(tmp_path / str(budget), *own) for budget, own in cells.items()]
    model = tmp_path / "model"
    model.mkdir()
    log = [{"step": 1, "learning_rate": 1e-05}, {"step": 2, "learning_rate": 5e-05}, {"train_runtime": 1.23456}]
    (model / "trainer_state.json").write_text(json.dumps({"log_history": log, "global_step": 2}))
    Provenance("commit", "2026-01-31", "a machine", (42,)).write(model)
    found = measured(FIRST_ZERO, "base", 42, model, *folders, asked, asked, {0.25: folders[0]})
    assert found["mean_accuracy"] == found["validation_mean_accuracy"] == 1
    assert found["budgets"][0]["accuracy_cut"] == 0.5 and found["area_at"] == {"0.25": 0.5833}
    assert (found["learning_rate"], found["train_seconds"]) == (5e-05, 1.2346)


def test_the_interval_of_a_mean_over_budgets_is_of_problems_not_of_answers() -> None:
    alike = pd.DataFrame([[1.0] * 50 + [0.0] * 50] * 6).to_numpy()
    mean, low, high = mean_over_budgets(alike)
    assert mean == 0.5 and 0.38 < low < 0.42 and 0.58 < high < 0.62  # 600 independent answers: 0.46 to 0.54


def test_references_are_what_the_shortest_thought_reaches() -> None:
    found = references(FIRST_ZERO, [SEARCH.problem])
    assert found["random guess"] == [0.25, 1, 1, 1, 1, 1]
    assert found["best guess"] == [1 / 3, 1, 1, 1, 1, 1]  # A is passed, and C and D are as likely as B
    choice = Choice((3, 9, 6), ((4, 7), (1, 0), ()))
    found = references(BEST_OF, [choice.problem])
    best = max(choice.left(choice.concise[:9]).values())
    assert found["random guess"] == [1 / 3, 1, 1, 1, 1, 1] and found["best guess"][0] == pytest.approx(best)


def test_documents_are_made_of_the_rows(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("docs/results", "runs/first_zero/data", "runs/best_of/data", "runs/systems"):
        Path(folder).mkdir(parents=True)
    names = [name for each in MINIATURES.values() for name in document.sections([], each)]
    empty = [f"<!-- {name} -->\n<!-- /{name} -->\n" for name in names]
    document.DOCUMENT.write_text(f"before\n{''.join(empty)}after\n")
    for name, problem in ((FIRST_ZERO.name, SEARCH.problem), (BEST_OF.name, Choice((1, 2, 3), ((), (), ())).problem)):
        Path(f"runs/{name}/data/test.jsonl").write_text(json.dumps({"problem": problem}) + "\n")
    base = row(folders)
    interval = {"mean_accuracy_low": 0.7, "mean_accuracy_high": 0.8}
    better = {**base, "system": "e1", "mean_accuracy": 0.75, **interval, "commit": "first"}
    command.add([base])
    command.add([better, {**better, "seed": 43, "mean_accuracy": 0.85}])
    command.add([{**base, "system": BANNED, "mean_accuracy": 0.7}, {**better, "system": "e1 at 5e-05"}])
    assert [each["system"] for each in document.read()] == ["base", "e1", "e1", BANNED, "e1 at 5e-05"]
    leaders = document.DOCUMENT.read_text().splitlines()
    assert leaders[4].startswith("| 1 | e1 | 80.0% | ")
    assert leaders[4].endswith(" | 75.0% to 85.0%, SD 7.07, 2 seeds | 100.0% | 19 | first |")
    assert leaders[5].startswith(f"| 2 | {BANNED} | 70.0% | ") and " | one | " in leaders[5]
    text = document.DOCUMENT.read_text()
    assert "gains 11.7 points of mean accuracy, and E1 21.7: one banned token reaches 54% of E1's gain" in text
    assert "| e1 | 5e-05 | 1 | 58.3% | 75.0% | 100.0% | 19 |\n| e1 | 0.0001 | 2 | 58.3% | 80.0% |" in text
    assert "\n1 of 35 recipes have their row.\n" in document.DOCUMENT.read_text()
    command.add([{**base, "miniature": "best_of", "area_at": {"0.25": 0.3}}])
    assert len(document.read()) == 6 and len(document.read("best_of")) == 1
    assert all(part in document.DOCUMENT.read_text() for part in ("| 1 | base | 58.3% | ", "after 25% of the"))
    for page in (document.PAGES[name] for name in (FIRST_ZERO.name, BEST_OF.name)):
        assert Path(f"docs/results/{page}.png").stat().st_size > 10_000
        assert "## Trainings" in Path(f"docs/results/{page}.md").read_text()


def test_the_published_documents_are_of_the_published_rows() -> None:
    published = json.loads((ROOT / document.ROWS).read_text())
    for miniature in MINIATURES.values():
        rows = [row for row in published if row["miniature"] == miniature.name]
        for name, section in document.sections(rows, miniature).items():
            before, after = around_section(ROOT / document.DOCUMENT, name)
            assert (ROOT / document.DOCUMENT).read_text() == before + section + after
        tables = (ROOT / "docs" / "results" / f"{document.PAGES[miniature.name]}.md").read_text()
        assert accuracies(rows) in tables and trainings(rows) in tables
    tried = [*map(json.loads, (ROOT / document.TRIAL).read_text().splitlines())]
    assert trial(tried) in (ROOT / document.DOCUMENT).read_text() and len(tried) > 1
    heard = [*map(json.loads, (ROOT / document.NOISE).read_text().splitlines())]
    assert noise(heard) in (ROOT / document.DOCUMENT).read_text() and len(heard) > 1


def test_the_four_best_are_chosen_on_the_validation_split(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["e1", "laser", "hapo", "siri", "dler", "kimi", "somebody's"]
    rows = [{"system": name, "seed": 42, "validation_mean_accuracy": at / 10} for at, name in enumerate(names)]
    monkeypatch.setattr(command, "read", lambda _: rows)
    assert command.best_besides("first_zero") == ["kimi", "dler", "siri", "hapo"]


def test_rates_are_compared_over_the_seeds_that_they_share() -> None:
    rows = [
        {"system": name, "seed": seed, "validation_mean_accuracy": share}
        for name, seed, share in (
            *(("e1", 42, 0.5), ("e1", 43, 0.9), ("e1 at 0.0002", 42, 0.6), ("e1 at 0.0002", 44, 0.1)),
            *(("kimi", 42, 0.7), ("kimi", 43, 0.5), ("kimi at 0.0002", 42, 0.6), ("kimi at 0.0002", 43, 0.7)),
            *(("lead", 43, 0.7), ("lead at 0.0002", 42, 0.8), ("base", 17, 0.2)),
            # A third rate with one seed does not decide between two that have two.
            *(("gfpo", 42, 0.5), ("gfpo", 43, 0.9), ("gfpo at 0.0002", 42, 0.6), ("gfpo at 0.0002", 43, 0.5)),
            ("gfpo at 5e-05", 42, 0.4),
        )
    ]
    ranked = [(row["system"], row["seed"]) for row in at_best_rate(rows)]
    e1, kimi = [("e1 at 0.0002", 42), ("e1 at 0.0002", 44)], [("kimi at 0.0002", 42), ("kimi at 0.0002", 43)]
    assert ranked == [*e1, *kimi, ("lead at 0.0002", 42), ("base", 17), ("gfpo", 42), ("gfpo", 43)]


@pytest.mark.parametrize("recipe", sorted(command.RECIPES.rglob("*.yaml")), ids=lambda file: file.stem)
def test_every_system_is_a_recipe_that_can_be_trained(recipe: Path, tmp_path: Path) -> None:
    command.check(recipe)
    script, args, *_ = parse_recipe(["--config", str(recipe), "--output_dir", str(tmp_path)])
    rewards = make_rewards(script.reward_funcs, args.reward_weights, None)
    check_advantage(args, make_advantage(script.advantage, args), rewards)
    assert generation_of(args) == (FIRST_ZERO.rollouts, 1) and args.max_generated_tokens == 1_200_000
    for miniature in (SHORT, BEST_OF):
        fields = command.in_place(recipe, miniature)
        words = [f"--{name}={value}" for name, value in fields.items()]
        script, args, *_ = parse_recipe(["--config", str(recipe), *words, "--output_dir", str(tmp_path)])
        assert script.dataset_name == str(miniature.data / "data")
        assert generation_of(args) == (miniature.rollouts, 1) == (128, 1) and args.max_generated_tokens == 300_000
    assert args.budgets == Budgets.of({"total_budget": None, **fields_of(recipe)})


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("mine", {"learning_rate": 1e-3}, r"learning_rate is 0\.001, and 0\.0001 in the rows"),
        ("mine", {"base": "nano"}, "model_name_or_path is 'experiments/nano/base', and"),
        ("laser", {}, "laser is a system of the table; give the file another name"),
        ("rows_quarter", {}, "rows_quarter is a system of the table; give the file another name"),
        ("mine", {"target_prompt": "\n{target} "}, "it must begin with one space, and not end with one"),
    ],
)
def test_a_row_beyond_comparison_is_refused(name: str, fields: dict[str, object], message: str, tmp_path: Path) -> None:
    recipe = tmp_path / f"{name}.yaml"
    recipe.write_text(yaml.safe_dump({"base": "first_zero", **fields}))
    with pytest.raises(ValueError, match=message):
        command.check(recipe)


def test_a_row_has_one_name_however_its_rate_is_written() -> None:
    names = {command.named(Path("forks.yaml"), rate) for rate in ("5e-5", "5e-05", "0.00005")}
    assert names == {"forks at 5e-05"} and command.named(Path("forks.yaml"), None) == "forks"
    recipe, miniature = command.RECIPES / "forks_mean.yaml", command.MINIATURES["best_of"]
    assert command.other_rate(recipe, miniature, "0.0001") is None  # the recipe's own
    assert command.other_rate(recipe, miniature, "5e-5") == "5e-5"
    assert plain("l1_exact at 5e-05, not asked") == plain("l1_exact, not asked") == "l1_exact, not asked"
    assert plain("l1_exact at 5e-05") == "l1_exact"


def test_the_mean_of_weights_is_that_of_the_second_half(tmp_path: Path) -> None:
    for step, weight in ((2, 1.0), (4, 2.0), (6, 6.0)):
        (folder := tmp_path / f"checkpoint-{step}").mkdir()
        save_file({"w": torch.full((2,), weight)}, folder / "model.safetensors")
        (folder / "config.json").write_text(str(step))
    mean = average([tmp_path / "checkpoint-4", tmp_path / "checkpoint-6"], tmp_path / "mean")
    assert load_file(mean / "model.safetensors")["w"].tolist() == [4.0, 4.0]
    assert (mean / "config.json").read_text() == "6"
    assert plain("e1 at 0.0002, averaged") == "e1, averaged" and plain("e1, averaged") == "e1, averaged"


def test_a_row_that_fails_is_named_and_the_others_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(miniature: Miniature, recipe: Path, *_: object) -> list[Row]:
        if recipe.stem == "bad":
            raise subprocess.CalledProcessError(1, ["e1", "train"])
        return []

    added: list[list[Row]] = []
    monkeypatch.setattr(command, "read", lambda _: [{"system": "there", "seed": 42}])
    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(command, "add", added.append)
    (failed,) = command.complete(BEST_OF, [Path("bad.yaml"), Path("there.yaml"), Path("good.yaml")], [42])
    assert failed.startswith("best_of: bad, seed 42: ") and added == [[]]


def test_a_row_is_not_made_again_for_the_mean_of_its_weights() -> None:
    said = command.complete(FIRST_ZERO, [command.RECIPES / "laser.yaml"], [42], averages=True)
    assert said == [
        "first_zero: laser, seed 42: its row is there without the mean of its weights; name another seed for both"
    ]
