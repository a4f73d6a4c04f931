"""GPUs that NVIDIA's driver lists, and whether PyTorch can use them. PyTorch is imported where it is needed."""

import os
import subprocess
from dataclasses import dataclass

from e1_trl.errors import INSTALL, one_line

OLDEST_DRIVER = {12: 525, 13: 580}  # NVIDIA's, for each major version of CUDA
MIB = 2**20


@dataclass(frozen=True)
class Card:
    """A GPU of this node: its bytes of memory, and those in use; 0 where the driver does not say."""

    bytes: int
    used: int
    driver: str  # version


def visible_cards() -> list[Card]:
    """List the GPUs that NVIDIA's driver and `CUDA_VISIBLE_DEVICES` show."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible in ("", "-1"):
        return []
    chosen = [] if visible is None else ["-i", visible]
    query = "--query-gpu=memory.total,memory.used,driver_version"
    words = ["nvidia-smi", query, "--format=csv,noheader,nounits", *chosen]
    try:  # after a GPU's fault nvidia-smi may not answer, or too late
        answer = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout
        rows = [line.split(", ") for line in answer.splitlines()]
        return [Card(_bytes(total), _bytes(used), driver) for total, used, driver in rows]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


def _bytes(mib: str) -> int:
    return int(mib) * MIB if mib.isdecimal() else 0  # "[N/A]" for a part of a GPU


def oldest_driver() -> int:
    """Return the oldest driver for this PyTorch, or for the build to install instead of one without CUDA."""
    import torch

    major = int((torch.version.cuda or "13").partition(".")[0])
    return OLDEST_DRIVER[max(12, min(13, major))]


def gpu_fault() -> str | None:
    """Say why PyTorch cannot use this machine's GPUs; None if it can, or if there is no GPU to use."""
    import torch

    if torch.cuda.is_available() or not (listed := visible_cards()):
        return None
    found = f"nvidia-smi lists {len(listed)} GPUs with driver {listed[0].driver}, and PyTorch {torch.__version__}"
    if torch.version.cuda is None:
        return f"{found} is a build without CUDA; run `make clean` and `make install DEVICE=gpu`, or {INSTALL}"
    reason = "it finds none"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        reason = one_line(error)
    return (
        f"{found} for CUDA {torch.version.cuda} cannot use them ({reason}); it needs driver {oldest_driver()} or "
        "newer, or NVIDIA's package for forward compatibility (cuda-compat)"
    )
