"""Each length reward gives the numbers of its paper's formula, worked out by hand."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from e1_trl.answers.mathematics.grader import MathematicsGrader
from e1_trl.rollout import ThinkingEnd
from e1_trl.training.advantages import grpo
from e1_trl.training.groups import Group, repeats
from e1_trl.training.lengths import Hapo, LaserD, LengthReward, difficulty, warn_of_scaling
from e1_trl.training.named_rewards import make_rewards

RIGHT, WRONG = True, False


def group(tokens: list[int], correct: list[bool | None], **fields: Any) -> Group:
    thinking = fields.pop("thinking", [each - 1 for each in tokens])
    flags = [fields.pop(name, [value] * len(tokens)) for name, value in (("finished", True), ("repeats", False))]
    ends = fields.pop("ends", [ThinkingEnd.CLOSED] * len(tokens))
    return Group("0" * 16, correct, thinking, tokens, *flags, ends=ends, **fields)


def made(spec: str | dict[str, Any]) -> LengthReward:
    (reward,) = make_rewards([spec], None, MathematicsGrader(time_limit=60, workers=1))
    assert isinstance(reward, LengthReward)
    return reward


@pytest.mark.parametrize(
    ("spec", "tokens", "correct", "expected"),
    [
        # L1: the prompt asks for 1,000 tokens. 0.0003 x 500 and x 1,000; 0.5 + 0.15, 0.5 - 0.3, and out of [0, 1].
        ("l1_exact", [500, 1000, 2000], [RIGHT, RIGHT, WRONG], [-0.15, 0.0, -0.3]),
        ("l1_max", [500, 2000, 3000, 500], [RIGHT, RIGHT, RIGHT, WRONG], [-0.35, -0.8, -1.0, 0.0]),
        # As the authors' code has it: half of twice the slope, and a half more.
        ({"name": "l1_max", "alpha": 0.001, "delta": 0.5}, [900, 1600], [RIGHT, RIGHT], [-0.4, -1.0]),
        ({"name": "laser", "target": 100}, [100, 101, 9, 9], [RIGHT, RIGHT, WRONG, None], [0.5, 0.0, 0.0, 0.0]),
        ({"name": "laser", "target": 100, "wrong": -0.5}, [99, 200], [RIGHT, WRONG], [0.5, -0.5]),
        # Kimi k1.5: 0.5 - 0, 0.5 - 0.25, 0.5 - 1; wrong ones have no bonus; equal lengths have nothing.
        ("kimi", [100, 150, 300], [RIGHT, RIGHT, RIGHT], [0.5, 0.25, -0.5]),
        ({"name": "kimi", "weight": 0.4}, [100, 150, 300], [WRONG, WRONG, WRONG], [0.0, 0.0, -0.2]),
        ("kimi", [100, 100], [RIGHT, WRONG], [0.0, 0.0]),
        # Arora and Zanette: right ones of 100 and 300 are one deviation from 200; sigmoid(1) = 0.731059.
        ("arora", [100, 300, 900], [RIGHT, RIGHT, WRONG], [-0.0268941, -0.0731059, 0.0]),
        ({"name": "arora", "alpha": 0.4}, [77, 50], [RIGHT, WRONG], [-0.2, 0.0]),
        ("arora", [77, 50], [WRONG, WRONG], [0.0, 0.0]),
        # LEAD: right ones are one deviation from their mean; none learns where the three shortest are short already.
        ({"name": "lead", "from_tokens": 9}, [100, 300, 900], [RIGHT, RIGHT, WRONG], [0.0512711, -0.0487706, 0.0]),
        ({"name": "lead", "from_tokens": 200}, [100, 300, 900], [RIGHT, RIGHT, WRONG], [0.0, 0.0, 0.0]),
        ({"name": "lead", "from_tokens": 300}, [100, 100, 700, 700], [RIGHT] * 4, [0.0] * 4),
        ({"name": "lead", "from_tokens": 299}, [100, 100, 700, 700], [RIGHT] * 4, [0.0512711] * 2 + [-0.0487706] * 2),
        ("lead", [3000, 4000, 5000], [RIGHT] * 3, [0.0] * 3),
        # ALP: three of four solved, none of four (one then counts).
        ("alp", [1000, 2000, 0, 400], [RIGHT, RIGHT, RIGHT, WRONG], [-7.5e-5, -1.5e-4, 0.0, -3e-5]),
        ({"name": "alp", "beta": 1e-3}, [100, 200, 300, 400], [WRONG] * 4, [-0.025, -0.05, -0.075, -0.1]),
        ({"name": "alp", "beta": 1e-3}, [100, 200, 300], [RIGHT, WRONG, None], [-0.05, -0.1, -0.15]),
        ("solve_rate", [100, 400], [RIGHT, WRONG], [-0.03125, -0.125]),
        # cosine: right 1 to 0.5, wrong -1 to -0.5, half-way at half the length; less 1 where right; clamped beyond.
        ({"name": "cosine", "longest": 100}, [0, 50, 100, 250], [RIGHT] * 4, [0.0, -0.25, -0.5, -0.5]),
        ({"name": "cosine", "longest": 100}, [0, 50, 100, 250], [WRONG] * 4, [-1.0, -0.75, -0.5, -0.5]),
        # DAPO's: 16,384 tokens are free, 18,432 are half of the way, 20,480 and more are the end of it.
        (
            {"name": "overlong", "longest": 20480, "margin": 4096},
            *([100, 16384, 18432, 20480, 30000], [RIGHT] * 5, [0.0, 0.0, -0.5, -1.0, -1.0]),
        ),
    ],
)
def test_a_formula_gives_its_papers_numbers(
    spec: str | dict[str, Any], tokens: list[int], correct: list[bool | None], expected: list[float]
) -> None:
    assert made(spec).of(group(tokens, correct, target=1000)) == pytest.approx(expected, abs=1e-7)


def test_hapo_measures_by_the_shortest_right_response_of_the_problem_so_far() -> None:
    hapo = made("hapo")
    first = group([300, 200, 100], [RIGHT, RIGHT, WRONG])
    assert hapo.of(first) == [0.0, 0.0, 0.0]
    hapo.remember([first])
    assert hapo.memory == {"problems": {first.key: 200}}
    # cos(pi/4) = 0.707107 at half of it, 0 at it, cos(3 pi/4) at 300, -1 from 400 on; at least -0.7 where right.
    second = group([100, 200, 300, 400, 900], [RIGHT] * 5)
    assert hapo.of(second) == pytest.approx([0.707107, 0.0, -0.7, -0.7, -0.7], abs=1e-6)
    assert hapo.of(group([100, 300, 400, 900], [WRONG] * 4)) == pytest.approx([0.0, -0.707107, -1.0, -1.0], abs=1e-6)
    assert hapo.memory["problems"][first.key] == 200  # giving rewards changes nothing
    hapo.remember([second, group([50, 500], [WRONG, RIGHT])])
    assert hapo.memory["problems"][first.key] == 100
    ends = [ThinkingEnd.FORCED, ThinkingEnd.CLOSED]
    hapo.remember([group([5, 9], [RIGHT] * 2, thinking=[5, 9], budgets=[5, 9], ends=ends)])  # a budget cut the first
    assert hapo.memory["problems"][first.key] == 9
    hapo.remember([group([0], [RIGHT])])  # no thinking at all, where only that counts
    assert hapo.of(group([0, 1, 9], [RIGHT] * 3)) == pytest.approx([1.0, 0.0, -0.7])


def test_laser_d_has_a_target_for_each_difficulty() -> None:
    laser = made({"name": "laser_d", "lowest": 100, "highest": 400, "step": 100, "wrong": -0.5})
    easy = group([50, 150, 250, 350, 99, 99, 99, 99], [RIGHT] * 6 + [WRONG] * 2)  # 6 of 8
    medium = group([150, 150, 250, 250, 500, 500, 500, 500], [RIGHT] * 4 + [WRONG] * 4)  # 4 of 8
    hard = group([50] * 8, [RIGHT] + [WRONG] * 7)  # 1 of 8
    assert [difficulty(each) for each in (hard, medium, easy)] == [0, 1, 2]
    sixths = [group([50] * 6, [RIGHT] * right + [WRONG] * (6 - right)) for right in (1, 2, 3, 4)]
    assert [difficulty(each) for each in sixths] == [0, 1, 1, 2]  # a third is medium, and two are easy
    assert laser.memory["targets"] == [400, 400, 400]
    laser.remember([easy, medium, hard])
    # easy: a fifth of the responses is enough, which 3 of 8 within 100 are; medium: a half, as 4 of 8 within 300 are;
    # hard: all of them, which never are.
    assert laser.memory["targets"] == [400, 300, 100]
    assert laser.of(easy) == [0.5, 0.0, 0.0, 0.0, 0.5, 0.5, -0.5, -0.5]
    assert laser.of(medium) == [0.5] * 4 + [-0.5] * 4


def test_two_thirds_of_an_easy_group_must_expect_a_right_response_within_the_target() -> None:
    laser = LaserD(lowest=100, highest=300, step=100)
    laser.remember([group([50] * 2 + [250] * 5 + [99] * 2, [RIGHT] * 7 + [WRONG] * 2)])
    assert laser.memory["targets"][2] == 100  # 6 of 9 responses, of which 2 in 9 are right within 100 tokens


def test_laser_d_forgets_what_is_older_than_its_window() -> None:
    laser = LaserD(lowest=100, highest=300, step=100, window=2)
    short, long = group([50] * 8, [RIGHT] * 8), group([250] * 8, [RIGHT] * 8)
    targets = []
    for generation in (short, long, long, long):
        laser.remember([generation])
        targets.append(laser.memory["targets"][2])
    assert targets == [100, 100, 300, 300] and len(laser.memory["generations"]) == 2


def test_laser_de_lets_a_wrong_response_be_long_unless_it_repeats_itself() -> None:
    laser = LaserD(lowest=100, highest=100, step=10, longer_wrong=True)
    cut = {"finished": [True, True, True, False], "repeats": [False, False, True, False]}
    assert laser.of(group([50, 150, 150, 150], [WRONG] * 4, **cut)) == [0.0, 0.5, 0.0, 0.0]
    assert laser.sees_repeats and not LaserD(lowest=100, highest=100, step=10).sees_repeats
    assert repeats([1, 2, 3, 4] * 3) and not repeats([1, 2, 3, 4] * 2) and not repeats([])
    assert repeats([7] * 6) and not repeats([7] * 5)


@pytest.mark.parametrize("make", [Hapo, lambda: LaserD(lowest=100, highest=300, step=100)])
def test_a_reward_goes_on_with_what_json_has_of_its_memory(make: Callable[[], LengthReward]) -> None:
    undisturbed, resumed = make(), make()
    undisturbed.remember([group([50, 250], [RIGHT, WRONG])])
    resumed.memory = json.loads(json.dumps(undisturbed.memory))
    for reward in (undisturbed, resumed):
        reward.remember([group([40, 250], [RIGHT, RIGHT])])
    assert resumed.memory == undisturbed.memory != make().memory


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("laser", "the reward laser cannot be made with {}: .*missing 1 required positional argument: 'target'"),
        ({"name": "laser", "target": "4k"}, "the reward laser cannot be made with {'target': '4k'}"),
        # YAML reads 5e-1, without a point, as text.
        ({"name": "laser", "target": 4096, "bonus": "5e-1"}, "the reward laser cannot be made with"),
        ({"name": "lead", "alpha": "5e-2"}, "the reward lead cannot be made with {'alpha': '5e-2'}"),
        ({"name": "hapo", "floor": "-7e-1"}, "the reward hapo cannot be made with {'floor': '-7e-1'}"),
        ({"name": "cosine", "longest": 0}, "the reward cosine cannot be made with {'longest': 0}"),
        ({"name": "overlong", "longest": 8, "margin": 0}, "the reward overlong cannot be made"),
        ({"name": "laser_d", "lowest": 8, "highest": 16, "step": 8, "window": 0}, "window is 0 generations"),
        ({"name": "laser", "tokens_at_most": 5}, "the reward laser cannot be made with {'tokens_at_most': 5}"),
        ("lasr", "unknown reward 'lasr'; available are accuracy, format, .* laser, "),
        ({"name": "lasr"}, "unknown reward 'lasr'; available are l1_exact"),
    ],
)
def test_a_length_reward_that_cannot_be_made_is_refused(spec: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(spec)


def test_scaling_by_groups_takes_a_length_rewards_weight_and_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    right = group([100, 200], [RIGHT, RIGHT])
    light, heavy = (grpo(right, made({"name": "kimi", "weight": weight}).of(right)) for weight in (0.1, 10.0))
    assert light == pytest.approx(heavy, abs=1e-2)
    summed = "sum_then_normalize"
    warn_of_scaling([made("kimi")], summed, True)
    assert "pushes about equally hard at any weight in groups that are all right" in caplog.text
    caplog.clear()
    warn_of_scaling([made("kimi")], summed, False)
    warn_of_scaling([repeats], summed, True)
    assert not caplog.text
    warn_of_scaling([made("kimi")], "normalize_then_sum", False)  # which does not read scale_rewards
    assert "pushes about equally hard at any weight; sum_then_normalize" in caplog.text
