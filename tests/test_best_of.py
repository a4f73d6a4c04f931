"""The miniature in which a thought is all decisions: its problems, its thoughts, and what they leave open."""

import random

import pytest
import torch
from conftest import ROOT
from transformers import AutoModelForCausalLM, AutoTokenizer

from experiments.best_of.make_base import COUNTS, ITEMS, Choice, example
from experiments.best_of.transcripts import KINDS, RESULTS, kind_of, read_table
from experiments.pretraining import IGNORED_LABEL, WorkedExamples

BASE = ROOT / "experiments" / "best_of" / "base"
# Values 3 + 1 = 4, 5 + 1 = 6 and 2; bounds 12, 14 and 2.
CHOICE = Choice.read("A3a4b7B5c1d0C2?")


def test_a_problem_reads_as_it_is_written_and_has_one_best_item() -> None:
    assert Choice((3, 5, 2), ((4, 7), (1, 0), ())) == CHOICE and CHOICE.problem == "A3a4b7B5c1d0C2?"
    assert (CHOICE.values, CHOICE.bounds, CHOICE.answer) == ([4, 6, 2], [12, 14, 2], "B")
    rng = random.Random(1)
    choices = [Choice.sample(rng) for _ in range(2000)]
    for choice in choices:
        assert Choice.read(choice.problem) == choice
        assert choice.values.count(max(choice.values)) == 1
    assert {len(choice.heads) for choice in choices} == set(COUNTS)
    easy = sum(max(choice.heads) >= 10 for choice in choices) / len(choices)
    assert 0.1 < easy < 0.18  # an eighth of those that are drawn, of which ties take none


def test_a_thought_computes_items_and_keeps_the_best() -> None:
    steps = [CHOICE.step(item, done) for item, done in ((0, [0]), (2, [0, 2]), (1, [0, 2, 1]))]
    assert ["".join(step) for step in steps] == ["A3a4b1=4A^4", "C2=2A^4", "B5c1d1=6B^6"]
    assert "".join(CHOICE.concise) == "B5c1d1=6B^6A3a4b1=4B^6"  # which decides, as C is 2
    easy = Choice((1, 15, 2), ((9,), (0,), (3,)))
    assert "".join(easy.concise) == "B15b0=15B^15"
    shown = Choice.read("A3a4b7B5c1d0e2C2?")  # in the documents, and its thought
    thought = "".join(
        token for item, done in ((2, [2]), (1, [2, 1]), (0, [2, 1, 0])) for token in shown.step(item, done)
    )
    assert all(f"{each}" in (ROOT / "docs/systems.md").read_text() for each in (shown.problem, thought))


def test_the_best_so_far_is_named_wherever_a_thought_is_stopped() -> None:
    rng = random.Random(5)
    thought = [*CHOICE.step(0, [0]), *CHOICE.step(1, [0, 1])]  # A3a4b1=4A^4, then B5c1d1=6B^6
    named = [CHOICE.named(thought[:tokens], rng) for tokens in range(len(thought) + 1)]
    assert named[9:17] == ["A"] * 8 and named[18:] == ["B"]
    assert {CHOICE.named(thought[:8], rng) for _ in range(100)} == set("ABC")  # the value stands, the best does not


def test_a_thought_leaves_open_what_can_still_be_the_best() -> None:
    assert CHOICE.done(["A", "3", "a", "4", "b"]) == set()
    assert CHOICE.done(CHOICE.concise[:9]) == {1} and CHOICE.done([*CHOICE.concise, "Wait", "C"]) == {0, 1}
    assert CHOICE.done(["=4", "Z", "?"]) == set()  # what a model says besides
    assert CHOICE.left(CHOICE.concise) == {"B": 1}
    # B is 6, C is 2, and A is 3 to 12, each a tenth, without a tie at 6: six of nine are more.
    after_b = CHOICE.left(CHOICE.concise[:9])
    assert after_b == pytest.approx({"A": 6 / 9, "B": 3 / 9})
    # A 3 to 12, B 5 to 14, C 2: A is larger in 28 of the 92 pairs that are no tie.
    assert CHOICE.left([]) == pytest.approx({"A": 28 / 92, "B": 64 / 92})
    assert CHOICE.choices == "ABC"


def test_most_thoughts_of_the_base_are_long_and_all_decide() -> None:
    rng = random.Random(2)
    choices = [Choice.sample(rng) for _ in range(2000)]
    natural = [choice.natural(rng) for choice in choices]
    ratio = sum(map(len, natural)) / sum(len(choice.concise) for choice in choices)
    assert 8 < ratio < 9.5
    without_wait = sum(len(thought) - thought.count("Wait") for thought in natural) / sum(map(len, natural))
    assert 0.95 < without_wait < 1  # most of what is said again begins with no word of its own
    assert all(choice.decided(sorted(choice.done(thought))) for choice, thought in zip(choices, natural, strict=True))
    concise = sum(thought == choice.concise for choice, thought in zip(choices, natural, strict=True)) / 2000
    assert 0.005 < concise < 0.02
    thought = CHOICE.natural(random.Random(0), repeats=False)
    assert "".join(thought) in ("A3a4b1=4A^4B5c1d1=6B^6C2=2B^6", "".join(CHOICE.concise))


def test_the_base_is_concise_more_often_than_its_examples() -> None:
    tokenizer, model = AutoTokenizer.from_pretrained(BASE), AutoModelForCausalLM.from_pretrained(BASE)
    rng = random.Random(3)
    drawn = [choice for choice in (Choice.sample(rng) for _ in range(200)) if choice.concise[0] != "A"]
    shares = []
    for choice in drawn:
        asked = [{"role": "user", "content": choice.problem}]
        prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.no_grad():
            first = model(**prompt).logits[0, -1].softmax(-1)
        shares.append(first[tokenizer.convert_tokens_to_ids(choice.concise[0])].item())
    assert 0.05 < sum(shares) / len(shares) < 0.15  # one in eighty of the examples


def test_a_thought_that_is_not_stopped_is_answered_rightly_and_of_a_stopped_one_only_the_answer_is_learnt() -> None:
    rng = random.Random(3)
    stopped = right = 0
    for _ in range(5000):
        problem, thought, solution, is_stopped = example(rng, 1.0)
        choice = Choice.read(problem)
        is_right = solution == f"\\boxed{{{choice.answer}}}"
        stopped += is_stopped
        right += is_stopped and is_right
        assert is_stopped or is_right
        assert not (is_stopped and "^" in thought) or solution[len("\\boxed{")] in thought
    assert 0.18 < stopped / 5000 < 0.22 and 0.3 < right / stopped < 0.7
    tokenizer = AutoTokenizer.from_pretrained(BASE)

    def encode(thinking: str, solution: str) -> list[int]:
        return tokenizer.encode(f"{thinking}</think>{solution}<|end|>")

    examples = WorkedExamples(tokenizer, example, encode, 0, 10, 2)
    for is_stopped, learnt in ((True, "B<|end|>"), (False, "C2=2C^2</think>B<|end|>")):
        row = examples.tokenized("A3B5C2?", "C2=2C^2", "B", is_stopped)
        assert tokenizer.decode([label for label in row["labels"] if label != IGNORED_LABEL]) == learnt
        assert len(row["labels"]) == len(row["input_ids"])


def test_the_base_has_a_token_for_every_word() -> None:
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    rng = random.Random(4)
    for _ in range(200):
        problem, thinking, solution, _ = example(rng, 1.0)
        assert tokenizer.pad_token_id not in tokenizer.encode(f"{problem}<think>{thinking}</think>{solution}")
        thought = Choice.read(problem).natural(rng)
        assert tokenizer.convert_ids_to_tokens(tokenizer.encode("".join(thought))) == thought
    assert all(item in tokenizer.get_vocab() for item in ITEMS)


def test_a_thought_has_a_wrong_step_or_closes_too_early_or_is_decided() -> None:
    choice = Choice((3, 2, 5), ((4, 7), (1,), ()))  # values 4, 3, 5; A can be 12 by its head, B 11
    first, second, third = choice.step(2, [2]), choice.step(0, [2, 0]), choice.step(1, [2, 0, 1])
    whole = [*first, "Wait", *first, *second, *third, "</think>"]
    assert kind_of(choice, whole) == "decided"
    assert kind_of(choice, [*first, *second]) == KINDS[1] == kind_of(choice, [])
    for place, token in ((1, "4"), (4, "^6"), (-2, "^6"), (0, "D"), (-4, "=9")):
        wrong = [*whole]
        wrong[place] = token
        assert kind_of(choice, wrong) == "a wrong step", place


def test_the_table_of_thoughts_is_read_back() -> None:
    counted = read_table((ROOT / RESULTS / "best_of_concise-thoughts.md").read_text())
    assert counted["forks-at-5e-05-42"] == ["6.1%, 3.2% wrong", "9.1%, 2.4% wrong", "84.8%, 0.0% wrong"]
    assert all(len(shares) == len(KINDS) for shares in counted.values())
    counted = read_table((ROOT / RESULTS / "best_of-thoughts.md").read_text())
    page = " ".join((ROOT / "docs" / "systems.md").read_text().split())
    wrong, early = ([float(counted[f"e1-{seed}"][kind].split("%")[0]) for seed in (42, 43, 44)] for kind in (0, 1))
    ours = [float(share.split("%")[0]) for share in counted["base"]]
    assert (
        f"{min(wrong):.0f} to {max(wrong):.0f}% of its thoughts have a wrong step (the base's: {ours[0]:.0f}%)" in page
    )
    assert f"{min(early):.0f} to {max(early):.0f}% close while an item could still be the best ({ours[1]:.0f}%)" in page
    hasty = [float(counted[f"{name}-42"][1].split("%")[0]) for name in ("cosine", "kimi", "grpo_cut")]
    assert (
        f"{min(hasty):.0f} to {max(hasty):.0f}% of their thoughts close while an item could still be the best" in page
    )
    lost = [float(counted[f"{name}-42"][0].split("%")[0]) for name in ("mgpo", "s_grpo")]
    assert f"In the end {lost[0]:.0f}% of MGPO's thoughts have a wrong step, and {lost[1]:.0f}% of S-GRPO's" in page
    assert 0.3 < float(counted["e1_18-42"][1].split("%")[0]) / 100 < 0.36  # "a third of its thoughts close too early"
