"""Preflight of a node: driver, PyTorch's build, compiler, free GPUs, disk, shared memory, and an all-reduce."""

import os
import re
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from e1_trl.plan.estimate import GB, gb
from e1_trl.plan.smoke.checks import Check
from e1_trl.plan.verdict import free_space
from e1_trl.processes import alone, run
from e1_trl.training.cuda import gpu_fault, oldest_driver, visible_cards

SMALLEST = 60 * GB  # two checkpoints and a model of the smallest GPU recipe


def preflight(processes: int, folder: Path, bytes_needed: int, on_gpu: bool) -> Iterator[Check]:
    """Yield the checks of this node, for a training of `processes` that writes `bytes_needed` into a folder."""
    if on_gpu:
        yield from (pytorch(), compiler(), free_gpus(processes))
    else:
        yield from (Check(name, None, "on a CPU") for name in ("driver and PyTorch", "C compiler", "free GPUs"))
    yield space("free disk", folder, bytes_needed, "free some, or name another output_dir")
    yield space("shared memory", Path("/dev/shm"), GB if processes > 1 else 0, "docker run --shm-size 16g")
    yield all_reduce(processes, on_gpu)


def pytorch() -> Check:
    """Check that PyTorch is built for CUDA, and finds the GPUs with this driver."""
    drivers = ", ".join(sorted({card.driver for card in visible_cards()}))
    found = f"{torch.__version__} for CUDA {torch.version.cuda} finds {torch.cuda.device_count()} GPUs with {drivers}"
    expected = f"a build that uses the GPUs; driver {oldest_driver()} or newer, or the package cuda-compat"
    return Check("driver and PyTorch", torch.cuda.is_available(), gpu_fault() or found, expected)


def compiler(include: str = sysconfig.get_paths()["include"]) -> Check:
    """Check for a C compiler and the header that Triton needs for its first kernel."""
    found = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = Path(include, "Python.h")
    faults = ["no gcc or clang on PATH"] * (found is None) + [f"no {header}"] * (not header.is_file())
    expected = "a C compiler and Python.h: apt install gcc python3-dev, or module load gcc, or CC=…"
    return Check("C compiler", not faults, ", ".join(faults) or f"{found}, {header}", expected)


def free_gpus(processes: int) -> Check:
    """Check that there is a GPU for each process, and that no other program uses it."""
    found = visible_cards()
    busy = [f"GPU {at} ({gb(card.used)})" for at, card in enumerate(found[:processes]) if card.used > GB]
    measured = f"{len(found)} visible" + f"; in use: {', '.join(busy)}" * bool(busy)
    return Check("free GPUs", len(found) >= processes and not busy, measured, f"{processes}, with under 1 GB in use")


def space(name: str, folder: Path, needed: int, cure: str) -> Check:
    """Check the free bytes of the file system of a folder, which need not exist."""
    free, there = free_space(folder)
    if there.is_relative_to(Path.cwd()):  # the page is made to be sent to others
        there = there.relative_to(Path.cwd())
    return Check(name, free >= needed, f"{gb(free)} free in {there}", f"{gb(needed)}; else {cure}")


def all_reduce(processes: int, on_gpu: bool, limit: float = 180) -> Check:
    """Check that processes can sum a tensor within `limit` seconds; see `sum_ones`."""
    size = GB if on_gpu else GB // 1000
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local_addr", "127.0.0.1"]
    launch += ["--nproc_per_node", str(processes), "-m", "e1_trl.plan.smoke.preflight"]
    launch += ["nccl" if on_gpu else "gloo", str(size)]
    with tempfile.TemporaryDirectory() as place:
        log = Path(place, "log")
        if fault := run(launch, log, alone(), limit):
            print(log.read_text(), file=sys.stderr)
            return Check("all-reduce", False, fault, "a sum (NCCL_DEBUG=INFO says more)")
        rate = float(re.findall(r"busbw (\S+) GB/s", log.read_text())[0])
    measured = f"{size / GB:g} GB over {processes} processes, {rate:.1f} GB/s"
    if on_gpu and processes > 1:  # slow over PCIe, but not wrong
        return Check("all-reduce", True if rate >= 100 else None, measured, "above 300 GB/s over NVLink, 20 over PCIe")
    return Check("all-reduce", True, measured, "a sum")


def sum_ones(backend: str, size: int) -> None:
    """Sum `size` bytes of ones twice, in each process; rank 0 prints the rate of the second sum, as NCCL's busbw."""
    dist.init_process_group(backend)
    rank = dist.get_rank()
    processes = dist.get_world_size()
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    values = torch.ones(size // 4, device=device)
    for _ in range(2):  # the first time connects the processes
        began = time.perf_counter()
        dist.all_reduce(values)
        values[0].item()  # waits for the GPU
        seconds = time.perf_counter() - began
    if not values.min() == values.max() == processes**2:
        raise ValueError(f"ones summed twice over {processes} processes are {values.min():g} to {values.max():g}")
    if rank == 0:
        print(f"busbw {2 * (processes - 1) / processes * size / seconds / GB} GB/s")
    dist.destroy_process_group()


def main() -> None:
    """Print a line for each check, for a training on all visible GPUs; the exit status is 1 if one failed."""
    failed = False
    visible = len(visible_cards())
    for row in preflight(visible or 1, Path.cwd(), SMALLEST, visible > 0):
        failed = failed or row.right is False
        print(f"{row.verdict:8}{row.name}: {row.measured}" + f" (expected: {row.expected})" * (row.right is False))
    sys.exit(failed)


if __name__ == "__main__":
    if dist.is_torchelastic_launched():  # by `all_reduce`
        sum_ones(sys.argv[1], int(sys.argv[2]))
    else:
        main()
