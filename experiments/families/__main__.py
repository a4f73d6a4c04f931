"""Try what works of today's families of models, on tiny random ones, and write docs/results/families.json.

python -m experiments.families     every family, in two processes each; five minutes
"""

import json
import multiprocessing
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from e1_trl.checkout import check_committed
from e1_trl.provenance import Provenance
from e1_trl.training.arguments import VARLEN
from e1_trl.training.scoring import layout_of
from experiments.families.measure import measure
from experiments.families.models import FAMILIES, make_model
from experiments.results import FOLDER

FILE = FOLDER / "families.json"


def describe(name: str) -> dict[str, Any]:
    """Return a family's names and the layouts of its rows: by default, and with attention that takes packed rows."""
    model = make_model(name)
    layout, _ = layout_of(model, padding_free=True, aux_loss=False)
    model.config.get_text_config()._attn_implementation = VARLEN
    try:
        model(input_ids=torch.ones(1, 4, dtype=torch.long), use_cache=False)
        varlen = layout_of(model, padding_free=True, aux_loss=False)[0].value
    except ValueError as error:  # attention that varlen does not have
        varlen = f"refused: {error}"
    names = {"family": name, "model_type": model.config.model_type, "architecture": type(model).__name__}
    return {**names, "layout": layout.value, "layout_with_varlen": varlen}


def tried(name: str, way: str) -> dict[str, Any]:
    """Return what `measure` finds of a family, in a process of its own, since engines of one process share much."""
    with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as pool, TemporaryDirectory() as folder:
        return pool.submit(measure, name, way, Path(folder)).result()


def read(file: Path = FILE) -> dict[str, Mapping[str, Any]]:
    """Read the published rows, by family.

    A row has `family`, `model_type`, `architecture`, `layout`, `layout_with_varlen`, and under `cpu` and `cuda`, by the
    way in which weights are synced: `engine` ("starts", or why not), `weights` ("pass", or the error),
    `compared_tensors`, `greedy_tokens_equal`, `logprob_gap` (nats), and `stale` with `named`: the tensor that was left
    out and the engine's that the check named. `note`: what stood in for what this machine lacks.
    """
    return {row["family"]: row for row in json.loads(file.read_text())["rows"]}


def main() -> None:
    """Try every family and publish."""
    check_committed(FILE)
    multiprocessing.set_forkserver_preload(["experiments.families.measure", "vllm", "vllm.entrypoints.llm"])
    provenance = Provenance.here([0])
    rows = []
    for name in FAMILIES:
        rows.append({**describe(name), **{way: tried(name, way) for way in ("cpu", "cuda")}})
        print(json.dumps(rows[-1]), flush=True)
    FILE.write_text(json.dumps({"provenance": asdict(provenance), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
