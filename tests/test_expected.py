"""The trial of expected answers: chances and gradients of policies of a few tokens, weights, cuts and the sampler."""

import math
import random
from itertools import product

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from experiments.expected import Cut, Policy, is_right, measure_noise, sample_rows, stratify, weigh

START, END, CLOSE, BOX, RIGHT, WRONG, WORD, SHUT = range(8)
REFERENCE = [BOX, RIGHT, SHUT, END]
SHORT = [BOX, END]
PROBLEM = ([START, WORD], REFERENCE)


def make_model(width: int, layers: int, spread: float) -> Qwen2ForCausalLM:
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    sizes = {"vocab_size": 8, "hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": layers}
    config = Qwen2Config(**sizes, **heads, initializer_range=spread, tie_word_embeddings=False)
    return Qwen2ForCausalLM(config).double().eval()


def make_random(spread: float = 0.2, seed: int = 2) -> Policy:
    """A small random model, whose probabilities depend on all tokens before."""
    torch.manual_seed(seed)
    return Policy(make_model(16, 2, spread), CLOSE, END)


def make_by_hand(chances: dict[int, dict[int, float]]) -> Policy:
    """A model whose next token depends on the last one only: of each the chances of those that follow."""
    model = make_model(8, 1, 0.02)
    table = torch.full((8, 8), -100.0)  # log-probabilities: row of the last token, column of the next
    for last, following in chances.items():
        for token, chance in following.items():
            table[last, token] = math.log(chance)
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(8))
        model.lm_head.weight.copy_(table.T / math.sqrt(8))  # the norm makes sqrt(8) of a single 1
    return Policy(model, CLOSE, END)


def log_probability(policy: Policy, prefix: list[int], tokens: list[int]) -> torch.Tensor:
    """Of tokens after a prefix, without padding, batches or a cache."""
    logprobs = policy.model(torch.tensor([prefix + tokens])).logits[0].log_softmax(-1)
    places = range(len(prefix) - 1, len(prefix) + len(tokens) - 1)
    return sum((logprobs[at, token] for at, token in zip(places, tokens, strict=True)), torch.zeros(()))


def gradients(policy: Policy) -> torch.Tensor:
    return torch.cat([each.grad.flatten() for each in policy.model.parameters() if each.grad is not None])


def test_the_chance_of_a_reference_is_the_product_of_its_tokens_chances() -> None:
    policy = make_by_hand(
        {CLOSE: {BOX: 0.5, WORD: 0.5}, BOX: {RIGHT: 0.8, WRONG: 0.2}, RIGHT: {SHUT: 1}, SHUT: {END: 1}}
    )
    forced = policy.cut(PROBLEM, [WORD] * 12, 9)
    closed = policy.cut(PROBLEM, [WORD, CLOSE], 9)
    ended = policy.cut(PROBLEM, [WORD, END], 9)
    assert policy.find_chances([forced, closed, ended]) == pytest.approx([0.4, 0.4, 0], rel=1e-4)


def test_the_gradient_is_that_of_the_mean_over_all_answers_that_can_be_sampled() -> None:
    policy = make_random()
    thoughts = [[RIGHT, WORD, WRONG, WORD], [WORD, CLOSE]]  # one is stopped at both cuts, the other closes
    cuts = [policy.cut((PROBLEM[0], SHORT), thought, budget) for thought in thoughts for budget in (1, 3)]
    rows = weigh(cuts, [[]] * 4, [0.0] * 4, policy.find_chances(cuts), (2, 2))
    policy.add_gradient(rows, 3.0)
    found = gradients(policy)
    policy.model.zero_grad()

    every = [list(answer) for answer in product(range(8), repeat=3)]  # what follows an end adds up to 1
    loss = torch.zeros(())
    for at in range(2):
        same = [cuts[at], cuts[at + 2]]
        means = []
        for cut in same:
            prefix = cut.make_row([])[0]
            ids = torch.tensor([prefix + answer for answer in every])
            logprobs = policy.model(ids).logits.log_softmax(-1)[:, len(prefix) - 1 : -1]
            chances = logprobs.gather(2, torch.tensor(every)[..., None]).sum((1, 2)).exp()
            rewards = torch.tensor([float(answer[:2] == SHORT) for answer in every])
            assert chances.sum().item() == pytest.approx(1)
            means.append((chances * rewards).sum())
        mean = sum(means).item() / 2
        spread = max(math.sqrt(mean * (1 - mean)), 0.1)
        for cut, own in zip(same, means, strict=True):
            thinking = log_probability(policy, cut.prompt, cut.thinking)
            loss = loss - ((own.item() - mean) * thinking + own) / spread / 3
    loss.backward()
    assert found.abs().max() > 0.1 and spread > 0.1
    torch.testing.assert_close(found, gradients(policy), rtol=1e-4, atol=1e-6)


def test_a_forced_close_is_not_trained_and_the_reference_weighs_its_chance() -> None:
    policy = make_random()
    forced, closed = policy.cut(PROBLEM, [WORD] * 12, 3), policy.cut(PROBLEM, [WORD, CLOSE], 3)
    ended = policy.cut(PROBLEM, [WORD, END], 3)
    assert (forced.forced, closed.forced, ended.forced) == ([CLOSE], [], [])
    # A mean of 0.5, so that the divisor is 0.5; the ended one has no answer, and no chance.
    rows = weigh([forced, closed, ended], [[]] * 3, [0.0] * 3, [0.6, 0.9, 0.0], (3, 1))
    nan = pytest.approx(math.nan, nan_ok=True)
    assert [ids for ids, _ in rows] == [
        [START, WORD, WORD, WORD, WORD, CLOSE, *REFERENCE],
        [START, WORD, WORD, CLOSE, *REFERENCE],
        [START, WORD, WORD, END],
    ]
    assert rows[0][1] == [nan] * 2 + [pytest.approx(0.2)] * 3 + [nan] + [pytest.approx(1.2)] * 4
    assert rows[1][1] == [nan] * 2 + [pytest.approx(0.8)] * 2 + [pytest.approx(1.8)] * 4
    assert rows[2][1] == [nan] * 2 + [pytest.approx(-1.0)] * 2


def test_two_thoughts_are_compared_in_deviations_of_a_coin() -> None:
    cuts = [Cut([START], REFERENCE, [WORD], [CLOSE], True)] * 2
    rows = weigh(cuts, [[]] * 2, [0.0] * 2, [0.2, 0.6], (2, 1))
    assert [own[1] for _, own in rows] == pytest.approx([-0.408, 0.408], abs=5e-4)
    assert [own[-1] for _, own in rows] == pytest.approx([0.408, 1.225], abs=5e-4)
    rare = weigh(cuts, [[]] * 2, [0.0] * 2, [0.001, 0.003], (2, 1))
    assert [own[1] for _, own in rare] == pytest.approx([-0.01, 0.01])  # a tenth, where the deviation is less
    assert [own[1] for _, own in weigh(cuts[:1], [[]], [0.0], [0.4], (1, 1))] == [0.0]


def test_sampled_answers_are_compared_at_the_same_cut_of_the_same_problem() -> None:
    cuts = [Cut([START], REFERENCE, [WORD] * tokens, [CLOSE], True) for tokens in (1, 2)] * 4
    rewards = [1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0]  # two problems of two thoughts at two cuts
    rows = weigh(cuts, [[RIGHT]] * 8, rewards, [], (2, 2))
    assert [own[1] for _, own in rows] == [own[-1] for _, own in rows] == [0.5, 0, -0.5, 0, 0, 0, 0, 0]


def test_a_sampled_answer_is_compared_with_its_chance_and_trains_no_thinking() -> None:
    cuts = [Cut([START], REFERENCE, [WORD], [CLOSE], True)] * 2
    rows = weigh(cuts, [[WRONG, END], []], [0.0, 0.0], [0.5, 0.5], (2, 1))
    assert [ids[3:] for ids, _ in rows] == [REFERENCE, [WRONG, END], REFERENCE]
    assert all(math.isnan(weight) for weight in rows[1][1][:3]) and rows[1][1][3:] == [-1.0, -1.0]


def test_cuts_are_one_of_each_stratum_at_the_same_place() -> None:
    assert stratify(0, 4) == [9, 18, 36, 72] and stratify(1, 4) == [18, 36, 72, 144]
    assert stratify(0.5, 4) == [13, 25, 51, 102]
    assert stratify(0, 1) == [9] and stratify(1, 1) == [144] and stratify(0.5, 1) == [36]


@pytest.mark.parametrize(("estimator", "thoughts", "cuts"), [("rows", 8, 1), ("forks", 4, 4), ("expected", 4, 4)])
def test_a_thought_is_sampled_once_up_to_its_largest_cut(estimator: str, thoughts: int, cuts: int) -> None:
    policy = make_by_hand({WORD: {WORD: 1}, CLOSE: {BOX: 1}, BOX: {RIGHT: 1}, RIGHT: {SHUT: 1}, SHUT: {END: 1}})
    random.seed(0)  # places of the cuts; by chance two problems may have the same
    rows, tokens = sample_rows(policy, [PROBLEM] * 2, estimator)
    budgets = [ids.count(WORD) - 1 for ids, weights in rows if not math.isnan(weights[2])]
    assert len(budgets) == 2 * thoughts * cuts
    largest = budgets[cuts - 1 :: cuts]
    answered = len(largest) if estimator == "expected" else len(budgets)
    assert len(rows) == len(budgets) + (len(largest) if estimator == "expected" else 0)
    assert tokens == sum(largest) + 4 * answered
    problems = [budgets[: thoughts * cuts], budgets[thoughts * cuts :]]
    if cuts == 1:
        assert all(len(set(own)) > 4 for own in problems)
    else:
        assert all(own == own[:cuts] * thoughts and own[0] < own[1] < own[2] < own[3] for own in problems)
        assert problems[0] != problems[1]


@pytest.mark.parametrize(("estimator", "rows"), [("rows", 8), ("forks", 16), ("expected", 20)])
def test_a_thought_that_has_closed_is_answered_once_for_all_later_cuts(estimator: str, rows: int) -> None:
    after = {CLOSE: {BOX: 1}, BOX: {RIGHT: 0.5, WRONG: 0.5}, RIGHT: {SHUT: 1}, WRONG: {SHUT: 1}, SHUT: {END: 1}}
    policy = make_by_hand({WORD: {CLOSE: 1}, **after})
    found, tokens = sample_rows(policy, [PROBLEM], estimator)
    assert len(found) == rows and tokens == (8 if estimator == "rows" else 4) * (1 + 4)
    if estimator == "forks":
        assert all(len({tuple(ids) for ids, _ in found[at : at + 4]}) == 1 for at in range(0, 16, 4))


@pytest.mark.parametrize("seed", range(4))
def test_rows_sampled_together_are_those_sampled_alone(seed: int) -> None:
    policy = make_random(1.0, seed)
    with torch.no_grad():
        policy.model.lm_head.weight.mul_(1e4)  # greedy
    prompts = [[START, *[WORD, SHUT] * pairs, RIGHT, first] for pairs in (5, 0, 2, 1) for first in (BOX, WRONG, WORD)]
    limits = [12, 20, 0, 3, 30, 25] * 2
    found = policy.sample(prompts, limits, [CLOSE, END])
    for prompt, limit, tokens in zip(prompts, limits, found, strict=True):
        greedy: list[int] = []
        while len(greedy) < limit and greedy[-1:] not in ([CLOSE], [END]):
            greedy.append(int(policy.model(torch.tensor([prompt + greedy])).logits[0, -1].argmax()))
        assert tokens == greedy
    assert len({len(tokens) for tokens in found}) > 3


def test_the_last_box_is_graded() -> None:
    assert is_right(REFERENCE, REFERENCE) and is_right([WORD, BOX, WRONG, SHUT, BOX, RIGHT, SHUT, WORD], REFERENCE)
    assert not is_right([BOX, RIGHT, SHUT, BOX, WRONG, SHUT, END], REFERENCE)
    assert not is_right([BOX, RIGHT], REFERENCE) and not is_right([], REFERENCE)


def test_noise_is_the_variance_of_a_problems_gradient_over_the_squared_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_random()
    weights = iter((1.0, 3.0))  # of one token, so that one gradient is thrice the other: variance 2, mean 2

    def sample(*_: object) -> tuple[list[tuple[list[int], list[float]]], int]:
        return [([START, WORD, BOX], [0.0, 0.0, next(weights)])], 500

    monkeypatch.setattr("experiments.expected.sample_rows", sample)
    found = measure_noise(policy, [PROBLEM, PROBLEM], "rows")
    assert found == pytest.approx({"tokens_a_problem": 500, "noise_per_1000_tokens": 2 / (2**2 - 2 / 2) / 2})
