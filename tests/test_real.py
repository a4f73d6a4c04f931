"""The real model: splits by story, lessons, intervals over stories, and the gate."""

import itertools
import re
from collections import Counter
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import DATA

from e1_trl.errors import UserError
from e1_trl.recipes import read_mapping
from experiments.pretraining import IGNORED_LABEL
from experiments.real import __main__ as command
from experiments.real import make_base, page
from experiments.real.__main__ import SYSTEMS
from experiments.real.make_base import AT_ONCE, SUMS_A_ROW, Lessons, dealt, rollouts, sums, written_by_people
from experiments.real.measure import (
    BUDGETS,
    FOLDER,
    Rows,
    by_story,
    equations_right,
    minus,
    sentence_starts,
)
from experiments.real.problems import (
    MOST_OF_A_STORY,
    SAME_STORY,
    SETS,
    Problem,
    directions,
    draw,
    read,
    similarity,
    split,
    story_numbers,
)
from experiments.systems.measure import pack

FILES = [DATA / "math_train" / name for name in SETS]
needs_problems = pytest.mark.skipif(not all(file.exists() for file in FILES), reason=f"no MAWPS or SVAMP in {DATA}")
STORIES = {
    "carpet": "Jesse needs carpet for her room. The room is {} feet long and she has {} square feet. How wide is it?",
    "pond": "Paige raised {} goldfish in the pond, but stray cats love eating them. {} are left. How many disappeared?",
    "bus": "A bus has {} passengers. At the next stop {} passengers get off. How many passengers are left?",
    "bake": "For the bake sale Carol made {} cupcakes, and sold {} cupcakes. How many cupcakes would she have?",
}


def told(story: str, times: int) -> list[Problem]:
    """A story with other numbers each time."""
    return [Problem(STORIES[story].format(place + 20, place + 3), str(place)) for place in range(times)]


def test_variations_are_one_story_and_other_things_are_not() -> None:
    texts = [
        "Jesse has 18 square feet of carpet. If her room is 4 feet long and 20 feet wide, how much more does she need?",
        "Tom's room is 7 feet long. If he needs a carpet of size 14 square feet, what is the width of his room?",
        "There are 18 birds on the fence. If 4 more birds and 20 storks join them, how many more birds are there?",
        "A school made 7 cakes. If it sells a cake for 14 dollars, how much does the school get for its cakes?",
    ]
    rows = directions(texts)
    near = similarity(rows, rows)
    assert near[0, 1] >= SAME_STORY > max(near[0, 2:].max(), near[1, 2:].max(), near[2, 3])
    first, second, *others = story_numbers(rows)
    assert first == second and len({first, *others}) == 3


def test_no_problem_that_is_held_out_has_a_trained_one_about_its_story() -> None:
    problems = [problem for story in STORIES for problem in told(story, 12)]
    worked = [*told("bus", 2), *told("pond", 1), Problem("A farmer plants 3 rows of corn.", "3", "Three rows.\n#### 3")]
    for seed in range(10):
        parts = split(problems, worked, (MOST_OF_A_STORY, MOST_OF_A_STORY), seed)
        held = [*parts.test, *parts.validation]
        assert len(parts.test) == len(parts.validation) == MOST_OF_A_STORY
        assert max(Counter(parts.stories).values()) <= MOST_OF_A_STORY
        trained = [*parts.train, *parts.worked]
        rows = directions([problem.text for problem in (*problems, *worked)])
        place = {problem.text: index for index, problem in enumerate((*problems, *worked))}
        ours, theirs = ([place[problem.text] for problem in part] for part in (held, trained))
        near = similarity(rows[ours], rows[theirs])
        assert near.max() < SAME_STORY
        assert parts.nearest == pytest.approx(near[: len(parts.test)].max(1), abs=1e-4)
        used = len(held) + len(parts.train)
        assert parts.left_out == {"mawps and svamp": len(problems) - used, "gsm8k": len(worked) - len(parts.worked)}


def test_held_out_stories_share_no_part_and_too_few_are_an_error() -> None:
    stories = np.repeat(np.arange(13), [30, *[2] * 12])
    for seed in range(20):
        first, second = draw(stories, (8, 6), seed)
        assert not {*stories[first]} & {*stories[second]}
        assert max(Counter(stories[first]).values()) <= MOST_OF_A_STORY
    with pytest.raises(UserError, match="of 54 problems, 40 cannot be held out"):
        draw(stories, (40,), 0)


@needs_problems
def test_the_bound_finds_svamps_variations_by_names_that_it_does_not_see() -> None:
    problems = read(FILES)
    rows = directions([problem.text for problem in problems])
    # Each is in one story of SVAMP; that it is in a pair says that the pair is of one story.
    names = ("Philip", "Jessie", "Dean", "Nell", "Lewis", "Olivia", "Randy", "Buckingham", "Gwen", "Debby")
    own = {problem.text for problem in read(FILES[1:])}
    near = []
    for name in names:
        told = [place for place, each in enumerate(problems) if name in each.text and each.text in own]
        within = similarity(rows[told], rows[told])
        near += [within[pair] for pair in itertools.combinations(range(len(told)), 2)]
    assert len(near) > 250 and np.mean(np.array(near) >= SAME_STORY) > 0.98
    some = rows[:: len(problems) // 300]
    others = similarity(some, some)[np.triu_indices(some.shape[0], 1)]
    assert np.mean(others >= SAME_STORY) < 0.01


def test_a_worked_solution_loses_the_calculators_notes_and_the_line_of_the_answer() -> None:
    written = "Weng earns 12/60 = $<<12/60=0.2>>0.2 a minute.\nFor 5,000 minutes: $<<0.2*5000=1000>>1,000.\n#### 1,000"
    thinking = "Weng earns 12/60 = $0.2 a minute.\nFor 5,000 minutes: $1,000."
    assert written_by_people(Problem("?", "1,000", written)) == ("?", thinking, "\nThe answer is \\boxed{1000}.")


def test_sums_are_true_and_only_their_results_are_learnt() -> None:
    for seed in range(20):
        lines = sums(Random(seed)).splitlines()
        assert len(lines) == SUMS_A_ROW and all(equations_right(line) == [True] for line in lines), lines
    characters: Any = SimpleNamespace(encode=lambda text: list(map(ord, text)))
    row = Lessons(characters, None, None, 0, 1, 1).tokenized("", "1 + 2 = 3\n5*2=10\n", "")  # type: ignore[arg-type]
    learnt = "".join(chr(label) if label != IGNORED_LABEL else "." for label in row["labels"])
    assert "".join(map(chr, row["input_ids"])) == "1 + 2 = 3\n5*2=10\n" and learnt == "....... 3\n....10\n"


def test_equations_are_found_in_words_and_checked() -> None:
    said = ["2..5 + 7 = 12.\nSo 12*$2=$25", "1,000/4 = 250</think>", "She has 3 apples and 5-2 are left", "7/0 = 0"]
    assert [equations_right(text) for text in said] == [[True, False], [True], [], [False]]


def test_a_base_is_made_in_two_stages_but_for_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr(make_base, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(make_base, "teach", lambda examples, output, seed: done.append("teach") or output.mkdir())
    monkeypatch.setattr(make_base, "train", lambda recipe, *_: done.append((recipe, *_)) or _[1].mkdir())
    monkeypatch.setattr(make_base, "read_split", lambda seed: SimpleNamespace(worked=[]))
    monkeypatch.setattr(make_base, "merge", lambda adapters, output: done.append([*adapters]) or output.mkdir())
    own = [tmp_path / "1/adapters" / stage for stage in ("taught", "reinforced")]
    model = tmp_path / "1/taught"
    make_base.make_model(tmp_path / "1", 17)
    assert done == ["teach", own[:1], ("base", model, own[1], 17), own]
    make_base.make_model(tmp_path / "1", 17)
    assert len(done) == 4
    kept = [tmp_path / "kept/117" / stage for stage in ("taught", "reinforced")]
    for folder in kept:
        folder.mkdir(parents=True)
    make_base.make_model(tmp_path / "2", 117)
    assert done[4:] == [kept[:1], kept]


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
    def all_rows(base: int, system: str, share: float, **own: Any) -> list[dict[str, Any]]:
        asked = [(method, budget) for method in ("separate", "s1", "truncation") for budget in BUDGETS]
        asked += [("no_thinking", f"0+{BUDGETS[0].partition('+')[2]}"), ("unconstrained", None)]
        usual = {"base": base, "mean_thinking_tokens": 30.0, "equations_right": 0.5, "truncated_ratio": 0.25}
        return [row(system, *each, share, **{**usual, **own}) for each in asked]

    found = Rows(
        [
            *all_rows(1, "base", 0.25),
            *all_rows(1, "e1", 0.5),
            *all_rows(1, "e1", 0.75, seed=43),
            *all_rows(1, "grpo_cut", 0.5),
            *all_rows(2, "base", 0.5),
        ],
        range(PROBLEMS),
    )
    systems = list(page.systems(found))
    assert [line[:3] for line in systems[1:]] == [
        ("1", "base", "1"),
        ("1", "e1", "2"),
        ("1", "grpo_cut", "1"),
        ("2", "base", "1"),
    ]
    assert systems[2][3:] == ("62.5%",) * 7 + ("30", "50.0%", "25.0%", "", "")
    assert [line[-1].partition(" ")[0] for line in systems[1:]] == ["+37.5", "", "+12.5", ""]
    methods = list(page.methods(found))
    assert len(methods) == 1 + 3 * 3 and all(cell == "+0.0 (+0.0 to +0.0)" for line in methods[1:] for cell in line[3:])
    assert len(list(page.gates(found))) == 1 + 4 * 2
    near, *_, far = [line for line in page.nearness(found, np.linspace(0, 0.3, PROBLEMS).tolist()) if line[2] == "e1"]
    assert (near[3], far[3]) == ("100.0%", "11.9%")  # the first are right, and farthest from what is trained on
    assert [len(axis.lines) for axis in page.picture(found).axes] == [3, 1, 6, 3]


def test_sentences_start_after_their_ends_but_not_inside_numbers_and_a_close_starts_none() -> None:
    words = [
        "There",
        " are",
        " ",
        "1",
        ".",
        "5",
        " pens",
        ".",
        " So",
        " 3",
        "\n",
        "There",
        ".",
        "\n",
        "\n",
        "</",
        "think>",
    ]
    tokenizer: Any = SimpleNamespace(decode=lambda ids: words[ids[0]], encode=lambda _: [words.index("</")])
    found = sentence_starts([range(len(words))], tokenizer)
    assert Counter({words[token]: count for token, count in found.items()}) == {" So": 1, "There": 1}


def test_a_base_is_measured_as_it_is_and_a_system_after_its_training(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr(command, "read", lambda: {"rows": [], "split": {"stories": []}})
    monkeypatch.setattr(command, "train", lambda recipe, source, output, seed: done.append((recipe, seed)) or output)
    monkeypatch.setattr(command, "evaluate", lambda model, folder: done.append(model.name) or folder)
    monkeypatch.setattr(command, "measured", lambda *_: [])
    monkeypatch.setattr(command, "append", lambda *_: None)
    command.add(1, "base", 17)
    command.add(1, "e1", 42)
    assert done == ["base", ("e1", 42), "e1-42"]


def test_the_recipes_share_everything_but_their_budgets() -> None:
    own = {name: read_mapping(FOLDER / f"{name}.yaml") for name in SYSTEMS if name != "e1"}
    assert {"base", "evaluation", *SYSTEMS} == {file.stem for file in FOLDER.glob("*.yaml")}
    steps = {name: rollouts(name) for name in ("base", "e1")}
    assert steps == {"base": 512, "e1": 128} and all(each % AT_ONCE == 0 for each in steps.values())
    budget = re.compile("(thinking|solution|total)_budget|base|advantage|num_generations")
    assert all(budget.fullmatch(field) for fields in own.values() for field in fields)
    assert all(fields["base"] == "e1.yaml" for fields in own.values())
