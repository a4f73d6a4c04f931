"""What PyTorch makes of the GPUs that the driver lists. Imports nothing heavy but PyTorch."""

import os
import subprocess

import torch

from e1_trl.errors import one_line

OLDEST_DRIVER = {12: 525, 13: 580}  # NVIDIA's, for each major version of CUDA


def drivers() -> list[str]:
    """The driver's version, once for each GPU that `nvidia-smi` lists."""
    words = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return []


def oldest_driver() -> int:
    """The oldest driver that this PyTorch runs on; of a build without CUDA, that of the build to install instead."""
    return OLDEST_DRIVER[min(13, int((torch.version.cuda or "13").partition(".")[0]))]


def gpu_fault() -> str | None:
    """Say why PyTorch uses none of this machine's GPUs; None where it does, and where none is there or to be used."""
    listed = drivers() if os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1") else []
    if torch.cuda.is_available() or not listed:
        return None
    found = f"nvidia-smi lists {len(listed)} GPUs with driver {listed[0]}, and PyTorch {torch.__version__}"
    if torch.version.cuda is None:
        return (
            f"{found} is a build without CUDA; run `make clean` and `make install DEVICE=gpu`, or pip install "
            "'e1-trl[gpu]' into a new environment"
        )
    reason = "it finds none"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        reason = one_line(error)
    return (
        f"{found} for CUDA {torch.version.cuda} cannot use them ({reason}); it needs driver {oldest_driver()} or "
        "newer, or NVIDIA's package for forward compatibility (cuda-compat)"
    )
