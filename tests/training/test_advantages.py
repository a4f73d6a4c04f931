"""Advantages of a group: formulas by numbers worked out by hand, and TRL's own."""

import math
from array import array
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
import torch
from datasets import Dataset
from test_config import config
from trl import ModelConfig

import e1_trl.train
from e1_trl.errors import UserError
from e1_trl.problems.prompts import MEASURED
from e1_trl.rollout import Completion, ThinkingEnd
from e1_trl.training.advantages import ADVANTAGES, brpo, gfpo, grpo, lead, make_advantage, mgpo, per_fork, s_grpo
from e1_trl.training.beforehand import check_advantage
from e1_trl.training.groups import Group, advantages_of
from e1_trl.training.rewards import Accuracy
from e1_trl.training.trainer import E1Trainer


def group(rewards: Sequence[float], tokens: Sequence[int] = (), forks: int = 1) -> Group:
    count = len(rewards)
    correct = [None if math.isnan(reward) else reward > 0 for reward in rewards]
    lengths = [*tokens] or [5] * count
    return Group("key", correct, lengths, lengths, [True] * count, [False] * count, None, [9] * count, forks)


def near(*values: float) -> object:
    return pytest.approx([*values], abs=1e-3)


def test_grpo_is_what_trl_computes() -> None:
    for rewards in ([0.0, 1.0, 1.0, 0.0], [0.5, 0.25, 0.0, 1.0], [1.0, math.nan, 0.0, 1.0], [1.0] * 4):
        given = torch.tensor(rewards)
        graded = given[~given.isnan()]
        expected = (given - graded.mean()) / (graded.std() + 1e-4)
        found = torch.tensor(grpo(group(rewards), rewards))
        assert found.nan_to_num() == pytest.approx(expected.nan_to_num(), abs=1e-6)
    assert math.isnan(grpo(group([math.nan] * 2), [math.nan] * 2)[0])


def test_lead_weighs_a_right_answer_by_the_share_of_wrong_ones() -> None:
    half = [1.0, 0.0, 1.0, 0.0]
    assert lead(group(half), half) == near(1.2265, -1.2265, 1.2265, -1.2265)  # 0.866 x 1.4166
    rare = [1.0, 0.0, 0.0, 0.0]
    weights = 0.4 + 1.1 / (1 + math.exp(-5)), 0.4 + 1.1 / (1 + math.exp(0))  # of 1/4 right, 3/4 wrong
    assert lead(group(rare), rare) == near(1.5 * weights[0], *[-0.5 * weights[1]] * 3)


def test_mgpo_weighs_a_group_by_the_entropy_of_its_solve_rate() -> None:
    eighth = [1.0] + [0.0] * 7
    z = grpo(group(eighth), eighth)
    assert mgpo(group(eighth), eighth) == near(*(0.6628 * each for each in z))
    half = [1.0, 0.0]
    assert mgpo(group(half), half) == near(*grpo(group(half), half))
    assert mgpo(group([1.0, 1.0]), [1.0, 1.0]) == [0.0, 0.0]


def test_gfpo_learns_from_the_shortest_alone() -> None:
    rewards = [0.0, 1.0, 1.0, 0.0]
    assert gfpo(group(rewards, [5, 9, 7, 12]), rewards, keep=2) == near(-0.707, 0, 0.707, 0)
    failed = [math.nan, 1.0, 0.0, 1.0]
    assert gfpo(group(failed, [1, 2, 3, 4]), failed, keep=2) == near(0, 0.707, -0.707, 0)


def test_a_fork_is_compared_with_the_forks_at_its_place() -> None:
    rewards = [0.0, 1.0, 1.0, 1.0]  # two thoughts
    assert per_fork(group(rewards, forks=2), rewards) == [(-0.5, -0.5), (0, 0), (0.5, 0.5), (0, 0)]
    assert per_fork(group(rewards, forks=2), rewards, thinking=0.5)[:2] == [(-0.25, -0.5), (0, 0)]
    unknown = [0.0, 1.0, math.nan, 0.0]
    assert per_fork(group(unknown, forks=2), unknown)[:2] == [(0, 0), (0.5, 0.5)]


def test_brpo_sums_to_the_papers_advantages_of_segments() -> None:
    rewards = [0.0, 1.0, 1.0, 1.0]
    thinking, solution = zip(*brpo(group(rewards, forks=2), rewards), strict=True)
    assert [thinking[0] + thinking[1], thinking[1]] == near(-0.25, 0.25)  # tokens before the first cut, and after it
    assert [thinking[2] + thinking[3], thinking[3]] == near(0.25, 0.0)
    assert [*solution] == near(-0.5, 0, 0.5, 0)
    # Three budgets, by the paper's formula: R - [s V1 + (3 - s) V2] / 3.
    rewards = [0.0, 1.0, 0.0, 1.0, 1.0, 1.0]
    thinking, _ = zip(*brpo(group(rewards, forks=3), rewards), strict=True)
    first = 1 / 3 - (1 / 3 + 1) / 2
    second = 1 / 3 - (1 * 0.0 * 2 / 3 + 2 * (1 / 3 + 2 / 3) / 2) / 3
    third = 0 - (2 * (0 + 2 * 1) / 3 * 1 / 3 + 1 * (0 + 1 / 3) / 2) / 3
    assert [sum(thinking[at:3]) for at in range(3)] == near(first, second, third)
    # Without a fork's reward the segments of its thought do not add up.
    rewards = [0.0, math.nan, 1.0, 1.0]
    pairs = brpo(group(rewards, forks=2), rewards)
    assert [thinking for thinking, _ in pairs[:2]] == [0, 0] and pairs[2][0] != 0 and pairs[3] == near(0.0, 0.0)


def test_s_grpo_halves_the_reward_of_each_right_exit_after_the_first() -> None:
    rewards = [0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]  # two thoughts of four exits
    values = [0, 1, 1 / 2, 1 / 4, 1, 0, 0, 0]
    expected = near(*(each - 7 / 16 for each in values[:4]), *(each - 1 / 4 for each in values[4:]))
    assert s_grpo(group(rewards, forks=4), rewards) == expected
    failed = [1.0, math.nan, 1.0, 1.0]  # the grader, which counts in no mean
    assert s_grpo(group(failed, forks=4), failed) == near(5 / 12, 0, -1 / 12, -1 / 3)


def test_rollouts_without_a_reward_have_no_advantage_and_pairs_stay_pairs() -> None:
    def own(of: Group, rewards: Sequence[float]) -> list[Any]:
        return [(1, 2.0), 3.0] if math.isnan(rewards[1]) else [[1.0, 2.0], torch.tensor(3.0)]

    groups = [group([1.0, 0.0]), group([1.0, math.nan])]
    found = advantages_of(groups, [1.0, 0.0, 1.0, math.nan], own)
    assert found == [(1, 2), (3, 3), (1, 2), (0, 0)] and {type(each) for pair in found for each in pair} == {float}


def short(of: Group, rewards: Sequence[float]) -> list[float]:
    return [0.0]


def centred(of: Group, rewards: Sequence[float], by: float = 1.0) -> list[float]:
    return [(reward - fmean(rewards)) / by for reward in rewards]


def by_budget(of: Group, rewards: Sequence[float]) -> list[float]:
    return [reward / (budget or 1) for reward, budget in zip(rewards, of.budgets, strict=True)]


def by_target(of: Group, rewards: Sequence[float]) -> list[float]:
    return [reward - abs(n - of.target) for reward, n in zip(rewards, of.tokens, strict=True)]  # type: ignore[operator]


def apart(of: Group, rewards: Sequence[float]) -> list[tuple[float, float]]:
    return [(0.0, reward) for reward in rewards]


def asked(forks: int = 1, rollouts: int = 8, **own: Any) -> Any:
    """Fields of a recipe that an advantage looks at."""
    usual: dict[str, Any] = {"loss_type": "dapo", "mask_truncated_completions": False}
    usual |= {"importance_sampling_level": "token", "vllm_importance_sampling_correction": True}
    usual |= {"vllm_importance_sampling_mode": "token_truncate", "off_policy_mask_threshold": None}
    usual |= {"steps_per_generation": 2, "gradient_accumulation_steps": 2, "num_iterations": 1}
    usual |= {"trained_close": "sampled", "top_entropy_quantile": 1.0}
    usual |= {"multi_objective_aggregation": "sum_then_normalize", "scale_rewards": "group", **own}
    return SimpleNamespace(budgets=SimpleNamespace(forks=forks), num_generations=rollouts, **usual)


ACCURACY = Accuracy(None)  # type: ignore[arg-type]
GFPO: dict[str, Any] = {"name": "gfpo"}


def checked(spec: Any, args: Any, rewards: Sequence[Any]) -> Any:
    """What a recipe names, as `e1 train` checks it."""
    advantage = make_advantage(spec, args)
    check_advantage(args, advantage, rewards)
    return advantage


def test_a_recipe_names_advantages_with_their_arguments() -> None:
    assert checked(None, asked(), [ACCURACY]) is None
    for name in ADVANTAGES.keys() - {"gfpo"}:
        assert checked(name, asked(2), [ACCURACY]) is not None
    for spec in ({"name": "gfpo", "keep": 2}, "{name: gfpo, keep: 2}"):  # the second as on a command line
        made = checked(spec, asked(), [ACCURACY])
        assert made is not None and [*made(group([0.0, 1.0], [5, 9]), [0.0, 1.0])] == near(-0.707, 0.707)
    for own in ("by_budget", "by_target"):
        assert checked(f"{__name__}.{own}", asked(4), []) is not None
    assert checked("mgpo", asked(importance_sampling_level="sequence"), [ACCURACY]) is not None  # one for both parts


@pytest.mark.parametrize(
    ("spec", "fields", "rewards", "message"),
    [
        ("brpoo", asked(), 0, "^unknown advantage 'brpoo'; available are gfpo, lead"),
        ({"keep": 3}, asked(), 0, "^unknown advantage ''; available are gfpo"),
        ("gfpo", asked(), 0, r"^the advantage gfpo fails with {}: .*'keep'"),
        (
            *(GFPO | {"keep": 8}, asked(), 0),
            "^the advantage gfpo keeps 8 of num_generations 8; keep 2 or more, but not all$",
        ),
        (GFPO | {"keep": 1}, asked(), 0, "^the advantage gfpo fails with {'keep': 1}: one rollout has nothing to be"),
        (GFPO | {"most": 8}, asked(), 0, "^the advantage gfpo fails with {'most': 8}: "),
        ("s_grpo", asked(), 0, r"^the advantage s_grpo compares forks of a thought; set thinking_budget: {nested: \["),
        ("e1_trl.training.advantages.brpo", asked(), 0, "^the advantage brpo compares forks of a thought"),
        ("lead", asked(), 0, "^the advantage lead must know which answers are right; add accuracy to reward_funcs$"),
        ("mgpo", asked(), 0, "^the advantage mgpo must know which answers are right"),
        (f"{__name__}.short", asked(), 0, "fails with {}: short returns 1 values for a group of 4$"),
        # One rollout that the grader failed on would make the whole training's loss NaN.
        (f"{{name: {__name__}.centred, by: 2.0}}", asked(), 0, "centred returns nan for a rollout with the reward 1$"),
        ("per_fork", asked(8), 1, "per_fork compares thoughts, .*: 8 forks need num_generations 16 or"),
        ("brpo", asked(4, loss_type="grpo"), 1, "^the advantage brpo is a sum over forks, which loss_type grpo weighs"),
        ("brpo", asked(4, mask_truncated_completions=True), 1, "over forks, which mask_truncated_completions weighs"),
        ("brpo", asked(4, vllm_importance_sampling_mode="sequence_mask"), 1, "vllm_importance_sampling_mode sequence_"),
        ("brpo", asked(4, num_iterations=2), 1, "which a second step weighs .* one optimizer step per"),
        ("brpo", asked(4, steps_per_generation=4), 1, "which a second step weighs"),
        ("brpo", asked(4, trained_close="all"), 1, "which trained_close all weighs"),
        ("brpo", asked(4, top_entropy_quantile=0.2), 1, "which top_entropy_quantile weighs"),
        (f"{__name__}.apart", asked(4, importance_sampling_level="sequence"), 1, "would average the two advantages of"),
        (GFPO | {"keep": 2}, asked(4), 1, "gfpo keeps the shortest rollouts, .* forks of the smallest"),
        ("s_grpo", asked(8), 2, "^the advantage s_grpo reads which answers are right, and no other reward"),
    ],
)
def test_advantages_that_fail_or_learn_amiss_are_refused(spec: Any, fields: Any, rewards: int, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        checked(spec, fields, [ACCURACY] * rewards)
    assert "\n" not in str(error.value)


def test_the_functions_themselves_are_checked_as_recipes_are() -> None:
    check_advantage(asked(), lead, [ACCURACY])
    refused = ((lead, "lead must know which"), (partial(gfpo, keep=8), "gfpo keeps 8 of"), (brpo, "compares forks"))
    refused += ((gfpo, "gfpo keeps 0 of"), (partial(gfpo, keep=1), "gfpo keeps 1 of"))
    for advantage, message in refused:
        with pytest.raises(UserError, match=message):
            check_advantage(asked(), advantage, [])
    with pytest.raises(UserError, match="which importance_sampling_level sequence weighs"):
        check_advantage(asked(4, importance_sampling_level="sequence"), brpo, [ACCURACY])


def test_a_close_has_the_advantage_of_the_thinking_whether_it_was_sampled_or_forced() -> None:
    close, solution = [8], [5]
    sampled = Completion(array("i", [1, 2, *close, *solution]), ThinkingEnd.CLOSED, 3, 0, 0, 1, False)
    forced = Completion(array("i", [1, 2, *close, *solution]), ThinkingEnd.FORCED, 2, 1, 1, 1, False)
    trainer: Any = SimpleNamespace(_advantage=brpo, _advantages=[(-1.0, 1.0)] * 2)
    trainer._rollouts = [(0, sampled), (0, forced)]
    assert E1Trainer.spread_advantages(trainer, 4) == [[-1.0, -1.0, -1.0, 1.0]] * 2


@pytest.mark.parametrize(("advantage", "reads"), [(None, False), (by_budget, True)])
def test_an_advantage_sees_the_column_of_lengths_that_no_reward_needs(
    advantage: Any, reads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Mock(side_effect=InterruptedError)  # where the training would begin
    monkeypatch.setattr(e1_trl.train, "E1Trainer", made)
    rows = Dataset.from_dict({"prompt": ["p"], "answers": [["1"]], "key": ["k"], MEASURED: [1], "target": [9]})
    args = config(output_dir=str(tmp_path / "run"))
    own = {"args": args, "model": ModelConfig("m"), "checkpoint": None}
    recipe = MagicMock(**own, problems=rows, rewards=[ACCURACY], advantage=advantage)
    with pytest.raises(InterruptedError):
        e1_trl.train.train(recipe, {})
    assert ("target" in made.call_args.kwargs["train_dataset"].column_names) is reads
