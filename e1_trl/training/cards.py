"""Model card of a training, with `budget.json` and the other files next to it."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from transformers.utils import IMAGE_PROCESSOR_NAME, PROCESSOR_NAME, VIDEO_PROCESSOR_NAME

from e1_trl.atomic import write_atomically
from e1_trl.checkpoints import model_card
from e1_trl.checkpoints.budget_file import FILE, BudgetInfo, find_file
from e1_trl.checkpoints.checkpoint import ORIGIN, Checkpoint
from e1_trl.checkpoints.hub import keep_from_the_hub
from e1_trl.checkpoints.model_card import DETAILS, EARLIER, RECIPE, BaseModel, publish
from e1_trl.training.resumption import step_of
from e1_trl.training.trainer import E1Trainer

# Files for images, of models that also read them: without these, vLLM's server needs `--language-model-only`.
OF_IMAGES = (IMAGE_PROCESSOR_NAME, PROCESSOR_NAME, VIDEO_PROCESSOR_NAME)


def write_cards(
    trainer: E1Trainer,
    origin: BaseModel | None = None,
    recipe: Mapping[str, Any] | None = None,
    checkpoint: Path | None = None,
) -> None:
    """Have a trainer write its model's card and files into `output_dir` before every save and upload.

    A model that also reads images gets its base's files for images. Tables of completions stay out of an upload. Until
    a resumed training has learnt something or saved other weights, only the card itself is written: a finished training
    may only upload its model, which may have been evaluated.

    Args:
        trainer: its marker, budgets and model are described.
        origin: base model and datasets. Default: the trainer's model, without datasets.
        recipe: fields of the recipe as it is run, if any.
        checkpoint: checkpoint to resume from; the run that wrote it, here or elsewhere, is part of the card's history.
    """
    trained = BudgetInfo.of(trainer.thinking_close.marker, trainer.args.forced_text, trainer.budgets.largest)
    base = BaseModel.of(*trainer.base) if origin is None else origin
    folder = Path(trainer.args.output_dir)
    if trainer.args.push_to_hub and trainer.args.log_completions and trainer.is_world_process_zero():
        keep_from_the_hub(folder)
    config = trainer.model.config
    name, revision = trainer.base
    if name and config.get_text_config() is not config and trainer.is_world_process_zero():
        folder.mkdir(parents=True, exist_ok=True)
        for file in filter(None, (find_file(name, each, revision) for each in OF_IMAGES)):
            shutil.copy(file, folder)
    if (folder / FILE).exists():  # of a training that is resumed; efforts are written by hand
        trained = replace(trained, efforts=BudgetInfo.read(folder / FILE).efforts)
    resumed = 0 if checkpoint is None else step_of(checkpoint)
    before = folder if checkpoint is None else checkpoint.parent
    if checkpoint is not None and (before / ORIGIN).exists():
        earlier = BaseModel.read(before).datasets
        base = replace(base, datasets=tuple(dict.fromkeys([*earlier, *base.datasets])))
    is_found = checkpoint is not None and (folder / ORIGIN).exists() and trainer.is_world_process_zero()
    found = Checkpoint(str(folder)).fingerprint() if is_found else None
    history = _read_history(before, resumed) if checkpoint is not None and (before / RECIPE).exists() else {}

    def write(**more: Any) -> None:
        hub_id = trainer.hub_model_id  # read late: an upload without configuration sets it only then
        branch = trainer.args.hub_revision
        at = trainer.state.global_step
        # Where nothing is trained, load_best_model_at_end may still decide which weights are saved.
        if found and (at < resumed or (at == resumed and found == Checkpoint(str(folder)).fingerprint())):
            model_card.write(folder, hub_id or str(folder), branch if hub_id else None)
            return
        if recipe is not None:
            own = yaml.safe_load(yaml.safe_dump(dict(recipe)))
            for step, text in history.items():
                if step < resumed or yaml.safe_load(text) != own:
                    (folder / DETAILS).mkdir(parents=True, exist_ok=True)
                    write_atomically(folder / EARLIER.format(step), text)
        publish(folder, trained, base, recipe, hub_id, branch, **more)

    trainer.write_card = write


def _read_history(run: Path, step: int) -> dict[int, str]:
    """Read the recipes that led a run to a step, each with the step up to which it was used."""
    stages = {int(file.stem.rpartition("-")[2]): file.read_text() for file in run.glob(EARLIER.format("*"))}
    last = min((each for each in stages if each >= step), default=None)
    used = (run / RECIPE).read_text() if last is None else stages[last]
    return {each: text for each, text in stages.items() if each < step} | {step: used}
