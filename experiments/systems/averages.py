"""The mean of a training's weights, from half of its generated tokens on: a model that no further training makes."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from experiments.systems.commands import checkpoint_at, evaluate, step_of
from experiments.systems.measure import AVERAGED, FORCED_CLOSE, SHARES, Row, measured
from experiments.systems.miniatures import Miniature

WEIGHTS = "model.safetensors"
SINCE = 0.5  # of the tokens up to then


def average(checkpoints: Sequence[Path], folder: Path) -> Path:
    """Write a model whose weights are the mean of those of checkpoints; its other files are the last one's."""
    mean: dict[str, torch.Tensor] = {}
    for checkpoint in checkpoints:
        for name, tensor in load_file(checkpoint / WEIGHTS).items():
            mean[name] = mean.get(name, 0) + tensor.double() / len(checkpoints)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(checkpoints[-1], folder, ignore=shutil.ignore_patterns(WEIGHTS, "training_args.bin"))
    save_file({name: tensor.float() for name, tensor in mean.items()}, folder / WEIGHTS, metadata={"format": "pt"})
    return folder


def measure_average(miniature: Miniature, name: str, seed: int, model: Path, folder: Path) -> Row:
    """Make the row of a training's mean weights; on the way, those of the second half of the tokens until then.

    Args:
        miniature, name, seed: of the training.
        model: its folder, with its checkpoints.
        folder: for the means and their evaluations.
    """

    def mean_at(share: float) -> Path:
        ends = [step_of(checkpoint_at(model, each, miniature.rollouts)) for each in (SINCE * share, share)]
        own = sorted(model.glob("checkpoint-*"), key=step_of)
        return average([each for each in own if ends[0] <= step_of(each) <= ends[1]], folder / f"mean-at-{share}")

    mean = mean_at(1.0)
    forced = ("--methods", FORCED_CLOSE)
    test = evaluate(miniature, mean, folder / "test")
    validation = evaluate(miniature, mean, folder / "validation", "--dataset_split", "validation", *forced)
    earlier = {share: evaluate(miniature, mean_at(share), folder / f"at-{share}", *forced) for share in SHARES}
    return measured(miniature, name + AVERAGED, seed, model, test, validation, earlier=earlier)
