"""Model card of a training, with `budget.json` and the other files next to it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e1_trl.checkpoints.budget_file import BudgetInfo
from e1_trl.checkpoints.model_card import BaseModel, publish
from e1_trl.training.trainer import E1Trainer


def write_cards(trainer: E1Trainer, origin: BaseModel | None = None, recipe: Mapping[str, Any] | None = None) -> None:
    """Have a trainer write its model's card and files into `output_dir` before every save and upload.

    Args:
        trainer: its marker, budgets and model are described.
        origin: base model and datasets; unset: the trainer's model, without datasets.
        recipe: as it is run, if any.
    """
    trained = BudgetInfo.of(trainer.thinking_close.marker, trainer.args.forced_text, trainer.budgets.largest)
    base = BaseModel.of(*trainer.base) if origin is None else origin
    folder = Path(trainer.args.output_dir)

    def write(**more: Any) -> None:
        # Read late: an upload without configuration sets the Hub id only then.
        publish(folder, trained, base, recipe, trainer.hub_model_id, trainer.args.hub_revision, **more)

    trainer.write_card = write
