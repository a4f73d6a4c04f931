"""What rewards remember of past generations, in the checkpoints: a run that resumes goes on with what it had seen.

Transformers writes the state of callbacks into a checkpoint's `trainer_state.json`, with which the checkpoint is whole.
"""

from collections.abc import Collection, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState
from trl.trainer.utils import get_callable_name

from e1_trl.errors import UserError
from e1_trl.training.groups import GroupReward
from e1_trl.training.rewards import Reward


class Memory(TrainerCallback, ExportableState):
    """Saves what the rewards remember, and gives it back to them where a run resumes.

    A run that resumes within a generation samples it anew, as TRL does, and remembers it anew.
    """

    def __init__(self, rewards: Sequence[Reward]):
        groups = {at: each for at, each in enumerate(rewards) if isinstance(each, GroupReward)}
        self.rewards = {f"{at} {get_callable_name(reward)}": reward for at, reward in groups.items()}

    def state(self) -> dict[str, Any]:
        """What Transformers saves, as it is now."""
        return {"args": {}, "attributes": {name: deepcopy(reward.memory) for name, reward in self.rewards.items()}}

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        for name, memory in self._saved(state).items():
            self.rewards[name].memory.clear()
            self.rewards[name].memory.update(memory)
        # Transformers looks it up at every save, and an older checkpoint has none.
        state.stateful_callbacks[type(self).__name__] = self.state()

    def check(self, checkpoint: str, keys: Collection[str]) -> None:
        """Refuse to resume with what was remembered of other problems.

        Raises:
            UserError: a reward remembers problems, none of which has one of these keys.
        """
        saved = self._saved(TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME)))
        for name, memory in saved.items():
            problems = memory.get("problems")
            if isinstance(problems, dict) and problems and problems.keys().isdisjoint(keys):
                raise UserError(
                    f"{checkpoint}: its reward {name.partition(' ')[2]} remembers {len(problems)} problems, none of "
                    "which is in the dataset; resume with the dataset that it was trained on, or start anew"
                )

    def _saved(self, state: TrainerState) -> dict[str, dict[str, Any]]:
        """What rewards of the same name and place remembered when a trainer's state was saved."""
        saved = state.stateful_callbacks.get(type(self).__name__, {}).get("attributes", {})
        return {name: memory for name, memory in saved.items() if name in self.rewards}
