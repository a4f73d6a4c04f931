"""A budget is a number or a schedule; what a rollout is given follows from the rollout alone."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e1_trl.budget import Budget
from e1_trl.errors import UserError
from e1_trl.problems.prompts import identity
from e1_trl.training.budgets import Budgets, RolloutKey, Schedule, key_of

DRAW = RolloutKey(seed=42, generation=(True, 3, 1), problem="0123456789abcdef", row=7)


def budgets(thinking: Any = 1024, solution: Any = 1024, total: Any = None) -> Budgets:
    return Budgets.of({"thinking_budget": thinking, "solution_budget": solution, "total_budget": total})


def drawn(schedule: Any, draws: list[RolloutKey]) -> list[int | None]:
    return [Schedule.parse("thinking_budget", schedule).at(draw) for draw in draws]


def at_step(step: int) -> RolloutKey:
    return replace(DRAW, generation=(True, step, 1))


ROWS = [replace(DRAW, row=row) for row in range(100)]
PROBLEMS = [replace(DRAW, problem=f"{at:016}") for at in range(1000)]


def test_a_problem_is_known_by_its_key_or_else_by_its_prompt() -> None:
    assert key_of({"prompt": "a=3; a?", "key": DRAW.problem}) == DRAW.problem
    parts = [{"type": "image"}, {"type": "text", "text": "a=3; "}, {"type": "text", "text": "a?"}]
    for content in ("a=3; a?", parts):
        assert key_of({"prompt": [{"role": "user", "content": content}], "key": "mine"}) == identity("a=3; a?")


def test_numbers_are_the_budget_of_every_rollout() -> None:
    fixed = budgets(1024, None)
    assert fixed.at(DRAW) == fixed.fixed == fixed.largest == Budget(1024, None)
    assert str(fixed) == "1024+unlimited"
    assert budgets(None, None, 4000).at(DRAW) == Budget(None, None, 4000)


def test_the_largest_budget_has_the_largest_of_each_part() -> None:
    varied = budgets({"choice": [8, 64, 16]}, {"stages": {0: 8, 5: 32}}, {"stair_cosine": [90, 40], "period": 8})
    assert varied.largest == Budget(64, 32, 90) and varied.fixed is None and str(varied) == "up to 64+32/90"
    assert budgets({"choice": [8, None]}).largest == Budget(None, 1024)


def test_every_extreme_must_fit_not_only_the_largest() -> None:
    varied = budgets({"choice": [None, 100]}, None, 5000)
    assert varied.extremes() == [Budget(None, None, 5000), Budget(100, None, 5000)]
    assert varied.completion_tokens(forced=2) == 5002  # the budget that closes by force, though the other is larger
    assert budgets({"choice": [None, 100]}, 8).completion_tokens(forced=2) is None


def test_stages_hold_from_their_step_on() -> None:
    stages = {"stages": {200: 3000, 0: 4000, 400: None}}
    steps = [0, 199, 200, 399, 400, 10_000]
    assert drawn(stages, [at_step(step) for step in steps]) == [4000, 4000, 3000, 3000, None, None]


def test_a_cycle_goes_from_one_end_to_the_other_and_back() -> None:
    cycle = {"stair_cosine": [16384, 8192], "period": 640}
    # SIRI: the longest for a quarter of a period in all, down in a quarter, the shortest for a quarter, and up again
    once = [16384, 16384, 12288, 8192, 8192, 8192, 12288, 16384]
    assert drawn(cycle, [at_step(step) for step in range(0, 1281, 80)]) == [*once, *once, 16384]
    assert drawn(cycle, [at_step(step) for step in (120, 200)]) == [15184, 9392]  # no straight line


@pytest.mark.parametrize("schedule", [{"uniform": [8, 64]}, {"log_uniform": [8, 64]}, {"choice": [8, 32, 64]}])
def test_what_is_drawn_is_the_same_for_a_problem_or_for_a_row_and_in_a_run_that_resumes(schedule: Any) -> None:
    assert len(set(drawn(schedule, ROWS))) == 1
    per_row = drawn({**schedule, "per": "row"}, ROWS)
    assert len(set(per_row)) > 2 and per_row == drawn({**schedule, "per": "row"}, ROWS)
    for other in (replace(DRAW, seed=43), replace(DRAW, generation=(True, 4, 1)), replace(DRAW, problem="0" * 16)):
        assert drawn({**schedule, "per": "row"}, [replace(other, row=row) for row in range(100)]) != per_row
    thinking, solution = (Schedule.parse(name, schedule) for name in ("thinking_budget", "solution_budget"))
    assert [thinking.at(draw) for draw in PROBLEMS] != [solution.at(draw) for draw in PROBLEMS]


def test_draws_have_the_distribution_that_is_named() -> None:
    uniform, log_uniform = drawn({"uniform": [1, 100]}, PROBLEMS), drawn({"log_uniform": [1, 100]}, PROBLEMS)
    assert min(uniform) >= 1 and max(uniform) <= 100 and min(log_uniform) >= 1 and max(log_uniform) <= 100
    # Of 1,000 draws half are expected below the middle, which is 10 where logarithms are uniform; 5 deviations are 79.
    assert abs(sum(each <= 50 for each in uniform) - 500) < 79
    assert abs(sum(each < 10 for each in log_uniform) - 489) < 79  # up to 9.5
    counts = Counter(drawn({"choice": [0, 512, None]}, PROBLEMS))
    assert counts.keys() == {0, 512, None} and min(counts.values()) > 333 - 75


def test_forks_draw_from_equal_parts_of_the_range_and_share_the_place_in_them() -> None:
    place = replace(DRAW, field="thinking_budget").random().random()
    forked = budgets({"log_uniform": [9, 144], "forks": 4}, 8)
    by_hand = [round(9 * 2 ** (part + place)) for part in range(4)]  # 144 / 9 is 2 to the fourth
    assert [each.thinking for each in map(forked.at, ROWS[:8])] == by_hand * 2 == [16, 33, 66, 132] * 2
    assert forked.largest == Budget(144, 8) and forked.fixed is None and forked.forks == 4

    per_row = budgets({"log_uniform": [9, 144], "forks": 4, "per": "row"}, {"log_uniform": [8, 64], "per": "row"})
    places = [replace(DRAW, field="thinking_budget", row=thought).random("row").random() for thought in (0, 1)]
    found = [per_row.at(row) for row in ROWS[:8]]
    assert [each.thinking for each in found] == [round(9 * 2 ** (part + at)) for at in places for part in range(4)]
    assert len({each.solution for each in found}) > 3  # solutions are no thoughts
    assert found == [per_row.at(row) for row in reversed(ROWS[:8])][::-1]  # as where a run resumes


def test_a_thought_is_nested_in_the_budgets_that_are_named() -> None:
    named = budgets("{nested: [0, 16, 16, 64]}")
    assert [named.at(row).thinking for row in ROWS[:6]] == [0, 16, 16, 64, 0, 16]
    assert named.forks == 4 and named.largest.thinking == 64


def test_one_fork_is_drawn_as_a_rollout_always_was() -> None:
    drawn_before = ["34+64", "61+57", "99+35", "79+21", "117+48"]
    for forks in ({}, {"forks": 1}):
        each = budgets({"log_uniform": [9, 144], "per": "row", **forks}, {"uniform": [8, 64], "per": "row"})
        assert [str(each.at(row)) for row in ROWS[:5]] == drawn_before


@pytest.mark.parametrize("forked", [{"log_uniform": [8, 64], "forks": 2}, {"nested": [8, 64]}])
def test_nothing_but_a_thought_is_forked(forked: Any) -> None:
    for given in ({"solution": forked}, {"total": forked}):
        with pytest.raises(UserError, match=r"_budget has 2 forks; only the thoughts of thinking_budget are forked$"):
            budgets(**given)
    with pytest.raises(UserError, match=r"^target has 2 forks; only the thoughts of thinking_budget are forked$"):
        Schedule.parse("target", forked)  # a length that all rollouts of a prompt are asked for


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (-1, "thinking budget is -1 tokens"),
        ("many", "thinking_budget is 'many'; it must be a number of tokens, null, or a schedule: {stages: "),
        (True, "thinking_budget is True; it must be"),
        ([8, 64], r"thinking_budget is \[8, 64\]; it must be"),
        ({"uniform": [64, 8]}, r"must read as {uniform: \[256, 4096\], per: problem}"),
        ({"uniform": [8, 64], "per": "token"}, "must read as {uniform"),
        ({"log_uniform": [0, 64]}, "must read as {log_uniform"),
        ({"choice": []}, "must read as {choice"),
        ({"stages": {5: 10}}, "must read as {stages"),
        ({"stages": [10]}, "must read as {stages"),
        ({"stages": {0: 10, "later": 5}}, "must read as {stages"),
        ({"stages": {0: 10, 0.5: 3}}, "must read as {stages"),
        ({"stair_cosine": [8, None], "period": 5}, "must read as {stair_cosine"),
        ({"stair_cosine": [8, 4], "period": 1}, "must read as {stair_cosine"),
        ({"log_uniform": [64, 8]}, "must read as {log_uniform"),
        ({"log_uniform": [8, 64], "forks": 0}, "must read as {log_uniform.*forks: 4"),
        ({"uniform": [8, 64], "forks": 2}, "must read as {uniform"),
        ({"nested": [64, 8]}, "must read as {nested"),
        ({"nested": 8}, "must read as {nested"),
        ({"cosine": [8, 4], "period": 10}, "it must be a number of tokens, null, or a schedule"),
        ({"no.such": [8, 4]}, "the schedule 'no.such' cannot be imported: No module named 'no'"),
        ({"my_schedules.stairs": [8]}, "the schedule 'my_schedules.stairs' cannot be imported: .*'stairs'"),
        ({"my_schedules.staircase": [8], "steps": 5}, "it fails: staircase.. got an unexpected keyword"),
        ({"my_schedules.staircase": ["8"]}, "it fails: its argument must hold numbers of tokens"),
    ],
)
@pytest.mark.usefixtures("own_schedules")
def test_what_is_neither_a_number_nor_a_schedule_is_refused_in_one_line(given: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        budgets(given)
    assert "\n" not in str(error.value)


def test_a_schedule_with_a_value_that_is_no_budget_is_refused() -> None:
    for part, schedule in (("solution", {"choice": [0, 8]}), ("total", {"stages": {0: 8, 3: 0}})):
        with pytest.raises(ValueError, match=f"{part} budget is 0 tokens"):
            budgets(**{part: schedule})


STAIRCASE = """
def staircase(key, values, every=100):
    return values[min(key.step // every, len(values) - 1)]

def drawn(key, values, per="problem"):
    return key.random(per).choice(values)

def forked(key, values, forks):
    return values[key.fork] // forks

def beyond(key, values):
    return values[0] + key.step

def half(key, values):
    return values[0] / 2 if key.step else values[0]
"""


@pytest.fixture
def own_schedules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a user's in the working directory."""
    (tmp_path / "my_schedules.py").write_text(STAIRCASE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_schedules", raising=False)


@pytest.mark.usefixtures("own_schedules")
def test_a_function_of_the_users_is_a_schedule_by_its_dotted_path() -> None:
    staircase = {"my_schedules.staircase": [256, 1024, 512], "every": 50}
    assert drawn(staircase, [at_step(step) for step in (0, 49, 50, 100, 999)]) == [256, 256, 1024, 512, 512]
    named = budgets(str(staircase))  # as on a command line
    assert named.largest.thinking == 1024 and named.fixed is None
    assert {each.thinking for each in named.extremes()} == {256, 512, 1024}
    forked = budgets({"my_schedules.forked": [8, 40], "forks": 2})
    assert forked.forks == 2 and [forked.at(row).thinking for row in ROWS[:4]] == [4, 20, 4, 20]
    own = drawn({"my_schedules.drawn": [8, 32, 64]}, PROBLEMS)
    assert own == drawn({"choice": [8, 32, 64]}, PROBLEMS)


@pytest.mark.usefixtures("own_schedules")
def test_a_schedule_of_the_users_that_exceeds_its_largest_value_is_refused() -> None:
    beyond = budgets({"my_schedules.beyond": [8, 9]})
    assert beyond.at(at_step(1)).thinking == 9
    with pytest.raises(UserError, match="thinking_budget is 10 at step 2; expected a whole number from 0 to 9"):
        beyond.at(at_step(2))
    half = budgets({"my_schedules.half": [7, None]})
    with pytest.raises(UserError, match=r"is 3\.5 at step 1; expected a whole number from 0 on, or null"):
        half.at(at_step(1))
