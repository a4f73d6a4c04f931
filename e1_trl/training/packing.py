"""Test on two short rows that a model's attention keeps packed rows apart."""

from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback, TrainerState

from e1_trl.training.logprob_gap import GROSS
from e1_trl.training.scoring import Layout

if TYPE_CHECKING:
    from e1_trl.training.trainer import E1Trainer

TOKENS = 32  # of each of the two rows that are compared


class Packing(TrainerCallback):
    """Prints the layout of rows as a training begins, and trims rows in place of packing if packed ones mix.

    Args:
        trainer: its `layout` follows from the model's configuration.
        why: the reason for that layout.
    """

    def __init__(self, trainer: "E1Trainer", why: str):
        self._trainer = trainer
        self._why = why

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        trainer = self._trainer
        if trainer.layout is Layout.PACKED:
            gap = packing_gap(trainer)
            if not gap < GROSS:
                trainer.layout = Layout.TRIMMED
                self._why = f"packed, rows see each other in this model's attention ({gap:.2g} nats a token)"
        if state.is_world_process_zero:
            print(f"log-probabilities are computed {trainer.layout}: {self._why}", flush=True)


def packing_gap(trainer: "E1Trainer") -> float:
    """Return the mean difference, in nats, of the log-probabilities of two short rows packed and alone.

    The larger one of both rows. The rows are equal, so a row that sees the other copies it, and the difference is as
    large as can be. A collective operation with one result in all processes.
    """
    model = trainer.model
    layout = trainer.layout
    vocabulary = model.config.get_text_config().vocab_size
    row = torch.randint(vocabulary, (1, TOKENS), generator=torch.Generator().manual_seed(0))
    ids = row.repeat(2, 1).to(trainer.accelerator.device)
    mask = torch.ones_like(ids)
    was_training = model.training
    model.eval()  # dropout would differ
    scores = []
    with torch.no_grad():
        for trainer.layout in (Layout.TRIMMED, Layout.PACKED):
            scores.append(trainer._get_per_token_logps_and_entropies(model, ids, mask, TOKENS - 1)[0])
    trainer.layout = layout
    model.train(was_training)
    alone, packed = scores
    gaps: torch.Tensor = trainer.accelerator.gather((packed - alone).abs().mean(1).max())
    return gaps.max().item()
