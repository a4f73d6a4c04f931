"""The miniature in which the budget binds: its problems, its thoughts, and what a stopped thought leaves open."""

import random
from collections import Counter
from itertools import islice

from conftest import ROOT
from transformers import AutoTokenizer

from experiments.first_zero.make_base import GROUPS, SIZES, STEP_TOKENS, Search, example, problems

BASE = ROOT / "experiments" / "first_zero" / "base"
SEARCH = Search.read("3Aa+4b+2Bc+1d+6Ce+9f+5Dg+4h+1?")  # 7, 9, 0


def test_a_problem_has_one_first_zero_at_any_step() -> None:
    rng = random.Random(1)
    searches = [Search.sample(rng) for _ in range(4000)]
    for search in searches:
        assert Search.read(search.problem) == search
        sums = [(search.start + sum(search.digits[: step + 1])) % 10 for step in range(len(search.digits))]
        assert 0 not in sums[: search.hit] and sums[search.hit] == 0
    assert {search.size for search in searches} == set(SIZES)
    for size in SIZES:
        hits = Counter(search.answer for search in searches if search.size == size)
        assert all(200 < hits[group] < 300 for group in GROUPS)  # 250


def test_thoughts_state_every_step_up_to_the_hit() -> None:
    assert SEARCH.answer == "B" and SEARCH.hit == 2
    assert "".join(SEARCH.concise) == "Aa+47.b+29.Bc+10!"
    assert "".join(SEARCH.filled(random.Random(0), 19)) in (
        "Aa+47.Waita+47.b+29.Bc+10!",
        "Aa+47.b+29.Waitb+29.Bc+10!",
        "Aa+47.b+29.Bc+10!Waitc+10!",
    )
    longest = SEARCH.filled(random.Random(0), 10_000)
    assert len(longest) == len(SEARCH.concise) + 3 * 4 * (STEP_TOKENS + 1)


def test_half_of_the_concise_thoughts_fit_the_training_budget_and_natural_ones_are_twice_as_long() -> None:
    rng = random.Random(2)
    searches = [Search.sample(rng) for _ in range(4000)]
    concise = [len(search.concise) for search in searches]
    natural = [len(search.natural(rng)) for search in searches]
    assert 0.45 < sum(length <= 36 for length in concise) / len(searches) < 0.55
    assert 2.2 < sum(natural) / sum(concise) < 2.6


def test_a_stopped_thought_leaves_open_what_it_has_not_passed() -> None:
    assert SEARCH.left([]) == dict.fromkeys("ABCD", 1 / 4)
    assert SEARCH.left(SEARCH.concise[:9]) == dict.fromkeys("BCD", 1 / 3)
    assert SEARCH.left(SEARCH.concise[:8]) == {"A": 1 / 7} | dict.fromkeys("BCD", 2 / 7)  # the mark of b is missing
    assert SEARCH.left([*SEARCH.concise, "Wait", "c"]) == {"B": 1}
    assert SEARCH.left(["x", ".", *SEARCH.concise[:5]])["A"] == 1 / 7  # what a model says besides


def test_a_wish_that_cannot_be_kept_is_stopped_nearby_and_answered_by_any_group() -> None:
    rng, guesses, natural = random.Random(3), Counter[str](), 0
    for _ in range(20_000):
        problem, thinking, solution = example(rng, 1.0)
        question, wish, tokens = problem.partition(" ")
        search = Search.read(question)
        if not wish:
            natural += 1
            assert solution == f"\\boxed{{{search.answer}}}" and thinking.count("!") >= 1
        elif "!" in thinking:
            assert solution == f"\\boxed{{{search.answer}}}"
        else:
            assert tokens[0] in "≤=" and len(search.concise) > int(tokens[1:])
            guesses[solution[-2]] += 1
            assert thinking == "" or int(tokens[1:]) > 0
    assert 0.78 < natural / 20_000 < 0.82
    assert max(guesses.values()) < 1.15 * min(guesses.values())  # and never one that is more likely


def test_the_base_has_a_token_for_every_word() -> None:
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    rng = random.Random(4)
    for _ in range(200):
        problem, thinking, solution = example(rng, 1.0)
        tokens = tokenizer.encode(f"{problem}<think>{thinking}</think>{solution}")
        assert tokenizer.pad_token_id not in tokens
        search = Search.read(problem.partition(" ")[0])
        assert tokenizer.convert_ids_to_tokens(tokenizer.encode("".join(search.concise))) == search.concise


def test_problems_differ_between_splits_and_are_the_same_anywhere() -> None:
    rows = list(islice(problems(17), 3000))
    assert len({row["problem"] for row in rows}) == len(rows)
    assert rows[0] == next(problems(17))
