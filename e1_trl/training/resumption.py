"""Checks of a run's folder: it holds a checkpoint to resume from, or none if a training begins."""

import contextlib
import json
import logging
from pathlib import Path
from typing import Any

from transformers import TrainerState
from transformers.trainer import SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from e1_trl.checkpoints.budget_file import find_file
from e1_trl.checkpoints.checkpoint import ORIGIN
from e1_trl.checkpoints.hub import upload_command
from e1_trl.checkpoints.model_card import BaseModel
from e1_trl.errors import UserError
from e1_trl.training.config import E1Config

logger = logging.getLogger(__name__)

SCALE = ("r", "lora_alpha", "use_rslora", "use_dora")  # fields that decide what an adapter's weights mean


def find_checkpoint(args: E1Config, dry_run: bool = False) -> str | None:
    """Find the whole checkpoint to resume from, named or the last of `output_dir`; `None` to begin a training.

    The optimizer's state is not checked in a dry run, nor if a finished training without DeepSpeed will not load it.
    """
    named = str(args.resume_from_checkpoint)  # text where it comes from a command line
    if named.lower() in ("none", "false"):
        return None
    numbered = [*Path(args.output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*")]
    whole = [each for each in numbered if each.name.rpartition("-")[2].isdecimal() and step_of(each)]
    last = max(whole, key=step_of, default=None)
    if last is None and named.lower() == "auto":
        return None
    folder = last if named.lower() in ("true", "auto") else Path(named)
    output = Path(args.output_dir)
    ended = step_of(output)  # a training writes its state there as it finishes
    if folder is last and ended > (0 if last is None else step_of(last)):
        name = args.hub_model_id or output.absolute().name
        upload = f"; to upload it, run {upload_command(output, name, args.hub_revision)}" * args.push_to_hub
        raise UserError(
            f"the training in {output} finished at step {ended}, of which it holds no checkpoint: to go on, train the "
            f"finished model in another output_dir (model_name_or_path), or name a checkpoint{upload}"
        )
    if folder is None or not step_of(folder):
        where = args.output_dir if folder is None else named
        raise UserError(
            f"{where} holds no whole checkpoint (with {TRAINER_STATE_NAME}) to resume from; name another one"
        )
    if last is not None and step_of(last) > step_of(folder):
        raise UserError(
            f"{last} is later than {folder}: go on from it with --resume_from_checkpoint true, or, if it is of an "
            "earlier run, move it away or name another output_dir"
        )
    finished = 0 < args.max_steps <= step_of(folder) and args.deepspeed_plugin is None  # which always loads it
    if not dry_run and not finished:
        check_state(folder, args)
    return str(folder)


def step_of(checkpoint: Path) -> int:
    """Return the steps before a checkpoint, or 0 if it is not whole: a run writes the trainer's state last."""
    with contextlib.suppress(OSError, ValueError, TypeError):  # also for a state of another version
        return TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME)).global_step
    return 0


def check_state(checkpoint: Path, args: E1Config) -> None:
    """Raise a `UserError` if a checkpoint lacks its optimizer, or the reference model if the recipe moves it."""
    if args.sync_ref_model and args.beta:
        raise UserError(
            "sync_ref_model is true: a resumed training would begin again with the base as its reference, since no "
            "checkpoint holds one; train without it, or in one go"
        )
    needed = ["optimizer*", SCHEDULER_NAME] if args.deepspeed_plugin is None else ["global_step*"]
    if missing := [name for name in needed if not any(checkpoint.glob(name))]:
        raise UserError(
            f"{checkpoint} holds no {missing[0]}, so Adam's moments or the schedule would begin again: it was saved "
            f"with save_only_model, or with{'out' * bool(args.deepspeed_plugin)} DeepSpeed; train from its weights as "
            "a new model (model_name_or_path)"
        )


def check_same_adapter(checkpoint: Path, adapter: Any) -> None:
    """Raise a `UserError` if a recipe's adapter (PEFT's configuration, or none) is not that of a checkpoint."""
    file = checkpoint / "adapter_config.json"
    if not file.exists():
        if adapter is not None and any(checkpoint.glob("model*.safetensors")):
            raise UserError(f"{checkpoint} holds a whole model, and the recipe trains an adapter; unset use_peft")
        return
    if adapter is None:
        raise UserError(f"{checkpoint} holds an adapter; set use_peft as that training had it")
    saved = json.loads(file.read_text())
    own = {name: getattr(adapter, name, None) for name in SCALE}
    if other := [name for name in SCALE if saved.get(name, own[name]) != own[name]]:
        found = ", ".join(f"{name} {saved[name]}" for name in other)
        raise UserError(f"the adapter in {checkpoint} has {found}, and the recipe differs; set it as there")


def check_same_base(checkpoint: Path, base: BaseModel) -> None:
    """Raise a `UserError` if the adapter in a checkpoint was trained on another base; warn for a whole model.

    Bases on the Hub are compared by their commits, others by the last part of their names, as folders move.
    """
    adapter = checkpoint / "adapter_config.json"
    origin = find_file(str(checkpoint), ORIGIN, None) or adapter
    saved = json.loads(origin.read_text()) if origin.exists() else {}
    name = saved.get("base", saved.get("base_model_name_or_path"))
    commit = saved.get("commit")
    if base.commit is not None and commit is not None:
        is_same = base.commit == commit
    else:
        is_same = name is None or Path(name).name == Path(base.base).absolute().name
    if is_same:
        return
    was = f"the base of {checkpoint} was {name}" + f", commit {commit}" * (commit is not None)
    found = f"and the recipe's is {base.base}" + f", commit {base.commit}" * (base.commit is not None)
    if adapter.exists():
        raise UserError(f"{was}, {found}: set model_name_or_path and model_revision as there, where the adapter fits")
    logger.warning("%s, %s: the tokenizer, a reference model (beta) and the card are the recipe's", was, found)


def check_output(output: Path, dry_run: bool = False) -> None:
    """Raise a `UserError` if the folder holds the state of a training or checkpoint; warn in a dry run."""
    states = [output / TRAINER_STATE_NAME, *sorted(output.glob(f"{PREFIX_CHECKPOINT_DIR}-*/{TRAINER_STATE_NAME}"))]
    if (found := next((state for state in states if state.exists()), None)) is None:
        return
    said = (
        f"output_dir {output} holds an earlier run ({found.relative_to(output)}): resume it with "
        "--resume_from_checkpoint true, name another output_dir, or remove this one"
    )
    if not dry_run:
        raise UserError(said)
    logger.warning("%s; otherwise no training begins here", said)
