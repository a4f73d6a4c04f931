"""The package's commands as a ranking runs them, and the checkpoints that a training leaves."""

import json
import subprocess
import sys
from pathlib import Path

from e1_trl.training.callbacks import generated_tokens
from experiments.systems.miniatures import Miniature


def e1(*words: object) -> None:
    """Run a command of the package.

    Raises:
        CalledProcessError: it failed, and has said why.
    """
    subprocess.run([sys.executable, "-m", "e1_trl.cli", *map(str, words)], check=True)


def evaluate(miniature: Miniature, model: Path, folder: Path, *words: object) -> Path:
    """Ask a model what the evaluation's file says, but for `words`; returns the folder."""
    e1("eval", "--config", miniature.folder / "evaluation.yaml", "--model", model, "--output", folder, *words)
    return folder


def step_of(checkpoint: Path) -> int:
    """Return the optimizer step of a checkpoint's folder."""
    return int(checkpoint.name.rpartition("-")[2])


def checkpoint_at(model: Path, share: float, rollouts: int) -> Path:
    """The first checkpoint of a training that has generated this share of the training's tokens."""
    log = json.loads((model / "trainer_state.json").read_text())["log_history"]
    enough = share * generated_tokens(log, rollouts)
    steps = sorted(map(step_of, model.glob("checkpoint-*")))
    upto = {step: [entry for entry in log if entry["step"] <= step] for step in steps}
    return model / f"checkpoint-{next(step for step in steps if generated_tokens(upto[step], rollouts) >= enough)}"
