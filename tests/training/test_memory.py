"""What rewards remember is in a checkpoint, and is not taken for what was seen of other problems."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerState

from e1_trl.training.lengths import Hapo, LaserD
from e1_trl.training.memory import Memory, check_memory

KEY = "0123456789abcdef"


def state(callbacks: list[Any] | None = None) -> TrainerState:
    return TrainerState(stateful_callbacks=callbacks)


def remembering() -> tuple[Hapo, LaserD, Memory]:
    hapo, laser = Hapo(), LaserD(lowest=100, highest=300, step=100)
    return hapo, laser, Memory([len, hapo, laser])


def test_each_reward_has_its_own_memory_back_from_a_checkpoint(tmp_path: Path) -> None:
    hapo, laser, memory = remembering()
    hapo.memory["problems"][KEY], laser.memory["targets"] = 200, [300, 200, 100]
    state([memory]).save_to_json(str(tmp_path / "trainer_state.json"))
    restored, other, again = remembering()
    again.on_train_begin(None, TrainerState.load_from_json(str(tmp_path / "trainer_state.json")), None)
    assert restored.memory == {"problems": {KEY: 200}} and other.memory == laser.memory
    check_memory(str(tmp_path), {KEY, "other"})
    with pytest.raises(ValueError, match="remembers 1 problems, none of which is in the dataset: resume with"):
        check_memory(str(tmp_path), {"other"})


def test_a_checkpoint_without_memory_is_resumed_and_saved_as_any(tmp_path: Path) -> None:
    state().save_to_json(str(tmp_path / "trainer_state.json"))
    check_memory(str(tmp_path), {KEY})
    hapo, _, memory = remembering()
    older = TrainerState.load_from_json(str(tmp_path / "trainer_state.json"))
    memory.on_train_begin(None, older, None)
    assert hapo.memory == {"problems": {}}
    assert json.loads(json.dumps(older.stateful_callbacks["Memory"])) == memory.state()  # where a save looks it up
