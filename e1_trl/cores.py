"""The number of cores that this process may keep busy."""

import contextlib
import math
import os
from pathlib import Path


def cores(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Count the cores that this process may run on, or that its container's quota amounts to if these are fewer.

    A container with a quota, as under `docker --cpus`, sees all cores of its machine. `groups` is the folder of control
    groups, of version 2 or 1.
    """
    found = len(os.sched_getaffinity(0))
    for names in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):
        with contextlib.suppress(OSError, ValueError):  # none, or none that can be read
            quota, period = " ".join((groups / name).read_text() for name in names).split()
            if quota not in ("max", "-1"):
                found = max(1, min(found, math.ceil(int(quota) / int(period))))
    return found
