"""Ratings against calculations by hand, against a plain search, and against the paper's percentiles."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import DATA
from contests import FIRST, NEVER, NO_POINTS, SECOND, THIRD, WITH_POINTS, WITHOUT, answers, quarters, row
from fabricated import cell
from hypothesis import given
from hypothesis import strategies as st

from e1_trl.report.statistics import Estimate
from experiments.table1.ratings import Attempts, Contest, Standing, Standings, overall, problem_parts, rate


@pytest.mark.parametrize(
    ("contest", "attempts", "score", "rank", "rating"),
    [
        # 500 + (1000 - 2 × 50) = 1400, and the hundred that have as much are as good: rank 200.
        # 1 + 400 / (1 + x) ≥ 200 for x ≤ 201 / 199, and 1000 + 400 log10(201 / 199) = 1001.74.
        (WITH_POINTS, {"A": FIRST, "B": THIRD}, (1400, 0), 200, 1001),
        # 300 have 500 or more. x ≤ 101 / 299, and 1000 + 400 log10(101 / 299) = 811.46.
        (WITH_POINTS, {"A": FIRST, "B": NEVER}, (500, 0), 300, 811),
        # Nobody has fewer than 0 points: rank 400, and x ≤ 1 / 399 only for m ≤ 1000 - 400 log10(399) = -40.4.
        (WITH_POINTS, {"A": NEVER}, (0, 0), 400, 0),
        # The first eight attempts count: 1500 - 7 × 50 = 1150 (200 have more), and nothing for the ninth.
        (WITH_POINTS, {"C": [False] * 7 + [True]}, (1150, 0), 200, 1001),
        (WITH_POINTS, {"C": [False] * 8 + [True]}, (0, 0), 400, 0),
        # Rank 0: every rating is expected to be behind that, up to 99 over the best participant's.
        (WITH_POINTS, {"A": FIRST, "B": FIRST, "C": FIRST}, (3000, 0), 0, 1099),
        # 10 of penalty for each of two failed attempts: behind the hundred with as much, before those with 30.
        (WITHOUT, {"A": SECOND, "B1": SECOND}, (2, 20), 200, 1001),
        (WITHOUT, {"A": FIRST, "B2": SECOND}, (2, 10), 0, 1099),
        # 40 is more than 30: rank 300.
        (WITHOUT, {"A": THIRD, "B2": THIRD}, (2, 40), 300, 811),
    ],
)
def test_a_contest_is_rated_as_by_hand(
    contest: Contest, attempts: Attempts, score: tuple[float, float], rank: int, rating: int
) -> None:
    assert (contest.score(attempts), contest.rank(Standing(*score)), contest.rating(attempts)) == (score, rank, rating)


def test_a_problem_of_few_points_loses_no_more_than_it_has_and_points_mix_with_none() -> None:
    contest = Contest(1, {"A": 200.0, "B": None}, (), ())
    assert contest.score({"A": [False] * 6 + [True]}) == (0, 0)
    assert contest.score({"A": SECOND, "B": THIRD}) == (151, 20)


def test_participants_are_the_official_ones_that_both_answers_name() -> None:
    standings, changes = answers(9, NO_POINTS, quarters((4, 0), (3, 9), (3, 0)))
    strangers = [row("unrated", 9, 0), row("u0-1", 8, 0, "VIRTUAL"), row("u0-2", 8, 0, "OUT_OF_COMPETITION")]
    standings["rows"] = [*strangers, *reversed(standings["rows"])]
    changes.append({"handle": "absent", "oldRating": 3000, "newRating": 3001})
    contest = Contest.of(standings, changes)
    assert contest is not None and contest.id == 9 and contest.problems == NO_POINTS
    assert contest.standings == [(4, 0)] * 100 + [(3, 0)] * 100 + [(3, 9)] * 100
    assert contest.old_ratings == [1000] * 300
    for entry in standings["rows"]:
        del entry["party"]["participantType"]
    assert Contest.of(standings, changes) is None, "two rows of one handle"
    del standings["rows"][:3]
    assert Contest.of(standings, changes) == contest


def test_a_problem_has_a_contest_and_an_index() -> None:
    for text, parts in {"1971A": (1971, "A"), "1971/A": (1971, "A"), "2035B12": (2035, "B12")}.items():
        assert problem_parts(text) == parts
    for wrong in ("A", "1971a", "HumanEval/0", "1971/", "", "1971A\n"):
        with pytest.raises(ValueError, match="is no problem of Codeforces"):
            problem_parts(wrong)


successes = st.lists(st.booleans(), max_size=10)
results = st.builds(Standing, st.integers(0, 12).map(lambda points: 250.0 * points), st.integers(0, 4).map(float))


@st.composite
def contests(draw: st.DrawFn) -> tuple[Contest, dict[str, list[bool]]]:
    points = st.none() | st.sampled_from([200.0, 500.0, 1250.0])
    problems = draw(st.dictionaries(st.sampled_from("ABCDE"), points, min_size=1))
    placed = sorted(draw(st.lists(results, min_size=1, max_size=30)), key=lambda one: (-one.points, one.penalty))
    ratings = draw(st.lists(st.integers(-50, 3700), min_size=len(placed), max_size=len(placed)))
    tried = {index: draw(successes) for index in problems}
    return Contest(1, problems, tuple(placed), tuple(sorted(ratings))), tried


@given(contests())
@pytest.mark.slow
def test_a_rating_is_what_a_plain_search_finds(made: tuple[Contest, dict[str, list[bool]]]) -> None:
    contest, tried = made
    points, penalty = contest.score(tried)
    behind = [p < points or (p == points and other > penalty) for p, other in contest.standings]
    place = [*behind, True].index(True)
    old = np.array(contest.old_ratings)
    good = [m for m in range(max(old) + 100) if 1 + np.sum(1 / (1 + 10 ** ((m - old) / 400))) >= place]
    assert contest.rating(tried) == max(good, default=0)


def test_percentiles_are_the_papers() -> None:
    file = DATA / "code" / "codeforces_elo" / "ratings_2024.json"
    if not file.exists():
        pytest.skip(f"{file} is absent: the ratings of all people are not part of the project")
    population = {int(rating): count for rating, count in json.loads(file.read_text()).items()}
    assert sum(population.values()) == 89352
    published = {1604: 85.4, 1711: 90.6, 1771: 92.3, 1987: 96.0, 1945: 95.4, 1991: 96.1}
    standings = Standings(population, {})
    assert {rating: standings.percentile(rating) for rating in published} == published
    # The paper's own 1457 is rounded: a mean of 1457.4 and above has its percentile.
    assert standings.percentile(1457) == pytest.approx(78.1, abs=0.11)


def test_a_percentile_counts_who_is_below() -> None:
    standings = Standings({-5: 1, 1000: 2, 1500: 3}, {})
    assert [standings.percentile(rating) for rating in (-9, 0, 1000, 1000.5, 9000)] == [0, 16.7, 16.7, 50, 100]


def test_the_interval_of_the_mean_is_seeded_and_as_wide_as_students_with_many_contests() -> None:
    ratings = np.random.default_rng(3).integers(900, 2400, 57).tolist()
    estimate = overall(ratings)
    assert estimate == overall(ratings) != overall(ratings, seed=1)
    assert estimate.mean == pytest.approx(np.mean(ratings))
    width = 2 * 1.96 * np.std(ratings) / np.sqrt(57)
    assert estimate.high - estimate.low == pytest.approx(width, rel=0.1)
    assert overall([1234]) == Estimate(1234, 1234, 1234)


def test_standings_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "standings.json"
    written = Standings({-5: 1, 1500: 3}, {1: WITH_POINTS, 2: WITHOUT})
    written.write(file)
    assert Standings.read(file) == written
    file.write_text('{"contests": [{"id": 1}]}')
    with pytest.raises(ValueError, match=r"standings.json is no file of standings, as .*elo` writes it: "):
        Standings.read(file)


NAMES = ["1A", "1B", "2A", "2/B1", "3A", "1Z"]


def table(*cells: list[list[bool]], names: Sequence[str | None] = NAMES) -> pd.DataFrame:
    """Answers to problems of these names, a budget for each sequence of attempts at them; rows are in no order."""
    parts = [cell([list(each) for each in tried], budget) for budget, tried in zip((None, 64), cells, strict=False)]
    joined = pd.concat(parts, ignore_index=True)
    problem_id = joined["problem"].map(dict(enumerate(names)))
    return joined.assign(benchmark="cf", grader="programs", problem_id=problem_id).sample(frac=1, random_state=0)


STANDINGS = Standings({500: 1, 900: 2, 1000: 1}, {1: WITH_POINTS, 2: WITHOUT})


def test_every_method_and_budget_is_rated_by_its_first_attempts() -> None:
    # 811 and 1001 by the calculations above, their mean 906; then 0 in both.
    answers = table([FIRST, NEVER, SECOND, SECOND, FIRST, FIRST], [NEVER] * 6)
    some, none = sorted(rate(answers, STANDINGS), key=lambda row: -row.rating.mean)
    assert (some.rating, none.rating) == (Estimate(906, 811, 1001), Estimate(0, 0, 0))
    assert (some.model, some.method, some.budget) == ("m", "separate", "unlimited+8") and none.budget == "64+8"
    assert (some.percentile, some.contests, some.left_out) == (75.0, 2, ("3", "1Z"))
    assert some.unasked == ("1C", "2B2")
    (few,) = rate(table([[True, False], [False, True]], names=["1A", "1B"]), STANDINGS)
    assert few.rating.mean == 1099  # 500 + 950 is more than what 300 have: rank 100


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([None, "1A"], "'' is no problem of Codeforces; those are called like 1971A or 1971/B1"),
        (["1A", "1/A"], "the problem 1A is there twice"),
        (["7A", "8A"], "the standings have none of the contests 7, 8"),
    ],
)
def test_problems_that_cannot_be_rated_are_named(names: list[str | None], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        rate(table([FIRST, FIRST], names=names), STANDINGS)
