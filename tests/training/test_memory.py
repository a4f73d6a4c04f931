"""Memory of rewards: kept in checkpoints, and refused for other problems."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerState

from e1_trl.training.callbacks import RewardState
from e1_trl.training.groups import Group, GroupReward
from e1_trl.training.lengths import Hapo, LaserD

KEY = "0123456789abcdef"


def state(callbacks: list[Any] | None = None) -> TrainerState:
    return TrainerState(stateful_callbacks=callbacks)


def remembering() -> tuple[Hapo, LaserD, RewardState]:
    hapo, laser = Hapo(), LaserD(lowest=100, highest=300, step=100)
    return hapo, laser, RewardState([len, hapo, laser])


def test_each_reward_has_its_own_memory_back_from_a_checkpoint(tmp_path: Path) -> None:
    hapo, laser, memory = remembering()
    hapo.memory["problems"][KEY], laser.memory["targets"] = 200, [300, 200, 100]
    state([memory]).save_to_json(str(tmp_path / "trainer_state.json"))
    restored, other, again = remembering()
    again.on_train_begin(None, TrainerState.load_from_json(str(tmp_path / "trainer_state.json")), None)
    assert restored.memory == {"problems": {KEY: 200}} and other.memory == laser.memory
    again.check(str(tmp_path), {KEY, "other"})
    with pytest.raises(ValueError, match="its reward hapo remembers 1 problems, none of which is in the dataset"):
        again.check(str(tmp_path), {"other"})
    exchanged = RewardState([len, LaserD(lowest=100, highest=300, step=100), Hapo()])
    exchanged.check(str(tmp_path), {"other"})
    exchanged.on_train_begin(None, TrainerState.load_from_json(str(tmp_path / "trainer_state.json")), None)
    assert exchanged.rewards["1 laser_d"].memory["targets"] == [300, 300, 300]


def test_a_checkpoint_without_memory_is_resumed_and_saved_as_any(tmp_path: Path) -> None:
    state().save_to_json(str(tmp_path / "trainer_state.json"))
    hapo, _, memory = remembering()
    memory.check(str(tmp_path), {KEY})
    older = TrainerState.load_from_json(str(tmp_path / "trainer_state.json"))
    memory.on_train_begin(None, older, None)
    assert hapo.memory == {"problems": {}}
    assert json.loads(json.dumps(older.stateful_callbacks["RewardState"])) == memory.state()  # where a save looks it up


def test_a_run_that_begins_anew_keeps_what_its_rewards_begin_with() -> None:
    hapo, laser, memory = remembering()
    began = state([memory])  # as Transformers makes it, of the callbacks themselves
    memory.on_train_begin(None, began, None)
    assert hapo.memory == {"problems": {}} and laser.memory["targets"] == [300] * 3
    hapo.memory["problems"][KEY] = 5
    assert began.stateful_callbacks["RewardState"]["attributes"]["1 hapo"] == {"problems": {}}


def test_a_reward_of_ones_own_remembers_without_being_told_how() -> None:
    @dataclass(frozen=True)
    class Counting(GroupReward):
        bonus: float = 1.0

        def of(self, group: Group) -> list[float]:
            return [self.bonus] * len(group.tokens)

        def remember(self, groups: Sequence[Group]) -> None:
            self.memory["seen"] = self.memory.get("seen", 0) + len(groups)

    counting = Counting()
    memory = RewardState([counting])
    counting.remember([])
    saved = state([memory])
    again = RewardState([Counting()])
    again.on_train_begin(None, saved, None)
    assert again.state() == memory.state() == {"args": {}, "attributes": {"0 Counting": {"seen": 0}}}
