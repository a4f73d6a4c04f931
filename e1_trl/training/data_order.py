"""The order of problems in a training that resumes after its first epoch."""

from typing import Any

from transformers import TrainerCallback, TrainerState
from trl.trainer.utils import RepeatSampler


class DataOrder(TrainerCallback):
    """Has a training that resumes go on with the order that it would have had.

    TRL's sampler draws each epoch's order from a generator that no checkpoint keeps, and Transformers skips batches of
    the epoch that it resumes in alone. Without this, that epoch has the order of the first.
    """

    def on_train_begin(
        self, args: Any, state: TrainerState, control: Any, train_dataloader: Any = None, **_: Any
    ) -> None:
        batches = train_dataloader.batch_sampler
        sampler = getattr(batches, "batch_sampler", batches).sampler  # of all processes, where each has a part
        if isinstance(sampler, RepeatSampler):
            for _epoch in range(int(state.epoch or 0)):
                next(iter(sampler), None)  # draws the order of a whole epoch
