"""Several engines for one evaluation, each in a process of its own with its part of the problems and of the GPUs.

A child is handed its work by pickle on its standard input, and writes segments into the same store.
"""

import ctypes
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial

from transformers.dynamic_module_utils import init_hf_modules

from e1_trl.atomic import StoreError
from e1_trl.engines.engine import EngineError
from e1_trl.evaluation.plan import Plan
from e1_trl.evaluation.prepare import Prepared
from e1_trl.evaluation.sample import grow, unfinished
from e1_trl.evaluation.start_engine import start_engine
from e1_trl.evaluation.store import Store


@dataclass(frozen=True)
class Share:
    """The work of one process: its rank, and the plan with its own problems only."""

    prepared: Prepared
    plan: Plan
    rank: int

    def run(self) -> None:
        """Sample what is missing of it.

        Raises:
            EngineError, StoreError: as `grow` raises them.
        """
        with Store.open(self.prepared.arguments.folder, self.prepared.manifest) as store:
            if missing := unfinished(self.plan, store):
                grow(self.plan, store, start_engine(self.prepared, self.plan, store.count(), self.rank), missing)


def run_data_parallel(prepared: Prepared, plan: Plan) -> None:
    """Start `data_parallel_size` processes, and wait for all.

    Raises:
        EngineError: one of them failed; the others were stopped.
    """
    arguments = prepared.arguments
    count, size = arguments.data_parallel_size, arguments.tensor_parallel_size
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    processes = []
    try:
        for rank in range(count):
            own = devices[rank * size : (rank + 1) * size] if devices != [""] else range(rank * size, (rank + 1) * size)
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(map(str, own))}
            command = [sys.executable, "-m", "e1_trl.evaluation.parallel"]
            die = partial(die_with, os.getpid())
            # In a group of its own: Ctrl-C is for this process, which ends the others.
            process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, preexec_fn=die, process_group=0)
            processes.append(process)
        for rank, process in enumerate(processes):
            _hand_over(process, Share(prepared, replace(plan, problems=plan.problems[rank::count]), rank))
        codes: list[int | None] = [None]
        while None in codes and not any(codes):
            time.sleep(0.5)
            codes = [process.poll() for process in processes]
        for rank, code in enumerate(codes):
            if code:
                raise EngineError(f"engine {rank} of {count} failed")
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
        print(file=sys.stderr)  # below their bars


def _hand_over(process: "subprocess.Popen[bytes]", share: Share) -> None:
    assert process.stdin is not None
    try:
        with process.stdin:
            pickle.dump(share, process.stdin)
    except OSError as error:
        raise EngineError(f"engine {share.rank} ended before it was told what to do ({error})") from error


def die_with(parent: int) -> None:
    """Have Linux kill this process when the one that started it, `parent`, ends, however that ends."""
    parent_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before this was asked for
        os._exit(1)


if __name__ == "__main__":
    init_hf_modules()  # where the code lies that came with a model, a tokenizer's say
    share: Share = pickle.load(sys.stdin.buffer)
    try:
        share.run()
    except (StoreError, RuntimeError, ValueError, OSError) as failure:
        sys.exit(f"e1 eval, engine {share.rank}: {' '.join(str(failure).split())}")
