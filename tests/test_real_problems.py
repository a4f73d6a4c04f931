"""Problems of the real model: stories, and what is held out."""

import itertools
from collections import Counter

import numpy as np
import pytest
from conftest import DATA

from e1_trl.errors import UserError
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
