"""What rewards remember of past generations, in the checkpoints: a run that resumes goes on with what it had seen.

Transformers writes the state of callbacks into a checkpoint's `trainer_state.json`, with which the checkpoint is whole.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState

from e1_trl.training.groups import GroupReward
from e1_trl.training.rewards import Reward


class Memory(TrainerCallback, ExportableState):
    """Saves what the rewards remember, and gives it back to them where a run resumes."""

    def __init__(self, rewards: Sequence[Reward]):
        self.rewards = {str(at): each for at, each in enumerate(rewards) if isinstance(each, GroupReward)}

    def state(self) -> dict[str, Any]:
        """What Transformers saves."""
        return {"args": {}, "attributes": {name: reward.memory for name, reward in self.rewards.items()}}

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        saved = remembered(state)
        for name, reward in self.rewards.items():
            reward.memory = saved.get(name, reward.memory)
        # Transformers looks it up at every save, and an older checkpoint has none.
        state.stateful_callbacks[type(self).__name__] = self.state()


def remembered(state: TrainerState) -> dict[str, dict[str, Any]]:
    """What rewards remembered when a trainer's state was saved, by their place among the recipe's."""
    found: dict[str, dict[str, Any]] = state.stateful_callbacks.get(Memory.__name__, {}).get("attributes", {})
    return found


def check_memory(checkpoint: str, keys: Collection[str]) -> None:
    """Refuse to resume with what was remembered of other problems.

    Raises:
        ValueError: a reward remembers problems, none of which has one of these keys.
    """
    state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
    for memory in remembered(state).values():
        problems = memory.get("problems")
        if problems and problems.keys().isdisjoint(keys):
            raise ValueError(
                f"{checkpoint} remembers {len(problems)} problems, none of which is in the dataset: resume with the "
                "dataset that it was trained on, or start anew"
            )
