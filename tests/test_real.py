"""The real model: lessons, bases, rows, intervals over stories, and the page."""

import itertools
import json
import re
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import ROOT
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from e1_trl.provenance import Provenance
from e1_trl.recipes import read_mapping
from e1_trl.report import samples
from experiments.pretraining import IGNORED_LABEL
from experiments.real import __main__ as command
from experiments.real import make_base, measure, page
from experiments.real.__main__ import SYSTEMS
from experiments.real.make_base import AT_ONCE, SUMS_A_ROW, Lessons, dealt, rollouts, sums, written_by_people
from experiments.real.measure import BUDGETS, FOLDER, Rows, by_story, minus
from experiments.real.problems import Problem
from experiments.results import Results
from experiments.systems.measure import pack, unpack


def test_a_worked_solution_loses_the_calculators_notes_and_the_line_of_the_answer() -> None:
    written = "Weng earns 12/60 = $<<12/60=0.2>>0.2 a minute.\nFor 5,000 minutes: $<<0.2*5000=1000>>1,000.\n#### 1,000"
    thinking = "Weng earns 12/60 = $0.2 a minute.\nFor 5,000 minutes: $1,000."
    assert written_by_people(Problem("?", "1,000", written)) == ("?", thinking, "\nThe answer is \\boxed{1000}.")


def test_sums_are_true_and_only_their_results_are_learnt() -> None:
    for seed in range(20):
        lines = sums(Random(seed)).replace("x", "*").splitlines()
        sides = [[eval(side) for side in line.split("=")] for line in lines]
        assert len(lines) == SUMS_A_ROW and all(one == pytest.approx(other, abs=0.01) for one, other in sides), lines
    characters: Any = SimpleNamespace(encode=lambda text: list(map(ord, text)))
    row = Lessons(characters, None, None, 0, 1, 1).tokenized("", "1 + 2 = 3\n5*2=10\n", "")  # type: ignore[arg-type]
    learnt = "".join(chr(label) if label != IGNORED_LABEL else "." for label in row["labels"])
    assert "".join(map(chr, row["input_ids"])) == "1 + 2 = 3\n5*2=10\n" and learnt == "....... 3\n....10\n"


def test_a_base_is_made_in_two_stages_but_for_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    def e1(*words: Any) -> None:
        done.append(("e1", words[4].parent.name, words[4].name, words[-1]))
        words[6].mkdir()

    def merged(model: Any, adapter: str) -> Any:
        return SimpleNamespace(merge_and_unload=lambda: done.append(Path(adapter)) or model)

    weights = SimpleNamespace(save_pretrained=lambda folder: Path(folder).mkdir(exist_ok=True))
    monkeypatch.setattr(make_base, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(make_base, "teach", lambda examples, output, seed: done.append("teach") or output.mkdir())
    monkeypatch.setattr(make_base, "e1", e1)
    monkeypatch.setattr(make_base, "read_split", lambda seed: SimpleNamespace(worked=[]))
    monkeypatch.setattr(make_base, "load_weights", lambda: (weights, weights))
    monkeypatch.setattr(make_base, "PeftModel", SimpleNamespace(from_pretrained=merged))
    own = [tmp_path / "1/adapters" / stage for stage in ("taught", "reinforced")]
    make_base.make_model(tmp_path / "1", 17)
    assert done == ["teach", own[0], ("e1", "1", "taught", 90), *own]
    make_base.make_model(tmp_path / "1", 17)
    assert len(done) == 5
    kept = [tmp_path / "kept/117" / stage for stage in ("taught", "reinforced")]
    for folder in kept:
        folder.mkdir(parents=True)
    make_base.make_model(tmp_path / "2", 117)
    assert done[5:] == [kept[0], *kept]


def test_every_example_is_dealt_once_a_round_and_alike_from_a_seed() -> None:
    examples = [(str(place), "", "") for place in range(7)]
    first, again = (list(itertools.islice(dealt(examples, Random(1)), 21)) for _ in range(2))
    assert first == again and all(sorted(first[at : at + 7]) == examples for at in (0, 7, 14))


def test_problems_of_one_story_count_as_one_draw() -> None:
    right = np.array([[1.0, 1, 1, 1, 0, 0, 0, 0]])
    alone, together = (minus(by_story(right, stories)) for stories in (range(8), [0, 0, 0, 0, 1, 1, 1, 1]))
    assert alone.difference == together.difference == right.mean()
    assert together.interval[1] - together.interval[0] > 4 * (alone.interval[1] - alone.interval[0])
    uneven = by_story(np.array([[1.0, 0, 0, 0]]), [0, 1, 1, 1])
    assert uneven.tolist() == [[0.5, 0.0]]
    seeds = np.array([[1.0, 1, 0, 0], [0, 0, 0, 0]])
    both, one = (minus(seeds[:count], np.zeros((count, 4))) for count in (2, 1))
    assert both.df != one.df == 3
    method = seeds + np.array([0.1, 0.1, 0.1, 0.2])
    apart, paired = minus(method, seeds), minus(method - seeds)
    assert apart.error > 2 * paired.error  # methods on the same models: seeds that differ alike cancel


PROBLEMS = 64


def row(system: str, method: str, budget: str | None, share: float, **own: Any) -> dict[str, Any]:
    """A row of base 1 whose first problems are right."""
    right = np.arange(PROBLEMS) < round(share * PROBLEMS)
    usual = {"thinking_p10": 10.0, "thinking_p90": 45.0, "closed_ratio": 1.0, "accuracy": share, "seed": 42}
    usual |= {"ci_low": share - 0.05, "ci_high": share + 0.05}
    place = {"base": 1, "system": system, "method": method, "budget": budget}
    return {**usual, **place, "right": pack(right[None]), **own}


def rows(*others: dict[str, Any], at: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75), **free: Any) -> Rows:
    """A base that is right on these shares at the budgets, and other rows."""
    own = [row("base", "separate", budget, share) for budget, share in zip(BUDGETS, at, strict=True)]
    return Rows([*own, row("base", "unconstrained", None, 0.75, **free), *others], range(PROBLEMS))


def holding(found: Rows) -> list[bool]:
    return [line[-1] == "yes" for line in list(page.gates(found))[1:]]


def test_each_condition_on_a_base_can_fail() -> None:
    assert holding(rows()) == [True] * 4
    assert holding(rows(accuracy=0.24)) == [False, True, True, True]
    assert holding(rows(closed_ratio=0.94)) == [True, False, True, True]
    assert holding(rows(thinking_p90=39.0)) == [True, True, False, True]
    assert holding(rows(at=(0.0, 0.25, 0.5, 0.53125))) == [True, True, True, False]


def test_the_page_compares_systems_methods_and_distances_on_each_base_that_has_rows() -> None:
    def all_rows(base: int, system: str, right: int, **own: Any) -> list[dict[str, Any]]:
        """Each row has one more right answer than the one before it."""
        asked: list[tuple[str, str | None]] = [("no_thinking", f"0+{BUDGETS[0].partition('+')[2]}")]
        asked += [(method, budget) for method in ("separate", "truncation", "s1") for budget in BUDGETS]
        asked.append(("unconstrained", None))
        usual = {"base": base, "mean_thinking_tokens": 30.0, "closes_again_ratio": 0.25}
        return [row(system, *each, (right + k) / PROBLEMS, **{**usual, **own}) for k, each in enumerate(asked)]

    made = [(1, "base", 16), (1, "e1", 32), (1, "grpo_cut", 32)]
    made += [(2, "base", 32), (2, "taught", 16), (2, "taught_e1", 32)]
    first_seed = [one for each in made for one in all_rows(*each)]
    found = Rows([*first_seed, *all_rows(1, "e1", 48, seed=43)], range(PROBLEMS))
    systems = list(page.systems(found))
    seeds = [(str(base), name, "2" if name == "e1" else "1") for base, name, _ in made]
    assert [line[:3] for line in systems[1:]] == seeds
    # 16 to 20, 22, 23 and 29 of 64
    shares = ("25.0%", "26.6%", "28.1%", "29.7%", "31.2%", "34.4%", "35.9%", "45.3%")
    assert systems[1][3:-2] == (*shares, "30", "25.0%") and systems[2][-2:] == ("", "")
    assert [line[-1].partition(" ")[0] for line in systems[1:]] == ["+37.5", "", "+12.5", "", "+25.0", ""]
    differences = {"separate minus s1": "-12.5", "s1 minus truncation": "+6.2", "separate minus truncation": "-6.2"}
    methods = list(page.methods(found))[1:]
    assert [line[0] for line in methods] == [name for name in differences for _ in range(5)]
    assert all(cell.split()[0] == differences[line[0]] for line in methods for cell in line[3:])
    assert len(list(page.gates(found))) == 1 + 4 * 2
    near, *_, far = [line for line in page.nearness(found, np.linspace(0, 0.3, PROBLEMS).tolist()) if line[2] == "e1"]
    assert (near[3], far[3]) == ("100.0%", "47.6%")  # the first are right, and farthest from what is trained on
    assert [len(axis.lines) for axis in page.picture(found).axes] == [3, 3, 5, 3]


def test_the_page_is_as_it_would_be_made_now() -> None:
    results = Results()["real"]
    found = Rows(results["rows"], results["split"]["stories"])
    document = (ROOT / page.DOCUMENT).read_text()
    for name, section in page.sections(found, results["split"]["nearest"]).items():
        assert f"<!-- {name} -->\n{section}<!-- /{name} -->" in document, "run python -m experiments.real.page"
    assert all(axis.lines for axis in page.picture(found).axes)


def test_a_row_holds_the_answers_in_order_and_how_the_training_began_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One story of each two of eight problems, whose answers stand in another order.
    answers = pd.DataFrame({"problem": [7, 6, 5, 4, 3, 2, 1, 0], "method": "separate"})
    answers["outcome"] = ["unboxed", "wrong", "wrong", "wrong", "correct", "correct", "correct", "correct"]
    answers["unboxed"] = [False] * 4 + [True] + [False] * 3
    figures = {"thinking_tokens": 8, "closes_again": False, "truncated": True}
    answers = answers.assign(thinking_budget=8, solution_budget=16, thinking_end="forced", **figures)
    monkeypatch.setattr(samples, "read", lambda folder: answers)
    logged = {"thinking/forced_ratio": 1.0, "solution/truncated_ratio": 0.5, "frac_reward_zero_std": 0.25}
    logged |= {"thinking/sampled_tokens": 8.0, "solution/mean_tokens": 12.0}
    log = [{"step": step + 1, "reward": step, **logged} for step in range(20)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    Provenance(commit="abc", date="2026-01-01", machine="here", seeds=(42,)).write(tmp_path)
    (found,) = measure.measured(tmp_path, 1, "e1", 42, [0, 0, 1, 1, 2, 2, 3, 3], tmp_path)
    place = {"base": 1, "system": "e1", "seed": 42, "method": "separate", "budget": "8+16", "commit": "abc"}
    numbers = {"accuracy": 0.5, "accuracy_by_boxes": 0.375, "unboxed_ratio": 0.125, "truncated_ratio": 1.0}
    numbers |= {"closed_ratio": 0.0, "mean_thinking_tokens": 8.0}
    trained = {"generated_tokens": 20 * 128 * 20, "first_reward": 4.5, "last_reward": 14.5, "last_groups_alike": 0.25}
    assert found.items() >= (place | numbers | trained).items()
    assert unpack(found["right"], 1)[0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]


def test_a_base_is_measured_as_it_is_and_a_system_after_its_training(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr(command, "read", lambda: {"rows": [], "split": {"stories": []}})
    monkeypatch.setattr(
        command, "train", lambda recipe, source, output, seed: done.append((source.name, seed)) or output
    )
    monkeypatch.setattr(  # a model, and the place of its evaluation
        command, "e1", lambda *words: done.extend("/".join(words[at].parts[-2:]) for at in (4, 6))
    )
    monkeypatch.setattr(
        command, "merge", lambda adapters, output, source: done.append((adapters[0].name, source.name)) or output
    )
    monkeypatch.setattr(command, "measured", lambda *_: [])
    monkeypatch.setattr(command, "append", lambda *_: None)
    command.add(1, "taught", 17)
    command.add(1, "base", 17)
    command.add(1, "e1", 42)
    command.add(1, "taught_e1", 42)
    merged = [("base", 42), ("e1-42", "base"), "e1-42/merged", "e1-42/test"]
    merged += [("taught", 42), ("taught_e1-42", "taught"), "taught_e1-42/merged", "taught_e1-42/test"]
    assert done == ["1/taught", "1/test-taught-17", "1/base", "1/test-base-17", *merged]


def test_an_adapter_is_merged_into_the_model_that_it_was_trained_from(tmp_path: Path) -> None:
    source = ROOT / "experiments" / "nano" / "base"
    config = LoraConfig(target_modules="all-linear", init_lora_weights=False)
    get_peft_model(AutoModelForCausalLM.from_pretrained(source), config).save_pretrained(tmp_path / "adapter")
    make_base.merge([tmp_path / "adapter"], tmp_path / "merged", source)
    models = [AutoModelForCausalLM.from_pretrained(folder) for folder in (source, tmp_path / "merged")]
    adapted = PeftModel.from_pretrained(models[0], tmp_path / "adapter").merge_and_unload().state_dict()
    assert all(torch.equal(each, adapted[name]) for name, each in models[1].state_dict().items())
    assert (tmp_path / "merged" / "tokenizer.json").exists()


def test_the_recipes_share_everything_but_their_budgets() -> None:
    own = {name: read_mapping(FOLDER / f"{name}.yaml") for name in SYSTEMS if name != "e1"}
    assert {"base", "evaluation", *SYSTEMS} == {file.stem for file in FOLDER.glob("*.yaml")}
    steps = {name: rollouts(name) for name in ("base", "e1")}
    assert steps == {"base": 512, "e1": 128} and all(each % AT_ONCE == 0 for each in steps.values())
    budget = re.compile("(thinking|solution|total)_budget")
    assert all(fields.pop("base") == "e1.yaml" for fields in own.values())
    tokens = {name: fields.pop("max_generated_tokens") for name, fields in own.items() if SYSTEMS[name] == "taught"}
    assert set(tokens.values()) == {200_000}
    assert all(budget.fullmatch(field) for fields in own.values() for field in fields)
