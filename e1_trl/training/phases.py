"""Seconds of each phase of a generation, and the memory that PyTorch reserves at its two peaks."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SYNC = "sync"
SAMPLING = "sampling"
SCORING = "scoring"
GB = 10**9


class Phases:
    """Adds up the seconds of phases until `take`. A phase inside another counts as the inner one only.

    Args:
        device: of the trainer. On a GPU the clock waits for pending kernels, and memory is read as sampling begins and
            ends.
    """

    def __init__(self, device: torch.device):
        self._on_gpu = device.type == "cuda"
        self._seconds: dict[str, float] = {}
        self._memory: dict[str, float] = {}

    @contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Add the duration of this context, or of each call that it decorates, to a phase."""
        if phase == SAMPLING:
            self._look_at_memory("training")
        began = self._now()
        inside = sum(self._seconds.values())
        try:
            yield
        finally:
            inner = sum(self._seconds.values()) - inside
            self._seconds[phase] = self._seconds.get(phase, 0.0) + self._now() - began - inner
            if phase == SAMPLING:
                self._look_at_memory("generation")

    def take(self) -> dict[str, float]:
        """Return and reset `seconds/<phase>`, and on a GPU `memory/generation` and `memory/training` in GB.

        `memory/training` is the peak since the previous generation.
        """
        metrics = {f"seconds/{phase}": seconds for phase, seconds in self._seconds.items()} | self._memory
        self._seconds.clear()
        self._memory.clear()
        return metrics

    def _now(self) -> float:
        if self._on_gpu:
            torch.cuda.synchronize()
        return time.monotonic()

    def _look_at_memory(self, peak: str) -> None:
        if self._on_gpu:
            self._memory[f"memory/{peak}"] = torch.cuda.max_memory_reserved() / GB
            torch.cuda.reset_peak_memory_stats()
