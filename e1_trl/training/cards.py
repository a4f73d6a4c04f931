"""The card of a model that is trained, with `budget.json` and the other files beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e1_trl.checkpoints.budget_file import BudgetInfo
from e1_trl.checkpoints.model_card import BaseModel, CardInputs
from e1_trl.training.trainer import E1Trainer


def write_cards(trainer: E1Trainer, origin: BaseModel | None = None, recipe: Mapping[str, Any] | None = None) -> None:
    """Have a trainer write the card of its model, and the files that it speaks of, before every save and upload.

    They lie in the trainer's `output_dir`.

    Args:
        trainer: of whose marker, budgets and model they tell.
        origin: what the model is trained from, and on; unset: from the trainer's model, on nothing that is named.
        recipe: as it is run, if there is one.
    """
    trained = BudgetInfo.of(trainer.thinking_close.marker, trainer.args.forced_text, trainer.budgets.largest)
    details = CardInputs(trained, BaseModel.of(*trainer.base) if origin is None else origin, recipe)

    def write(**more: Any) -> None:
        # An upload that no configuration speaks of gives the trainer a Hub id as late as that.
        details.publish(Path(trainer.args.output_dir), trainer.hub_model_id, trainer.args.hub_revision, **more)

    trainer.write_card = write
